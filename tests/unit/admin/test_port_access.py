"""Who may do what at the port of a whole daemon: token, TLS, certificates of clients, pages of other origins."""

import asyncio
import logging
import os
import ssl
import stat
from collections.abc import AsyncIterator, Callable
from glob import glob
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop

from streamer.admin import listener
from streamer.cli.main import main
from streamer.config.tls import TlsConfig, TlsError, server_context
from streamer.config.token import made_token_file, make_token, read_token, token_file
from streamer.logs import audit
from streamer.logs.audit import NAME
from tests.certificates import write_certificates
from tests.flow.harness import SPEED, configuration
from tests.unit.admin.daemon import DaemonHarness, running
from tests.unit.admin.test_server import free_port

PAUSE = {"topic": str(SPEED)}
KNOWN = "known to whoever has put it there"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    write_certificates(folder)
    return folder


@pytest.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DaemonHarness]:
    monkeypatch.setattr(audit, "_denials", audit.denials())
    async with running(tmp_path) as harness:
        yield harness


def audited(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == NAME]


# the token


async def test_the_token_is_made_once_for_its_owner_only_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running(tmp_path) as first:
        token = first.token_file.read_text()
        assert (len(bytes.fromhex(token)), stat.S_IMODE(first.token_file.stat().st_mode)) == (32, 0o600)
        assert (await first.ask("/api/v1/pause", PAUSE)).json == {"changed": True}
    async with running(tmp_path) as second:
        assert second.token_file.read_text() == token
    assert token.strip() not in caplog.text
    assert [record.getMessage().partition(" ")[0] for record in caplog.records].count("http_token_made") == 1
    assert not glob(f"{first.token_file}.*")


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_umask_makes_no_difference(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        assert make_token(tmp_path / "token")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600


def test_a_link_is_neither_followed_nor_replaced(tmp_path: Path) -> None:
    (tmp_path / "token").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="not a file"):
        make_token(tmp_path / "token")
    assert not (tmp_path / "elsewhere").exists()


def _a_link(token: Path) -> None:
    _open_to_others(token.with_name("elsewhere"))
    token.symlink_to(token.with_name("elsewhere"))


def _open_to_others(token: Path) -> None:
    token.write_text(KNOWN)
    token.chmod(0o644)


@pytest.mark.parametrize("plant", [_a_link, _open_to_others])
async def test_what_somebody_else_has_put_there_is_no_token_and_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, plant: Callable[[Path], None]
) -> None:
    plant(tmp_path / "journal-token")
    async with running(tmp_path) as served:
        headers = {"Authorization": f"Bearer {KNOWN}"}
        assert (await served.ask("/api/v1/pause", PAUSE, headers=headers)).status in (401, 403)
    assert "http_token_not_made" in caplog.text
    assert KNOWN not in caplog.text


