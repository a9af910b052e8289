"""``paged replay``: play a trace in the terminal, and verify every step of it."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, RenderableType
from rich.live import Live

from app.replay_frame import frame
from engine.events import ArenaState, Step, StepCompleted
from engine.replay import replay as follow
from engine.trace import Reader, TraceError

LONGEST_S = 2.0
"""Seconds that one step is shown at most, at speed 1."""


def replay(
    file: Annotated[Path, typer.Argument(help="A trace, as paged record writes it.")],
    speed: Annotated[float, typer.Option(min=0, help="Times the pace of the recording; 0: as fast as can be.")] = 1.0,
    step: Annotated[int, typer.Option(min=0, help="Stop after this step and show it; 0: play to the end.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Verify, and draw nothing.")] = False,
) -> None:
    """Play a trace and verify it: whatever memory cannot have done is named with its line, and the exit status is 1."""
    try:
        with Reader(file) as reader:
            said = _play(reader, speed, step, quiet)
    except TraceError as why:
        typer.echo(str(why), err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    print(said)


def _play(reader: Reader, speed: float, last: int, quiet: bool) -> str:
    """What to say at the end. ``last``: the step to stop at, 0 for none."""
    console = Console()
    shown = reader.opening.t
    now: tuple[Step | None, ArenaState] = None, reader.opening.state
    steps = envelopes = events = 0

    def picture() -> RenderableType:
        return frame(reader.header, now[1], now[0], console.width)

    moving = console.is_terminal and not quiet
    with Live(picture(), console=console, auto_refresh=False) if moving else nullcontext() as live:
        for now in follow(reader):
            envelope, state = now
            completed = sum(isinstance(event, StepCompleted) for event in envelope.events)
            steps, envelopes, events = steps + completed, envelopes + 1, events + len(envelope.events)
            if live:
                _wait(envelope.t - shown, speed)
                shown = envelope.t
                live.update(picture(), refresh=True)
            if last and completed and state.step == last:
                break
    if last and now[1].step != last:
        raise TraceError(reader.path, None, f"there is no step {last}: the last one is {now[1].step}")
    if not moving and not quiet:
        console.print(picture())
    if last:
        return f"{reader.path}: stopped after step {last}; what follows was not verified"
    counted = f"{steps} steps in {envelopes} envelopes, {events} events"
    return f"{reader.path}: {counted}; every event is possible, and the closing snapshot is what they lead to"


def _wait(milliseconds: float, speed: float) -> None:
    if speed:
        time.sleep(min(max(0.0, milliseconds / 1000), LONGEST_S) / speed)
