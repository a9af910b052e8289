"""Contiguous regions by the buddy method, as in the systems the paper was measured against (section 6.1, "Baseline 2")."""

from __future__ import annotations

import heapq


class NoRegion(Exception):
    """No free region is long enough. Nothing has changed."""


class BuddyAllocator:
    """Regions of ``capacity`` slots; each is a power of two long and begins at a multiple of its length.

    ``roots`` are the largest ones, as (start, size): the binary digits of the capacity in decreasing order from slot 0.
    A region is split in two buddies until it is as short as it may be; two free buddies become one again. The free
    region taken is the shortest that is long enough (so long ones stay whole), of these the one with the lowest address.
    ``allocate`` and ``free`` take O(log capacity), amortised.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a memory of {capacity} slots holds nothing: ask for at least 1")
        self.capacity = capacity
        self.roots: list[tuple[int, int]] = []
        self.unallocated = capacity
        self._used: dict[int, int] = {}
        # By exponent: the free regions' starts, and a heap of the same that may still name some that are free no more.
        self._free: list[set[int]] = [set() for _ in range(capacity.bit_length())]
        self._heaps: list[list[int]] = [[] for _ in self._free]
        self._heaped: list[set[int]] = [set() for _ in self._free]
        start = 0
        for exponent in reversed(range(capacity.bit_length())):
            if capacity >> exponent & 1:
                self.roots.append((start, 1 << exponent))
                self._put(exponent, start)
                start += 1 << exponent

    @staticmethod
    def rounded(slots: int) -> int:
        """Length of the region that holds ``slots`` slots: the next power of two. Raises ValueError below 1."""
        if slots < 1:
            raise ValueError(f"a region of {slots} slots is none: ask for at least 1")
        return 1 << (slots - 1).bit_length()

    @property
    def largest_gap(self) -> int:
        """Length of the longest free region, 0 if there is none."""
        return max((1 << exponent for exponent, starts in enumerate(self._free) if starts), default=0)

    def available(self, slots: int) -> int:
        """Regions for ``slots`` slots that could be had now, one after the other."""
        exponent = _exponent(self.rounded(slots))
        return sum(len(starts) << longer for longer, starts in enumerate(self._free[exponent:]))

    def at_most(self, slots: int) -> int:
        """Regions for ``slots`` slots that could be had if nothing were allocated."""
        size = self.rounded(slots)
        return sum(root // size for _, root in self.roots)

    def allocate(self, slots: int) -> tuple[int, int]:
        """A region for ``slots`` slots: (start, size), the size rounded to a power of two. Raises NoRegion."""
        size = self.rounded(slots)
        exponent = _exponent(size)
        longer = next((e for e in range(exponent, len(self._free)) if self._free[e]), None)
        if longer is None:
            raise NoRegion(
                f"{slots} slots need a region of {size}; {self.unallocated} of {self.capacity} slots are free, at most "
                f"{self.largest_gap} in one region: wait until regions are freed, or ask for less"
            )
        start = self._take_lowest(longer)
        for half in range(exponent, longer):
            self._put(half, start + (1 << half))
        self._used[start] = size
        self.unallocated -= size
        return start, size

    def free(self, start: int) -> int:
        """Give back the region that begins at ``start``; returns its size. Raises ValueError if there is none."""
        if start not in self._used:
            raise ValueError(f"no region in use begins at slot {start}: it is freed already, or never was allocated")
        size = self._used.pop(start)
        self.unallocated += size
        exponent = _exponent(size)
        # A root's buddy would reach past the capacity, so it is never found free, and roots never grow together.
        while (buddy := start ^ (1 << exponent)) in self._free[exponent]:
            self._free[exponent].remove(buddy)
            start = min(start, buddy)
            exponent += 1
        self._put(exponent, start)
        return size

    def used(self) -> dict[int, int]:
        """Size of each region in use, by its start."""
        return dict(self._used)

    def gaps(self) -> dict[int, int]:
        """Size of each free region, by its start."""
        return {start: 1 << exponent for exponent, starts in enumerate(self._free) for start in starts}

    def _put(self, exponent: int, start: int) -> None:
        self._free[exponent].add(start)
        if start not in self._heaped[exponent]:
            self._heaped[exponent].add(start)
            heapq.heappush(self._heaps[exponent], start)

    def _take_lowest(self, exponent: int) -> int:
        while True:
            start = heapq.heappop(self._heaps[exponent])
            self._heaped[exponent].remove(start)
            if start in self._free[exponent]:
                self._free[exponent].remove(start)
                return start


def _exponent(size: int) -> int:
    return size.bit_length() - 1
