"""How an attention launch is cut into programs: tiles of query rows and keys, and splits of the context."""

from __future__ import annotations

from dataclasses import dataclass

MIN_TILE = 16  # tl.dot takes no side under 16
PREFILL_ROWS = 64  # query rows x heads of a group in a program's tile, where there are that many
TILE_TOKENS = 64  # tokens in a tile of keys, at most
# Bytes of a tile of keys, and of queries: two stages of keys and values, and the queries, then fit the 99 KiB of shared
# memory that GPUs since 2020 have at least. Exact float32 has no tensor cores, and a product of tiles is unrolled: larger
# ones would not fit the registers.
TILE_BYTES = {2: 16384, 4: 8192}
QUERY_BYTES = {2: 32768, 4: 8192}
# A multiprocessor hides the wait for memory behind several programs; a split shorter than two tiles, or one of very many,
# costs more in the combining than it saves.
PROGRAMS_PER_MULTIPROCESSOR = 4
SPLIT_TOKENS = 128
MAX_SPLITS = 64


@dataclass(frozen=True, slots=True)
class Tiles:
    """``rows``: query rows x heads of a group in a tile. ``tokens``: keys in a tile. ``padded_dim``: head dim, padded.
    ``count``: tiles of query rows that the longest sequence needs. ``programs``: programs of one split with work."""

    rows: int
    tokens: int
    padded_dim: int
    count: int
    programs: int


def plan_tiles(
    rows: int, sequences: int, max_query_len: int, heads: int, kv_heads: int, head_dim: int, item: int
) -> Tiles:
    """Tiles for ``rows`` query rows of ``sequences`` sequences in a dtype of ``item`` bytes, 2 or 4."""
    group = heads // kv_heads
    padded_dim = max(MIN_TILE, power_of_two(head_dim))
    tile_rows = max(MIN_TILE, power_of_two(group))
    if max_query_len * group > tile_rows:
        tile_rows = max(tile_rows, min(PREFILL_ROWS, QUERY_BYTES[item] // (padded_dim * item)))
    tokens_of_tile = tile_rows // group
    count = -(-max_query_len // tokens_of_tile)
    return Tiles(
        rows=tile_rows,
        tokens=min(TILE_TOKENS, max(MIN_TILE, TILE_BYTES[item] // (padded_dim * item))),
        padded_dim=padded_dim,
        count=count,
        programs=kv_heads * min(sequences * count, sequences + rows // tokens_of_tile),
    )


def choose_splits(programs: int, tokens: int, multiprocessors: int) -> int:
    """Parts in which the context is read side by side (Flash-Decoding): enough to occupy the GPU where ``programs`` alone
    would not, as in decodes of few sequences, but none shorter than is worth it. ``tokens``: the most that a row sees."""
    wanted = PROGRAMS_PER_MULTIPROCESSOR * multiprocessors // max(1, programs)
    return max(1, min(wanted, tokens // SPLIT_TOKENS, MAX_SPLITS))


def power_of_two(number: int) -> int:
    """The least power of two that is not below ``number``."""
    return 1 << max(0, number - 1).bit_length()
