"""Static files under addresses that change with their content.

``asset("css/page.css")`` is ``/static/<digest>/css/page.css``, with one digest over the whole folder. Modules import
each other and style sheets name their pictures by relative addresses, so all they reach carries the digest too, and
browsers may keep everything for a year. Plain ``/static/css/page.css`` works as well, checked again at each use.
"""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response

DIGEST_CHARS = 12
FOR_EVER = "public, max-age=31536000, immutable"
CHECK_AGAIN = "no-cache"

# What the operating system says of these differs from machine to machine, and a module of a wrong type does not load.
_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".jsonl": "application/jsonl",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}


class Assets:
    """The files below ``folder``. Changes on disk are seen at once: they change the digest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._known: dict[str, tuple[tuple[int, int], bytes]] = {}

    def digest(self) -> str:
        """Of the names and contents of all files; unchanged ones are not read again."""
        known = {}
        total = hashlib.sha256()
        for path in sorted(path for path in self._folder.rglob("*") if path.is_file()):
            name = path.relative_to(self._folder).as_posix()
            known[name] = self._file_digest(name, path)
            total.update(name.encode() + b"\0" + known[name][1])
        self._known = known
        return total.hexdigest()[:DIGEST_CHARS]

    def address(self, name: str) -> str:
        """Of the file ``name`` for a page. Raises FileNotFoundError, so that a misspelt name fails in the first test."""
        if not (self._folder / name).is_file():
            raise FileNotFoundError(f"{name} is no file below {self._folder}: correct its name in the template")
        return f"/static/{self.digest()}/{name}"

    async def respond(self, request: Request, path: str) -> Response:
        """The file at ``path``, with or without a digest in front; 404 for all else."""
        first, _, rest = path.partition("/")
        is_digest = len(first) == DIGEST_CHARS and all(char in "0123456789abcdef" for char in first)
        file = self._find(rest if is_digest else path)
        if file is None:
            return PlainTextResponse("There is no such file.\n", 404)
        name = file.relative_to(self._folder).as_posix()
        etag = f'"{self._file_digest(name, file)[1].hex()[:32]}"'
        # An address with an old digest gets today's file; that must not be kept under yesterday's name.
        cache = FOR_EVER if is_digest and first == self.digest() else CHECK_AGAIN
        headers = {"ETag": etag, "Cache-Control": cache}
        if etag in (given.strip().removeprefix("W/") for given in request.headers.get("if-none-match", "").split(",")):
            return Response(status_code=304, headers=headers)
        kind = _TYPES.get(file.suffix) or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        return FileResponse(file, headers=headers, media_type=kind)

    def _find(self, name: str) -> Path | None:
        try:
            path = (self._folder / name).resolve()
            return path if path.is_file() and path.is_relative_to(self._folder) else None
        except (OSError, ValueError, RuntimeError):
            return None  # longer than a name may be, with a NUL in it, or round in a circle: there is no such file

    def _file_digest(self, name: str, path: Path) -> tuple[tuple[int, int], bytes]:
        stat = path.stat()
        stamp = (stat.st_mtime_ns, stat.st_size)
        known = self._known.get(name)
        if known is not None and known[0] == stamp:
            return known
        fresh = (stamp, hashlib.sha256(path.read_bytes()).digest())
        self._known[name] = fresh
        return fresh
