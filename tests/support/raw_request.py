"""A request as its very bytes, which no HTTP library would send."""

import socket

from patience import PATIENCE_S

# The lines that ask for a WebSocket.
UPGRADE = "\n".join(
    [
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    ]
)


def answer_to(address: str, head: str) -> tuple[int, str]:
    """The status and all else of what a server at HOST:PORT answers to a head of these lines, whose body is empty."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        lines = [*head.splitlines(), "Connection: close", "", ""]
        connection.sendall("\r\n".join(lines).encode())
        with connection.makefile("rb") as file:
            first, _, rest = file.read().decode().partition("\r\n")
    return int(first.split()[1]), rest
