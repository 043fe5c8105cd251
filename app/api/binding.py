"""Where a server may be reached: an address for this machine alone, or one for others too, and then with accounts."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from typing import Any

from paged_chat.engine.errors import PagedChatError

WEB_PORT, SERVE_PORT = 7860, 7861
"""Where `paged-chat web` and `serve` listen unless told otherwise."""
LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = frozenset(["localhost", LOOPBACK, "::1"])


class AddressRefused(PagedChatError):
    """An address at which nothing can or should be served."""


class NoSuchAddress(AddressRefused):
    """What is no address at all, or none of this machine."""


class AddressTaken(AddressRefused):
    """An address at which another program is served."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that address; a name is what it stands for."""
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return False


def names_of(host: str) -> frozenset[str] | None:
    """The host names that requests may use; None where others reach the page under names we don't know."""
    return LOOPBACK_NAMES | {host.strip("[]")} if is_loopback(host) else None


def address_of(host: str, port: int) -> str:
    """How programs of this machine reach it, as it stands in a URL."""
    bare = host.strip("[]")
    if bare in ("0.0.0.0", ""):
        bare = LOOPBACK
    elif bare == "::":
        bare = "::1"
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def url_of(host: str, port: int) -> str:
    bare = host.strip("[]")
    return f"http://[{bare}]:{port}" if ":" in bare else f"http://{bare}:{port}"


def check_address(host: str, port: int, *, has_accounts: bool) -> None:
    """Raises NoSuchAddress, AddressRefused for one that is open to others without accounts, AddressTaken."""
    if not host:  # which would be every address of this machine
        raise AddressRefused("--host must name an address, such as 127.0.0.1, not ''")
    _found(host, port)
    if not is_loopback(host) and not has_accounts:
        raise AddressRefused(
            f"{host} can be reached by others, who could read and write every chat: add --auth USER:PASSWORD or "
            "--auth-file, or leave --host at 127.0.0.1"
        )
    bound_socket(host, port).close()


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket at the address, for whoever listens on it. Raises AddressRefused, NoSuchAddress or AddressTaken."""
    family, kind, protocol, address = _found(host, port)
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise _no_address(host) from error
        if isinstance(error, PermissionError):
            raise AddressRefused(f"port {port} needs more rights than you have: choose one above 1023") from error
        if error.errno == errno.EADDRINUSE:
            raise AddressTaken(
                f"port {port} of {host} is taken by another program: choose another one with --port"
            ) from error
        raise AddressRefused(
            f"port {port} of {host} can't be used ({error.strerror}): choose another one with --port"
        ) from error
    return bound


def _found(host: str, port: int) -> tuple[socket.AddressFamily, socket.SocketKind, int, Any]:
    """Family, kind, protocol and address of what a host's name or number stands for. Raises NoSuchAddress."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:  # the latter for what can't be a name, such as "a..b"
        raise _no_address(host) from error
    return family, kind, protocol, address


def _no_address(host: str) -> NoSuchAddress:
    return NoSuchAddress(
        f"--host {host} is no address of this machine: give one such as 127.0.0.1, and the port with --port"
    )
