"""What is seen of connections that keep others out of a Zenoh listener, with real sockets."""

import json
import socket
from pathlib import Path

import pytest

from streamer.transports.zenoh.options import ZenohOptions, listen_ports, session_config
from tests.certificates import write_certificates
from tests.ports import HOST, free_port
from tests.waiting import until
from tests.zenoh_peers import running

MANY = 200
"""Connections that end in the handshake: Zenoh accepts ten of them in a second."""


def with_certificates(tmp_path: Path) -> Path:
    write_certificates(tmp_path)
    file = tmp_path / "zenoh.json5"
    tls = {
        "root_ca_certificate": f"{tmp_path}/ca.pem",
        "listen_certificate": f"{tmp_path}/server.pem",
        "listen_private_key": f"{tmp_path}/server.key",
        "enable_mtls": True,
    }
    file.write_text(json.dumps({"transport": {"link": {"tls": tls}}}))
    return file


async def test_connections_that_wait_to_be_accepted_are_counted(tmp_path: Path) -> None:
    port = free_port()
    async with running(listen=[f"tls/{HOST}:{port}"], config_file=with_certificates(tmp_path)) as transport:
        await until(lambda: transport._sender is not None, "everything open")
        assert transport.figures()["waiting_connections"] == 0
        for _ in range(MANY):
            socket.create_connection((HOST, port)).close()
        await until(lambda: transport.figures()["waiting_connections"] > MANY // 10, "those that wait")


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
