"""All that the API answers to, for a server to mount."""

from __future__ import annotations

from starlette.routing import BaseRoute, Mount

from ..service.engine_host import EngineHost
from .accounts import Accounts
from .engine_routes import EngineRoutes
from .guest_count import GuestCount
from .openai_routes import OpenAIRoutes


def api_routes(host: EngineHost, accounts: Accounts, token: str) -> list[BaseRoute]:
    """`token` opens the part for a second process of the same person; accounts, where there are any, the rest."""
    api = GuestCount(OpenAIRoutes(host, accounts).app, host.guests)
    return [*EngineRoutes(host, token).routes, Mount("/v1", app=api)]
