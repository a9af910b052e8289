"""For those who operate the server: is it alive, and can it serve a model?"""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from app.arenas import Arenas
from app.metrics import CONTENT_TYPE
from app.metrics_now import Now

router = APIRouter(tags=["Operations"])


@router.head("/healthz", response_class=PlainTextResponse, include_in_schema=False)
@router.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> str:
    """200 while the web process answers, whatever the engine does."""
    return "ok\n"


@router.head("/metrics", include_in_schema=False)
@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Counters for Prometheus, named as vLLM's where they mean the same."""
    hub: Arenas = request.app.state.arenas
    return Response(hub.metrics.text(Now(hub)), headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})


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
