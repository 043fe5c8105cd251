"""Where the page may be reached."""

import socket

import pytest

from paged_chat.app.api.binding import AddressRefused, AddressTaken, check_address, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"])
def test_addresses_of_this_machine_alone(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "chat.example", "127.0.0.1.example", ""])
def test_addresses_that_others_reach(host):
    assert not is_loopback(host)


def test_an_empty_address_is_refused():  # it would be every address of this machine
    with pytest.raises(AddressRefused, match=r"^--host must name an address, such as 127\.0\.0\.1, not ''$"):
        check_address("", 7860, has_accounts=True)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2"])
def test_an_address_that_others_reach_needs_accounts(host):
    with pytest.raises(AddressRefused, match="could read and write every chat: add --auth"):
        check_address(host, 7860, has_accounts=False)


def test_a_port_that_is_taken_is_an_error():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(AddressTaken, match=rf"^port {port} of 127\.0\.0\.1 is taken by another program: .*--port$"):
            check_address("127.0.0.1", port, has_accounts=False)
    check_address("127.0.0.1", port, has_accounts=False)


def test_an_address_that_is_not_this_machines_is_an_error():
    with pytest.raises(AddressRefused, match=r"^--host 203\.0\.113\.7 is no address of this machine: give one such as"):
        check_address("203.0.113.7", 7860, has_accounts=True)
