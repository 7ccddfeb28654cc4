"""What is seen of connections that keep others out of a Zenoh listener, with real sockets."""

import json
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from streamer.transports.zenoh.options import ZenohOptions, listen_ports, session_config
from tests.ports import HOST, free_port
from tests.waiting import until
from tests.zenoh_peers import raw_peer, running, until_up

PENDING = 4


def limited(tmp_path: Path) -> Path:
    """A file with which few connections that say nothing keep others out."""
    file = tmp_path / "zenoh.json5"
    file.write_text(json.dumps({"transport": {"unicast": {"accept_pending": PENDING, "accept_timeout": 600_000}}}))
    return file


async def test_connections_that_wait_to_be_accepted_are_counted(tmp_path: Path) -> None:
    port, other = free_port(), free_port()
    listen = [f"tcp/{HOST}:{port}", f"tcp/{HOST}:{other}"]
    async with running(listen=listen, config_file=limited(tmp_path)) as transport:
        await until(lambda: transport._sender is not None, "everything open")
        assert transport.figures()["waiting_connections"] == 0
        with ExitStack() as held:
            for address in (port, other):
                for _ in range(PENDING + 5):
                    held.enter_context(socket.create_connection((HOST, address)))
            await until(lambda: transport.figures()["waiting_connections"] >= PENDING + 5, "those that wait")
        await until(lambda: transport.figures()["waiting_connections"] == 0, "none")
        with raw_peer(connect=listen[:1]):
            await until_up(transport)
            assert transport.figures()["waiting_connections"] == 0


async def test_nobody_waits_where_nobody_listens() -> None:
    async with running() as transport:
        await until(lambda: transport._sender is not None, "everything open")
        assert transport.figures()["waiting_connections"] == 0
    assert transport.figures()["waiting_connections"] == 0


@pytest.mark.parametrize(
    ("content", "mode", "ports"),
    [
        ({"listen": {"endpoints": ["tcp/[::1]:1", "tls/a:2#iface=lo", "unixsock-stream//x", "tcp/a:0"]}}, "peer", {1, 2}),
        ({"listen": {"endpoints": {"router": ["ws/a:3"], "peer": ["tcp/a:4"]}}}, "router", {3}),
        ({}, "router", {7447}),
    ],
)
def test_ports_are_those_of_the_mode(tmp_path: Path, content: object, mode: str, ports: set[int]) -> None:
    file = tmp_path / "zenoh.json5"
    file.write_text(json.dumps(content))
    assert listen_ports(session_config(ZenohOptions(config_file=file)), mode) == ports
