"""Options of the command line that are settings too: an option beats the environment, which beats the default."""

from __future__ import annotations

from typing import Any

import typer
from pydantic import ValidationError

from app.settings import Settings


def read_settings(given: dict[str, Any], command: str) -> Settings:
    """The settings with those of ``given`` that are not None. Ends the program where one of them cannot be."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        for problem in error.errors():
            name = str(problem["loc"][0]).upper()
            typer.echo(f"{name} is {problem['input']!r}: {problem['msg']}. See paged {command} --help.", err=True)
        raise typer.Exit(2) from None
