"""The commands `pause` and `resume`."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from streamer.config.metrics import MetricsConfig
from streamer.features.api.metrics import Exposition
from streamer.features.api.server import AdminServer
from streamer.main import main
from streamer.routing.pause_rules import PauseRule
from tests.ports import free_port
from tests.unit.features.pause.pausing import SINK, TOPIC, AdminHarness
from tests.unit.tools.commands import status_of


def written(path: Path, metrics: object) -> str:
    """A configuration in the folder where the port has its token, if there is one."""
    token = path.with_name("token")
    config = {
        "control": {"http_token_file": str(token)} if token.exists() else {},
        "authority": "gw1",
        "endpoints": {"a": {"transport": "memory", "authorities": ["a"]}},
        "routes": [],
        "metrics": metrics,
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


async def run(*argv: str) -> int:
    """The command in a thread: the port it talks to is served by this loop."""
    return await asyncio.to_thread(main, argv)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])  # the second: a file's "everywhere"
async def test_pause_list_and_resume(
    admin: AdminHarness, tmp_path: Path, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    config = written(tmp_path / "s.yaml", {"listen": f"{host}:{admin.port}"})
    assert await run("pause", "--config", config) == 0
    assert capsys.readouterr().out == "nothing is paused\n"
    assert await run("pause", "--config", config, "--topic", TOPIC) == 0
    assert await run("pause", "--config", config, "--topic", TOPIC) == 0
    assert await run("pause", "--config", config, "--topic", "up:" + TOPIC.lower(), "--sink", SINK) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"paused {TOPIC}",
        f"{TOPIC} was paused already",
        f"paused {TOPIC} → {SINK}",
    ]
    admin.harness.arrive("vehicle", admin.harness.speed(), admin.harness.speed())
    assert await run("pause", "--config", config) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["TOPIC", "SINK", "FLOWS", "WAITING", "ENDS"],
        [TOPIC, "any", "1", "2", "-"],
        [TOPIC, SINK, "0", "0", "-"],
    ]
    assert await run("resume", "--config", config, "--topic", TOPIC) == 0
    assert capsys.readouterr().out == f"resumed {TOPIC}\n"
    assert len(admin.harness.sent("cloud")) == 2
    assert await run("resume", "--config", config, "--topic", TOPIC) == 1
    assert f"no rule pauses {TOPIC}" in capsys.readouterr().err
    assert admin.harness.router.pause_rules.rules == (PauseRule.parse(TOPIC, SINK),)


async def test_proxies_of_the_environment_are_not_asked(
    admin: AdminHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    config = written(tmp_path / "s.yaml", {"listen": f"127.0.0.1:{admin.port}"})
    assert await run("pause", "--config", config, "--topic", TOPIC) == 0


async def test_without_a_daemon_the_command_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listen = f"127.0.0.1:{free_port()}"
    config = written(tmp_path / "s.yaml", {"listen": listen})
    assert await run("pause", "--config", config, "--topic", TOPIC) == 1
    assert capsys.readouterr().err.startswith(f"{listen} (metrics.listen): no streamer answers there (")


@pytest.mark.parametrize("said", [b"HTTP/1.1 200 OK\r\n\r\nhello", b"HTTP/1.1 200 OK\r\n\r\n[7]", b"220 mail\r\n"])
async def test_another_program_on_the_port_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], said: bytes
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        config = written(tmp_path / "s.yaml", {"listen": f"127.0.0.1:{port}"})
        assert await run("pause", "--config", config) == 1
    assert f"127.0.0.1:{port} (metrics.listen): " in capsys.readouterr().err


async def test_a_machine_that_is_configured_by_name_is_asked_as_localhost(tmp_path: Path) -> None:
    """Its name is none that the page takes."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        config = written(tmp_path / "s.yaml", {"listen": f"LOCALHOST:{port}"})
        assert await run("pause", "--config", config, "--topic", TOPIC) == 1
    assert b"\r\nHost: localhost\r\n" in heard[0]


async def test_an_older_streamer_is_reported(
    admin: AdminHarness, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    server = AdminServer(admin.harness.router, Exposition(admin.harness.router), MetricsConfig(listen=f"127.0.0.1:{port}"))
    await server.start()
    config = written(tmp_path / "s.yaml", {"listen": f"127.0.0.1:{port}"})
    assert await run("pause", "--config", config, "--topic", TOPIC) == 1
    assert "no such page in version" in capsys.readouterr().err
    await server.stop()


@pytest.mark.parametrize(
    ("metrics", "expected"), [(None, "metrics: null"), ({"listen": "127.0.0.1:0"}, "the port is not known")]
)
def test_a_port_that_cannot_be_known_is_a_configuration_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], metrics: object, expected: str
) -> None:
    assert main(["pause", "--config", written(tmp_path / "s.yaml", metrics)]) == 78
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["pause", "--topic", "nonsense"], "--topic 'nonsense': expected up://"),
        (["pause", "--topic", "//a/1/1/7"], "a method is a sink"),
        (["resume", "--topic", TOPIC, "--sink", TOPIC], f"--sink {TOPIC}: expected a uEntity"),
        (["pause", "--sink", SINK], "--sink needs --topic"),
    ],
)
def test_bad_arguments_are_refused_before_the_daemon_is_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], expected: str
) -> None:
    config = written(tmp_path / "s.yaml", {"listen": "127.0.0.1:1"})
    assert main([argv[0], "--config", config, *argv[1:]]) == 2
    assert expected in capsys.readouterr().err


async def test_a_pause_for_a_time_says_when_it_ends(
    admin: AdminHarness, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = written(tmp_path / "s.yaml", {"listen": f"127.0.0.1:{admin.port}"})
    assert await run("pause", "--config", config, "--topic", TOPIC, "--for", "2h") == 0
    assert capsys.readouterr().out == f"paused {TOPIC} for 2h\n"
    admin.harness.clock.advance(60_000)
    assert await run("pause", "--config", config) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [TOPIC, "any", "0", "0", "in", "119m"]
    assert await run("pause", "--config", config, "--json") == 0
    assert json.loads(capsys.readouterr().out)["paused"][0]["left_s"] == 7140.0
    assert await run("pause", "--config", config, "--topic", TOPIC) == 0  # from now on without an end
    assert await run("pause", "--config", config) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(" -")


@pytest.mark.parametrize(
    ("words", "expected"), [(("--for", "0s", "--topic", TOPIC), "366d"), (("--for", "2h"), "needs --topic")]
)
def test_a_time_that_is_no_pause_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: str
) -> None:
    assert status_of("pause", "--config", written(tmp_path / "s.yaml", None), *words) == 2
    assert expected in capsys.readouterr().err


def test_resume_needs_a_topic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["resume", "--config", written(tmp_path / "s.yaml", None)])
    assert "--topic" in capsys.readouterr().err
