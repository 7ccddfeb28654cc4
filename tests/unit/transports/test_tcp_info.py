"""What the kernel says that a connection has carried."""

import socket
import sys

import pytest

from streamer.transports.tcp_info import ByteCounts, wire_bytes
from tests.ports import HOST

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts them")


def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server((HOST, 0)) as server:
        near = socket.create_connection(server.getsockname())
        return near, server.accept()[0]


def test_every_byte_is_counted_in_its_direction() -> None:
    near, far = connected()
    with near, far:
        near.sendall(b"x" * 1000)
        assert len(far.recv(1000, socket.MSG_WAITALL)) == 1000
        far.sendall(b"y" * 77)
        assert len(near.recv(77, socket.MSG_WAITALL)) == 77
        assert wire_bytes(near) == ByteCounts(sent=1000, received=77)
        assert wire_bytes(far) == ByteCounts(sent=77, received=1000)


def test_a_duplicate_still_knows_it_once_the_connection_is_closed() -> None:
    near, far = connected()
    with far, near.dup() as duplicate:
        near.sendall(b"x" * 10)
        near.close()
        assert wire_bytes(duplicate) == ByteCounts(sent=10)


def test_without_a_descriptor_nothing_is_known() -> None:
    near, far = connected()
    far.close()
    near.close()
    assert wire_bytes(near) is None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        assert wire_bytes(datagrams) is None
