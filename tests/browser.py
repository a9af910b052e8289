"""The Chromium that the tests drive: one that is there already, or the easiest one to install.

``python -m tests.browser --ensure`` installs one where none is found; tests then launch ``executable()`` with
``launch_arguments()``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ON_PATH = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
IN_PLACE = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
WAY_OUT = (
    "install Chromium or Chrome (Debian: `apt-get install chromium`; elsewhere: `python -m playwright install chromium`) "
    "or set CHROMIUM to the path of one"
)


class NoBrowser(RuntimeError):
    """There is no Chromium that starts; the message says how to get one."""


def executable() -> str:
    """The path of a Chromium that starts. ``CHROMIUM``, where set, is taken and nothing else is looked for.

    Raises NoBrowser when there is none.
    """
    chosen = os.environ.get("CHROMIUM")
    if chosen:
        if starts(chosen):
            return chosen
        raise NoBrowser(f"CHROMIUM={chosen} does not start: set it to a Chromium or Chrome, or unset it")
    for path in candidates():
        if starts(path):
            return path
    raise NoBrowser(f"no Chromium found: {WAY_OUT}")


def launch_arguments() -> list[str]:
    """Flags for a headless run that speaks to no host but the one under test, as root too."""
    quiet = [
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ]
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    return ["--no-sandbox", *quiet] if root else quiet


def candidates() -> Iterator[str]:
    """Where a Chromium may lie, the likeliest first: on the path, in its usual place, in Playwright's cache."""
    for name in ON_PATH:
        found = shutil.which(name)
        if found:
            yield found
    yield from (path for path in IN_PLACE if Path(path).is_file())
    own = playwrights_own()
    if own:
        yield own


def playwrights_own() -> str | None:
    """Where Playwright's own installer has put its Chromium, if it has."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).is_file() else None


def starts(path: str) -> bool:
    """Whether it runs at all: some distributions put a script on the path that only says what to install."""
    try:
        run = subprocess.run([path, "--version"], capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return run.returncode == 0 and b"Chrom" in run.stdout


def ensure() -> str:
    """The path of a Chromium that starts, installed first where none is found.

    Raises NoBrowser when none can be installed here.
    """
    try:
        return executable()
    except NoBrowser:
        if os.environ.get("CHROMIUM"):
            raise
    for commands in installers():
        print(f"no Chromium found; trying `{' '.join(commands[-1])}`", file=sys.stderr, flush=True)
        if all(succeeds(command) for command in commands):
            try:
                return executable()
            except NoBrowser:
                continue
    raise NoBrowser(f"no Chromium found and none could be installed here: {WAY_OUT}")


def installers() -> Iterator[list[list[str]]]:
    """Ways to install one, each a list of commands: Debian's package for root, else Playwright's own installer."""
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    apt = shutil.which("apt-get")
    if root and apt:
        yield [
            [apt, "update", "-q"],
            [apt, "install", "-q", "-y", "--no-install-recommends", "chromium"],
        ]
    yield [[sys.executable, "-m", "playwright", "install", *(["--with-deps"] if root and apt else []), "chromium"]]


def succeeds(command: list[str]) -> bool:
    """Run ``command`` with its output on stderr and nothing to ask; False when it fails or cannot be run."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=environment, check=False)
    except OSError:
        return False
    return run.returncode == 0


def main(arguments: list[str]) -> None:
    try:
        print(ensure() if "--ensure" in arguments else executable())
    except NoBrowser as error:
        raise SystemExit(f"tests.browser: {error}") from error


if __name__ == "__main__":
    main(sys.argv[1:])
