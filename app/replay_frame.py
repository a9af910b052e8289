"""A state of memory drawn in a terminal: every slot, who has it, and what the requests say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from engine.events import ArenaState, BlockState, RequestState, Step, StepCompleted
from engine.trace import Header

HUES = ("cyan", "magenta", "green", "yellow", "blue", "red")
GLYPHS = {"held": "·", "cached": "□", "free": "_"}
"""A written slot shows the letter of its request; one that is shared is bold and underlined."""
MOST_GLYPHS = 2048
"""Slots drawn one by one; of larger memories only every second, third ... is."""
ENDED_SHOWN = 3
BESIDE_TEXT = 64
"""Columns of the terminal that the table of requests takes for everything else."""


@dataclass(frozen=True, slots=True)
class Slot:
    """``request``: whose it is, -1 for nobody's; ``refs``: how many sequences refer to it."""

    kind: str
    request: int = -1
    refs: int = 0


def frame(header: Header, state: ArenaState, step: Step | None, width: int) -> RenderableType:
    """``step``: the envelope that led to ``state``. ``width``: columns of the terminal."""
    requests = _requests(state, max(12, width - BESIDE_TEXT))
    return Group(_title(header, state, step), Text(), _memory(state), Text(), requests, _happened(step))


def letter(request: int) -> str:
    """A, B ... Z, A2, B2 ..."""
    return chr(65 + request % 26) + (str(request // 26 + 1) if request > 25 else "")


def hue(request: int) -> str:
    return HUES[request % len(HUES)]


def slots(state: ArenaState) -> list[Slot]:
    """All slots of the memory, in order."""
    owner = {block: sequence.request for sequence in reversed(state.sequences) for block in sequence.table}
    drawn = [Slot("free")] * (state.num_blocks * state.block_size)
    for block in state.blocks:
        start, size = (block.block, block.size) if block.size else (block.block * state.block_size, state.block_size)
        drawn[start : start + size] = _block(block, size, owner.get(block.block, block.request))
    return drawn


def _block(block: BlockState, size: int, request: int) -> Iterator[Slot]:
    for at in range(size):
        if block.refs or block.size:
            yield Slot("written" if block.refs and at < len(block.tokens) else "held", request, block.refs)
        else:
            yield Slot("cached")


def _title(header: Header, state: ArenaState, step: Step | None) -> Text:
    parts = state.partition
    text = Text(header.label, "bold")
    text.append(f"  {header.model.name}, {header.recorded}\n", "default")
    shape = (
        f"{state.num_blocks * state.block_size} slots"
        if state.manager != "paged"
        else (f"{state.num_blocks} blocks of {state.block_size}")
    )
    at = f"{step.t / 1000:.1f} s" if step else "the beginning"
    text.append(f"step {state.step}, {at}; {state.manager}, {shape}: ", "default")
    named = ("token_states", "held", "reserved", "internal", "external", "free", "cached")
    said = [f"{getattr(parts, name)} {name.replace('_', ' ')}" for name in named if getattr(parts, name)]
    return text.append(", ".join(said), "default")


def _memory(state: ArenaState) -> Text:
    every = -(-state.num_blocks * state.block_size // MOST_GLYPHS)
    text = Text()
    for at, slot in enumerate(slots(state)[::every]):
        if state.manager == "paged" and every == 1 and at and at % state.block_size == 0:
            text.append(" ")
        glyph = letter(slot.request)[0] if slot.kind == "written" else GLYPHS[slot.kind]
        style = hue(slot.request) if slot.request >= 0 else "dim"
        text.append(glyph, f"{style} bold underline" if slot.refs > 1 else style)
    return text


def _requests(state: ArenaState, tail: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), expand=True)
    for name in ("request", "status"):
        table.add_column(name, no_wrap=True, min_width=7)
    for name in ("sequence", "tokens"):
        table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
    table.add_column("blocks", min_width=12, max_width=36)
    table.add_column("says", no_wrap=True, overflow="ellipsis", ratio=1)
    ended = [request.request for request in state.requests if request.status in ("finished", "aborted")]
    for request in state.requests:
        if request.request not in ended[:-ENDED_SHOWN]:
            _rows(table, state, request, tail)
    return table


def _rows(table: Table, state: ArenaState, request: RequestState, tail: int) -> None:
    name = Text(letter(request.request), hue(request.request))
    if not request.sequences:
        table.add_row(name, request.status, "", str(request.prompt_tokens), "", request.reason)
    for sequence in (one for one in state.sequences if one.request == request.request):
        blocks = ", ".join(map(str, sequence.table))
        if sequence.cpu_table:
            blocks = f"CPU {', '.join(map(str, sequence.cpu_table))}"
        tokens = request.prompt_tokens + len(sequence.outputs)
        said = "".join(sequence.texts).replace("\n", "↵")
        shown = said if len(said) <= tail else "…" + said[1 - tail :]
        table.add_row(name, sequence.finish or request.status, str(sequence.sequence), str(tokens), blocks, Text(shown))
        name = Text()


def _happened(step: Step | None) -> Text:
    if step is None:
        return Text()
    counts = Counter(type(event).__struct_config__.tag for event in step.events if not isinstance(event, StepCompleted))
    return Text("\n" + ", ".join(f"{count} {name}" for name, count in counts.items()), "dim")
