"""A trace: an arena's log in a file, to be played back and verified.

JSON lines: a ``Header``, the opening snapshot, each step as it goes over the socket, and the closing snapshot, whose state
the steps must lead to. A file whose name ends in ``.gz`` is compressed. Files are written and read line by line.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, TypeVar, cast

import msgspec

from engine.events import VERSION, Snapshot, Step
from engine.messages import ModelInfo

FORMAT = "paged-trace"
MAX_LINE = 64 * 2**20
"""Bytes of a line, so that no file takes all memory. The state of a million slots needs less."""
OTHER_COMPRESSION = (".zst", ".xz", ".bz2", ".zip", ".lz4", ".br")

Line = TypeVar("Line")


class Header(msgspec.Struct, frozen=True):
    """``label`` says what was recorded; ``recorded`` is a date in ISO 8601."""

    label: str
    model: ModelInfo
    recorded: str
    format: str = FORMAT
    v: int = VERSION


class _Version(msgspec.Struct):
    """What every version of a header has."""

    format: str
    v: int


class TraceError(ValueError):
    """The file is no trace, or a broken one, or of a version that this program does not read. The message names the file,
    the line where there is one, and what is wrong with it."""

    def __init__(self, path: Path, line: int | None, why: str) -> None:
        super().__init__(f"{path}, line {line}: {why}" if line else f"{path}: {why}")
        self.line = line


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def write(path: Path, header: Header, opening: Snapshot, steps: Iterable[Step], closing: Snapshot) -> None:
    """Write a whole trace. Raises TraceError."""
    with Writer(path, header, opening) as writer:
        for step in steps:
            writer.add(step)
        writer.close(closing)


class Writer:
    """Writes a trace step by step. The file has its name once it is closed; what is not closed is removed. Raises TraceError
    where it cannot be written."""

    def __init__(self, path: Path, header: Header, opening: Snapshot) -> None:
        self.path = path
        self._part = path.with_name(path.name + ".part")
        if path.suffix in OTHER_COMPRESSION:
            raise TraceError(
                path, None, f"{path.suffix} cannot be written: name it .jsonl, or .jsonl.gz to compress it"
            )
        try:
            self._file = self._part.open("wb")
        except OSError as error:
            raise TraceError(path, None, f"cannot be written ({error.strerror})") from error
        self._gzip = gzip.GzipFile("", "wb", 9, self._file, mtime=0) if path.suffix == ".gz" else None
        self._sink = cast(BinaryIO, self._gzip or self._file)
        self._encode = msgspec.json.Encoder().encode
        self._write(header)
        self._write(opening)

    def add(self, step: Step) -> None:
        self._write(step)

    def close(self, closing: Snapshot) -> None:
        self._write(closing)
        self._shut()
        os.replace(self._part, self.path)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._file.closed:
            self._shut()
            self._part.unlink()

    def _shut(self) -> None:
        if self._gzip:
            self._gzip.close()
        self._file.close()

    def _write(self, line: Header | Snapshot | Step) -> None:
        self._sink.write(self._encode(line) + b"\n")


class Reader:
    """Reads a trace line by line: ``header`` and ``opening`` at once, the steps by iterating, once, and after the last of
    them ``closing``. ``line`` is the number of the one read last. Raises TraceError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 0
        self.closing: Snapshot | None = None
        try:
            self._source = cast(BinaryIO, gzip.GzipFile(path, "rb") if path.suffix == ".gz" else path.open("rb"))
        except OSError as error:
            raise TraceError(path, None, f"cannot be read ({error.strerror})") from error
        try:
            self.header = self._header()
            self.opening = self._decode(self._next(), Snapshot, "a snapshot")
            self._check_version(self.opening.v)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._source.close()

    def __iter__(self) -> Iterator[Step]:
        decoder = msgspec.json.Decoder(Snapshot | Step)
        seq = self.opening.seq
        while (line := self._next()) is not None:
            item = self._decode(line, decoder, "a step or the closing snapshot")
            self._check_version(item.v)
            last = isinstance(item, Snapshot)
            here, there = (item.arena, item.epoch, item.seq), (self.opening.arena, self.opening.epoch, seq + (not last))
            if self.closing is not None:
                raise TraceError(self.path, self.line, "nothing may follow the closing snapshot")
            if here != there:
                what = "the closing snapshot" if last else "the step"
                raise TraceError(
                    self.path, self.line, f"{what} of (arena, epoch, number) {here} stands where {there} must"
                )
            if isinstance(item, Snapshot):
                self.closing = item
            else:
                seq = item.seq
                yield item
        if self.closing is None:
            raise TraceError(
                self.path, self.line, f"the file ends after step {seq} without a closing snapshot: it was cut short"
            )

    def _header(self) -> Header:
        line = self._next()
        known = self._decode(line, _Version, "a header")
        if (known.format, known.v) != (FORMAT, VERSION):
            raise TraceError(
                self.path, 1, f"{known.format} version {known.v}, and this program reads {FORMAT} version {VERSION}"
            )
        return self._decode(line, Header, "a header")

    def _next(self) -> bytes | None:
        try:
            line = self._source.readline(MAX_LINE + 1)
        except (EOFError, OSError, zlib.error) as error:
            raise TraceError(self.path, self.line + 1, f"the file is damaged or cut short ({error})") from error
        if not line:
            return None
        self.line += 1
        if len(line) > MAX_LINE:
            raise TraceError(self.path, self.line, f"longer than {MAX_LINE} bytes: this is no trace")
        return line

    def _decode(self, line: bytes | None, kind: type[Line] | msgspec.json.Decoder[Line], what: str) -> Line:
        if line is None:
            raise TraceError(self.path, self.line + 1, f"the file ends, and {what} must follow")
        try:
            return kind.decode(line) if isinstance(kind, msgspec.json.Decoder) else msgspec.json.decode(line, type=kind)
        except msgspec.DecodeError as error:
            raise TraceError(self.path, self.line, f"this must be {what} ({error})") from error

    def _check_version(self, version: int) -> None:
        if version != VERSION:
            raise TraceError(self.path, self.line, f"version {version}, and this program reads version {VERSION}")
