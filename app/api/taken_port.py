"""A port that is taken: by which server of this person, and what to do about it."""

from __future__ import annotations

from .binding import LOOPBACK, SERVE_PORT, AddressRefused, AddressTaken, address_of, bound_socket, check_address
from .server_record import ServerRecord, records

NUM_PORTS_TRIED = 50


def check_reachable(host: str, port: int, *, has_accounts: bool) -> None:
    """As `check_address`; where a server of this person has the address, the refusal says so, and what to do."""
    try:
        check_address(host, port, has_accounts=has_accounts)
    except AddressTaken as taken:
        address = address_of(host, port)
        record = next((record for record in records() if record.address == address), None)
        if record is None:
            raise AddressTaken(f"{taken}, such as {free_port()}") from taken
        raise AddressTaken(f"{words_of(record)} already: {use_of(record)}") from taken


def words_of(record: ServerRecord) -> str:
    return f"`paged-chat {record.command}` of yours runs at {record.address} (process {record.pid})"


def use_of(record: ServerRecord) -> str:
    """What a second server is started for can often be had from the first."""
    page = f"open http://{record.address}, or " if record.command == "web" else ""
    second = f"a second one needs a --port of its own, such as {free_port()}"
    return f"{page}share its engine with `paged-chat tui --engine shared`; {second}"


def is_free(port: int) -> bool:
    try:
        bound_socket(LOOPBACK, port).close()
    except AddressRefused:
        return False
    return True


def free_port() -> int:
    """One above the ports that `web` and `serve` take by default; 0 where all that are tried are taken."""
    return next((port for port in range(SERVE_PORT + 1, SERVE_PORT + NUM_PORTS_TRIED) if is_free(port)), 0)
