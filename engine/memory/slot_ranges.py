"""Which part of the flat cache belongs to which arena. Arenas are few and large, so first fit will do."""

from __future__ import annotations


class CacheFull(Exception):
    """No gap of the flat cache, or of the CPU's, is wide enough for the arena; ``field`` is what asks for less."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class SlotRanges:
    """Contiguous ranges of ``total`` slots, by owner. ``setting``: what the operator sets to have more; ``field``: what a
    client asks for slots by."""

    def __init__(self, total: int, setting: str, field: str) -> None:
        self.total = total
        self._setting = setting
        self._field = field
        self._taken: dict[str, tuple[int, int]] = {}

    def take(self, owner: str, count: int) -> int:
        """First slot of a free range of ``count`` slots. Raises CacheFull, ValueError on an owner that has one."""
        if owner in self._taken:
            raise ValueError(f"{owner} has a range already: give it back first")
        start = self.check(owner, count)
        self._taken[owner] = (start, count)
        return start

    def check(self, owner: str, count: int) -> int:
        """Where a range for ``owner`` would begin, its present one counting as free. Raises CacheFull."""
        others = [taken for name, taken in self._taken.items() if name != owner]
        start = 0
        for first, length in sorted(others):
            if first - start >= count:
                break
            start = first + length
        if start + count > self.total:
            free = self.total - sum(length for _, length in others)
            raise CacheFull(
                self._field,
                f"{count} slots asked for and no gap is that wide ({free} of {self.total} slots are free): ask for fewer, "
                f"or start the engine with a larger {self._setting}",
            )
        return start

    def give_back(self, owner: str) -> None:
        del self._taken[owner]
