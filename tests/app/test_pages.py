"""The page and its files, and the headers that guard them."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from app.main import create_app
from app.pages import Pages
from app.settings import Settings


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in {
        "templates/index.html": "<script type=module src=\"{{ asset('js/main.js') }}\"></script>",
        "static/js/main.js": "import './core/log.js';" + " " * 600,
        "static/js/core/log.js": "export {};",
        "static/secret.txt": "in reach",
        "outside.txt": "out of reach",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.fixture
def http(root: Path) -> httpx.AsyncClient:
    app = create_app(Settings(allowed_hosts="test"))
    app.state.pages = Pages(root)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


async def test_hashed_addresses_are_kept_and_reach_what_modules_import(http: httpx.AsyncClient) -> None:
    page = await http.get("/")
    assert page.headers["cache-control"] == "no-cache"
    found = re.search(r'src="(/static/[0-9a-f]{12}/)js/main\.js"', page.text)
    assert found is not None
    for name in ("js/main.js", "js/core/log.js"):
        answer = await http.get(found[1] + name)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/javascript")
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"


async def test_a_change_changes_the_address_and_the_old_one_is_not_kept(http: httpx.AsyncClient, root: Path) -> None:
    before = (await http.get("/")).text
    (root / "static/js/core/log.js").write_text("export const changed = true;")
    assert (await http.get("/")).text != before
    old = re.findall(r'src="([^"]+)"', before)[0]
    answer = await http.get(old)
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-cache")


async def test_plain_addresses_are_checked_again_by_etag(http: httpx.AsyncClient) -> None:
    first = await http.get("/static/js/main.js", headers={"Accept-Encoding": "gzip"})
    assert first.headers["cache-control"] == "no-cache"
    assert first.headers["content-encoding"] == "gzip"
    again = await http.get("/static/js/main.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path", ["/static/../outside.txt", "/static/%2e%2e/outside.txt", "/static/js", "/static/", "/static/%00"]
)
async def test_nothing_outside_the_folder_is_served(http: httpx.AsyncClient, path: str) -> None:
    assert (await http.get(path)).status_code == 404


@pytest.mark.parametrize(
    "path", ["/", "/nowhere", "/static/js/main.js", "/healthz", "/v1/nothing", "/docs", "/openapi.json"]
)
async def test_every_response_carries_the_policy(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(path)
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'self'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert "camera=()" in answer.headers["permissions-policy"]


async def test_what_is_not_there_says_so(http: httpx.AsyncClient) -> None:
    answer = await http.get("/nowhere")
    assert (answer.status_code, answer.text) == (404, "There is no such page. The explainer is at /.\n")
    assert (await http.get("/docs")).status_code == 404
    schema = (await http.get("/openapi.json")).json()
    assert {"/v1/completions", "/v1/chat/completions", "/v1/models", "/healthz", "/readyz"} <= set(schema["paths"])


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/v1/models", "/v1/models/m", "/openapi.json"])
async def test_head_answers_as_get_does_without_a_body(http: httpx.AsyncClient, path: str) -> None:
    head, get = await http.head(path), await http.get(path)
    assert head.status_code == get.status_code
    assert {**head.headers} == {**get.headers}


def test_a_misspelt_asset_fails_loudly(root: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"js/mian\.js is no file"):
        Pages(root).assets.address("js/mian.js")
