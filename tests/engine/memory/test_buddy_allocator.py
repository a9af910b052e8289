"""The buddy allocator: exact addresses, and any history against a plain model."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.memory.buddy_allocator import BuddyAllocator, NoRegion

PAPER = 15_728


def test_the_roots_are_the_binary_digits_of_the_capacity():
    assert BuddyAllocator(PAPER).roots == [
        (0, 8192),
        (8192, 4096),
        (12288, 2048),
        (14336, 1024),
        (15360, 256),
        (15616, 64),
        (15680, 32),
        (15712, 16),
    ]
    assert BuddyAllocator(1024).roots == [(0, 1024)]
    assert BuddyAllocator(1).roots == [(0, 1)]


def test_the_papers_memory_holds_seven_regions_of_2048():
    allocator = BuddyAllocator(PAPER)
    assert allocator.at_most(2048) == allocator.available(2048) == 7
    regions = [allocator.allocate(2048) for _ in range(7)]
    assert regions == [(start, 2048) for start in (12288, 8192, 10240, 0, 2048, 4096, 6144)]
    assert (allocator.unallocated, allocator.largest_gap, allocator.available(2048)) == (1392, 1024, 0)
    assert round(100 * allocator.unallocated / PAPER, 2) == 8.85
    with pytest.raises(NoRegion, match="2048 slots need a region of 2048; 1392 of 15728 slots are free, at most 1024"):
        allocator.allocate(2048)
    assert (allocator.unallocated, len(allocator.used())) == (1392, 7)


@pytest.mark.parametrize(
    ("slots", "size"), [(1, 1), (2, 2), (3, 4), (25, 32), (32, 32), (33, 64), (1025, 2048), (2048, 2048)]
)
def test_regions_are_rounded_to_powers_of_two(slots, size):
    assert BuddyAllocator.rounded(slots) == size
    assert BuddyAllocator(4096).allocate(slots) == (0, size)


def test_regions_are_split_and_buddies_become_one_again():
    allocator = BuddyAllocator(16)
    assert allocator.allocate(3) == (0, 4)
    assert allocator.gaps() == {4: 4, 8: 8}
    assert allocator.allocate(2) == (4, 2)
    assert allocator.gaps() == {6: 2, 8: 8}
    assert allocator.allocate(8) == (8, 8)
    assert allocator.free(0) == 4
    assert allocator.gaps() == {0: 4, 6: 2}
    assert allocator.free(4) == 2
    assert allocator.gaps() == {0: 8}
    assert allocator.free(8) == 8
    assert allocator.gaps() == {0: 16}
    assert allocator.allocate(16) == (0, 16)


def test_neighbours_that_are_no_buddies_stay_apart():
    allocator = BuddyAllocator(16)
    assert [allocator.allocate(4)[0] for _ in range(4)] == [0, 4, 8, 12]
    allocator.free(4)
    allocator.free(8)
    assert allocator.gaps() == {4: 4, 8: 4}
    with pytest.raises(NoRegion, match="8 slots need a region of 8; 8 of 16 slots are free, at most 4 in one region"):
        allocator.allocate(8)


def test_roots_never_grow_together():
    allocator = BuddyAllocator(7)
    starts = [allocator.allocate(1)[0] for _ in range(7)]
    assert starts == [6, 4, 5, 0, 1, 2, 3]
    for start in starts:
        allocator.free(start)
    assert allocator.gaps() == {0: 4, 4: 2, 6: 1}
    assert allocator.largest_gap == 4


def test_the_shortest_gap_that_is_long_enough_is_taken_and_of_these_the_lowest():
    allocator = BuddyAllocator(32)
    assert [allocator.allocate(4)[0] for _ in range(8)] == [0, 4, 8, 12, 16, 20, 24, 28]
    for start in (28, 0, 4, 20, 12):
        allocator.free(start)
    assert allocator.gaps() == {0: 8, 12: 4, 20: 4, 28: 4}
    assert [allocator.allocate(4)[0] for _ in range(5)] == [12, 20, 28, 0, 4]


def test_how_many_regions_can_be_had():
    allocator = BuddyAllocator(44)
    assert [allocator.at_most(slots) for slots in (1, 4, 5, 8, 32, 33)] == [44, 11, 5, 5, 1, 0]
    allocator.allocate(3)
    assert [allocator.available(slots) for slots in (1, 4, 5, 8, 32, 33)] == [40, 10, 5, 5, 1, 0]
    allocator.allocate(32)
    assert [allocator.available(slots) for slots in (1, 4, 5, 8, 32)] == [8, 2, 1, 1, 0]


def test_double_frees_and_foreign_addresses_are_refused():
    allocator = BuddyAllocator(8)
    allocator.allocate(2)
    allocator.allocate(2)
    allocator.free(0)
    for start in (0, 1, 3, 4, 8, -1):
        with pytest.raises(ValueError, match=f"no region in use begins at slot {start}: it is freed already"):
            allocator.free(start)
    assert (allocator.used(), allocator.gaps()) == ({2: 2}, {0: 2, 4: 4})


def test_empty_memories_and_empty_regions_are_refused():
    with pytest.raises(ValueError, match="a memory of 0 slots holds nothing"):
        BuddyAllocator(0)
    with pytest.raises(ValueError, match="a region of 0 slots is none"):
        BuddyAllocator(8).allocate(0)


class Buddies(RuleBasedStateMachine):
    """The model is the set of gaps, kept by searching and merging all of them each time."""

    @initialize(capacity=st.integers(1, 200))
    def begin(self, capacity):
        self.allocator = BuddyAllocator(capacity)
        self.capacity = capacity
        self.gaps = set(self.allocator.roots)
        self.used: dict[int, int] = {}

    @rule(slots=st.integers(1, 70))
    def allocate(self, slots):
        size = 1
        while size < slots:
            size *= 2
        candidates = [(length, start) for start, length in self.gaps if length >= size]
        assert self.allocator.available(slots) == sum(length // size for length, _ in candidates)
        if not candidates:
            with pytest.raises(NoRegion):
                self.allocator.allocate(slots)
            return
        length, start = min(candidates)
        assert self.allocator.allocate(slots) == (start, size)
        self.gaps.remove((start, length))
        while length > size:
            length //= 2
            self.gaps.add((start + length, length))
        self.used[start] = size

    @precondition(lambda self: self.used)
    @rule(data=st.data())
    def free(self, data):
        start = data.draw(st.sampled_from(sorted(self.used)))
        size = self.used.pop(start)
        assert self.allocator.free(start) == size
        merged = True
        while merged:
            merged = False
            left = start - size if (start // size) % 2 else start
            buddy = left if left != start else start + size
            if (buddy, size) in self.gaps:
                self.gaps.remove((buddy, size))
                start, size, merged = left, 2 * size, True
        self.gaps.add((start, size))

    @rule(start=st.integers(-2, 210))
    def free_what_is_not_in_use(self, start):
        if start not in self.used:
            with pytest.raises(ValueError, match="no region in use begins at slot"):
                self.allocator.free(start)

    @invariant()
    def the_books_agree(self):
        if not hasattr(self, "allocator"):
            return
        assert self.allocator.gaps() == dict(self.gaps)
        assert self.allocator.used() == self.used
        end = 0
        for start, size in sorted([*self.gaps, *self.used.items()]):
            assert start == end
            assert start % size == 0
            end = start + size
        assert end == self.capacity
        free = sum(size for _, size in self.gaps)
        assert self.allocator.unallocated == free == self.capacity - sum(self.used.values())
        assert self.allocator.largest_gap == max((size for _, size in self.gaps), default=0)

    def teardown(self):
        if hasattr(self, "allocator"):
            for start in sorted(self.used):
                self.allocator.free(start)
            assert self.allocator.gaps() == dict(self.allocator.roots)


TestBuddies = Buddies.TestCase
TestBuddies.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
