"""A reservation of contiguous memory (paper section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass

from engine.sequence import Request, Sequence


@dataclass(slots=True, eq=False)
class Region:
    """``size`` slots from ``start`` on, ``needed`` of them asked for. ``sequence``: who has it, None for a spare one.
    ``spent``: who had it has ended, and the request has no use for it any more."""

    start: int
    size: int
    needed: int
    request: Request
    sequence: Sequence | None = None
    spent: bool = False
