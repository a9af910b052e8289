"""Imports point one way, the web process imports nothing heavy, and the reducer nothing but events."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ABOVE = {"kernels": {"engine", "quiz", "app"}, "engine": {"quiz", "app"}, "quiz": {"app"}, "app": set()}
LIGHT = {
    "engine",
    *(f"engine.{name}" for name in ("config", "events", "messages", "reducer", "replay", "trace", "wire")),
}


def imported(path: Path) -> set[str]:
    """Every module that a file imports, at its top or within a function."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            if node.module in ABOVE:
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", ABOVE)
def test_no_package_imports_one_above_it(package: str) -> None:
    wrong = {
        str(path.relative_to(ROOT)): name
        for path in files(package)
        for name in imported(path)
        if name.split(".")[0] in ABOVE[package] | {"tests"}
    }
    assert wrong == {}


def test_the_kernels_know_tensors_only() -> None:
    heavy = {
        name
        for path in files("kernels")
        for name in imported(path)
        if name.split(".")[0] in {"transformers", "msgspec"}
    }
    assert heavy == set()


def test_the_web_process_takes_only_light_modules_of_the_engine() -> None:
    taken = {name for path in files("app") for name in imported(path) if name.split(".")[0] == "engine"}
    assert {name for name in taken if ".".join(name.split(".")[:2]) not in LIGHT} == set()
    assert len(files("app")) > 20


def test_the_reducer_knows_the_events_alone() -> None:
    ours = {
        name
        for path in files("engine/reducer")
        for name in imported(path)
        if name.split(".")[0] in {*ABOVE, "tests"} and not name.startswith("engine.reducer")
    }
    assert ours == {"engine", "engine.events"}
