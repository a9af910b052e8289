"""The paper's walk-throughs, with its numbers: Figures 3, 6, 8 and 9 (sections 3.1, 4.3 and 4.4)."""

from __future__ import annotations

import msgspec
import pytest

from engine.events import BlockAllocated, BlockCopied, BlockFreed, BlockReleased, SlotsWritten
from tests.engine.conformance.rigs import BeamRig, arrange
from tests.engine.harness import Rig


@pytest.mark.parametrize(
    ("max_len", "prompt", "outputs", "steps"),
    [
        # Request A: "Four score and seven years ago our" + "fathers", two more to come, and 2,038 slots that never will.
        (2048, 7, 4, [(7, 3, 2038), (8, 2, 2038), (9, 1, 2038), (0, 0, 0)]),
        # Request B: "You only live" + "once", then the end.
        (512, 3, 3, [(3, 2, 507), (4, 1, 507), (0, 0, 0)]),
    ],
)
def test_figure_3_reserving_for_the_maximum_leaves_almost_all_of_it_empty(max_len, prompt, outputs, steps):
    rig = Rig(max_len // 16, 16, manager="orca_max", max_len=max_len)
    rig.submit(prompt, max_tokens=outputs, ignore_eos=True)
    seen = []
    for _ in steps:
        rig.step()
        parts = rig.steps[-1].partition
        seen.append((parts.token_states, parts.reserved, parts.internal))
        assert sum(msgspec.structs.astuple(parts)[:6]) == max_len
    assert seen == steps


def test_figure_3_paging_leaves_less_than_a_block():
    rig = Rig(2048 // 16, 16)
    rig.submit(7, max_tokens=4, ignore_eos=True)
    rig.step()
    rig.step()
    parts = rig.steps[-1].partition
    assert (parts.token_states, parts.reserved, parts.internal, parts.free) == (8, 2, 6, 2032)


def test_figure_6_a_sequence_grows_block_by_block():
    rig = Rig(9, 4)
    arrange(rig, 7, 1, 3)
    number = rig.submit(7)
    [sequence] = rig.arena.requests[number].sequences
    table = sequence.table

    def filled() -> list[tuple[int, int]]:
        return [(block, table.filled(logical)) for logical, block in enumerate(table.blocks)]

    rig.step()
    assert filled() == [(7, 4), (1, 3)]
    # The first decode step stores its key and value in the slot that is left.
    rig.step()
    assert filled() == [(7, 4), (1, 4)]
    assert rig.last(BlockAllocated) == []
    rig.step()
    assert filled() == [(7, 4), (1, 4), (3, 1)]
    assert rig.last(BlockAllocated) == [BlockAllocated(3, sequence.number, 2)]


def test_figure_8_two_samples_share_the_prompt_until_one_writes():
    rig = Rig(9, 4)
    arrange(rig, 7, 1, 3)
    number = rig.submit(7, n=2, temperature=1.0)
    rig.step()
    a1, a2 = rig.arena.requests[number].sequences
    assert rig.tables(number) == [[7, 1], [7, 1]]
    assert (rig.pool.refs[7], rig.pool.refs[1]) == (2, 2)
    rig.step(lambda chunk: 10 + chunk.sequence.sample)
    # A1 writes first: block 1 is copied to block 3 and its count falls to 1, so that A2 writes it in place.
    assert rig.last(BlockAllocated) == [BlockAllocated(3, a1.number, 1)]
    assert rig.last(BlockReleased) == [BlockReleased(1, a1.number, 1)]
    assert rig.last(BlockCopied) == [BlockCopied(1, [3], 3)]
    assert [(e.block, e.first, e.tokens) for e in rig.last(SlotsWritten)] == [
        (3, 3, a1.tokens[7:8]),
        (1, 3, a2.tokens[7:8]),
    ]
    assert rig.tables(number) == [[7, 3], [7, 1]]
    assert (rig.pool.refs[7], rig.pool.refs[1], rig.pool.refs[3]) == (2, 1, 1)


CHILDREN = [[4], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [3, 1, 0, 0], [1, 1, 1, 1], [0, 2, 2, 0], [1, 1, 1, 1]]
"""Children of each beam, step by step: until Figure 9's dotted line, over it, and one step more."""

BEFORE = [[0, 1, 3, 5], [0, 1, 3, 6], [0, 1, 3, 7], [0, 2, 4, 8]]
AFTER = [[0, 1, 3, 6, 9], [0, 1, 3, 6, 10], [0, 1, 3, 7, 11], [0, 1, 3, 7, 12]]
FREED = {2, 4, 5, 8}


def rename(ours: list[list[int]], papers: list[list[int]]) -> dict[int, int]:
    """Our block of each of the paper's: fails where the tables are not the same but for their numbers."""
    pairs = {(a, b) for mine, theirs in zip(ours, papers, strict=True) for a, b in zip(mine, theirs, strict=True)}
    names = {theirs: mine for mine, theirs in pairs}
    assert len(pairs) == len(names) == len({mine for mine, _ in pairs})
    return names


def test_figure_9_beams_share_free_and_allocate_blocks():
    """Under other numbers than the paper's, since a block that was freed is the next to be handed out here."""
    rig = BeamRig(13, 2)
    number = rig.submit(2, max_tokens=20, n=4, beam_search=True)
    request = rig.arena.requests[number]

    def running():
        group = rig.arena.decoding.beams.get(request)
        return group.running if group else []

    def step(children: list[int]) -> list[list[int]]:
        """All chosen continuations are certain and all others hopeless. Returns the beams' tables, best first."""

        def candidates(chunk) -> list[tuple[int, float]]:
            beam = running().index(chunk.sequence) if running() else 0
            return [(token, 0.0 if token < children[beam] else -100.0) for token in range(4)]

        rig.step(candidates)
        return [list(beam.table.blocks) for beam in running()]

    for children in CHILDREN[:-3]:
        step(children)
    paper = rename(step(CHILDREN[-3]), BEFORE)
    tables = step(CHILDREN[-2])
    # Beams 0 and 3 have no child: what only they held is free.
    assert {event.block for event in rig.last(BlockFreed)} == {paper[block] for block in FREED}
    assert tables == [[paper[block] for block in table[:4]] for table in AFTER]
    assert [rig.pool.refs[paper[block]] for block in (0, 1, 3, 6, 7)] == [4, 4, 4, 2, 2]
    tables = step(CHILDREN[-1])
    after = rename(tables, AFTER)
    assert {block: after[block] for block in (0, 1, 3, 6, 7)} == {block: paper[block] for block in (0, 1, 3, 6, 7)}
    assert {event.block for event in rig.last(BlockAllocated)} == {after[block] for block in (9, 10, 11, 12)}
    assert rig.last(BlockCopied) == []
    rig.run()
    assert rig.free == 13
