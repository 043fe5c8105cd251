"""Serves the page: Gradio's application with our routes, behind the guard."""

from __future__ import annotations

import os

# Read when gradio is imported.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from starlette.middleware import Middleware

from ..api.accounts import Accounts
from ..api.binding import is_loopback, names_of, url_of
from ..api.body_limit import BodyLimit
from ..api.guard import Guard
from ..api.login_limit import LoginLimit
from ..api.patient_protocol import PatientProtocol
from ..api.routes import api_routes
from ..service.chat_service import ChatService
from . import comparison_routes, live, panel, routes, token_routes, transfer_routes, why_routes
from .app_state import AppState
from .doors import Doors
from .page import build_page
from .page_assets import ASSETS, HEAD, asset_routes
from .page_head import PageHead
from .panel_source import PoolSource
from .theme import THEME

QUEUE_PAUSE_S = 0.5


class WebServer:
    """The page, being served on a thread of its own until `close`."""

    def __init__(self, service: ChatService, host: str, port: int, accounts: Accounts, token: str) -> None:
        """The service stays the caller's. The address has been checked by `check_address`.

        token: opens the engine to other programs of the person who runs this one.
        """
        state = {"chat_service": service, "deleted_chats": {}, "pool_source": PoolSource(service)}
        self._page = build_page(service)
        self._page.launch(
            server_name=host,
            server_port=port,
            auth=accounts.check if len(accounts) else None,
            auth_message="paged-chat: everyone here has their own chats.",
            prevent_thread_lock=True,
            quiet=True,
            share=False,
            ssr_mode=False,
            run_history=False,
            enable_monitoring=False,
            _frontend=False,  # else it asks for its own page, and gives up after 3 s: too early on a busy machine
            strict_cors=is_loopback(host),
            footer_links=[],
            favicon_path=ASSETS / "icon.svg",
            theme=THEME,
            app_kwargs={
                "routes": [
                    *asset_routes(),
                    *routes.router.routes,
                    *token_routes.router.routes,
                    *comparison_routes.router.routes,
                    *why_routes.router.routes,
                    *transfer_routes.router.routes,
                    *live.router.routes,
                    *panel.router.routes,
                    *api_routes(service.engine_host, accounts, token),
                ],
                "middleware": [
                    Middleware(Guard, names=names_of(host)),
                    Middleware(LoginLimit),
                    Middleware(BodyLimit, streamed=[transfer_routes.IMPORT_PATH]),
                    Middleware(PageHead, head=HEAD),
                    Middleware(AppState, values=state),
                    Middleware(Doors),
                ],
                "exception_handlers": routes.EXCEPTION_HANDLERS,
                "docs_url": None,
                "redoc_url": None,
            },
        )
        # Gradio looks a thousand times a second for queued events, and a hundred times how far they are, which takes a
        # tenth of a core from the model. Ours don't queue.
        self._page._queue.sleep_when_free = QUEUE_PAUSE_S
        self._page._queue.progress_update_sleep_when_free = QUEUE_PAUSE_S
        # Both are looked up for each new connection. To compress what a page is told would cost more than it saves.
        self._page.server.config.http_protocol_class = PatientProtocol
        self._page.server.config.ws_per_message_deflate = False
        self.url = url_of(host, port)

    def close(self) -> None:
        self._page.close(verbose=False)
