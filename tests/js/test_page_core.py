"""The page's core in JavaScript, run by Node's own test runner; the page itself needs no Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(NODE is None, reason="no node on this machine: the page's core is tested with it alone")


def node(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(NODE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("name", sorted(path.name for path in HERE.glob("*.test.mjs")))
def test_javascript(name: str) -> None:
    done = node("--test", HERE / name)
    assert done.returncode == 0, done.stdout + done.stderr


def trace(path: Path, *steps: dict[str, object]) -> Path:
    partition = {"token_states": 0, "held": 0, "reserved": 0, "internal": 0, "external": 0, "free": 8}
    state = {"manager": "paged", "block_size": 2, "num_blocks": 4, "step": 0, "paused": False, "partition": partition}
    state |= {"requests": [], "sequences": [], "blocks": []}
    header = {"format": "paged-trace", "v": 1, "label": "test", "model": None, "recorded": "2026-01-01"}
    snapshot = {"v": 1, "kind": "snapshot", "arena": "a", "epoch": 0, "seq": 0, "t": 0.0, "state": state}
    path.write_text("\n".join(json.dumps(line) for line in (header, snapshot, *steps)))
    return path


ARRIVED = {"type": "request_arrived", "request": 0, "prompt_tokens": 3, "max_tokens": 2, "source": "page"}
FREE = {"token_states": 0, "held": 0, "reserved": 0, "internal": 0, "external": 0, "free": 8}
STEP = {"v": 1, "kind": "step", "arena": "a", "epoch": 0, "seq": 1, "t": 1.0, "paused": True, "partition": FREE}
STEP |= {"events": [ARRIVED]}


def test_reduce_log_prints_the_states_of_a_trace(tmp_path: Path) -> None:
    path = trace(tmp_path / "trace.jsonl", STEP)
    final = json.loads(node(HERE / "reduce_log.mjs", path).stdout)
    assert final["paused"] is True
    assert final["requests"] == [
        {
            "request": 0,
            "status": "waiting",
            "prompt_tokens": 3,
            "max_tokens": 2,
            "source": "page",
            "sequences": [],
            "reason": "",
        }
    ]
    each = [json.loads(line) for line in node(HERE / "reduce_log.mjs", path, "--each").stdout.splitlines()]
    assert [line["seq"] for line in each] == [0, 1]
    assert each[1]["state"] == final


def test_reduce_log_refuses_an_impossible_trace(tmp_path: Path) -> None:
    freed = {**STEP, "events": [{"type": "block_freed", "block": 2}]}
    done = node(HERE / "reduce_log.mjs", trace(tmp_path / "trace.jsonl", freed))
    assert done.returncode == 1
    assert "impossible block_freed: block 2 is free already" in done.stderr
