"""Everything that only a CUDA GPU can show, in at most eight minutes: ``make gpu-check``.

    python -m tests.gpu.check [--device cuda|cpu] [--quick] [--only NAME] [--limit SECONDS]

Prints one table for each section and a verdict; the exit status is 0 only if every section ran and passed, 1 if one did
not, 2 if there is no GPU. ``--device cpu --quick`` runs the whole script in Triton's interpreter with the smallest sizes,
to see that it works; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

LIMIT_S = 460.0
ENGINE = ("torch", "triton", "transformers", "numpy", "msgspec")


@dataclass(frozen=True)
class Section:
    """``function`` of ``module`` yields the lines of a table and raises where something is wrong."""

    name: str
    title: str
    module: str
    function: str
    needs: tuple[str, ...]


SECTIONS = (
    Section(
        "tests",
        "The kernels' tests, compiled",
        "tests.gpu.check",
        "kernel_tests",
        (*ENGINE[:2], "pytest", "hypothesis"),
    ),
    Section(
        "greedy", "Greedy output against transformers, float32", "tests.gpu.greedy", "equality", (*ENGINE, "pytest")
    ),
    Section(
        "attention", "Paged against contiguous attention", "tests.gpu.attention", "paged_and_contiguous", ENGINE[:2]
    ),
    Section("splits", "Parts in which a context is read", "tests.gpu.attention", "splits", ENGINE[:2]),
    Section("blocks", "Copying and swapping blocks", "tests.gpu.blocks", "copies_and_swaps", ENGINE[:2]),
    Section("serving", "Tokens per second, SmolLM2-135M's shape", "tests.gpu.serving", "tokens_per_second", ENGINE),
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="the smallest sizes: does the script work?")
    parser.add_argument("--only", action="append", choices=[section.name for section in SECTIONS], help="this section")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help=f"seconds in all (default {LIMIT_S:.0f})")
    options = parser.parse_args(arguments)
    if missing(("torch",)):
        print("gpu-check: torch is not installed for this Python: make gpu-check PY=/path/to/python3")
        return 2
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        print("gpu-check: torch finds no CUDA GPU here, so nothing was checked")
        return 2
    if options.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    elif os.environ.pop("TRITON_INTERPRET", None):
        print("TRITON_INTERPRET was set and is ignored: the kernels are compiled here")
    from tests.gpu.timing import Setting

    device = torch.device(options.device, 0) if options.device == "cuda" else torch.device("cpu")
    started = time.monotonic()
    describe(device)
    wanted = [section for section in SECTIONS if not options.only or section.name in options.only]
    verdicts = []
    for section in wanted:
        begun = time.monotonic()
        verdict = run(section, Setting(device, options.quick), started + options.limit)
        verdicts.append((section, verdict, time.monotonic() - begun))
        print(f"-- {verdict} ({verdicts[-1][2]:.0f} s)", flush=True)
    print("\nsection    seconds  verdict")
    for section, verdict, seconds in verdicts:
        print(f"{section.name:10} {seconds:7.0f}  {verdict}")
    left_out = [section.name for section in SECTIONS if section not in wanted]
    if left_out:
        print(f"left out by --only: {', '.join(left_out)}")
    return 0 if all(verdict == "passed" for _, verdict, _ in verdicts) else 1


def describe(device: object) -> None:
    import torch

    def number(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "missing"

    name = torch.cuda.get_device_name(0) if str(device).startswith("cuda") else f"CPU ({platform.machine()})"
    packages = ", ".join(f"{package} {number(package)}" for package in (*ENGINE, "pytest", "hypothesis"))
    print(f"{name}; Python {platform.python_version()}, {packages}")


def missing(packages: tuple[str, ...]) -> list[str]:
    return [package for package in packages if importlib.util.find_spec(package) is None]


def run(section: Section, setting: object, deadline: float) -> str:
    """Print the section's lines as they come. Returns the verdict."""
    print(f"\n== {section.title}", flush=True)
    absent = missing(section.needs)
    if absent:
        return f"NOT RUN: {', '.join(absent)} not installed for {sys.executable}"
    if time.monotonic() > deadline:
        return "NOT RUN: the time was up"
    try:
        function = getattr(importlib.import_module(section.module), section.function)
        extra = (deadline,) if section.name == "tests" else ()
        late = False
        for line in function(setting, *extra):
            if late:
                return "CUT SHORT: the time was up"
            print(line, flush=True)
            late = time.monotonic() > deadline
    except Exception as error:  # whatever it is, the other sections still have their say
        traceback.print_exc(file=sys.stdout)
        return f"FAILED: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}"
    return "passed"


def kernel_tests(setting: object, deadline: float) -> Iterator[str]:
    """Run the kernels' tests in a process of their own, compiled; on a CPU, in the interpreter, a few of them."""
    from tests.gpu.timing import Setting

    if not isinstance(setting, Setting):
        raise TypeError(f"a Setting is needed, not {type(setting).__name__}")
    names = ("store",) if setting.quick else ("attention", "window", "splits", "store", "moves")
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-k", "not cpu"]
    if setting.is_gpu and not missing(("xdist",)):
        command += ["--numprocesses", "8"]  # most of the time goes into compiling
    command += [f"tests/kernels/test_{name}.py" for name in names]
    command += ["tests/kernels/test_triton.py"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=max(1.0, deadline - time.monotonic()))
    lines = [line for line in told.stdout.splitlines() if line.strip()]
    if told.returncode:
        yield from lines[-60:]
        yield from told.stderr.splitlines()[-20:]
        raise RuntimeError(lines[-1] if lines else f"pytest ended with status {told.returncode}")
    yield from (line for line in lines if line.startswith("SKIPPED"))
    yield lines[-1]


if __name__ == "__main__":
    sys.exit(main())
