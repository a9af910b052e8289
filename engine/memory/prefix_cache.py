"""Which blocks hold the beginning of a sequence already (paper section 4.4, "Shared prefix"; vLLM's prefix cache).

A full block is known by a hash of its tokens and of all before them: H(hash of the block before, token ids). Equal hashes
are taken for equal prefixes without a look at the tokens, so whoever finds two prefixes with one hash reads another user's
cache. Hence BLAKE2b with 32 bytes: no key is needed (logs replay with equal hashes) since even an attacker who computes
offline needs about 2**128 attempts, and on short inputs it is the fastest of the cryptographic hashes in Python.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from engine.memory.block_pool import BlockPool

HASH_BYTES = 32


def block_hashes(tokens: Sequence[int], block_size: int, salt: str = "") -> list[bytes]:
    """The chained hashes of the full blocks of ``tokens``. Different salts never share: theirs starts the chain."""
    hashes: list[bytes] = []
    extend_hashes(hashes, tokens, block_size, salt)
    return hashes


def extend_hashes(hashes: list[bytes], tokens: Sequence[int], block_size: int, salt: str = "") -> None:
    """Add the hashes of the full blocks of ``tokens`` that are not in ``hashes`` yet: those of its first blocks, from before
    it grew. Token ids go from 0 to 2**32 - 1 (OverflowError)."""
    known, full = len(hashes), len(tokens) // block_size
    if known >= full:
        return
    parent = hashes[-1] if hashes else _root(salt)
    content = array("I", tokens[known * block_size : full * block_size]).tobytes()
    step = len(content) // (full - known)
    for start in range(0, len(content), step):
        parent = blake2b(parent + content[start : start + step], digest_size=HASH_BYTES).digest()
        hashes.append(parent)


def _root(salt: str) -> bytes:
    """What the first block has for a parent. ``person`` keeps it apart from the hash of any block."""
    return blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES, person=b"salt").digest()


def match(pool: BlockPool, hashes: Iterable[bytes]) -> list[int]:
    """The blocks of the longest run of ``hashes``, from the first on, that ``pool`` has; some may be free.

    Share them before anything is allocated, or they may be evicted. Of a prompt leave out the last token when hashing: it
    must be computed even if its block is cached, since its logits give the next one.
    """
    blocks: list[int] = []
    for digest in hashes:
        block = pool.lookup(digest)
        if block is None:
            break
        blocks.append(block)
    return blocks
