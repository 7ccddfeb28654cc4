"""Who may ask the HTTP port: known Hosts only, and changes only with the token, if there is one."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from streamer.config.metrics import ControlConfig, MetricsConfig
from streamer.config.token import SHORTEST_TOKEN, read_token
from streamer.features.api.access import USER_HEADER, access, caller_of
from streamer.features.api.answers import API
from streamer.features.api.metrics import Exposition
from streamer.features.api.server import AdminServer
from streamer.features.host.access import Caller
from streamer.files import Files
from streamer.logs import audit
from streamer.main import main
from tests.flow.harness import SPEED, RouterHarness
from tests.ports import free_port

TOKEN = "T0p-Secret-0123456789"


class Port:
    """A running HTTP port with pages that count what they answer, and how to ask it."""

    def __init__(self, options: MetricsConfig, control: ControlConfig) -> None:
        self.options = options
        self.harness = RouterHarness()
        self.answered = 0
        pages = [
            web.post(f"{API}/pause", self._answer),
            web.post(f"{API}/resume", self._answer),
            web.get(f"{API}/paused", self._answer),
        ]
        self.server = AdminServer(self.harness.router, Exposition(self.harness.router), options, control, pages)

    async def _answer(self, request: web.Request) -> web.Response:
        self.answered += 1
        return web.json_response({"changed": True})

    async def ask(self, method: str, path: str, headers: dict[str, str] | None = None) -> int:
        """The status."""
        body = {"topic": str(SPEED)} if method == "POST" else None
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{self.options.port}") as session,
            session.request(method, path, json=body, headers=headers) as answer,
        ):
            return answer.status


@pytest.fixture
async def make_port() -> AsyncIterator[Callable[..., Port]]:
    ports: list[Port] = []

    def make(control: ControlConfig | None = None, **options: object) -> Port:
        listen = {"listen": f"127.0.0.1:{free_port()}"}
        ports.append(Port(MetricsConfig.model_validate(listen | options), control or ControlConfig()))
        return ports[-1]

    yield make
    for port in ports:
        await port.server.stop()


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/api/v1/paused", "/nothing"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9464", "127.0.0.1.evil.example", "localhost.evil.example", "127.0.0.1@evil", "[evil]"],
)
async def test_a_foreign_name_that_points_here_reads_nothing(
    make_port: Callable[..., Port], path: str, method: str, host: str
) -> None:
    port = make_port()
    await port.server.start()
    assert await port.ask(method, path, {"Host": host}) == 403


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "192.0.2.7:9464",
        "[::1]:9464",
        "[2001:db8::1]",
        "localhost",
        "LOCALHOST:1",
        "localhost.",
        "streamer:9464",
    ],
)
async def test_addresses_and_configured_names_are_answered(make_port: Callable[..., Port], host: str) -> None:
    port = make_port(hosts=["streamer"])
    await port.server.start()
    assert await port.ask("GET", "/healthz", {"Host": host}) == 200


async def test_the_name_that_the_port_listens_on_is_known() -> None:
    check = access(lambda: (MetricsConfig(listen="Gateway.veh1.example:9464"), ControlConfig()), Files())

    async def page(request: web.Request) -> web.StreamResponse:
        return web.Response()

    request = make_mocked_request("GET", "/healthz", {"Host": "gateway.veh1.example:9464"})
    assert (await check(request, page)).status == 200


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
        (b"POST /api/v1/pause HTTP/1.0\r\nContent-Length: 0\r\n\r\n", 403),
        (b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n", (400, 403)),
        (b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\nHost: 127.0.0.1\r\n\r\n", (400, 403)),
        (b"GET http://evil.example/healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
    ],
    ids=["old-get", "old-post", "second-host", "first-host", "absolute"],
)
async def test_no_host_two_hosts_and_a_whole_url(
    make_port: Callable[..., Port], head: bytes, status: int | tuple[int, ...]
) -> None:
    port = make_port()
    await port.server.start()
    assert await raw(port.options.port, head) in (status if isinstance(status, tuple) else (status,))


async def raw(port: int, head: bytes) -> int:
    """The status that answers some bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head)
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])


