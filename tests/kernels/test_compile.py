"""The Triton kernels compile for the GPUs of 2020 and later, though none is here, and fit their memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the package triton is not installed here")

SHARED = 99 * 1024  # bytes of shared memory that a program may have on every GPU of compute capability 8.0 and later
SPILLED = 512  # bytes of a thread's registers that may go to memory: heads of 256 dimensions need some
CAPABILITIES = (80, 89, 90)
KERNELS = {"paged_attention_kernel", "combine_splits_kernel", "store_kv_kernel", "move_slots_kernel"}


def compile_kernels(*options: str, cache: Path) -> list[dict]:
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, "-m", "tests.kernels.compile_kernels", *options],
        capture_output=True,
        text=True,
        timeout=590,
        env=env | {"TRITON_CACHE_DIR": str(cache)},
        cwd=Path(__file__).parents[2],
    )
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.mark.slow
def test_every_kernel_compiles(tmp_path: Path) -> None:
    """What the interpreter lets pass, the compiler may not."""
    reports = compile_kernels("--quick", cache=tmp_path)
    assert {report["kernel"] for report in reports} == KERNELS


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_kernels_fit_every_gpu(tmp_path: Path) -> None:
    reports = compile_kernels(cache=tmp_path)
    assert {(report["kernel"], report["sm"]) for report in reports} == {(k, sm) for k in KERNELS for sm in CAPABILITIES}
    assert [report for report in reports if report["shared"] > SHARED] == []
    assert [report for report in reports if report["stack"] > SPILLED] == []
