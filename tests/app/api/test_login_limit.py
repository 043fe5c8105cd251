"""Who guesses passwords is slowed down, and nobody else."""

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from paged_chat.app.api.login_limit import MAX_FAILURES, WINDOW_S, LoginLimit

RIGHT = {"Authorization": "Bearer ann:secret"}
WRONG = {"Authorization": "Bearer ann:guess"}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def client_of(clock: Clock, address: str = "192.0.2.1", app: Starlette | None = None) -> TestClient:
    return TestClient(app or app_of(clock), client=(address, 5000))


def app_of(clock: Clock) -> Starlette:
    async def models(request: Request) -> PlainTextResponse:
        is_right = request.headers.get("authorization") in (None, RIGHT["Authorization"])
        return PlainTextResponse("", 200 if is_right else 401)

    async def login(request: Request) -> PlainTextResponse:
        return PlainTextResponse("", 200 if await request.body() == b"secret" else 400)

    routes = [Route("/v1/models", models), Route("/login", login, methods=["POST"])]
    return Starlette(routes=routes, middleware=[Middleware(LoginLimit, now=clock)])


def guess(client: TestClient, times: int) -> list[int]:
    return [client.get("/v1/models", headers=WRONG).status_code for _ in range(times)]


def test_after_ten_wrong_passwords_an_address_is_asked_for_none():
    client = client_of(Clock())
    assert guess(client, MAX_FAILURES + 2) == [401] * MAX_FAILURES + [429, 429]
    answer = client.get("/v1/models", headers=RIGHT)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "60")
    assert answer.text == "too many wrong passwords from this address: try again in 60 s"
    assert client.get("/v1/models").status_code == 200, "who gives no password isn't guessing"


def test_the_page_and_the_api_count_together():
    client = client_of(Clock())
    for _ in range(MAX_FAILURES):
        assert client.post("/login", content=b"guess").status_code == 400
    assert client.post("/login", content=b"secret").status_code == 429
    assert guess(client, 1) == [429]


def test_a_minute_after_the_first_of_them_one_more_may_be_tried():
    clock = Clock()
    client = client_of(clock)
    guess(client, 1)
    clock.now += 30
    guess(client, MAX_FAILURES - 1)
    clock.now += WINDOW_S - 30 - 1
    assert guess(client, 1) == [429]
    clock.now += 1
    assert guess(client, 2) == [401, 429]
    clock.now += WINDOW_S
    assert client.get("/v1/models", headers=RIGHT).status_code == 200


def test_other_addresses_are_not_slowed_down():
    clock = Clock()
    app = app_of(clock)
    guess(client_of(clock, "192.0.2.1", app), MAX_FAILURES)
    assert client_of(clock, "192.0.2.2", app).get("/v1/models", headers=RIGHT).status_code == 200
