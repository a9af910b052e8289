"""What goes wrong at the border, as exceptions that say what would be right."""

from __future__ import annotations


class Invalid(ValueError):
    """A client's wish that cannot be met.

    ``code`` is stable and machine-readable, ``field`` the part of the message at fault (empty: the whole), ``message``
    names the value, the limit and the way out.
    """

    def __init__(self, code: str, field: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.field = field
        self.message = message


class EngineUnavailable(RuntimeError):
    """The engine is loading, restarting or has failed; the text says which and what to do."""
