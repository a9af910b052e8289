"""The command line: ``paged serve``, ``record``, ``replay`` and ``model``."""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Annotated, Any, get_args

import typer

from app.options import read_settings
from app.record import record
from app.replay import replay
from app.settings import Settings

app = typer.Typer(
    help="Virtual Memory for the KV Cache: a live explainer of PagedAttention.",
    no_args_is_help=True,
    add_completion=False,
)


def _with_settings(function: Callable[[Settings], None]) -> Callable[..., None]:
    """Give a command one option for each setting; an option beats the environment, which beats the default."""

    def command(**given: Any) -> None:
        function(read_settings(given, "serve"))

    parameters = []
    for name, field in Settings.model_fields.items():
        choices = get_args(field.annotation)
        among = f" One of {', '.join(choices)}." if choices else ""
        option = typer.Option(
            f"--{name.replace('_', '-')}",
            help=f"{field.description}{among} Environment: {name.upper()}. Default: {_shown(field.default)}.",
            show_default=False,
        )
        kind: Any = str if choices else field.annotation
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
            )
        )
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = function.__doc__
    return command


def _shown(default: object) -> str:
    return str(default) if default != "" else "none"


def _serve(settings: Settings) -> None:
    """Serve the explainer, its engine and the OpenAI-compatible API until Ctrl-C."""
    listener = _listen(settings.host, settings.port)
    # Imported here, so that --help and a port that is taken are answered at once.
    from app.main import create_app
    from app.server import Server

    host, port = listener.getsockname()[:2]
    address = f"http://{'[' + host + ']' if ':' in host else host}:{port}"

    class AnnouncedServer(Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            print(f"Serving on {address} (Ctrl-C to stop)", flush=True)

    os.environ["LOG_LEVEL"] = settings.log_level  # for the engine process, which has its own log
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    server = AnnouncedServer(
        create_app(settings),
        settings,
        log_level="warning" if settings.log_level == "info" else settings.log_level,
        log_config=None,
        access_log=settings.log_level == "debug",
    )
    with contextlib.suppress(KeyboardInterrupt):  # raised once all is closed: Ctrl-C is how this command ends
        server.run([listener])


def _listen(host: str, port: int) -> socket.socket:
    """Take the address before anything slow happens. Exits with the reason and the way out when it is not to be had."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        reason = error.strerror or error
        typer.echo(f"Cannot listen on {host} port {port}: {reason}. Choose another with HOST and PORT.", err=True)
        raise typer.Exit(1) from None
    listener.set_inheritable(False)
    return listener


app.command("serve")(_with_settings(_serve))
app.command("record")(record)
app.command("replay")(replay)


@app.command("model")
def _model(
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing: exit with 0 where it is ready, else with 1.")
    ] = False,
) -> None:
    """Convert the default model into the user's cache, once, with a progress bar."""
    # In a process of its own: it needs what this one never imports.
    command = [sys.executable, "-m", "engine.model.model_store", *(["--check"] if check else [])]
    raise typer.Exit(subprocess.run(command, check=False).returncode)


def main() -> None:
    """Entry point of the ``paged`` command."""
    app()


if __name__ == "__main__":
    main()
