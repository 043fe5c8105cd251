"""The state of the application is there before its first request."""

from fastapi import FastAPI, Request
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from paged_chat.app.web.app_state import AppState


def test_the_first_request_finds_what_was_given():
    app = FastAPI(middleware=[Middleware(AppState, values={"answer": 42})])

    @app.get("/answer")
    def answer(request: Request) -> int:
        return request.app.state.answer

    assert TestClient(app).get("/answer").json() == 42