def test_only_a_file_is_read_by_the_daemon_and_not_more_than_a_token_takes(tmp_path: Path) -> None:
    """A pipe that nobody writes to would hold it up for ever, a device would fill its memory."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match="not a file"):
        read_token(pipe, may_wait=False)
    with pytest.raises(ValueError, match="at most 4096"):
        read_token(Path("/dev/zero"))


def test_the_token_is_where_the_configuration_says_or_beside_the_journal(tmp_path: Path) -> None:
    journal = {"path": str(tmp_path / "j.db")}
    named = configuration(journal=journal, control={"http_token_file": "/run/token"})
    assert (token_file(named), made_token_file(named)) == (Path("/run/token"), None)
    made = configuration(journal=journal)
    assert token_file(made) == made_token_file(made) == tmp_path / "j-token"
    assert made_token_file(configuration(journal=journal, metrics=None)) is None
    assert token_file(configuration()) is None


async def test_without_any_way_in_every_change_is_refused_and_told_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit, "_denials", audit.denials())
    async with running(tmp_path, journal=None) as served:
        asked = await served.ask("/api/v1/pause", PAUSE, headers={})
        assert asked.status == 403
        assert "expected control.http_token_file, a journal" in asked.json["error"]
        assert (await served.ask("/api/v1/paused", headers={})).status == 200
    assert [line.partition(" reason=")[0] for line in audited(caplog)] == ["denied who=http where=127.0.0.1"]


# pages in a browser


@pytest.mark.parametrize(
    ("headers", "reads", "changes"),
    [
        ({}, 200, 200),
        ({"Origin": "http://HOST"}, 200, 200),
        ({"Origin": "HTTP://HOST"}, 200, 200),
        ({"Origin": "https://HOST"}, 403, 403),
        ({"Origin": "http://127.0.0.1"}, 403, 403),
        ({"Origin": "http://evil.example"}, 403, 403),
        ({"Origin": "null"}, 403, 403),
        ({"Origin": ""}, 403, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200, 200),
        ({"Sec-Fetch-Site": "none"}, 200, 200),
        ({"Sec-Fetch-Site": "same-site"}, 403, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 403, 403),
    ],
)
async def test_pages_of_other_origins_get_nothing(
    served: DaemonHarness, headers: dict[str, str], reads: int, changes: int
) -> None:
    host = f"127.0.0.1:{served.port}"
    sent = served.bearer | {name: value.replace("HOST", host) for name, value in headers.items()}
    asked = await served.ask("/api/v1/routes", headers=sent)
    assert asked.status == reads
    assert not [name for name in asked.headers if name.lower().startswith("access-control")]
    assert (await served.ask("/metrics", headers=sent)).status == reads
    assert (await served.ask("/api/v1/pause", PAUSE, headers=sent)).status == changes
    assert (await served.ask("/api/v1/dead-letters/1", headers=sent)).status == (404 if changes == 200 else 403)
    assert len(served.daemon.router.pause_rules.rules) == (changes == 200)


PROXY = {"Host": "gw.example", "Origin": "https://gw.example", "Sec-Fetch-Site": "same-origin"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "127.0.0.1:9464"}, 200),  # a proxy that does not pass it on
        ({"Origin": "https://GW.example:443"}, 200),
        ({"Origin": "https://[2001:db8::1]:8443"}, 200),
        ({"Origin": "http://gw.example:444"}, 403),
        ({"Origin": "https://gw.example:444"}, 403),
        ({"Origin": "https://gw.example.evil.example"}, 403),
        ({"Origin": "https://other.example", "Host": "other.example"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example//gw.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
async def test_pages_behind_a_proxy_with_tls_of_its_own_may_change_things_if_their_origin_is_known(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    listen = f"127.0.0.1:{free_port()}"
    metrics = {"listen": listen, "origins": ["https://gw.example", "https://[2001:DB8::1]:8443"]}
    async with running(tmp_path, metrics=metrics) as served:
        served.url = f"http://{listen}"
        assert (await served.ask("/api/v1/pause", PAUSE, headers=served.bearer | PROXY | headers)).status == status
        assert (await served.ask("/api/v1/routes", headers=PROXY | headers)).status == status


async def test_without_the_key_no_page_of_a_proxy_changes_anything(served: DaemonHarness) -> None:
    sent = served.bearer | PROXY | {"Host": f"127.0.0.1:{served.port}"}
    assert (await served.ask("/api/v1/pause", PAUSE, headers=sent)).status == 403


async def test_a_browser_that_asks_first_is_not_let_in(served: DaemonHarness) -> None:
    asked = await served.ask("/api/v1/pause", method="OPTIONS", headers={"Origin": "http://evil.example"})
    assert asked.status in (403, 405)
    assert not [name for name in asked.headers if name.lower().startswith("access-control")]


async def test_nothing_is_kept_or_taken_for_something_else(served: DaemonHarness) -> None:
    for path in ("/api/v1", "/api/v1/nothing", "/metrics"):
        headers = (await served.ask(path)).headers
        assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")


async def test_refusals_and_changes_are_lines_of_the_audit_log(
    served: DaemonHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    caplog.clear()
    await served.ask("/api/v1/pause", PAUSE, headers={})
    await served.ask("/api/v1/dead-letters/1", headers={})
    await served.ask("/api/v1/pause", PAUSE, headers={"Origin": "http://evil.example"})
    await served.ask("/api/v1/routes", headers={"Origin": "http://evil.example"})
    await served.ask("/api/v1/pause", PAUSE)
    await served.ask("/api/v1/resume", PAUSE, headers=served.bearer | {"Ustreamer-User": "alice for bob"})
    await served.ask("/api/v1/reload", {}, headers=served.bearer | {"Ustreamer-User": "x where=y"})
    no_token = "reason=expected Authorization: Bearer, with the streamer's token"
    origin = "reason=refused to pages of other origins: expected no Origin, this one, or one of metrics.origins"
    assert audited(caplog) == [
        f"denied who=http where=127.0.0.1 {no_token} path=/api/v1/pause",
        f"denied who=http where=127.0.0.1 {no_token} path=/api/v1/dead-letters/1",
        f"denied who=http where=127.0.0.1 {origin} path=/api/v1/pause",
        f"paused who=http where=127.0.0.1 rule={SPEED} rules=1",
        f"resumed who=alice for bob where=command line rule={SPEED} rules=0",
        f"reloaded who=http where=127.0.0.1 file={served.file} routes=2",
    ]


async def test_no_answer_has_a_secret(served: DaemonHarness) -> None:
    token = served.token_file.read_text().strip()
    for path in ("", "/config", "/endpoints", "/routes", "/paused"):
        assert token not in (await served.ask(f"/api/v1{path}")).text
    wrong = await served.ask("/api/v1/pause", PAUSE, headers={"Authorization": f"Bearer {token}x"})
    assert token not in wrong.text


# TLS


def tls(certificates: Path, **changes: str) -> dict[str, str]:
    files = {"cert_file": "server.pem", "key_file": "server.key", "client_ca_file": "ca.pem"} | changes
    return {key: str(certificates / name) for key, name in files.items() if name}


def client(certificates: Path, who: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    if who is not None:
        context.load_cert_chain(certificates / f"{who}.pem", certificates / f"{who}.key")
    return context


async def post(served: DaemonHarness, context: ssl.SSLContext, headers: dict[str, str]) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"https://127.0.0.1:{served.port}/api/v1/pause", json=PAUSE, headers=headers, ssl=context) as answer,
    ):
        return answer.status


async def test_the_port_speaks_tls_and_a_certificate_stands_for_the_token(
    tmp_path: Path, certificates: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)
    async with running(tmp_path, tls=tls(certificates)) as served:
        assert await post(served, client(certificates), {}) == 401
        assert await post(served, client(certificates), served.bearer) == 200
        assert await post(served, client(certificates, "client"), {}) == 200
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"http://127.0.0.1:{served.port}/healthz")
            async with session.get(f"https://127.0.0.1:{served.port}/healthz", ssl=client(certificates)) as answer:
                assert answer.status == 200
        command = ["--config", str(served.file), "--topic", str(SPEED)]
        assert await asyncio.to_thread(main, ["resume", *command]) == 0
        url = ["--url", f"https://127.0.0.1:{served.port}", "--ca-file", str(certificates / "ca.pem")]
        proof = ["--client-cert", str(certificates / "client.pem"), "--client-key", str(certificates / "client.key")]
        assert await asyncio.to_thread(main, ["pause", *url, *proof, "--topic", str(SPEED)]) == 0
        assert await asyncio.to_thread(main, ["pause", *url[:2], "--topic", str(SPEED)]) == 1  # an unknown CA
        assert "no streamer answers there" in capsys.readouterr().err
    assert [line.partition(" rule=")[0] for line in audited(caplog) if line.startswith("paused")] == [
        "paused who=http where=127.0.0.1",
        "paused who=certificate client where=127.0.0.1",
    ]


async def test_a_certificate_of_another_ca_is_no_proof(
    tmp_path: Path, certificates: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_denials", audit.denials())
    (tmp_path / "other").mkdir()
    write_certificates(tmp_path / "other")
    async with running(tmp_path, tls=tls(certificates)) as served:
        context = client(certificates)
        context.load_cert_chain(tmp_path / "other" / "client.pem", tmp_path / "other" / "client.key")
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await post(served, context, {})
    (told,) = [line for line in audited(caplog) if line.startswith("denied")]
    assert told.startswith("denied who=http where=127.0.0.1 reason=certificate of a client: ")
    without = tls(certificates, client_ca_file="")
    async with running(tmp_path, tls=without) as served:
        assert await post(served, client(certificates, "client"), {}) == 401


async def test_wrong_clients_of_tls_leave_no_trace_and_keep_nobody_out(
    tmp_path: Path, certificates: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MAX_CONNECTIONS", 4)
    async with running(tmp_path, tls=tls(certificates)) as served:
        caplog.clear()
        crowd = []
        for begun in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"\0" * 50) * 4:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(begun)
            crowd.append((reader, writer))
        assert await post(served, client(certificates), served.bearer) == 200
        for _, writer in crowd:
            writer.close()
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    expected = ("admin_crowded", "endpoint_state", "undelivered", "left_in_journal")
    assert [text for text in told if not text.startswith(expected)] == []


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_refused_certificates_are_told_within_bounds_with_address_and_reason(
    tmp_path: Path,
    certificates: Path,
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audit, "_denials", audit.denials())
    context = client(certificates, "server")  # signed by the right CA, but not for clients

    async def try_it() -> None:
        async with running(tmp_path, tls=tls(certificates)) as served:
            for _ in range(2 * audit.LINES_PER_REQUESTER):
                with pytest.raises((aiohttp.ClientError, ConnectionError)):
                    await post(served, context, {})

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(try_it())
    told = [line for line in audited(caplog) if line.startswith("denied")]
    refusal = "denied who=http where=127.0.0.1 reason=certificate of a client: unsuitable certificate purpose"
    assert told[: audit.LINES_PER_REQUESTER] == [refusal] * audit.LINES_PER_REQUESTER
    assert told[audit.LINES_PER_REQUESTER :] in ([], [f"denied_again who=http times={audit.LINES_PER_REQUESTER}"])


def test_with_the_daemons_own_loop_certificates_count_and_a_stalled_handshake_ends(
    tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transports and its TLS have nothing in common with those of asyncio."""
    monkeypatch.setattr(listener, "CONNECTION_TIMEOUT_S", 0.5)

    async def ask() -> tuple[int, int, bytes]:
        async with running(tmp_path, tls=tls(certificates)) as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(b"\x16\x03\x01")
            proven = await post(served, client(certificates, "client"), {})
            unproven = await post(served, client(certificates), {})
            async with asyncio.timeout(20):
                try:
                    left = await reader.read()
                except ConnectionResetError:
                    left = b""
            writer.close()
            return proven, unproven, left

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(ask()) == (200, 401, b"")


