"""``streamer send``, ``listen`` and ``ping`` through a real gateway, with clients on both sides that do not use our code."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import mqtt5
import pytest

from streamer.transports.base import LinkState
from streamer.transports.mqtt5.frames import named
from tests.brokers import Mosquitto, TlsFiles, any_broker
from tests.certificates import write_certificates
from tests.configurations import config_of, endpoint_of
from tests.e2e.answering import answering
from tests.e2e.gateway import Gateway, RunningCommand, gateway
from tests.e2e.mqtt_messages import TOPIC as MESSAGES
from tests.e2e.mqtt_messages import numbered, texts
from tests.e2e.mqtt_sessions import subscribed_to, tied, user
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.listeners import RecordingListener
from tests.ports import HOST, free_port
from tests.preloaded import command
from tests.process import ROOT, StreamerProcess
from tests.waiting import until
from tests.zenoh_peers import free_endpoint

SPEED = "//veh1/A8000/2/8A50"
TOPIC = ("veh1", 0xA8000, 2, 0x8A50)
APP, METHOD, CALLER = "//cloud/C0/1/0", "//cloud/C0/1/7", "//veh1/A8000/2/0"

Start = Callable[..., RunningCommand]


@pytest.fixture
async def running() -> AsyncIterator[Gateway]:
    async with gateway() as found:
        yield found


@pytest.fixture
def start(tmp_path: Path) -> "Start":
    return lambda *argv: RunningCommand(tmp_path, argv)


async def test_messages_of_send_arrive_as_the_specification_says(running: Gateway) -> None:
    described = ("--text", "21.5", "--priority", "CS2", "--ttl", "30500ms")
    done = await command("send", "--zenoh", running.locator, "--source", SPEED, *described)
    assert (done.returncode, done.stderr) == (0, "")
    assert "delivered in " in done.stdout
    done = await command("send", *running.by_file, "--endpoint", "vehicle", "--source", "/A8000/2/8A50", "--sink", APP)
    assert (done.returncode, done.stderr) == (0, "")
    await until(lambda: len(running.cloud.arrived) == 2, "both messages")
    published, notified = running.cloud.arrived
    expected = Plain(1, TOPIC, None, b"21.5", 3, 30_500, payload_format=7, id=published.id).addressed_to("cloud")
    assert published == expected
    assert notified == Plain(4, TOPIC, ("cloud", 0xC0, 1, 0), id=notified.id)

    words = ("--source", "//cloud/A8000/2/8A50", "--sink", "//veh1/FFFFFFFF/FF/FFFF", "--hex", "00ff", "--json")
    done = await command("send", "--broker", running.broker.url, *words, "--count", "50", "--rate", "1000")
    assert (done.returncode, done.stderr) == (0, "")
    ids = [json.loads(line)["id"].replace("-", "") for line in done.stdout.splitlines()]
    await until(lambda: len(running.car.arrived) == 50, "the Publishes")
    assert sorted(each.id.hex() for each in running.car.arrived) == sorted(ids)
    assert {(each.type, each.source, each.payload) for each in running.car.arrived} == {
        (1, ("cloud", 0xA8000, 2, 0x8A50), b"\x00\xff")
    }


async def test_listen_prints_what_arrives_and_ends_at_ctrl_c(running: Gateway, start: Start) -> None:
    far = start("listen", "--broker", running.broker.url, "--sink", "//cloud/FFFFFFFF/FF/FFFF")
    near = start("listen", *running.by_file, "--endpoint", "vehicle", "--json", "--join")
    await asyncio.gather(far.until_listening(), near.until_listening())
    await running.car.send([Plain(1, TOPIC, payload=b"\x1b]0;owned\x07 1", payload_format=7)])
    await far.until_out("owned")
    assert not {"\x1b", "\x07"} & set(far.out)
    asked = Plain(
        2, ("cloud", 0xC0, 1, 0), ("veh1", 0xA8000, 2, 7), b'{"a": 1}', 5, 20_000, token="sesame", payload_format=3
    )
    await running.cloud.send([asked])
    await near.until_out("\n")
    (line,) = near.out.splitlines()
    assert json.loads(line)["payload"] == {"json": {"a": 1}}
    assert "sesame" not in near.out
    assert await far.interrupted() == 0
    assert await near.interrupted(signal.SIGTERM) == 0
    assert far.err.splitlines()[1:] == near.err.splitlines()[2:] == []
    assert near.err.startswith(
        "joining as a receiver: until this ends, messages that match and have no other receiver come here"
    )


async def test_beside_its_streamer_a_listener_on_zenoh_shows_the_tap_and_receives_nothing(
    tmp_path: Path, start: Start
) -> None:
    locator = free_endpoint()
    with any_broker() as broker:
        config = config_of(
            {
                "vehicle": endpoint_of("zenoh", "veh1", listen=[locator]),
                "cloud": endpoint_of("mqtt5", "*", broker=broker.url, topics="off-vehicle"),
            },
            [{"from": "cloud", "to": "vehicle"}],
            journal={"path": str(tmp_path / "journal.db")},
        )
        daemon = StreamerProcess(tmp_path, config)
        daemon.start()
        elsewhere = ["up/*/*/*/*/*/veh1/1/0/1/0"]
        async with ZenohSide(connect=[locator], keys=elsewhere), MqttSide(broker.port, "off-vehicle", []) as cloud:
            await daemon.until_up()
            by_file = ("--config", str(daemon.path), "--endpoint", "vehicle")
            shown = start("listen", *by_file, "--source", "//cloud/FFFFFFFF/FF/FFFF", "--json")
            await until(lambda: "watching messages of endpoint vehicle, source //cloud" in shown.err, "the tap", within_s=60)
            await cloud.send([Plain(4, ("cloud", 0xC0, 1, 0x8001), ("veh1", 0xA8000, 2, 0), b"1", ttl=3000)])
            await shown.until_out('"outcome": "expired"')
            assert "--join joins the network" in shown.err
            assert await shown.interrupted() == 0
            done = await command("listen", *by_file, "--for", "1s")
            assert (done.returncode, "--for: expected --join as well" in done.stderr) == (2, True)
        await daemon.__aexit__()


async def test_a_listener_reads_that_a_gateway_is_gone_and_back(start: Start) -> None:
    async with gateway(cloud={"will": {"to": "cloud", "delay_s": 0}}) as running:
        listener = start("listen", "--broker", running.broker.url, "--source", "//gateway.veh1/FFFFFFFF/FF/FFFF")
        await listener.until_listening()
        running.daemon.signal(signal.SIGKILL)
        await listener.until_out('"link": "LINK_OFFLINE"')
        assert '  Status {"reasons": ["the connection was lost"], ' in listener.out
        running.daemon.start()
        await listener.until_out('"link": "LINK_ONLINE"')
        assert await listener.interrupted() == 0


async def test_a_request_is_answered_through_the_gateway(running: Gateway, start: Start) -> None:
    service = start("listen", "--broker", running.broker.url, "--sink", METHOD, "--answer", "fine", "--count", "2")
    await service.until_listening()
    words = ("--source", CALLER, "--sink", METHOD, "--text", "how are you?")
    done = await command("send", "--zenoh", running.locator, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"response  {METHOD} → {CALLER}" in done.stdout
    assert "fine" in done.stdout
    done = await command("send", *running.by_file, "--endpoint", "vehicle", *words, "--json")
    assert json.loads(done.stdout)["answer"]["payload"] == {"text": "fine"}
    assert await service.ended() == 0
    assert service.out.count("how are you?") == 2
    done = await command("send", "--zenoh", running.locator, *words, "--ttl", "300ms")
    assert done.returncode == 1
    assert "DEADLINE_EXCEEDED" in done.stderr


async def test_a_method_on_zenoh_is_called_from_the_cloud(running: Gateway, start: Start) -> None:
    method = "//veh1/A8000/2/7"
    service = start("listen", "--zenoh", running.locator, "--sink", method, "--answer", '{"ok": true}', "--count", "1")
    await service.until_listening()
    done = await command("send", "--broker", running.broker.url, "--source", APP, "--sink", method)
    assert (done.returncode, done.stderr) == (0, "")
    assert '{"ok": true}' in done.stdout
    assert await service.ended() == 0


async def test_ping_measures_round_trips_and_disturbs_no_session(running: Gateway) -> None:
    ways = [
        ("--zenoh", running.locator, "--source", CALLER),
        (*running.by_file, "--endpoint", "vehicle"),
        ("--broker", running.broker.url, "--source", APP),
        (*running.by_file, "--endpoint", "cloud", "--source", APP),
    ]
    for way in ways:
        done = await command("ping", "gateway.veh1", *way, "--count", "3", "--rate", "100")
        assert (done.returncode, done.stderr) == (0, ""), way
        assert "3 sent, 3 answered, 0 % lost" in done.stdout
    log = running.daemon.log
    assert not [word for word in ("session_taken_over", "link_down", "request_refused") if word in log]
    assert running.connections == 1
    assert running.daemon.total("ustreamer_reconnects_total", endpoint="vehicle") == 0
    assert running.daemon.total("ustreamer_link_errors_total", endpoint="vehicle") == 0


async def test_a_streamer_that_is_not_there_or_may_not_be_asked_is_not_reached(running: Gateway) -> None:
    far = ("--broker", running.broker.url, "--count", "1")
    done = await command("ping", "gateway.veh2", *far, "--source", APP, "--timeout", "200ms")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "gateway.veh2: 1 sent, 0 answered, 100 % lost")
    done = await command("ping", "gateway.veh1", *far, "--source", "//stranger/C0/1/0")
    assert done.returncode == 1
    assert "1: PERMISSION_DENIED: " in done.stdout
    done = await command(
        "ping", "gateway.veh2", "--zenoh", running.locator, "--source", CALLER, "--timeout", "1s", "--count", "1"
    )
    assert done.returncode == 1


async def test_inside_a_vehicle_topics_are_those_of_the_option(start: Start) -> None:
    with any_broker() as broker:
        way = ("--broker", broker.url, "--option", "topics=in-vehicle")
        every = start("listen", *way, "--count", "2", "--answer", "fine")
        one = start("listen", *way, "--source", SPEED, "--count", "1", "--for", "60s")
        await asyncio.gather(every.until_listening(), one.until_listening())
        async with MqttSide(broker.port, "in-vehicle", ["veh1/8000/A/2/8A50"]) as side:
            done = await command("send", *way, "--source", SPEED, "--text", "21.5")
            assert (done.returncode, done.stderr) == (0, "")
            await until(lambda: bool(side.arrived), "the Publish")
            assert [(each.source, each.sink, each.payload) for each in side.arrived] == [(TOPIC, None, b"21.5")]
        done = await command("send", *way, "--source", CALLER, "--sink", METHOD)
        assert (done.returncode, done.stderr) == (0, "")
        assert "  fine  (" in done.stdout
        assert [await each.ended() for each in (every, one)] == [0, 0]
        assert [line.split("  ")[1] for line in every.out.splitlines()] == ["publish", "request"]
        assert [line.split("  ")[1] for line in one.out.splitlines()] == ["publish"]


async def test_a_network_that_is_down_is_told_with_the_reason() -> None:
    port = free_port()
    done = await command(
        "send", "--broker", f"mqtt://{HOST}:{port}", "--source", CALLER, "--sink", METHOD, "--timeout", "300ms"
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (f"mqtt://{HOST}:{port}: connection refused\n")
    done = await command("listen", "--zenoh", f"tcp/{HOST}:{port}", *WITHOUT_END)
    assert (done.returncode, done.stdout) == (1, "")
    joining, refused = done.stderr.splitlines()
    assert joining.startswith("joining as a receiver")
    assert refused == f"tcp/{HOST}:{port}: connection refused"


WITHOUT_END = ("--timeout", "1h")
"""So that a command which waits for its time limit is noticed."""


@pytest.mark.parametrize("locator", ["--broker mqtt://nobody.invalid", "--zenoh tcp/nobody.invalid:7447"])
async def test_a_host_without_an_address_is_told_at_once(locator: str) -> None:
    done = await command("listen", *locator.split(), *WITHOUT_END)
    assert (done.returncode, done.stdout) == (1, "")
    network = locator.partition(" ")[2]
    assert done.stderr.splitlines()[-1].startswith(f"{network}: ")
    assert done.stderr.count("nobody.invalid") == 1
    assert done.stderr.count("\n") == (2 if "--zenoh" in locator else 1)  # on Zenoh it says what it counts as


async def test_a_network_that_is_not_there_yet_is_waited_for(start: Start) -> None:
    with any_broker() as broker:
        broker.stop()
        has_tried = asyncio.Event()

        def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.abort()
            has_tried.set()

        async with await asyncio.start_server(refuse, HOST, broker.port):
            listener = start("listen", "--broker", broker.url, "--wait", "1h", "--option", "reconnect.initial_ms=20")
            await has_tried.wait()
        broker.start()
        await listener.until_listening()
        assert await listener.interrupted() == 0


ANSWERS = {
    "bad user name or password": (
        mqtt5.ConnAckReasonCode.BAD_USER_NAME_OR_PASSWORD,
        "UNAUTHENTICATED: wrong user or password",
    ),
    "not authorized": (
        mqtt5.ConnAckReasonCode.NOT_AUTHORIZED,
        "PERMISSION_DENIED: wrong user or password, or no right to connect",
    ),
    "banned": (mqtt5.ConnAckReasonCode.BANNED, "INTERNAL"),
    "client id": (mqtt5.ConnAckReasonCode.CLIENT_ID_NOT_VALID, "INTERNAL: it does not accept this client id"),
    "busy": (mqtt5.ConnAckReasonCode.SERVER_BUSY, "UNAVAILABLE"),
}


@pytest.mark.parametrize("reason", ANSWERS)
@pytest.mark.parametrize("has_credentials", [False, True])
async def test_a_broker_that_refuses_ends_the_command_at_once_with_one_sentence(
    reason: str, has_credentials: bool, tmp_path: Path
) -> None:
    code, meaning = ANSWERS[reason]
    secret = tmp_path / "word"
    secret.write_text("word")
    user = ("--option", "username=joe", "--option", f"password_file={secret}") if has_credentials else ()
    async with answering(mqtt5.ConnAckPacket(reason_code=code).write()) as port:
        url = f"mqtt://{HOST}:{port}"
        for argv in (("listen",), ("send", "--source", CALLER, "--sink", METHOD), ("ping", "gw", "--source", CALLER)):
            done = await command(*argv, "--broker", url, *WITHOUT_END, *user)
            assert (done.returncode, done.stdout) == (1, "")
            assert done.stderr == f"{url}: the broker refused: {named(code)}, {meaning}\n"


@pytest.mark.parametrize(
    ("answer", "said"), [(b"", "closed by the broker"), (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a packet")]
)
@pytest.mark.parametrize("has_credentials", [False, True])
async def test_what_answers_and_is_no_broker_is_told_at_once(
    answer: bytes, said: str, has_credentials: bool, tmp_path: Path
) -> None:
    secret = tmp_path / "word"
    secret.write_text("word")
    user = ("--option", "username=joe", "--option", f"password_file={secret}") if has_credentials else ()
    async with answering(answer) as port:
        done = await command("listen", "--broker", f"mqtt://{HOST}:{port}", *WITHOUT_END, *user)
        assert (done.returncode, done.stdout) == (1, "")
        assert said in done.stderr
        assert done.stderr.count(str(port)) == 1


@pytest.mark.mosquitto
@pytest.mark.parametrize("has_certificate", [False, True])
async def test_a_certificate_that_is_not_accepted_is_told_at_once(tmp_path: Path, has_certificate: bool) -> None:
    (tmp_path / "other").mkdir()
    write_certificates(tmp_path)
    write_certificates(tmp_path / "other")
    own = ("--option", f"tls.cert_file={tmp_path}/client.pem", "--option", f"tls.key_file={tmp_path}/client.key")
    with Mosquitto(tls=TlsFiles(tmp_path / "ca.pem", tmp_path / "server.pem", tmp_path / "server.key")) as server:
        words = ("--option", f"tls.ca_file={tmp_path}/other/ca.pem", *(own if has_certificate else ()))
        done = await command("listen", "--broker", server.url, *WITHOUT_END, *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{server.url}: the certificate of the other end is not accepted: ")
    assert done.stderr.count("\n") == 1


async def test_nobody_who_listens_on_zenoh_is_told() -> None:
    locator = free_endpoint()
    async with ZenohSide(listen=[locator], keys=["up/veh1/8000/A/2/8A51/{}/{}/{}/{}/{}"]):
        done = await command("send", "--zenoh", locator, "--source", SPEED, "--timeout", "1s")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{locator}: nobody listens to {SPEED} (waited 1 s)\n"


async def test_a_listener_outlives_a_restart_of_the_broker(start: Start) -> None:
    with any_broker() as broker:
        listener = start("listen", "--broker", broker.url, "--count", "1", "--option", "reconnect.initial_ms=20")
        await listener.until_listening()
        broker.restart()
        await until(lambda: "the link is up again" in listener.err, "the link")
        words = ("--source", SPEED, "--sink", "//cloud/FFFFFFFF/FF/FFFF", "--text", "again")
        assert (await command("send", "--broker", broker.url, *words)).returncode == 0
        assert await listener.ended() == 0
        assert listener.out.endswith("again\n")
        assert "the link is down: " in listener.err


async def test_sending_that_is_interrupted_says_what_was_confirmed(start: Start) -> None:
    with any_broker() as broker:
        words = ("--source", SPEED, "--sink", "//cloud/FFFFFFFF/FF/FFFF", "--count", "100000", "--rate", "50", "--json")
        sending = start("send", "--broker", broker.url, *words)
        await until(lambda: sending.out.count("delivered") > 2, "some messages")
        assert await sending.interrupted() in (0, 1)  # 1: one was on its way
        assert all(json.loads(line)["outcome"] == "delivered" for line in sending.out.splitlines())


async def test_a_reader_that_closes_the_pipe_ends_the_listener_and_gets_lines_at_once() -> None:
    with any_broker() as broker:
        argv = [sys.executable, "-m", "streamer", "listen", "--broker", broker.url]
        listener = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert listener.stdout is not None
        assert listener.stderr is not None
        try:
            assert "listening on" in await asyncio.to_thread(listener.stderr.readline)
            words = ("--source", SPEED, "--sink", "//cloud/FFFFFFFF/FF/FFFF", "--text")
            await command("send", "--broker", broker.url, *words, "first")
            assert "first" in await asyncio.to_thread(listener.stdout.readline)
            listener.stdout.close()
            await command("send", "--broker", broker.url, *words, "second")
            assert await asyncio.to_thread(listener.wait, 30) == 1
            assert await asyncio.to_thread(listener.stderr.read) == ""
        finally:
            listener.kill()
            await asyncio.to_thread(listener.wait)
            listener.stderr.close()


@pytest.mark.mosquitto
async def test_a_streamers_session_that_the_broker_gives_to_its_user_is_left_alone(tmp_path: Path) -> None:
    """The broker makes the client id of the user name, and the streamer is away: what waits for it must stay."""
    inbox = RecordingListener()
    words = ("--option", "username=gateway", "--option", f"password_file={tmp_path / 'gateway'}", "--timeout", "1s")
    with tied() as server:
        async with user(server, "gateway", tmp_path).running() as before:
            await subscribed_to(before, MESSAGES, RecordingListener())
        async with user(server, "veh1", tmp_path).running() as car:
            await car.up()
            car.submit(numbered(100))
            await until(lambda: len(car.confirmed) == 100)
        for argv in (("listen",), ("send", "--source", CALLER, "--sink", METHOD), ("ping", "gw", "--source", CALLER)):
            done = await command(*argv, "--broker", server.url, *words)
            assert (done.returncode, done.stdout) == (1, "")
            assert "gives the streamer's session to every client with these credentials" in done.stderr
        async with user(server, "gateway", tmp_path).running() as after:
            await after.transport.register_listener(MESSAGES, None, inbox)
            await until(lambda: len(inbox.received) == 100)
    assert inbox.payloads == texts(100)


@pytest.mark.mosquitto
async def test_a_client_whose_session_is_taken_over_does_not_come_back(tmp_path: Path, start: Start) -> None:
    words = ("--option", "username=gateway", "--option", f"password_file={tmp_path / 'gateway'}")
    with tied() as server:
        streamer = user(server, "gateway", tmp_path)
        listener = start("listen", "--broker", server.url, *words)
        await listener.until_listening()
        async with streamer.running():
            await streamer.up()
            await until(lambda: "the link is down" in listener.err, "the end of the listener's link")
            assert await listener.interrupted() == 0
            assert streamer.states == [LinkState.UP]


@pytest.mark.mosquitto
async def test_credentials_come_from_the_configuration(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("word\n")
    secret.chmod(0o600)
    options = {"username": "joe", "password_file": str(secret)}
    async with gateway(Mosquitto(users={"joe": "word"}), options) as running:
        done = await command("ping", *running.by_file, "--endpoint", "cloud", "--source", APP, "--count", "1")
        assert (done.returncode, done.stderr) == (0, "")
        flags = ("ping", "gateway.veh1", "--broker", running.broker.url, "--source", APP, "--count", "1")
        wrong = tmp_path / "wrong"
        wrong.write_text("another\n")
        refusal = (
            "the broker refused: NOT_AUTHORIZED (0x87), PERMISSION_DENIED: wrong user or password, or no right to connect\n"
        )
        for user in ((), ("--option", "username=joe", "--option", f"password_file={wrong}")):
            done = await command(*flags, *WITHOUT_END, *user)
            assert (done.returncode, done.stderr) == (1, f"{running.broker.url}: {refusal}")
        by_file = ("listen", *running.by_file, "--endpoint", "cloud", "--option", f"password_file={wrong}", *WITHOUT_END)
        done = await command(*by_file)
        where = running.broker.url.removeprefix("mqtt://")
        assert (done.returncode, done.stderr) == (1, f"cloud (mqtt5): {where}: {refusal}")
        done = await command(*flags, "--option", "username=joe", "--option", f"password_file={secret}")
        assert (done.returncode, done.stderr) == (0, "")
        assert running.connections == 1
