"""For those who operate the server: is it alive, and can it serve a model?"""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, PlainTextResponse

from app.arenas import Arenas

router = APIRouter(tags=["Operations"])


@router.head("/healthz", response_class=PlainTextResponse, include_in_schema=False)
@router.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> str:
    """200 while the web process answers, whatever the engine does."""
    return "ok\n"


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz")
async def readyz(request: Request) -> JSONResponse:
    """200 when the model is ready, 503 before, while the engine restarts, and after it has failed."""
    hub: Arenas = request.app.state.arenas
    status = hub.engine.status
    body: dict[str, Any] = {
        "state": status.state,
        "stage": status.stage,
        "progress": status.progress,
        "model": msgspec.to_builtins(status.model),
        "arenas": hub.visitors,
        "waiting": hub.waiting,
        "sockets": len(hub.clients),
        "api_requests": len(hub.generations),
        "engine_restarts": hub.engine.restarts,
    }
    return JSONResponse(body, 200 if hub.engine.ready else 503, {"Cache-Control": "no-store"})