async def test_a_reload_takes_other_certificates_or_says_what_is_wrong_with_them(tmp_path: Path, certificates: Path) -> None:
    async with running(tmp_path) as served:
        assert (await served.ask("/api/v1/paused")).status == 200
        served.raw["metrics"]["tls"] = tls(certificates, key_file="client.key")
        served.write()
        asked = await served.ask("/api/v1/reload", {})
        assert (asked.status, asked.json["problems"]) == (
            422,
            [
                "metrics.tls.cert_file, key_file: expected a certificate and the key that belongs to it, "
                "as PEM and without a passphrase"
            ],
        )
        served.raw["metrics"]["tls"] = tls(certificates)
        served.write()
        assert (await served.ask("/api/v1/reload", {})).status == 200
        assert await post(served, client(certificates, "client"), {}) == 200
        assert await asyncio.to_thread(main, ["reload", "--config", str(served.file)]) == 0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"cert_file": "nothing"}, "metrics.tls.cert_file: "),
        ({"key_file": "nothing"}, "metrics.tls.key_file: "),
        ({"client_ca_file": "nothing"}, "metrics.tls.client_ca_file: "),
        ({"cert_file": "server.key"}, "metrics.tls.cert_file, key_file: expected a certificate"),
        ({"client_ca_file": "server.key"}, "metrics.tls.client_ca_file: "),
    ],
)
def test_files_that_cannot_be_used_are_named_by_their_key(certificates: Path, changes: dict[str, str], told: str) -> None:
    with pytest.raises(TlsError, match=told):
        server_context(TlsConfig.model_validate(tls(certificates, **changes)))


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(certificates: Path, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    key = serialization.load_pem_private_key((certificates / "server.key").read_bytes(), None)
    (tmp_path / "key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    options: dict[str, Any] = tls(certificates) | {"key_file": str(tmp_path / "key")}
    with pytest.raises(TlsError, match="without a passphrase"):
        server_context(TlsConfig.model_validate(options))


def test_a_daemon_with_bad_certificates_does_not_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "streamer.yaml"
    file.write_text(
        "authority: gw\nendpoints: {a: {transport: memory, authorities: [a]}}\nroutes: []\n"
        f"metrics: {{listen: '127.0.0.1:0', tls: {{cert_file: {tmp_path}/no.pem, key_file: {tmp_path}/no.key}}}}\n"
    )
    assert main(["run", "--config", str(file)]) == 78
    assert f"metrics.tls.cert_file: {tmp_path}/no.pem: No such file" in capsys.readouterr().err
