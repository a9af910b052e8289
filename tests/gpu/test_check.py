"""The GPU check works before the day it is needed: here on the CPU, with the smallest sizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.gpu import check

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here: make gpu-check is the test")
def test_without_a_gpu_it_says_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([]) == 2
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert "no CUDA GPU" in said


def test_a_missing_package_is_named_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "missing", lambda packages: [name for name in packages if name == "msgspec"])
    assert check.main(["--device", "cpu", "--quick", "--only", "serving"]) == 1
    said = capsys.readouterr().out
    assert "NOT RUN: msgspec not installed" in said
    assert "left out by --only: tests, greedy, attention, splits, blocks" in said


def test_what_the_time_did_not_suffice_for_is_not_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["--device", "cpu", "--quick", "--only", "blocks", "--limit", "0"]) == 1
    assert "NOT RUN: the time was up" in capsys.readouterr().out


def test_a_section_that_fails_fails_the_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.gpu.blocks.copies_and_swaps", lambda setting: iter([1 // 0]))
    assert check.main(["--device", "cpu", "--quick", "--only", "blocks"]) == 1
    assert "FAILED: " in capsys.readouterr().out


def test_a_section_that_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["--device", "cpu", "--quick", "--only", "blocks"]) == 0
    assert capsys.readouterr().out.splitlines()[-2].split()[-1] == "passed"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_whole_check_on_a_cpu() -> None:
    command = [sys.executable, "-m", "tests.gpu.check", "--device", "cpu", "--quick"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=580, cwd=ROOT)
    assert run.returncode == 0, run.stdout + run.stderr
    verdicts = run.stdout.split("section    seconds  verdict\n")[1].splitlines()
    assert [line.split()[0] for line in verdicts] == [section.name for section in check.SECTIONS]
    assert {line.split(maxsplit=2)[2] for line in verdicts} == {"passed"}
