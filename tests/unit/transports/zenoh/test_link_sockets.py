"""A duplicate of a socket that Zenoh owns. What real links say is in the end-to-end tests."""

import os
import socket
import struct

import pytest

from streamer.transports.zenoh.link_sockets import LinkSocket

_LINGER = struct.pack("ii", 1, 10)


@pytest.fixture
def ends() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection. As Zenoh does, ours waits for 10 s when it is closed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
    return ours, theirs


def test_closing_the_last_descriptor_waits_for_nobody_and_resets_nothing(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    watched = socket.socket(fileno=os.dup(ours.fileno()))
    link = LinkSocket(socket.socket(fileno=os.dup(ours.fileno())), "zid", 1, 0.0)
    ours.sendall(b"sent before the end")
    ours.close()
    link.close()
    is_on, _ = struct.unpack("ii", watched.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, len(_LINGER)))
    assert not is_on
    watched.close()
    with theirs:
        assert theirs.makefile("rb").read() == b"sent before the end"


def test_a_duplicate_that_is_closed_says_nothing_more(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    link = LinkSocket(socket.socket(fileno=os.dup(ours.fileno())), "zid", 1, 7.0)
    with ours, theirs:
        assert link.has_room()
        link.close()
        assert not link.has_room()
        link.look(8.0)
        assert link.arrival.until_s == 7.0
