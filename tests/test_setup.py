"""What README, constraints, Makefile and Dockerfile promise agrees with the code."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from app.settings import Settings
from engine.model import model_store

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def constraints() -> dict[str, str]:
    """Package to pinned version."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    exact = {canonicalize_name(pin.name): re.fullmatch(r"==([\w.]+)", str(pin.specifier)) for pin in pins}
    assert [name for name, version in exact.items() if version is None] == []
    return {name: version[1] for name, version in exact.items() if version}


def ranges() -> list[Requirement]:
    return [Requirement(line) for line in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["test"]]


def settings_table() -> list[str]:
    """The rows that README.md must hold, made from the settings themselves."""
    return [
        f"| `{name.upper()}` | {f'`{field.default}`' if field.default != '' else 'none'} | {field.description} |"
        for name, field in Settings.model_fields.items()
    ]


def test_readme_lists_every_setting_as_it_is() -> None:
    section = (ROOT / "README.md").read_text().split("## Settings")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows == settings_table(), "\n".join(["README.md should have:", *settings_table()])


def test_readme_says_why_each_dependency_is_there() -> None:
    section = (ROOT / "README.md").read_text().split("## Dependencies")[1].split("\n## ")[0]
    assert [need.name for need in ranges() if not re.search(rf"\b{re.escape(need.name)}\b", section)] == []


def test_every_range_holds_its_pin() -> None:
    pins = constraints()
    outside = [str(need) for need in ranges() if not need.specifier.contains(pins[canonicalize_name(need.name)])]
    assert outside == []


def test_everything_that_is_needed_is_pinned() -> None:
    pins = constraints()
    waiting = [(need.name, need.extras) for need in ranges() if need.marker is None or need.marker.evaluate()]
    seen: set[tuple[str, str]] = set()
    while waiting:
        name, extras = waiting.pop()
        for extra in ("", *extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for need in map(Requirement, distribution(name).requires or []):
                if need.marker is None or need.marker.evaluate({"extra": extra}):
                    waiting.append((need.name, need.extras))
    # The CUDA libraries are left to torch, which asks for exact versions of them itself.
    cuda = re.compile(r"nvidia-.*|cuda-.*")
    needed = {canonicalize_name(name) for name, _ in seen}
    assert sorted(name for name in needed - pins.keys() if not cuda.fullmatch(name)) == []


def test_the_model_package_is_pinned_where_it_is_named() -> None:
    assert constraints()[model_store.PACKAGE] == model_store.PACKAGE_VERSION


def test_the_image_and_the_wheel_hold_every_package() -> None:
    packages = sorted(path.parent.name for path in ROOT.glob("*/__init__.py") if path.parent.name != "tests")
    dockerfile = (ROOT / "Dockerfile").read_text()
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for folder in [*packages, "static", "templates"]:
        assert f"COPY {folder} {folder}\n" in dockerfile
        assert f"!{folder}" in ignored
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {f"{package}*" for package in packages} <= set(found)


def test_the_image_converts_the_model_with_all_that_the_conversion_imports() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    before = lines[: next(at for at, text in enumerate(lines) if "make model" in text)]
    copied = [
        part for text in before if text.startswith("COPY engine/") for part in text.split() if part.endswith(".py")
    ]
    seen = {"engine/__init__.py", "engine/model/__init__.py"}
    waiting = ["engine/model/model_store.py"]
    while waiting:
        name = waiting.pop()
        seen.add(name)
        taken = re.findall(r"^ *from engine\.([\w.]+) import", (ROOT / name).read_text(), re.MULTILINE)
        waiting += [path for path in (f"engine/{module.replace('.', '/')}.py" for module in taken) if path not in seen]
    assert sorted(seen) == sorted(copied)
