"""How the arenas share a forward pass, so that a flood of prompts in one does not stall the tokens of another.

Deficit round-robin over query rows: each arena has an equal share of every pass, what it may not use yet it keeps for the
next ones, and what it took beyond its share it owes. A pass is kept short for whoever wants least of it: about twice what
those rows would take alone.
"""

from __future__ import annotations

SLOWDOWN = 2.0
FORGET = 0.98  # weight of the past at each pass: about the last fifty count
ROWS_PER_BASE = 32.0  # rows that cost as much as an empty pass, until passes have been measured
BOUNDS = 4.0, 4096.0  # what may be believed of a noisy measurement
DITHER = (
    0.75  # every other pass that is kept short is shorter still: passes of one size tell nothing of what a row costs
)


class PassCost:
    """Seconds of a forward pass as ``base + rows * each``, by least squares over the recent passes.

    A pass counts by 1 / rows squared: the true cost bends (the first rows cost most), and it is of short passes that the
    line must be true.
    """

    def __init__(self) -> None:
        self._sums = [0.0] * 5  # of weights, rows, seconds, rows squared, rows times seconds

    def observe(self, rows: int, seconds: float) -> None:
        new = (1.0, rows, seconds, rows * rows, rows * seconds)
        self._sums = [FORGET * old + value / rows**2 for old, value in zip(self._sums, new, strict=True)]

    @property
    def rows_per_base(self) -> float:
        """Rows that cost as much as a pass costs besides its rows."""
        weight, rows, seconds, squares, products = self._sums
        spread = weight * squares - rows * rows
        if spread <= 1e-6 * max(1.0, rows * rows):
            return ROWS_PER_BASE
        each = (weight * products - rows * seconds) / spread
        base = (seconds - each * rows) / weight
        return min(max(base / each, BOUNDS[0]), BOUNDS[1]) if each > 0 and base > 0 else ROWS_PER_BASE

    def rows_within(self, slowdown: float, rows: int) -> int:
        """Rows of a pass that takes ``slowdown`` times as long as one of ``rows``."""
        return round((slowdown - 1) * self.rows_per_base + slowdown * rows)


class FairShare:
    """``token_budget``: query rows of a pass at most."""

    def __init__(self, token_budget: int) -> None:
        self.cost = PassCost()
        self._token_budget = token_budget
        self._deficit: dict[str, int] = {}
        self._even = False

    def budgets(self, demands: dict[str, int]) -> dict[str, int]:
        """Rows that each arena may use in the next pass, by the rows that each could use; 0: it must sit this one out."""
        if len(demands) < 2:
            self._deficit.clear()
            return dict.fromkeys(demands, self._token_budget)
        self._even = not self._even
        most = self.cost.rows_within(SLOWDOWN, min(demands.values()))
        total = min(self._token_budget, round(most * DITHER) if self._even else most)
        shares = divide(max(total, len(demands)), demands)
        self._deficit = {
            name: min(self._deficit.get(name, 0) + share, self._token_budget) for name, share in shares.items()
        }
        return {name: max(0, deficit) for name, deficit in self._deficit.items()}

    def used(self, name: str, rows: int) -> None:
        """An arena ran ``rows`` in the pass."""
        if name in self._deficit:
            self._deficit[name] -= rows


def divide(total: int, wanted: dict[str, int]) -> dict[str, int]:
    """Max-min fair shares: nobody gets more than wanted, and what the modest leave the others share."""
    shares: dict[str, int] = {}
    left = total
    for place, name in enumerate(sorted(wanted, key=lambda name: wanted[name])):
        shares[name] = min(wanted[name], left // (len(wanted) - place))
        left -= shares[name]
    return shares
