"""What tests of commands share: how one is run, and a configuration for it. No tests."""

import socket
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from streamer.main import main

Run = Callable[..., tuple[int, str, str]]
"""Runs a command with some words; its status, output and complaints."""

GOOD = """\
authority: gateway.veh1
endpoints:
  vehicle: {transport: memory, authorities: [veh1], options: {bus: cli-vehicle}}
  cloud: {transport: memory, authorities: ["*"], options: {bus: cli-cloud, sink_authority: true}}
  phone: {transport: memory, authorities: [phone1], options: {bus: cli-phone}}
routes:
  - {from: vehicle, to: cloud, publish: ["//veh1/A8000/2/FFFF"], publish_to: [fleet, backup]}
  - {from: vehicle, to: phone, name: handy}
  - {from: cloud, to: vehicle}
metrics: null
"""

SPEED = "//veh1/A8000/2/8A50"


def status_of(*words: str) -> int:
    """Runs the command line; its exit status."""
    try:
        return main([*words])
    except SystemExit as exc:
        return int(exc.code or 0)


def _request(connection: socket.socket) -> str:
    """Read a whole request, which may arrive in parts: what is left unread when the connection closes resets it."""
    read = b""
    while b"\r\n\r\n" not in read:
        read += connection.recv(65536)
    head, _, body = read.partition(b"\r\n\r\n")
    lengths = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    while len(body) < sum(lengths):
        body += connection.recv(65536)
    return (head + b"\r\n\r\n" + body).decode()


@contextmanager
def answering(*answers: str) -> Iterator[tuple[int, list[str]]]:
    """The port of a server that gives these answers, one for each connection, and what it was asked."""
    asked: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)

        def serve() -> None:
            for answer in answers:
                connection, _ = server.accept()
                with connection:
                    asked.append(_request(connection))
                    connection.sendall(answer.encode())

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], asked
        thread.join()


def response(status: str, body: str, kind: str = "application/json") -> str:
    """What a server sends before it closes the connection."""
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n{body}"


def unpacked(path: Path) -> dict[str, str]:
    """The files of an archive, without its folder."""
    with tarfile.open(path) as archive:
        found = {}
        for member in archive.getmembers():
            assert member.isfile()
            file = archive.extractfile(member)
            assert file is not None
            found[member.name.partition("/")[2]] = file.read().decode()
        return found
