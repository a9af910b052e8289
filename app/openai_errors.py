"""Errors of ``/v1/*`` in the shape that OpenAI's clients understand."""

from __future__ import annotations

from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.responses import JSONResponse

from app.errors import EngineUnavailable, Invalid

RETRY_AFTER_S = "2"
KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


def payload(status: int, message: str, param: str | None, code: str | None) -> dict[str, Any]:
    """``{"error": {...}}``, also sent as an event in the middle of a stream."""
    kind = "server_error" if status >= 500 else KINDS.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def response(status: int, message: str, param: str | None = None, code: str | None = None) -> JSONResponse:
    """An error response; with 429 and 503 it says when to come back."""
    headers = {"Retry-After": RETRY_AFTER_S} if status in (429, 503) else None
    return JSONResponse(payload(status, message, param, code), status, headers)


def from_invalid(problem: Invalid) -> JSONResponse:
    """Status 429 for a full queue, 404 for what does not exist, 400 for all else."""
    status = {"queue_full": 429, "too_many_requests": 429, "unknown_arena": 404, "model_not_found": 404}
    return response(status.get(problem.code, 400), problem.message, problem.field or None, problem.code)


def from_unavailable(problem: EngineUnavailable) -> JSONResponse:
    return response(503, str(problem), None, "engine_unavailable")


def from_validation(error: RequestValidationError) -> JSONResponse:
    """The first complaint of pydantic, with the field's name, the value and the way out."""
    first = error.errors()[0]
    kind, context = first["type"], first.get("ctx", {})
    if kind == "json_invalid":
        return response(
            400, f"the body is not JSON ({context.get('error', 'broken')}); send one object.", None, "bad_json"
        )
    if kind == "unsupported":
        return response(400, first["msg"], str(context["param"]), "unsupported_parameter")
    field = ".".join(str(part) for part in first["loc"][1:] if part not in ("str", "list[str]", "list[int]"))
    if kind == "extra_forbidden":
        message = f"{field} is no parameter that this server knows; leave it out or correct its name."
        return response(400, message, field, "unknown_parameter")
    if kind == "missing":
        message = f"{field} is missing; add it." if field else "the body is empty; send a JSON object."
        return response(400, message, field or None, "missing_parameter")
    return response(
        400, f"{field or 'the body'} is {_show(first.get('input'))}: {first['msg']}.", field or None, "wrong_type"
    )


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:40] + "..."
