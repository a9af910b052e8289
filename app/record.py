"""``paged record``: a trace of prompts in an engine of its own, or of an arena on a running server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import msgspec
import typer

from app.follow import Unfollowable, follow
from app.options import read_settings
from engine.messages import Memory, Sampling
from engine.trace import TraceError

Manager = Literal["paged", "orca_max", "orca_pow2", "orca_oracle", "static_batch"]
Preemption = Literal["auto", "recompute", "swap"]


def record(
    file: Annotated[Path, typer.Argument(help="Where to write it; a name that ends in .gz is compressed.")],
    prompt: Annotated[list[str] | None, typer.Option(help="What to ask; give it again for more, all at once.")] = None,
    story: Annotated[
        Literal["prompts", "growing"], typer.Option(help="growing: the story that the page plays without a server.")
    ] = "prompts",
    manager: Annotated[Manager, typer.Option(help="How memory is managed.")] = "paged",
    block_size: Annotated[int, typer.Option(help="Slots of a block.")] = 4,
    num_blocks: Annotated[int, typer.Option(help="Blocks of the memory.")] = 48,
    cpu_blocks: Annotated[int, typer.Option(help="Blocks that requests can be swapped to.")] = 0,
    prefix_cache: Annotated[bool, typer.Option("--prefix-cache", help="Reuse computed blocks of prefixes.")] = False,
    preemption: Annotated[Preemption, typer.Option(help="How a request gives up its memory.")] = "auto",
    prefill_chunk: Annotated[int, typer.Option(help="Prompt tokens in one step; 0: all that fit, -1: never cut.")] = 0,
    max_len: Annotated[
        int, typer.Option(help="Slots that orca_max and static_batch reserve; 0: all they may need.")
    ] = 0,
    max_tokens: Annotated[int, typer.Option(help="Tokens of an answer at most.")] = 24,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Go on past the end of a text.")] = False,
    n: Annotated[int, typer.Option(help="Answers to each prompt, or beams.")] = 1,
    beam: Annotated[bool, typer.Option("--beam", help="Beam search instead of samples.")] = False,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token.")] = 0.0,
    seed: Annotated[int | None, typer.Option(help="Seed of the samples. Default: SEED.")] = None,
    model: Annotated[str | None, typer.Option(help="As in paged serve. Default: MODEL.")] = None,
    device: Annotated[str | None, typer.Option(help="As in paged serve. Default: DEVICE.")] = None,
    dtype: Annotated[str | None, typer.Option(help="As in paged serve. Default: DTYPE.")] = None,
    label: Annotated[str, typer.Option(help="What the trace is called.")] = "",
    steps: Annotated[int, typer.Option(min=0, help="Stop after so many steps; 0: at the end.")] = 0,
    url: Annotated[str, typer.Option(help="Record an arena of the server at this address instead, until Ctrl-C.")] = "",
    view: Annotated[str, typer.Option(help="The view_id of that arena, which the message opened tells.")] = "",
) -> None:
    """Record a trace: every block that is handed out, filled, shared and freed, for paged replay."""
    if bool(url) != bool(view):
        _fail("--url and --view belong together: the server, and which of its arenas", 2)
    if url and (prompt or story != "prompts"):
        _fail("with --url what happens in the arena is recorded: leave --prompt and --story out", 2)
    if not file.parent.is_dir():
        _fail(f"the folder {file.parent} does not exist: make it, or name another file", 2)
    if url:
        try:
            print(follow(url, view, file, label, steps))
        except (Unfollowable, TraceError) as why:
            _fail(str(why), 1)
        return
    if story == "prompts" and not prompt:
        _fail("there is nothing to record: give --prompt, --story growing, or --url and --view", 2)
    if story == "growing" and prompt:
        _fail("the story growing has its own prompts: leave --prompt out", 2)
    settings = read_settings({"model": model, "device": device, "dtype": dtype}, "record")
    recording = {
        "path": str(file),
        "config": settings.engine_config(),
        "story": story,
        "memory": Memory(
            block_size=block_size,
            num_blocks=num_blocks,
            manager=manager,
            max_len=max_len,
            cpu_blocks=cpu_blocks,
            prefix_cache=prefix_cache,
            preemption=preemption,
            prefill_chunk=prefill_chunk,
        ),
        "prompts": prompt or [],
        "sampling": Sampling(
            max_tokens=max_tokens, temperature=temperature, seed=seed, n=n, beam_search=beam, ignore_eos=ignore_eos
        ),
        "label": label,
        "steps": steps,
    }
    # In a process of its own: it needs what this one never imports.
    command = [sys.executable, "-m", "engine.record", msgspec.json.encode(recording).decode()]
    raise typer.Exit(subprocess.run(command, check=False).returncode)


def _fail(why: str, status: int) -> NoReturn:
    typer.echo(why, err=True)
    raise typer.Exit(status)
