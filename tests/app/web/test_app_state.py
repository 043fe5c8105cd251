"""The state of the application is there before its first request."""

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from paged_chat.app.web.app_state import AppState


def test_the_first_request_finds_what_was_given():
    def answer(request: Request) -> JSONResponse:
        return JSONResponse(request.app.state.answer)

    app = Starlette(routes=[Route("/", answer)], middleware=[Middleware(AppState, values={"answer": 42})])
    assert TestClient(app).get("/").json() == 42
