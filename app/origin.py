"""Which web pages may talk to this server.

A browser lets any page open a socket to any server, and tells the server whose page it is in ``Origin``: without a
check, a foreign page could drive its visitor's own engine. So the origin must be the host that the browser itself asked
for, or be listed. A client without ``Origin`` is no browser: browsers never leave it out of a socket's handshake, nor
of a cross-site POST, and everything else could claim any origin anyway. Such clients are let in.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers

_PORTS = {"http": 80, "https": 443}


def is_allowed(headers: Headers, listed: frozenset[str]) -> bool:
    """Whether a request with these headers may proceed; ``listed`` are further origins, such as https://a.example."""
    origin = headers.get("origin")
    if origin is None:
        return True
    if origin.lower() in listed:
        return True
    scheme, place = _place(origin)
    # Behind a proxy that ends TLS the scheme of our own address is not known here: the browser's is taken.
    return place is not None and place == _place(f"{scheme}://{headers.get('host', '')}")[1]


def _place(url: str) -> tuple[str, tuple[str, int] | None]:
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return "", None
    if not parts.hostname or port is None:
        return parts.scheme, None
    return parts.scheme, (parts.hostname, port)
