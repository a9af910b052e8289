"""Errors of ``/v1/*`` in the shape that OpenAI's clients understand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.responses import JSONResponse

from app.errors import EngineUnavailable, Invalid
from app.limits import show

RETRY_AFTER_S = "2"
KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    410: "not_found_error",
    429: "rate_limit_error",
}

STATUS = {
    "queue_full": 429,
    "too_many_requests": 429,
    "unknown_arena": 404,
    "model_not_found": 404,
    "unknown_prefix": 404,
    "prefix_in_progress": 409,
    "too_many_prefixes": 409,
    "no_room": 409,
    "arena_closed": 410,
    "request_aborted": 410,
    "engine_error": 500,
}
MAX_NAME = 80
"""Characters of a client's own word, such as a parameter's name, that an answer repeats."""


def payload(status: int, message: str, param: str | None, code: str | None) -> dict[str, Any]:
    """``{"error": {...}}``, also sent as an event in the middle of a stream."""
    message, param = _sayable(message), param if param is None else _sayable(param)
    kind = "server_error" if status >= 500 else KINDS.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def response(status: int, message: str, param: str | None = None, code: str | None = None) -> JSONResponse:
    """An error response; with 429 and 503 it says when to come back."""
    return JSONResponse(payload(status, message, param, code), status, _headers(status))


def of(problem: Invalid | EngineUnavailable) -> dict[str, Any]:
    """The ``payload`` that says ``problem``."""
    if isinstance(problem, EngineUnavailable):
        return payload(503, str(problem), None, "engine_unavailable")
    return payload(status_of(problem), problem.message, problem.field or None, problem.code)


def status_of(problem: Invalid | EngineUnavailable) -> int:
    """503 while there is no engine, else by ``STATUS``; 400 where the request itself is at fault."""
    return 503 if isinstance(problem, EngineUnavailable) else STATUS.get(problem.code, 400)


def from_problem(problem: Invalid | EngineUnavailable) -> JSONResponse:
    status = status_of(problem)
    return JSONResponse(of(problem), status, _headers(status))


def from_validation(error: RequestValidationError, content_type: str | None) -> JSONResponse:
    """The first complaint of pydantic, with the field's name, the value and the way out.

    ``content_type``: as the request names it. A body of another type than JSON is not even looked into.
    """
    first = error.errors()[0]
    kind, context = first["type"], first.get("ctx", {})
    if isinstance(error.body, bytes):
        came = f"the body came as {content_type[:MAX_NAME]}" if content_type else "the body came without a Content-Type"
        return response(415, f"{came}; send it as Content-Type: application/json.", None, "wrong_content_type")
    if kind == "json_invalid":
        return response(
            400, f"the body is not JSON ({context.get('error', 'broken')}); send one object.", None, "bad_json"
        )
    if kind == "unsupported":
        return response(400, first["msg"], str(context["param"]), "unsupported_parameter")
    field = _field(first["loc"][1:], error.body, kind)
    if kind == "extra_forbidden":
        message = f"{field} is no parameter that this server knows; leave it out or correct its name."
        return response(400, message, field, "unknown_parameter")
    if kind == "missing":
        message = f"{field} is missing; add it." if field else "the body is empty; send a JSON object."
        return response(400, message, field or None, "missing_parameter")
    return response(
        400, f"{field or 'the body'} is {show(first.get('input'))}: {first['msg']}.", field or None, "wrong_type"
    )


def _field(location: Sequence[str | int], body: Any, kind: str) -> str:
    """``messages.0.role`` and the like, cut to ``MAX_NAME`` characters.

    Where a field may be of several types, pydantic puts the type that it tried into ``location``. What is not to be
    found in the body at its place is such a type, unless it is what the body lacks.
    """
    parts = []
    for index, part in enumerate(location):
        lacking = kind == "missing" and index == len(location) - 1
        if isinstance(part, int) or lacking or (isinstance(body, dict) and part in body):
            parts.append(str(part))
            body = body[part] if not lacking else None
    name = ".".join(parts)
    return name if len(name) <= MAX_NAME else name[:MAX_NAME] + "..."


def _headers(status: int) -> dict[str, str] | None:
    return {"Retry-After": RETRY_AFTER_S} if status in (429, 503) else None


def _sayable(text: str) -> str:
    """``text`` with what UTF-8 cannot hold written as an escape: a client's own words may be in it."""
    return text.encode("utf-8", "backslashreplace").decode()
