"""What is served, asked in other people's names by the very bytes of a request."""

import pytest

from paged_chat.app.api.server_record import SOCKET_PATH
from raw_request import UPGRADE, answer_to


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /v1/models HTTP/1.1\nHost: {own}", 200),
        ("GET /v1/models HTTP/1.1\nHost: evil.example:7860", 403),
        ("GET /v1/models HTTP/1.0", 403),
        ("GET /v1/models HTTP/1.1", 400),
        ("GET /v1/models HTTP/1.1\nHost: {own}\nHost: evil.example", 400),
        # A whole address in the first line, as proxies are asked: it is no path here, whatever the name in it.
        ("GET http://{own}/v1/models HTTP/1.1\nHost: evil.example", 403),
        ("GET http://evil.example/v1/models HTTP/1.1\nHost: {own}", 404),
        ("GET //evil.example/v1/models HTTP/1.1\nHost: {own}", 404),
        ("CONNECT evil.example:80 HTTP/1.1\nHost: {own}", 404),
        ("GET /v1/models HTTP/1.1\nHost: {own}\nOrigin: null", 403),
        ("GET /v1/models HTTP/1.1\nHost: {own}\nX-Forwarded-Host: evil.example\nForwarded: host=evil.example", 200),
        ("OPTIONS /v1/models HTTP/1.1\nHost: {own}\nOrigin: https://evil.example", 403),
        (f"GET {SOCKET_PATH} HTTP/1.1\nHost: evil.example\n{UPGRADE}", 403),
        (f"GET {SOCKET_PATH} HTTP/1.1\nHost: {{own}}\nOrigin: https://evil.example\n{UPGRADE}", 403),
    ],
)
def test_only_this_machines_own_names_and_pages_are_answered(server, head, status):
    told, rest = answer_to(server.address, head.format(own=server.address))
    assert told == status
    assert "fake-1b" in rest or status != 200
    assert "fake-1b" not in rest or status == 200
    assert "access-control" not in rest.lower()
