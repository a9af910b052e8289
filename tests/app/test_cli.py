"""The command line and the start of the server."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import websockets.sync.client
from typer.testing import CliRunner

from app import cli
from app.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


def _plain(text: str) -> str:
    """Without the frame and the line breaks that the terminal's width brings."""
    return re.sub(r"[\s│]+", " ", text)


def test_help_explains_every_setting_with_its_environment_name_and_default() -> None:
    result = CliRunner().invoke(cli.app, ["serve", "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    text = _plain(result.output)
    for name, field in Settings.model_fields.items():
        assert f"--{name.replace('_', '-')}" in text
        default = "none" if field.default == "" else field.default
        assert f"Environment: {name.upper()}. Default: {default}." in text, name


def test_an_option_beats_the_environment_which_beats_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Settings] = []
    app = typer.Typer()
    app.command()(cli._with_settings(seen.append))
    monkeypatch.setenv("MAX_ARENAS", "5")
    monkeypatch.setenv("PORT", "")
    for options in ([], ["--max-arenas", "7"]):
        assert CliRunner().invoke(app, options).exit_code == 0
    assert [(one.max_arenas, one.port) for one in seen] == [(5, 8000), (7, 8000)]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--port", "70000"], ["PORT is 70000", "65535"]),
        (["--dtype", "float8"], ["DTYPE is 'float8'", "bfloat16"]),
        (["--max-arenas", "0"], ["MAX_ARENAS is 0", "1"]),
        (["--kv-slots", "447"], ["KV_SLOTS is 447", "448"]),
        (["--max-arena-slots", "191"], ["MAX_ARENA_SLOTS is 191", "192"]),
        (
            ["--allowed-hosts", "http://a.example"],
            ["ALLOWED_HOSTS is 'http://a.example'", "http://a.example", "without"],
        ),
    ],
)
def test_a_bad_setting_is_named_with_its_bound(options: list[str], parts: list[str]) -> None:
    result = CliRunner().invoke(cli.app, ["serve", *options])
    assert result.exit_code == 2
    assert all(part in result.output for part in parts), result.output


def test_a_port_that_is_taken_is_said_with_the_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = CliRunner().invoke(cli.app, ["serve", "--port", str(taken.getsockname()[1])])
    assert result.exit_code == 1
    assert "Choose another with HOST and PORT" in result.output


def test_model_check_says_whether_the_model_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGED_CACHE", str(tmp_path))
    assert CliRunner().invoke(cli.app, ["model", "--check"]).exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_the_web_process_never_imports_what_is_heavy() -> None:
    code = (
        "import sys, app.main, app.cli; from app.settings import Settings; app.main.create_app(Settings());"
        "print([name for name in ('torch', 'transformers', 'numba', 'triton', 'numpy') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, -signal.SIGTERM)])
def test_serve_prints_its_address_once_it_listens_and_ends_in_silence(sent: signal.Signals, status: int) -> None:
    # The engine of a model that is not there fails soon; the site must not mind.
    environment = {**os.environ, "MODEL": "/no/such/model", "PORT": "0", "LOG_LEVEL": "critical"}
    server = subprocess.Popen(
        [sys.executable, "-m", "app.cli", "serve"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        found = re.fullmatch(r"Serving on http://127\.0\.0\.1:(\d+) \(Ctrl-C to stop\)\n", server.stdout.readline())
        assert found is not None
        port = int(found[1])
        with socket.create_connection(("127.0.0.1", port), timeout=10) as http:
            http.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert http.recv(64).startswith(b"HTTP/1.1 200")
        with websockets.sync.client.connect(f"ws://127.0.0.1:{port}/ws/arena") as page:
            page.recv()
            server.send_signal(sent)
            with contextlib.suppress(websockets.ConnectionClosed):
                for _ in page:
                    pass
            assert page.close_code == 1012
        _, complaints = server.communicate(timeout=20)
        assert (server.returncode, complaints) == (status, "")
    finally:
        server.kill()
        server.wait()
