"""What is tried out for a Zenoh endpoint, without a session of Zenoh."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streamer.transports.probe import Answer, Verdict
from streamer.transports.zenoh.options import ZenohOptions
from streamer.transports.zenoh.probe import probes


def answers(held: tuple[str, ...] = (), **options: Any) -> dict[str, Answer]:
    async def every() -> dict[str, Answer]:
        return {each.key: await each.run() for each in probes(ZenohOptions.model_validate(options), held)}

    return asyncio.run(every())


@contextmanager
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_ports_to_listen_on() -> None:
    with taken() as port:
        found = answers(listen=[f"tcp/127.0.0.1:{port}", f"tls/0.0.0.0:{port}", "tcp/127.0.0.1:0", "tcp/[::1]:0"])
    assert found["listen[0]"] == Answer(Verdict.PROBLEM, f"127.0.0.1:{port}: address already in use")
    assert found["listen[1]"].verdict is Verdict.PROBLEM
    assert found["listen[2]"].verdict is found["listen[3]"].verdict is Verdict.OK
    assert answers(listen=[f"tcp/127.0.0.1:{port}"])["listen[0]"].verdict is Verdict.OK


def test_all_of_ipv6_includes_ipv4() -> None:
    """Zenoh listens on both with one socket."""
    with taken() as port:
        assert answers(listen=[f"tcp/[::]:{port}"])["listen[0]"].verdict is Verdict.PROBLEM


def test_a_port_of_the_running_streamer_is_its_own() -> None:
    with taken() as port:
        here = f"tls/127.0.0.1:{port}"
        found = answers((f"{here}#(withheld)",), listen=[f"{here}#x=word", f"tcp/0.0.0.0:{port}"])
    assert found["listen[0]"] == Answer(Verdict.OK, f"{here}: the running streamer listens there")
    assert found["listen[1]"].verdict is Verdict.PROBLEM


def test_what_it_connects_to() -> None:
    with taken() as port:
        found = answers(connect=[f"tcp/127.0.0.1:{port}", f"tls/localhost:{port}#x=word", "serial//dev/ttyUSB0"])
    assert found["connect[0]"] == Answer(Verdict.OK, f"127.0.0.1:{port} accepts connections")
    assert found["connect[1]"].verdict is Verdict.OK
    assert found["connect[2]"].verdict is Verdict.CANNOT_TELL
    assert answers(connect=[f"tcp/127.0.0.1:{port}"])["connect[0]"].verdict is Verdict.PROBLEM
    assert all("word" not in answer.text for answer in found.values())


def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "z"
    assert answers(connect=[f"unixsock-stream/{path}"])["connect[0]"].verdict is Verdict.PROBLEM
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        assert answers(connect=[f"unixsock-stream/{path}"])["connect[0]"].verdict is Verdict.OK


def test_a_client_does_not_listen_and_one_interface_is_not_tried() -> None:
    found = answers(mode="client", listen=["tcp/127.0.0.1:0"], connect=["vsock/2:1"])
    assert [*found] == ["connect[0]"]
    assert answers(listen=["tcp/127.0.0.1:7447#iface=lo"])["listen[0]"].verdict is Verdict.CANNOT_TELL


def test_zenohs_own_file(tmp_path: Path) -> None:
    file = tmp_path / "zenoh.json5"
    with taken() as port:
        file.write_text(f'{{listen: {{endpoints: {{peer: ["tcp/127.0.0.1:{port}"], router: ["tcp/127.0.0.1:1"]}}}}}}')
        found = answers(config_file=str(file))
    assert found["config_file"].verdict is Verdict.OK
    assert found["config_file: listen/endpoints[0]"].verdict is Verdict.PROBLEM
    assert len(found) == 2
    file.write_text('{password: "s3cret"')
    (answer,) = answers(config_file=str(file)).values()
    assert answer.verdict is Verdict.PROBLEM
    assert "s3cret" not in answer.text


@pytest.mark.parametrize(("key", "verdict"), [("s3cret", Verdict.PROBLEM), ("s3cret" * 9, Verdict.OK)])
def test_the_key_for_receipts(tmp_path: Path, key: str, verdict: Verdict) -> None:
    file = tmp_path / "key"
    file.write_text(key)
    answer = answers(receipts={"key_file": str(file), "streamers": ["other"]})["receipts.key_file"]
    assert answer.verdict is verdict
    assert "s3cret" not in answer.text
