"""Prefixes that were registered ahead and keep their blocks (paper section 4.4, "Shared prefix")."""

from __future__ import annotations

from engine.sequence import Sequence


class RegisteredPrefixes:
    """The sequences whose tables are kept for others to fork from."""

    def __init__(self) -> None:
        self.sequences: list[Sequence] = []

    def add(self, sequence: Sequence) -> None:
        self.sequences.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        if sequence in self.sequences:
            self.sequences.remove(sequence)

    def match(self, sequence: Sequence, most: int) -> tuple[Sequence, int] | None:
        """The prefix that saves ``sequence`` most, and of how many tokens it does: all its own, or, if those are more than
        ``most``, those of its full blocks."""
        best: tuple[Sequence, int] | None = None
        for prefix in self.sequences:
            tokens = prefix.tokens
            if prefix.request.cache_salt != sequence.request.cache_salt or sequence.tokens[: len(tokens)] != tokens:
                continue
            size = prefix.table.block_size
            usable = len(tokens) if len(tokens) <= most else most // size * size
            if usable > (best[1] if best else 0):
                best = prefix, usable
        return best
