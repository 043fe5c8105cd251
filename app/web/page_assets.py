"""The page's own scripts and styles: files beside this one, served as they are."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

ASSETS = Path(__file__).parent / "assets"
STYLE_SHEETS = tuple(sorted(path.name for path in ASSETS.glob("*.css")))
MODULES = tuple(sorted(path.name for path in ASSETS.glob("*.js")))
URL = "/paged-chat/assets"

# What stands first in the page's head.
HEAD = "\n".join(
    [
        '<meta name="viewport" content="width=device-width, initial-scale=1, interactive-widget=resizes-content">',
        *(f'<link rel="stylesheet" href="{URL}/{name}">' for name in STYLE_SHEETS),
        *(f'<link rel="modulepreload" href="{URL}/{name}">' for name in MODULES),
        f'<script type="module" src="{URL}/main.js"></script>',
    ]
)


class _Files(StaticFiles):
    """Files that a browser asks for again at each load, and gets only where they have changed."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response


def asset_routes() -> list[Mount]:
    return [Mount(URL, _Files(directory=ASSETS))]
