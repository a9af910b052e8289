"""The web application put together."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse, Response

from app import arena_socket, asyncapi, health, openai_api, openai_errors, pages, prefix_api
from app.arenas import Arenas
from app.errors import EngineUnavailable, Invalid
from app.hosts import HostGuard
from app.security import RequestGuard, SecurityHeaders
from app.settings import Settings


def engine_command(settings: Settings) -> list[str]:
    """The command line that starts the engine process."""
    config = msgspec.json.encode(settings.engine_config()).decode()
    return [sys.executable, "-m", "engine.process", config]


def create_app(settings: Settings | None = None, command: Sequence[str] | None = None) -> FastAPI:
    """The application; its engine starts with its lifespan. ``command`` starts another engine than our own."""
    settings = settings or Settings()
    arenas = Arenas(settings, command or engine_command(settings))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        arenas.engine.start()
        try:
            yield
        finally:
            arenas.shut_down()
            await arenas.engine.stop()

    app = FastAPI(
        title="Virtual Memory for the KV Cache",
        version=version("paged"),
        lifespan=lifespan,
        docs_url=None,  # it would load its scripts from another host
        redoc_url=None,
    )
    app.state.settings = settings
    app.state.arenas = arenas
    app.state.pages = pages.Pages()
    for module in (pages, arena_socket, openai_api, prefix_api, health, asyncapi):
        app.include_router(module.router)
    _handle_errors(app)
    app.add_middleware(RequestGuard, max_bytes=settings.max_body_bytes, origins=settings.origins())
    app.add_middleware(GZipMiddleware, minimum_size=500, compresslevel=6)
    app.add_middleware(HostGuard, allowed=settings.hosts())
    app.add_middleware(SecurityHeaders)
    return app


def _handle_errors(app: FastAPI) -> None:
    @app.exception_handler(Invalid)
    async def invalid(request: Request, problem: Invalid) -> Response:
        return openai_errors.from_problem(problem)

    @app.exception_handler(EngineUnavailable)
    async def unavailable(request: Request, problem: EngineUnavailable) -> Response:
        return openai_errors.from_problem(problem)

    @app.exception_handler(RequestValidationError)
    async def misshapen(request: Request, problem: RequestValidationError) -> Response:
        return openai_errors.from_validation(problem, request.headers.get("content-type"))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, problem: HTTPException) -> Response:
        if request.url.path.startswith("/v1/"):
            text = f"{request.method} {request.url.path[: openai_errors.MAX_NAME]}: {problem.detail}."
            answer: Response = openai_errors.response(problem.status_code, text)
        elif problem.status_code == 404:
            answer = PlainTextResponse("There is no such page. The explainer is at /.\n", 404)
        else:
            answer = PlainTextResponse(f"{problem.detail}\n", problem.status_code)
        answer.headers.update(problem.headers or {})
        return answer
