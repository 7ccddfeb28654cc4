"""``streamer check --probe`` against real brokers, a scripted one, and next to a streamer that runs."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import mqtt5
import pytest

from streamer.transports.base import LinkState
from streamer.transports.mqtt5.options import Mqtt5Options
from streamer.transports.mqtt5.probe import try_broker
from streamer.transports.probe import Answer, Verdict
from tests.brokers import BROKERS, Mosquitto, TlsFiles, any_broker, broker
from tests.certificates import write_certificates
from tests.e2e.mqtt_connection import OTHER
from tests.e2e.mqtt_messages import TOPIC, numbered, texts
from tests.e2e.mqtt_sessions import is_kept, subscribed_to, tied, user
from tests.listeners import RecordingListener
from tests.mqtt_peer import DEADLINE_S, BrokerConnection, Endpoint, FakeBroker
from tests.ports import HOST, free_port
from tests.preloaded import command
from tests.unit.memory_daemon import Process, running
from tests.waiting import until


def tried(url: str, **options: Any) -> "asyncio.Task[Answer]":
    return asyncio.create_task(tried_with(Mqtt5Options.model_validate({"broker": url, **options})))


async def tried_with(options: Mqtt5Options) -> Answer:
    (broker,) = options.brokers
    return await try_broker(options, broker)


async def answer(url: str, **options: Any) -> Answer:
    async with asyncio.timeout(DEADLINE_S):
        return await tried(url, **options)


# real brokers


@pytest.mark.parametrize("kind", BROKERS)
async def test_the_session_of_the_running_streamer_goes_on(kind: str) -> None:
    inbox = RecordingListener()
    with broker(kind) as server:
        endpoint = Endpoint(server.url, "cloud")
        async with endpoint.running(), Endpoint(server.url, "veh1").running() as car:
            await endpoint.transport.register_listener(TOPIC, None, inbox)
            await endpoint.up()
            await car.up()
            found = await asyncio.gather(*(tried_with(endpoint.transport.options) for _ in range(5)))
            car.submit(numbered(100))
            await until(lambda: len(inbox.received) == 100)
            assert endpoint.states == [LinkState.UP]
    where = server.url.removeprefix("mqtt://")
    assert found == [Answer(Verdict.OK, f"{where}: the broker accepts a client without credentials")] * 5
    assert inbox.payloads == texts(100)


@pytest.mark.mosquitto
async def test_no_session_of_the_probe_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("streamer.transports.mqtt5.probe.new_client_id", lambda: "check0")
    with Mosquitto() as plain, tied() as other:
        assert (await answer(plain.url)).verdict is Verdict.OK
        assert not await is_kept(plain, "check0")
        found = await tried_with(user(other, "gateway", tmp_path).transport.options)
        assert found == Answer(Verdict.OK, f"{HOST}:{other.port}: the broker accepts the credentials")
        assert not await is_kept(other, "any", "gateway")


GIVEN = (
    "the broker accepts the credentials; it gives the session of whoever has these credentials to the probe, so a streamer "
    "that runs was disconnected for a moment (no message is lost)"
)


@pytest.mark.mosquitto
async def test_a_stopped_streamer_gets_what_waits_for_it_if_the_probe_was_given_its_session(tmp_path: Path) -> None:
    inbox = RecordingListener()
    with tied() as server:
        async with user(server, "gateway", tmp_path).running() as before:
            await subscribed_to(before, TOPIC, RecordingListener())
        async with user(server, "veh1", tmp_path).running() as car:
            await car.up()
            car.submit(numbered(100))
            await until(lambda: len(car.confirmed) == 100)
        for _ in range(3):
            found = await tried_with(before.transport.options)
            assert found == Answer(Verdict.OK, f"{HOST}:{server.port}: {GIVEN}")
        assert await is_kept(server, "any", "gateway")
        async with user(server, "gateway", tmp_path).running() as after:
            await after.transport.register_listener(TOPIC, None, inbox)
            await until(lambda: len(inbox.received) == 100)
    assert inbox.payloads == texts(100)


@pytest.mark.mosquitto
async def test_a_running_streamer_loses_nothing_if_the_probe_was_given_its_session(tmp_path: Path) -> None:
    inbox, in_car = RecordingListener(), RecordingListener()
    answers = [replace(each, attributes=replace(each.attributes, source=OTHER)) for each in numbered(500)]
    with tied() as server:
        endpoint, car = user(server, "gateway", tmp_path), user(server, "veh1", tmp_path)
        async with endpoint.running(), car.running():
            await subscribed_to(endpoint, TOPIC, inbox)
            await subscribed_to(car, OTHER, in_car)
            for turn in range(5):
                await endpoint.up()
                car.submit(numbered(1000)[200 * turn :][:200])
                endpoint.submit(answers[100 * turn :][:100])
                found = await tried_with(endpoint.transport.options)
                assert found == Answer(Verdict.OK, f"{HOST}:{server.port}: {GIVEN}")
            await until(lambda: set(inbox.payloads) == set(texts(1000)))
            await until(lambda: set(in_car.payloads) == set(texts(500)))
            await until(lambda: endpoint.confirmed == texts(500))
    assert endpoint.states.count(LinkState.DOWN) > 1  # it was disconnected
    assert list(dict.fromkeys(inbox.payloads)) == texts(1000)
    assert endpoint.refused == []


@pytest.mark.mosquitto
async def test_tls_certificates_and_credentials_are_tried(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    word_file = tmp_path / "password"
    word_file.write_text("s3cret\n")
    files = TlsFiles(tmp_path / "ca.pem", tmp_path / "server.pem", tmp_path / "server.key")
    ours = {"ca_file": tmp_path / "ca.pem", "cert_file": tmp_path / "client.pem", "key_file": tmp_path / "client.key"}
    who = {"username": "gateway", "password_file": word_file}
    with Mosquitto(tls=files, users={"gateway": "s3cret"}) as server:
        where = f"{HOST}:{server.port}"
        good = await answer(server.url, tls=ours, **who)
        assert good == Answer(Verdict.OK, f"{where}: the broker accepts TLS and the credentials")
        no_certificate = await answer(server.url, tls={"ca_file": ours["ca_file"]}, **who)
        assert no_certificate.verdict is Verdict.PROBLEM
        assert no_certificate.text.endswith("; does it want a certificate (tls.cert_file)?")
        unknown = await answer(server.url, **who)
        assert unknown.verdict is Verdict.PROBLEM
        assert unknown.text.startswith(f"{where}: TLS: the broker's certificate is not accepted: ")
        word_file.write_text("wr0ng\n")
        refused = await answer(server.url, tls=ours, **who)
        assert refused.verdict is Verdict.PROBLEM
        assert "the broker refused: NOT_AUTHORIZED (0x87)" in refused.text
        ours["key_file"].write_text("s3cret")
        unusable = await answer(server.url, tls=ours, **who)
        assert unusable.text.startswith("not tried: tls.key_file: ")
        plain = await answer(server.url.replace("mqtts", "mqtt"), **who)
        assert plain.verdict is Verdict.PROBLEM
        assert plain.text.endswith("; does it want TLS there (mqtts://)?")
    for each in (good, no_certificate, unknown, refused, unusable, plain):
        assert "s3cret" not in each.text
        assert "wr0ng" not in each.text


async def test_tls_to_a_broker_without_it_is_a_problem() -> None:
    with any_broker() as server:
        found = await answer(server.url.replace("mqtt", "mqtts"))
    assert found.verdict is Verdict.PROBLEM
    assert found.text.endswith("; does it speak TLS there, or plain MQTT (mqtt://)?")


async def test_nobody_there_is_a_problem() -> None:
    port = free_port()
    assert await answer(f"mqtt://{HOST}:{port}") == Answer(Verdict.PROBLEM, f"{HOST}:{port}: connection refused")


# a scripted broker


@pytest.mark.parametrize(("session_present", "expiry_s"), [(False, 0), (True, None)])
async def test_a_session_is_ended_only_if_it_is_new(fake: FakeBroker, session_present: bool, expiry_s: int | None) -> None:
    task = tried(fake.url, max_packet_bytes=5000)
    peer = await fake.peer()
    connect = await peer.accept(session_present=session_present)
    peer.write(mqtt5.PublishPacket("a", b"", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=1))
    assert (await peer.next(mqtt5.DisconnectPacket)).session_expiry_interval == expiry_s  # and no PUBACK
    assert (connect.receive_max, connect.max_packet_size) == (1, 5000)
    assert ("disconnected for a moment" in (await task).text) is session_present


async def test_what_answers_wrongly_is_left_without_a_word_about_its_session(fake: FakeBroker) -> None:
    task = tried(fake.url)
    peer = await fake.peer()
    await peer.next(mqtt5.ConnectPacket)
    peer.write(mqtt5.PingRespPacket())
    assert (await peer.next(mqtt5.DisconnectPacket)).session_expiry_interval is None
    assert (await task).verdict is Verdict.PROBLEM


async def test_it_comes_as_a_stranger_and_leaves_nothing(fake: FakeBroker) -> None:
    task = tried(fake.url, client_id="gateway", clean_start=False, session_expiry_s=3600)
    peer = await fake.peer()
    connect = await peer.accept()
    await peer.next(mqtt5.DisconnectPacket)
    assert (await task).verdict is Verdict.OK
    assert (connect.clean_start, connect.session_expiry_interval, connect.will) == (False, 3600, None)
    assert connect.client_id.startswith("check")
    other = tried(fake.url, client_id="gateway")
    again = await fake.peer()
    assert (await again.accept()).client_id != connect.client_id
    await other


@pytest.mark.parametrize(
    ("connack", "verdict", "text"),
    [
        ({"reason_code": mqtt5.ConnAckReasonCode.CLIENT_ID_NOT_VALID}, Verdict.CANNOT_TELL, "client ids"),
        ({"reason_code": mqtt5.ConnAckReasonCode.SERVER_BUSY}, Verdict.PROBLEM, "SERVER_BUSY (0x89)"),
        ({"reason_code": mqtt5.ConnAckReasonCode.NOT_AUTHORIZED}, Verdict.PROBLEM, "ties the user to a client id"),
        ({"max_qos": mqtt5.QoS.AT_MOST_ONCE}, Verdict.PROBLEM, "QoS 1"),
        ({"wildcard_subscription_available": False}, Verdict.PROBLEM, "no subscriptions with wildcards"),
    ],
)
async def test_what_the_broker_answers(fake: FakeBroker, connack: dict[str, Any], verdict: Verdict, text: str) -> None:
    task = tried(fake.url)
    await (await fake.peer()).accept(**connack)
    found = await task
    assert found.verdict is verdict
    assert text in found.text


@pytest.mark.parametrize(("share", "verdict"), [(None, Verdict.OK), ("fleet", Verdict.PROBLEM)])
async def test_a_broker_without_shared_subscriptions_is_a_problem_for_a_share(
    fake: FakeBroker, share: str | None, verdict: Verdict
) -> None:
    task = tried(fake.url, share=share)
    await (await fake.peer()).accept(shared_subscription_available=False)
    found = await task
    assert found.verdict is verdict
    assert ("remove share from the options" in found.text) is (share is not None)


async def say_something_else(peer: BrokerConnection) -> None:
    peer.write(mqtt5.PingRespPacket())


async def say_nonsense(peer: BrokerConnection) -> None:
    peer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(100))
    peer.drop()


async def go(peer: BrokerConnection) -> None:
    peer.drop()


@pytest.mark.parametrize("act", [say_something_else, say_nonsense, go])
async def test_what_is_no_broker_is_a_problem(fake: FakeBroker, act: Any) -> None:
    task = tried(fake.url)
    await act(await fake.peer())
    assert (await task).verdict is Verdict.PROBLEM


async def test_a_broker_that_speaks_only_mqtt_3_is_a_problem_with_that_name(fake: FakeBroker) -> None:
    task = tried(fake.url)
    (await fake.peer()).write(b"\x20\x02\x00\x01")
    found = await task
    assert found.verdict is Verdict.PROBLEM
    assert "speaks only MQTT 3.1.1" in found.text
    assert "unacceptable protocol version" in found.text


async def test_one_that_says_nothing_is_left_when_the_time_is_over(fake: FakeBroker) -> None:
    task = tried(fake.url)
    peer = await fake.peer()
    await peer.next(mqtt5.ConnectPacket)
    task.cancel()
    await peer.closed()
    with pytest.raises(asyncio.CancelledError):
        await task


# next to a streamer


CONFIG = """\
authority: gateway.veh1
endpoints:
  vehicle:
    transport: zenoh
    authorities: [veh1]
    options: {{listen: ["tcp/127.0.0.1:{zenoh}"]}}
  cloud:
    transport: mqtt5
    authorities: [backend]
    options: {{broker: "mqtt://127.0.0.1:{mqtt}"}}
