from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import browser


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with no browser: nothing on the path, nothing of Playwright's."""
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(browser, "IN_PLACE", ())
    monkeypatch.setattr(browser, "playwrights_own", lambda: None)
    return tmp_path


def test_one_on_the_path_is_taken_and_a_script_that_only_talks_is_not(bare: Path) -> None:
    script(bare / "chromium", "echo install the snap; exit 1")
    with pytest.raises(browser.NoBrowser, match="no Chromium found: install Chromium or Chrome"):
        browser.executable()
    chrome = script(bare / "google-chrome", "echo Google Chrome 150.0")
    assert browser.executable() == chrome


def test_playwrights_own_comes_last(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = script(bare / "own", "echo Chromium 150.0")
    monkeypatch.setattr(browser, "playwrights_own", lambda: own)
    assert browser.executable() == own
    chromium = script(bare / "chromium", "echo Chromium 150.0")
    assert browser.executable() == chromium


def test_a_chosen_one_is_taken_or_refused_but_never_replaced(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(bare / "chromium", "echo Chromium 150.0")
    monkeypatch.setenv("CHROMIUM", "/no/such/browser")
    with pytest.raises(browser.NoBrowser, match=r"CHROMIUM=/no/such/browser does not start"):
        browser.ensure()


def test_one_is_installed_where_none_is(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = script(bare / "fails", "exit 1")
    installs = script(
        bare / "installs",
        f"printf '#!/bin/sh\\necho Chromium 150.0\\n' > {bare}/chromium\n/bin/chmod +x {bare}/chromium",
    )
    monkeypatch.setattr(browser, "installers", lambda: iter([[[fails]], [[installs]]]))
    assert browser.ensure() == str(bare / "chromium")


def test_where_none_can_be_installed_the_way_out_is_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "installers", lambda: iter([[["/no/such/installer"]]]))
    with pytest.raises(browser.NoBrowser, match=r"none could be installed here: .*playwright install chromium"):
        browser.ensure()


def test_debians_package_is_for_root_only(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apt = script(bare / "apt-get", "exit 0")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert [ways[-1][0] == apt for ways in browser.installers()] == [True, False]
    assert browser.launch_arguments()[0] == "--no-sandbox"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert [ways[-1][1:] for ways in browser.installers()] == [["-m", "playwright", "install", "chromium"]]
    assert "--no-sandbox" not in browser.launch_arguments()
