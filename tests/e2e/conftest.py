"""A browser, and the product with the default model and with a tiny one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.browser import executable, launch_arguments
from tests.e2e.figure import Figure
from tests.e2e.site import Site


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable(), args=launch_arguments())
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def real() -> Iterator[Site]:
    """The default model."""
    site = Site()
    site.ready()
    yield site
    site.stop()


@pytest.fixture(scope="session")
def tiny() -> Iterator[Site]:
    site = Site(MODEL="tiny")
    site.ready()
    yield site
    site.stop()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that must not complain: no console error, no exception, no request to another host."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    page = context.new_page()
    complaints: list[str] = []
    allowed: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(part in message.text for part in allowed):
            complaints.append(message.text)

    page.on("console", hear)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: "//127.0.0.1" in request.url or complaints.append(request.url))
    page.allow = allowed.append  # type: ignore[attr-defined]  # for tests that stop the server
    yield page
    context.close()
    assert complaints == []


@pytest.fixture
def open_figure(page: Page) -> Callable[[Site], Figure]:
    return lambda site: Figure(page, site).opened()
