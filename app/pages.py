"""The page, its files, and what is said where there is nothing."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import jinja2
from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from app.assets import CHECK_AGAIN, Assets

ROOT = Path(__file__).resolve().parent.parent

router = APIRouter(include_in_schema=False)


class Pages:
    """Templates of ``templates/``, which name static files by ``asset("css/page.css")``."""

    def __init__(self, root: Path = ROOT) -> None:
        self.assets = Assets(root / "static")
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(root / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals["asset"] = self.assets.address
        self._templates.globals["version"] = version("paged")

    def render(self, name: str, **context: object) -> str:
        """Raises jinja2's TemplateError on a broken template or an undefined name."""
        return self._templates.get_template(name).render(context)


@router.api_route("/", methods=["GET", "HEAD"])
async def index(request: Request) -> HTMLResponse:
    """The explainer."""
    pages: Pages = request.app.state.pages
    return HTMLResponse(pages.render("index.html"), headers={"Cache-Control": CHECK_AGAIN})


@router.api_route("/static/{path:path}", methods=["GET", "HEAD"])
async def static_file(request: Request, path: str) -> Response:
    pages: Pages = request.app.state.pages
    return await pages.assets.respond(request, path)
