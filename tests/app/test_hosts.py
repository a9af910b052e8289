"""A foreign page that points its own name at this machine gets neither an answer nor a socket."""

from __future__ import annotations

import httpx
import pytest
import websockets

from app.settings import Settings
from tests.app.conftest import Site, serve

FOREIGN = ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "[::2]:80", "[", ""]
OWN = ["localhost", "LOCALHOST:9", "localhost.", "127.0.0.1:8000", "[::1]", "[::1]:8000"]


@pytest.mark.parametrize("host", FOREIGN)
async def test_a_foreign_name_is_refused_in_words(site: Site, host: str) -> None:
    async with site.http() as http:
        for path in ("/", "/static/js/main.js", "/readyz", "/nowhere"):
            answer = await http.get(path, headers={"Host": host})
            assert answer.status_code == 421
            assert repr(host) in answer.text
            assert "ALLOWED_HOSTS" in answer.text
        answer = await http.post("/v1/completions", json={}, headers={"Host": host})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"], error["code"]) == (421, "Host", "unknown_host")
        assert "ALLOWED_HOSTS" in error["message"]


async def test_a_foreign_name_gets_no_socket_even_from_its_own_page(site: Site) -> None:
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with websockets.connect(
            f"ws://evil.example:{site.port}/ws/arena",
            host="127.0.0.1",
            port=site.port,
            origin=websockets.Origin(f"http://evil.example:{site.port}"),
        ):
            pass
    assert refused.value.response.status_code == 421
    assert b"ALLOWED_HOSTS" in (refused.value.response.body or b"")
    assert len(site.arenas.clients) == 0


@pytest.mark.parametrize("host", OWN)
async def test_this_machines_own_names_are_let_in(site: Site, host: str) -> None:
    async with site.http() as http:
        assert (await http.get("/healthz", headers={"Host": host})).status_code == 200


async def test_a_listed_name_is_let_in_with_its_page() -> None:
    async with serve(allowed_hosts="paged.example, b.example") as site:
        async with websockets.connect(
            f"ws://paged.example:{site.port}/ws/arena",
            host="127.0.0.1",
            port=site.port,
            origin=websockets.Origin(f"http://paged.example:{site.port}"),
        ) as socket:
            assert '"status"' in str(await socket.recv())
        async with httpx.AsyncClient(base_url=site.url) as http:
            assert (await http.get("/healthz", headers={"Host": "evil.example"})).status_code == 421


EVERYWHERE = "0.0.0.0"  # noqa: S104 - nothing is bound to it


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        ({}, {"localhost", "127.0.0.1", "::1"}),
        ({"host": "192.0.2.7"}, {"localhost", "127.0.0.1", "::1", "192.0.2.7"}),
        ({"host": "2001:db8::7"}, {"localhost", "127.0.0.1", "::1", "2001:db8::7"}),
        ({"host": EVERYWHERE}, None),
        ({"host": "::"}, None),
        (
            {"host": EVERYWHERE, "allowed_hosts": "A.example"},
            {"localhost", "127.0.0.1", "::1", EVERYWHERE, "a.example"},
        ),
        ({"allowed_hosts": "*"}, None),
        (
            {"allowed_hosts": "[2001:db8::8]:80, c.example:8000"},
            {"localhost", "127.0.0.1", "::1", "2001:db8::8", "c.example"},
        ),
    ],
)
def test_which_names_are_allowed(settings: dict[str, str], allowed: set[str] | None) -> None:
    assert Settings(**settings).hosts() == allowed
