"""TLS at the port of a whole daemon, and certificates of clients."""

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop

from streamer.config.tls import TlsConfig, TlsError, server_context
from streamer.features.api import listener
from streamer.features.api.certificate import PortCertificate
from streamer.logs import audit
from streamer.main import main
from tests.certificates import write_certificates
from tests.flow.harness import SPEED
from tests.unit.features.api.audit import audited
from tests.unit.features.api.daemon import running
from tests.unit.features.api.tls_port import client, post, tls


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    write_certificates(folder)
    return folder


@pytest.mark.needs("pause")
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


@pytest.mark.needs("pause")
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


@pytest.mark.needs("pause")
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


@pytest.mark.needs("pause")
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


@pytest.mark.needs("judge", "pause")
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


def renew(folder: Path, *names: str) -> None:
    """New certificates of a new CA in place of those that are there, or of some of their files."""
    (folder / "new").mkdir(exist_ok=True)
    write_certificates(folder / "new")
    for name in names or ("server.pem", "server.key", "ca.pem", "client.pem", "client.key"):
        (folder / "new" / name).replace(folder / name)


@pytest.mark.needs("judge", "pause")
@pytest.mark.parametrize("is_replaced", [True, False])
async def test_commands_work_between_a_renewal_of_the_certificate_and_the_reload_and_after_it(
    tmp_path: Path, is_replaced: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    write_certificates(tmp_path)
    async with running(tmp_path, tls=tls(tmp_path)) as served:
        assert await post(served, client(tmp_path, "client"), {}) == 200
        if is_replaced:
            renew(tmp_path)
        else:
            write_certificates(tmp_path)  # into the same files
        config = ["--config", str(served.file)]
        for command in (["resume", *config, "--topic", str(SPEED)], ["reload", *config], ["config", *config, "--running"]):
            assert await asyncio.to_thread(main, command) == 0, capsys.readouterr().err
        assert await post(served, client(tmp_path, "client"), {}) == 200


@pytest.mark.needs("judge", "pause")
async def test_a_key_that_does_not_belong_to_the_renewed_certificate_changes_nothing_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    write_certificates(tmp_path)
    before = client(tmp_path, "client")
    async with running(tmp_path, tls=tls(tmp_path)) as served:
        renew(tmp_path, "server.pem")
        assert await post(served, before, {}) == 200  # with the certificate from before
        assert await post(served, before, {}) == 200
        told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("http_certificate_")]
        assert len(told) == 1
        assert "expected a certificate and the key that belongs to it" in told[0]
        assert await asyncio.to_thread(main, ["reload", "--config", str(served.file)]) == 1
        assert "it shows another certificate than metrics.tls.cert_file" in capsys.readouterr().err
        (tmp_path / "new" / "server.key").replace(tmp_path / "server.key")  # the other half
        assert await asyncio.to_thread(main, ["reload", "--config", str(served.file)]) == 0


@pytest.mark.needs("judge", "pause")
async def test_a_file_system_that_hangs_keeps_the_port_open_with_the_certificate_from_before(
    tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("streamer.features.api.certificate._LOOK_S", 0.1)
    released = threading.Event()
    async with running(tmp_path, tls=tls(certificates)) as served:
        monkeypatch.setattr(PortCertificate, "_look", lambda self: released.wait())
        assert await post(served, client(certificates, "client"), {}) == 200
        assert await post(served, client(certificates, "client"), {}) == 200
        assert "http_certificate_unusable" in caplog.text
        monkeypatch.undo()
        released.set()


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
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
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