@pytest.mark.parametrize(
    "head",
    [
        b"Authorization: Bearer %s\x01",
        b"Authorization : Bearer %s",
        b"Authorization: Bearer %s" + b"x" * 9000,
        b"Authorization: Bearer %s\r\nContent-Length: 1\r\nContent-Length: 2",
    ],
    ids=["control", "blank", "long", "lengths"],
)
async def test_what_is_no_http_is_not_quoted_in_the_log(
    make_port: Callable[..., Port], caplog: pytest.LogCaptureFixture, head: bytes
) -> None:
    port = make_port()
    await port.server.start()
    request = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n\r\n" % (head % TOKEN.encode())
    assert await raw(port.options.port, request) == 400
    (record,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert record.getMessage().startswith("http_not_understood where=127.0.0.1 problem=")
    assert TOKEN not in caplog.text
    assert record.levelno == logging.WARNING


# the token


def token_file(tmp_path: Path, content: str = f"{TOKEN}\n") -> Path:
    file = tmp_path / "token"
    file.write_text(content)
    file.chmod(0o600)
    return file


@pytest.mark.parametrize("path", ["/api/v1/pause", "/api/v1/resume"])
@pytest.mark.parametrize(
    "given",
    [None, "", "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN, "Bearer \xe9\xe9"],
)
async def test_whoever_has_no_token_changes_nothing_not_even_from_this_machine(
    make_port: Callable[..., Port], tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str, given: str | None
) -> None:
    port = make_port(ControlConfig(http_token_file=token_file(tmp_path)))
    await port.server.start()
    assert await port.ask("POST", path, None if given is None else {"Authorization": given}) == 401
    assert port.answered == 0
    assert TOKEN[:-1] not in caplog.text


async def test_whoever_has_the_token_pauses_and_everybody_reads(make_port: Callable[..., Port], tmp_path: Path) -> None:
    port = make_port(ControlConfig(http_token_file=token_file(tmp_path)))
    await port.server.start()
    assert await port.ask("POST", "/api/v1/pause", {"Authorization": f"Bearer {TOKEN}"}) == 200
    assert await port.ask("POST", "/api/v1/resume", {"Authorization": f"bearer  {TOKEN}"}) == 200
    assert await port.ask("GET", "/api/v1/paused") == 200


async def test_a_new_token_counts_at_once(make_port: Callable[..., Port], tmp_path: Path) -> None:
    port = make_port(ControlConfig(http_token_file=token_file(tmp_path)))
    await port.server.start()
    token_file(tmp_path, "another-token-0123456789")
    assert await port.ask("POST", "/api/v1/pause", {"Authorization": f"Bearer {TOKEN}"}) == 401
    assert await port.ask("POST", "/api/v1/pause", {"Authorization": "Bearer another-token-0123456789"}) == 200


@pytest.mark.parametrize("content", [None, "", "\n", "x" * (SHORTEST_TOKEN - 1), "0123456789\n0123456789"])
async def test_without_a_usable_token_nobody_gets_in(
    make_port: Callable[..., Port], tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str | None
) -> None:
    file = tmp_path / "token" if content is None else token_file(tmp_path, content)
    port = make_port(ControlConfig(http_token_file=file))
    await port.server.start()
    with caplog.at_level(logging.ERROR):
        assert (
            await port.ask("POST", "/api/v1/pause", {"Authorization": f"Bearer {' '.join((content or '').split())}"}) == 401
        )
    assert "http_token_unusable" in caplog.text


def test_a_token_may_end_in_a_newline(tmp_path: Path) -> None:
    assert read_token(token_file(tmp_path)) == TOKEN.encode()


@pytest.mark.needs("pause")  # its command
async def test_the_command_line_sends_the_token(
    make_port: Callable[..., Port], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = token_file(tmp_path)
    port = make_port(ControlConfig(http_token_file=file))
    await port.server.start()
    raw_config = {
        "authority": "gateway.veh1",
        "endpoints": {"vehicle": {"transport": "memory", "authorities": ["veh1"]}},
        "routes": [],
        "metrics": {"listen": port.options.listen},
        "control": {"http_token_file": str(file)},
    }
    config = tmp_path / "streamer.yaml"
    config.write_text(yaml.safe_dump(raw_config))
    command = ["pause", "--config", str(config), "--topic", str(SPEED)]
    assert await asyncio.to_thread(main, command) == 0
    assert port.answered == 1
    file.unlink()
    assert await asyncio.to_thread(main, command) == 1
    assert f"{file}: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(("method", "denied"), [("POST", 1), ("GET", 0)])
async def test_a_change_by_a_foreign_name_is_in_the_audit_log(
    make_port: Callable[..., Port],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    denied: int,
) -> None:
    monkeypatch.setattr(audit, "_denials", audit.denials())
    port = make_port()
    await port.server.start()
    assert await port.ask(method, "/api/v1/pause", {"Host": "evil.example"}) == 403
    lines = [record.getMessage() for record in caplog.records if record.name == audit.NAME]
    reason = "expected an IP address or localhost as Host, or a name that metrics.hosts or metrics.origins lists"
    assert lines == [f"denied who=http where=127.0.0.1 reason={reason} path=/api/v1/pause"] * denied


HERE, FAR = ("192.0.2.1", 9464), ("192.0.2.7", 40_000)


@pytest.mark.parametrize(
    ("peer", "own", "user", "caller"),
    [
        (("127.0.0.1", 40_000), ("127.0.0.1", 9464), "anna", Caller("anna", "command line")),
        (("::1", 40_000), ("::1", 9464), "root for anna", Caller("root for anna", "command line")),
        (("192.0.2.1", 40_000), HERE, "anna", Caller("anna", "command line")),
        (FAR, HERE, "anna", Caller("http", "192.0.2.7")),
        (FAR, HERE, "", Caller("http", "192.0.2.7")),
        (("127.0.0.1", 40_000), ("127.0.0.1", 9464), "anna who=root", Caller("http", "127.0.0.1")),
        (None, None, "anna", Caller("http", "unknown")),
    ],
)
def test_only_the_command_line_of_this_machine_says_who_it_is(
    peer: tuple[str, int] | None, own: tuple[str, int] | None, user: str, caller: Caller
) -> None:
    """The name goes into the audit log: nobody far away chooses it."""
    transport = asyncio.Transport(extra={"peername": peer, "sockname": own})
    request = make_mocked_request("POST", "/api/v1/pause", {USER_HEADER: user}, transport=transport)
    assert caller_of(request) == caller
