"""The events of blocks: on demand, shared, copied on write, cached (paper sections 4.2 to 4.4)."""

from __future__ import annotations

from itertools import pairwise

from engine import events as ev
from engine.reducer.books import Books, Impossible


def allocated(books: Books, e: ev.BlockAllocated) -> None:
    if not 0 <= e.block < books.num_blocks:
        raise Impossible(f"block {e.block}, and blocks are numbered 0 to {books.num_blocks - 1}")
    taken = books.blocks.get(e.block)
    if taken is not None and taken.refs:
        raise Impossible(f"block {e.block} is in use: its count is {taken.refs}")
    if taken is not None:
        raise Impossible(f"block {e.block} is cached under {taken.hash!r} and was not evicted")
    sequence = books.taker(e.sequence)
    table = sequence.table
    if not 0 <= e.logical <= len(table):
        raise Impossible(f"logical block {e.logical} for sequence {e.sequence}, whose table has {len(table)}")
    if e.logical == len(table):
        table.append(e.block)
    else:
        old = table[e.logical]
        if old in books.envelope.uncopied:
            raise Impossible(f"block {old} was itself new in this envelope and is replaced before it holds anything")
        books.envelope.replaced.add((e.sequence, old))
        books.envelope.uncopied[e.block] = old
        table[e.logical] = e.block
    books.blocks[e.block] = ev.BlockState(e.block, 1, [], [])
    books.holders[e.block] = [e.sequence]


def shared(books: Books, e: ev.BlockShared) -> None:
    books.used(e.block)
    _refer(books, e)


def prefix_hit(books: Books, e: ev.PrefixHit) -> None:
    block = books.block(e.block)
    if not e.hash or block.hash != e.hash:
        raise Impossible(f"block {e.block} is cached under {block.hash!r}, not {e.hash!r}")
    if e.block in books.envelope.unfreed:
        raise Impossible(f"block {e.block} has no reference left and is not on the free list yet")
    sequence = books.sequence(e.sequence)
    tokens = books.request(sequence.request).prompt_tokens + len(sequence.outputs)
    if (e.logical + 1) * books.block_size >= tokens:
        raise Impossible(f"logical block {e.logical} would leave none of the {tokens} tokens to compute")
    _refer(books, e)


def _refer(books: Books, e: ev.BlockShared | ev.PrefixHit) -> None:
    sequence = books.taker(e.sequence)
    block = books.blocks[e.block]
    if e.logical != len(sequence.table):
        raise Impossible(f"logical block {e.logical} for sequence {e.sequence}, whose table has {len(sequence.table)}")
    if e.block in sequence.table:
        raise Impossible(f"sequence {e.sequence} has block {e.block} already")
    if e.refs != block.refs + 1:
        raise Impossible(f"block {e.block} had {block.refs} references, so now {block.refs + 1} and not {e.refs}")
    block.refs = e.refs
    sequence.table.append(e.block)
    books.holders[e.block].append(e.sequence)


def released(books: Books, e: ev.BlockReleased) -> None:
    block = books.used(e.block)
    let_go(books, e)
    if block.refs == 0:
        books.envelope.unfreed.add(e.block)


def let_go(books: Books, e: ev.BlockReleased) -> None:
    """Take a block out of a table: the one that copy-on-write has replaced, or one of a sequence that gives up all."""
    block, sequence = books.blocks[e.block], books.sequence(e.sequence)
    if e.refs != block.refs - 1:
        raise Impossible(f"block {e.block} had {block.refs} references, so now {block.refs - 1} and not {e.refs}")
    if (e.sequence, e.block) in books.envelope.replaced:
        books.envelope.replaced.remove((e.sequence, e.block))
    elif e.block not in sequence.table:
        raise Impossible(f"sequence {e.sequence} holds {sequence.table}, not block {e.block}")
    elif not sequence.finish and books.request(sequence.request).status == "running":
        raise Impossible(f"sequence {e.sequence} goes on and lets go of block {e.block}")
    else:
        sequence.table.remove(e.block)
        (books.envelope.leaving.add if sequence.table else books.envelope.leaving.discard)(e.sequence)
    block.refs = e.refs
    books.holders[e.block].remove(e.sequence)


def freed(books: Books, e: ev.BlockFreed) -> None:
    block = books.block(e.block)
    if block.refs:
        raise Impossible(f"block {e.block} has {block.refs} references left")
    if e.block not in books.envelope.unfreed:
        raise Impossible(f"block {e.block} is free already, and cached under {block.hash!r}")
    books.envelope.unfreed.remove(e.block)
    if not block.hash:
        _forget(books, e.block)


def evicted(books: Books, e: ev.BlockEvicted) -> None:
    block = books.block(e.block)
    if block.refs or e.block in books.envelope.unfreed:
        raise Impossible(f"block {e.block} is not on the free list: its count is {block.refs}")
    if not e.hash or block.hash != e.hash:
        raise Impossible(f"block {e.block} is cached under {block.hash!r}, not {e.hash!r}")
    del books.hashes[e.hash]
    _forget(books, e.block)


def _forget(books: Books, number: int) -> None:
    del books.blocks[number]
    del books.holders[number]
    books.envelope.uncopied.pop(number, None)


def cached(books: Books, e: ev.BlockCached) -> None:
    if not e.blocks or len(e.blocks) != len(e.hashes):
        raise Impossible(f"{len(e.blocks)} blocks and {len(e.hashes)} hashes")
    if len(set(e.hashes)) != len(e.hashes) or not all(e.hashes):
        raise Impossible(f"the hashes {e.hashes} are not one for each block")
    blocks = [books.used(number) for number in e.blocks]
    for block, digest in zip(blocks, e.hashes, strict=True):
        if block.hash:
            raise Impossible(f"block {block.block} is cached already, under {block.hash!r}")
        if digest in books.hashes:
            raise Impossible(f"{digest!r} is the hash of block {books.hashes[digest]} already")
        if len(block.tokens) != books.block_size:
            raise Impossible(
                f"block {block.block} has {len(block.tokens)} of {books.block_size} slots written: not full"
            )
    tokens = [token for block in blocks for token in block.tokens]
    if tokens != e.tokens:
        raise Impossible(f"the blocks hold {tokens}, the event says {e.tokens}")
    _check_parent(books, e)
    for block, digest in zip(blocks, e.hashes, strict=True):
        block.hash = digest
        books.hashes[digest] = block.block


def _check_parent(books: Books, e: ev.BlockCached) -> None:
    tables = [books.sequences[number].table for number in books.request(e.request).sequences]
    table = next((table for table in tables if set(e.blocks) <= set(table)), None)
    if table is None:
        raise Impossible(f"no sequence of request {e.request} holds all the blocks {e.blocks}")
    logical = [table.index(number) for number in e.blocks]
    if any(after <= before for before, after in pairwise(logical)):
        raise Impossible(f"the blocks {e.blocks} are not in the order of the text, {table}")
    if logical[0] == 0:
        if e.parent:
            raise Impossible(f"block {e.blocks[0]} is the first of its sequence and has the parent {e.parent!r}")
        return
    # The block before may hold the same as another one that the cache knows, and then it has no hash of its own.
    before = books.blocks[table[logical[0] - 1]].hash
    if not e.parent or (before and before != e.parent):
        raise Impossible(f"the block before block {e.blocks[0]} has the hash {before!r}, its parent is {e.parent!r}")
