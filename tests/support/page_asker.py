"""A program that asks the page's server what no page of ours asks."""

import http.client
import json
from urllib.parse import urlencode

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from patience import PATIENCE_S

PASSWORDS = {"ann": "a-secret", "bob": "b-secret"}


class Asker:
    """A program that knows the address, and perhaps a cookie."""

    def __init__(self, url: str, cookie: str | None = None) -> None:
        self.address = url.removeprefix("http://")
        self.headers = {} if cookie is None else {"Cookie": cookie}

    def __call__(self, method: str, path: str, body: str | bytes | None = None, **headers: str) -> tuple[int, str]:
        answer, text = self.open(method, path, body, **headers)
        return answer.status, text

    def open(
        self, method: str, path: str, body: str | bytes | None = None, **headers: str
    ) -> tuple[http.client.HTTPResponse, str]:
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {"Content-Type": "application/json", **self.headers, **given})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer, text

    def post(self, path: str, body: str = "{}") -> tuple[int, str]:
        return self("POST", path, body)

    def new_chat(self) -> str:
        chat_id: str = json.loads(self.post("/paged-chat/chats")[1])["chat_id"]
        return chat_id

    def socket(self, path: str) -> ClientConnection:
        return connect(f"ws://{self.address}{path}", additional_headers=self.headers, open_timeout=PATIENCE_S)


def logged_in(url: str, name: str) -> list[str]:
    form = urlencode({"username": name, "password": PASSWORDS[name]})
    answer, _ = Asker(url).open("POST", "/login", form, Content_Type="application/x-www-form-urlencoded")
    assert answer.status == 200
    return answer.headers.get_all("Set-Cookie", [])


def closed_with(socket: ClientConnection) -> int | None:
    """The code that the server closes it with, whatever it says before."""
    while True:
        try:
            socket.recv(PATIENCE_S)
        except ConnectionClosed as closed:
            return None if closed.rcvd is None else closed.rcvd.code
