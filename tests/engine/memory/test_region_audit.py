"""Damage to the books of contiguous memory is found, and said with both sides."""

from __future__ import annotations

import pytest

from engine.memory.memory_manager import IntegrityError
from tests.engine.memory.region_rig import RegionRig


def _wrong_token(rig):
    rig.manager.contents.tokens[0][3] = 99


def _moved_table(rig):
    rig.sequences[0].table.offset = 16


def _resized_table(rig):
    rig.sequences[0].table.block_size = 32


def _lost_table(rig):
    rig.sequences[0].table.blocks = []


def _counted_twice(rig):
    rig.sequences[0].computed += 1


def _given_back(rig):
    rig.manager.buddies.free(16)


def _lost_region(rig):
    rig.manager.regions[rig.requests[0]].pop()


def _lost_slots(rig):
    rig.manager.buddies.unallocated -= 1


def _lost_contents(rig):
    rig.manager.contents.clear(16)


def _stray_copy(rig):
    rig.manager.copies[32] = (0, 5)


def _late_copy(rig):
    rig.manager.copies[16] = (0, 5)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            _wrong_token,
            r"sequence 0: its region holds \[0, 1, 2, 99, 4\], and its computed tokens are \[0, 1, 2, 3, 4\]",
        ),
        (_moved_table, r"regions and the sequences that have them: \[\(0, 0\), \(16, 1\)\], and by their tables"),
        (_resized_table, r"sequence 0: table \(32, \[0\], 0\), its region is \(16, \[0\], 0\)"),
        (_lost_table, r"and by their tables: \[\(16, 1\)\]"),
        (_counted_twice, "sequence 0: 6 computed, 5 slots, 16 reserved for it"),
        (_given_back, r"the allocator gave out \{0: 16, 32: 16\}, and requests have \{0: 16, 16: 16, 32: 16\}"),
        (_lost_region, r"the allocator gave out \{0: 16, 16: 16, 32: 16\}, and requests have \{0: 16, 16: 16\}"),
        (_lost_slots, "gaps of 16 slots, and 15 are said to be free"),
        (_lost_contents, r"something is kept for regions \[0, 32\]"),
        (_late_copy, r"sequence 1: a copy of 5 slots is due, it holds \[0, 1, 2, 3, 4, 5\]"),
        (_stray_copy, r"copies are due to regions \[32\], and sequences have \[\(0, 0\), \(16, 1\)\]"),
    ],
)
def test_damage_to_the_books_is_found(damage, words):
    rig = RegionRig("orca_max", 64, 16)
    request = rig.admit(5, 4, n=3)
    rig.forward(request.sequences[0])
    rig.fork(request.sequences[0])
    rig.forward(request.sequences[1], count=1)
    damage(rig)
    with pytest.raises(IntegrityError, match=words):
        rig.manager.verify(rig.sequences)