routes: [{{from: vehicle, to: cloud}}]
metrics: {{listen: "127.0.0.1:{metrics}"}}
journal: {{path: "{folder}/journal.db", max_bytes: 1MiB}}
"""


async def probed(process: Process) -> tuple[int, dict[str, str]]:
    """The exit status, and the verdicts by key."""
    done = await command("check", "--probe", "--config", process.file)
    assert done.stderr == ""
    found = [each.partition("  ") for each in done.stdout.splitlines() if not each.startswith(str(process.file))]
    return done.returncode, {rest.strip().partition(": ")[0]: verdict for verdict, _, rest in found}


async def test_ports_and_files_of_the_streamer_that_runs_are_no_problem(tmp_path: Path) -> None:
    process, zenoh = Process(tmp_path), free_port()
    ports = ["metrics.listen", "endpoints.vehicle.options.listen[0]"]
    files = ["journal.path"]
    broker_key = "endpoints.cloud.options.broker"
    good = dict.fromkeys([*ports, *files, "journal.max_bytes", broker_key], "ok")
    with any_broker() as server:
        text = CONFIG.format(zenoh=zenoh, mqtt=server.port, metrics=process.port, folder=tmp_path)
        process.file.write_text(text)
        async with running(process):
            await process.ready()
            await process.until(lambda: process.get("/readyz").startswith('{"ready": true'))
            assert await probed(process) == (0, good)
            # another streamer with the same ports and files
            process.file.write_text(text.replace("gateway.veh1", "gateway.veh2"))
            assert await probed(process) == (1, good | dict.fromkeys(ports + files, "problem"))
            # and one with ports of its own
            for before in (zenoh, process.port):
                text = text.replace(f":{before}", f":{free_port()}")
            process.file.write_text(text)
            assert await probed(process) == (1, good | dict.fromkeys(files, "problem"))
            assert not process.events("link_down")
        assert await probed(process) == (0, good)
    assert await probed(process) == (1, good | {broker_key: "problem"})
