"""Which addresses only this machine reaches."""

import pytest

from streamer.transports.addresses import is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.255.0.7", "::1", "[::1]", "localhost", "LocalHost."])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "192.0.2.1", "localhost.evil.example", "127.0.0.1.evil", "gw", "[::]"]
)
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)
