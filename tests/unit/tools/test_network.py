"""How commands join a network: which one, with which options, and what they know of their messages in the end."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from streamer.main import _parser
from streamer.tools.network import Client, Confirmation, Network, NetworkError, _Events, joined, network_of, paced
from streamer.transports.base import LinkState, Presence, TransportContext
from streamer.transports.errors import LinkLostError, PermanentError
from streamer.transports.link_error import LinkFailure
from streamer.transports.memory import MemoryOptions, MemoryTransport
from streamer.transports.mqtt5.options import Mqtt5Options
from streamer.transports.zenoh.options import ZenohOptions
from streamer.uprotocol.message import publish
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.unit.tools.client import peer
from tests.unit.tools.commands import GOOD, SPEED, status_of

TOPIC = UUri.parse(SPEED)
COMMANDS = [("send", "--source", SPEED, "--sink", "//cloud/C0/1/0"), ("listen",), ("ping", "gw", "--source", "//veh1/1/1/0")]


def options(*words: str) -> Any:
    return network_of(_parser().parse_args(["listen", *words])).options


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        ((), 2, "one of the arguments --endpoint --broker --zenoh is required"),
        (("--broker", "mqtt://h", "--zenoh", "tcp/h:1"), 2, "not allowed with argument"),
        (("--endpoint", "vehicle"), 2, "no configuration file"),
        (("--endpoint", "cludo", "--config", "GOOD"), 2, "--endpoint: cludo: expected one of vehicle, cloud, phone"),
        (("--endpoint", "vehicle", "--config", "/nowhere.yaml"), 78, "/nowhere.yaml: cannot be read"),
        (("--broker", "localhost"), 2, "broker: expected mqtt://host:port, mqtts://host:port"),
        (("--broker", "mqtt://joe:sesame@h"), 2, "broker: expected a URL without user and password"),
        (("--zenoh", "localhost:7447"), 2, "connect[0]: not a Zenoh endpoint; expected protocol/address"),
        (("--broker", "mqtt://h", "--option", "topic=in-vehicle"), 2, "topic: unknown key; expected one of"),
        (("--broker", "mqtt://h", "--option", "topics=everywhere"), 2, "topics: expected 'off-vehicle' or 'in-vehicle'"),
        (("--broker", "mqtt://h", "--option", "password=sesame"), 2, "password: a secret does not belong here"),
        (("--broker", "mqtt://h", "--option", "username"), 2, "--option username: expected KEY=VALUE"),
        (("--broker", "mqtt://h", "--option", "username=[joe"), 2, "--option username: expected KEY=VALUE"),
        (
            ("--broker", "mqtt://h", "--option", "topics.x=1"),
            2,
            "topics: expected 'off-vehicle' or 'in-vehicle', found a mapping",
        ),
        (("--broker", "mqtt://h", "--option", "broker.x=1"), 2, "--option broker.x: there is nothing inside broker"),
        (("--zenoh", "tcp/h:1", "--option", "config_file=/nowhere"), 78, "config_file: /nowhere: No such file"),
        (("--broker", "mqtt://h", "--option", "password_file=/nowhere"), 78, "password_file: /nowhere: No such file"),
        (("--broker", "mqtt://h", "--timeout", "soon"), 2, "argument --timeout"),
        (("--broker", "mqtt://h", "--count", "0"), 2, "argument --count: expected at least 1, found '0'"),
        (("--broker", "mqtt://h", "--count", "many"), 2, "argument --count: expected at least 1, found 'many'"),
    ],
)
def test_a_network_that_cannot_be_joined_is_told_before_anything_is_tried(
    command: tuple[str, ...],
    words: tuple[str, ...],
    status: int,
    complaint: str,
    good: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert status_of(*command, *(word.replace("GOOD", good) for word in words)) == status
    out, err = capsys.readouterr()
    assert complaint in err
    assert "sesame" not in err
    assert out == ""


@pytest.mark.parametrize("command", [COMMANDS[0], COMMANDS[2]], ids=lambda words: words[0])
@pytest.mark.parametrize("rate", ["0", "nan", "inf", "-1", "fast"])
def test_a_rate_is_a_number_above_zero(command: tuple[str, ...], rate: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(*command, "--broker", "mqtt://h", f"--rate={rate}") == 2
    assert f"argument --rate: expected more than 0, found '{rate}'" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_the_options_of_the_network_are_the_same_for_all_commands(command: tuple[str, ...]) -> None:
    words = ("--broker", "mqtt://h", "--option", "keep_alive_s=3", "--client-id", "me", "--timeout", "1s", "--wait", "1m")
    network = network_of(_parser().parse_args([*command, *words, "--count", "7", "--json"]))
    assert (network.timeout_s, network.wait_s, network.options.keep_alive_s) == (1, 60, 3)  # type: ignore[attr-defined]


def test_what_flags_name_is_joined_with_a_session_of_its_own() -> None:
    mqtt = options("--broker", "mqtt://h:77", "--option", "topics=in-vehicle", "--option", "keep_alive_s=5")
    assert isinstance(mqtt, Mqtt5Options)
    assert (mqtt.brokers[0].port, mqtt.topics, mqtt.keep_alive_s, mqtt.session_expiry_s) == (77, "in-vehicle", 5, 0)
    assert mqtt.client_id is not None
    assert mqtt.client_id != options("--broker", "mqtt://h:77").client_id
    zenoh = options("--zenoh", "tcp/h:7447", "--option", "mode=client")
    assert isinstance(zenoh, ZenohOptions)
    assert (zenoh.mode, zenoh.connect, zenoh.listen) == ("client", ["tcp/h:7447"], [])


def test_no_option_wins_over_the_session_of_its_own_and_one_may_be_inside_another(tmp_path: Path) -> None:
    words = ("--broker", "mqtts://h", "--client-id", "mine", "--option", f"tls.ca_file={tmp_path / 'ca.pem'}")
    found = options(*words, "--option", "session_expiry_s=60", "--option", "share=all")
    assert (found.client_id, found.tls.ca_file) == ("mine", tmp_path / "ca.pem")
    assert (found.session_expiry_s, found.share, found.clean_start) == (0, None, True)


def test_an_endpoint_is_joined_beside_its_streamer(tmp_path: Path) -> None:
    file = tmp_path / "streamer.yaml"
    vehicle = "{transport: zenoh, authorities: ['*', veh1], options: {listen: [tcp/0.0.0.0:7447], uncertain_s: 3}}"
    cloud = "{transport: mqtt5, authorities: [cloud], options: {broker: 'mqtt://h', username: joe, client_id: gw}}"
    file.write_text(f"authority: gw\nendpoints: {{vehicle: {vehicle}, cloud: {cloud}}}\nroutes: []\n")
    arguments = ["listen", "--config", str(file), "--endpoint"]
    network = network_of(_parser().parse_args([*arguments, "vehicle"]))
    assert (network.named, network.authority, network.streamer) == ("vehicle (zenoh)", "veh1", "gw")
    assert isinstance(network.options, ZenohOptions)
    assert (network.options.listen, network.options.connect) == ([], ["tcp/127.0.0.1:7447"])
    assert network.options.uncertain_s == 3
    network = network_of(_parser().parse_args([*arguments, "cloud", "--option", "keep_alive_s=3"]))
    assert isinstance(network.options, Mqtt5Options)
    assert (network.options.username, network.options.keep_alive_s) == ("joe", 3)
    assert network.options.client_id != "gw"
    assert network.at_home(UUri.parse("/A8000/2/8A50"), "--source") == UUri("cloud", 0xA8000, 2, 0x8A50)


async def test_messages_are_paced_by_the_clock_and_not_by_their_number() -> None:
    assert [number async for number in paced(3, None)] == [1, 2, 3]
    assert [number async for number in paced(3, 1e9)] == [1, 2, 3]
    began_s = asyncio.get_running_loop().time()
    assert [number async for number in paced(3, 50)] == [1, 2, 3]
    assert asyncio.get_running_loop().time() >= began_s + 2 / 50


# what is known of a message


def client(timeout_s: float = 30, wait_s: float = 0, **given: Any) -> tuple[Client, MemoryTransport]:
    events = _Events()
    transport = MemoryTransport(TransportContext("client", "veh1", events=events), MemoryOptions(bus="client", **given))
    network = network_of(_parser().parse_args(["listen", "--broker", "mqtt://h"]))
    return Client(network._replace(timeout_s=timeout_s, wait_s=wait_s), transport, events), transport


def message() -> Any:
    return publish(0, TOPIC, b"x")


async def test_a_confirmed_message_is_delivered() -> None:
    ours, transport = client()
    await transport.start()
    taken: list[bool] = []
    assert await ours.send(message(), lambda: taken.append(True)) is Confirmation.DELIVERED
    assert taken == [True]


async def test_a_refused_message_is_an_error() -> None:
    ours, transport = client()
    await transport.start()
    transport.refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
    with pytest.raises(PermanentError, match="no"):
        await ours.send(message())


async def test_a_message_that_is_not_confirmed_in_time_is_an_error() -> None:
    ours, transport = client(timeout_s=0.02)
    await transport.start()
    transport.is_withholding = True
    with pytest.raises(LinkLostError, match=r"not confirmed within 0\.02 s"):
        await ours.send(message())
    transport.release_withheld()  # nobody waits any more


async def test_without_a_link_a_message_waits_for_it() -> None:
    ours, transport = client()
    await transport.start()
    transport.lose_link()
    sending = asyncio.create_task(ours.send(message()))
    await asyncio.sleep(0)
    assert transport.sent == []
    transport.restore_link()
    assert await sending is Confirmation.DELIVERED


async def test_without_a_link_in_time_a_message_is_an_error() -> None:
    ours, transport = client(timeout_s=0.02)
    with pytest.raises(LinkLostError, match=r"no connection within 0\.02 s"):
        await ours.send(message())
    assert transport.sent == []


async def test_on_a_network_that_confirms_nothing_evidence_counts() -> None:
    ours, transport = client(unconfirmed_s=30)
    await transport.start()
    watching = asyncio.create_task(ours.watch())
    sending = [asyncio.create_task(ours.send(message())) for _ in range(2)]
    while len(transport.sent) < 2:
        await asyncio.sleep(0)
    assert not any(each.done() for each in sending)
    transport.arrived_s = asyncio.get_running_loop().time() + 1
    assert await asyncio.gather(*sending) == [Confirmation.DELIVERED] * 2
    watching.cancel()


async def test_without_evidence_or_a_sign_of_loss_a_message_is_unconfirmed() -> None:
    ours, transport = client(unconfirmed_s=0.02)
    await transport.start()
    assert await ours.send(message()) is Confirmation.UNCONFIRMED


@pytest.mark.parametrize("sign", ["absent", "interrupted", "node lost"])
async def test_a_sign_of_loss_before_there_is_evidence_counts(sign: str) -> None:
    ours, transport = client(unconfirmed_s=30)
    await transport.start()
    await ours.until_heard(TOPIC, None)
    watching = asyncio.create_task(ours.watch())
    sending = asyncio.create_task(ours.send(message()))
    while not transport.sent:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    if sign == "node lost":
        transport.context.events.node_changed(False)
    else:
        transport.set_presence(TOPIC, None, Presence.ABSENT if sign == "absent" else Presence.INTERRUPTED)
    assert await sending is Confirmation.LOST
    watching.cancel()


# joining


def fail(transport: MemoryTransport, reason: LinkFailure, text: str) -> None:
    """An attempt to connect fails, and another one will be made."""
    transport.link_failed(reason, text, "h:1883")
    transport.retry_in(1)


async def test_the_first_failure_ends_it_and_names_the_network_once() -> None:
    ours, transport = client()
    joining = asyncio.create_task(ours.until_up())
    await asyncio.sleep(0)
    fail(transport, LinkFailure.REFUSED, "connection refused")
    with pytest.raises(NetworkError, match=r"^mqtt://h: connection refused$"):
        await joining


async def test_a_failure_of_the_first_of_several_addresses_is_not_the_end() -> None:
    ours, transport = client()
    joining = asyncio.create_task(ours.until_up())
    await asyncio.sleep(0)
    transport.link_failed(LinkFailure.REFUSED, "connection refused", "h:1883")  # and no word of another attempt
    transport.restore_link()
    await joining


async def test_while_it_may_wait_it_tries_again() -> None:
    ours, transport = client(wait_s=30)
    joining = asyncio.create_task(ours.until_up())
    for _ in range(2):
        await asyncio.sleep(0)
        fail(transport, LinkFailure.REFUSED, "connection refused")
    transport.restore_link()
    await joining


async def test_after_its_wait_it_says_why_it_waited() -> None:
    ours, transport = client(wait_s=0.02)
    fail(transport, LinkFailure.UNKNOWN_HOST, "unknown host")
    with pytest.raises(NetworkError, match=r"^mqtt://h: unknown host \(waited 0\.02 s\)$"):
        await ours.until_up()


@pytest.mark.parametrize("reason", [LinkFailure.AUTHENTICATION, LinkFailure.FILES])
async def test_what_nobody_but_the_user_can_change_is_not_waited_for(reason: LinkFailure) -> None:
    ours, transport = client(wait_s=3600)
    fail(transport, reason, "wrong user or password")
    with pytest.raises(NetworkError, match=r"^mqtt://h: wrong user or password$"):
        await ours.until_up()


async def test_a_network_that_says_nothing_is_waited_for_as_long_as_for_any_answer() -> None:
    ours, _ = client(timeout_s=0.02)
    with pytest.raises(NetworkError, match=r"^mqtt://h: no connection within 0\.02 s: the reason is unknown$"):
        await ours.until_up()


async def test_it_waits_for_somebody_who_listens() -> None:
    ours, transport = client()
    await transport.start()
    transport.set_presence(TOPIC, None, Presence.ABSENT)
    waiting = asyncio.create_task(ours.until_heard(TOPIC, None))
    await asyncio.sleep(0)
    assert not waiting.done()
    transport.set_presence(TOPIC, None, Presence.PRESENT)
    await waiting


async def test_nobody_who_listens_is_told() -> None:
    ours, transport = client(timeout_s=0.02)
    await transport.start()
    transport.set_presence(TOPIC, None, Presence.ABSENT)
    with pytest.raises(NetworkError, match=f"nobody listens to {SPEED}"):
        await ours.until_heard(TOPIC, None)


async def _fail_in(network: Network) -> None:
    async with joined(network, "veh1") as ours:
        await ours.send(message())
        raise ZeroDivisionError


async def test_it_leaves_the_network_however_it_ends(tmp_path: Path) -> None:
    file = tmp_path / "streamer.yaml"
    file.write_text(GOOD)
    network = network_of(_parser().parse_args(["listen", "--config", str(file), "--endpoint", "vehicle"]))
    async with peer("cli-vehicle") as far:
        with pytest.raises(ZeroDivisionError):
            await _fail_in(network)
        assert len(far.arrived) == 1
        assert [task.get_name() for task in asyncio.all_tasks()].count("watch") == 0
        assert far.transport.state is LinkState.UP
