"""A topic's last message on real networks: ``streamer last``, and what a new subscriber gets."""

import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.topology import Topology
from tests.independent.message import Plain
from tests.preloaded import command
from tests.usubscription_client import SUBSCRIBED, UsubscriptionClient
from tests.waiting import until

TOKEN = "0123456789abcdef0123"
SPEED, DOORS = ("alpha", 0x10, 1, 0x8001), ("alpha", 0x10, 1, 0x8002)
HOSTILE = b"\x1b]0;owned\x07\n//alpha/10/1/8003  1s  forged"


@pytest.fixture
async def topology(tmp_path: Path) -> AsyncIterator[Topology]:
    (tmp_path / "token").write_text(TOKEN)
    control = {"http_token_file": str(tmp_path / "token")}
    journal = {"path": str(tmp_path / "journal.db")}
    async with Topology("zenoh", "mqtt/off-vehicle", control=control, utwin={}, journal=journal) as topology:
        yield topology


async def last(topology: Topology, *words: str) -> tuple[int, str, str]:
    done = await command("last", "--config", topology.daemon.path, *words)
    return done.returncode, done.stdout, done.stderr


def publishes(topic: tuple[str, int, int, int], *payloads: bytes) -> list[Plain]:
    return [Plain(1, topic, payload=payload, payload_format=6) for payload in payloads]


async def test_the_last_message_of_a_topic_with_its_age_and_also_after_a_restart(topology: Topology) -> None:
    assert await last(topology) == (1, "no message yet\n", "")
    await topology.exchange(0, publishes(SPEED, b"1", b"2"))
    await topology.exchange(0, publishes(DOORS, HOSTILE))
    status, printed, _ = await last(topology)
    assert status == 0
    head, speed, doors = printed.splitlines()
    assert head.split() == ["TOPIC", "AGE", "SIZE", "PAYLOAD"]
    assert speed.split()[0::4] == ["//alpha/10/1/8001", "2"]
    assert "\x1b" not in doors
    status, printed, _ = await last(topology, "//alpha/10/1/8001", "--json", "--payload", "hex")
    (value,) = json.loads(printed)["values"]
    assert (status, value["topic"], value["bytes"], value["payload"]) == (0, "//alpha/10/1/8001", 1, {"hex": "32"})
    topology.daemon.signal(signal.SIGTERM)
    assert await topology.daemon.ended() == 0
    topology.daemon.start()
    await topology.daemon.until_up()
    status, printed, _ = await last(topology, "//alpha/10/1/8001", "--payload", "json")
    assert (status, printed.splitlines()[1].split()[-1]) == (0, "2")


async def test_what_is_no_topic_is_said_and_payloads_are_for_those_with_the_token_only(topology: Topology) -> None:
    status, printed, said = await last(topology, "nothing")
    assert (status, printed) == (2, "")
    assert "TOPIC: " in said
    assert topology.daemon.get("/api/v1/last-values")[0] == 401


async def test_without_utwin_the_command_says_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    async with Topology("zenoh", "mqtt/off-vehicle", control={"http_token_file": str(tmp_path / "token")}) as topology:
        status, printed, said = await last(topology)
    assert (status, printed) == (1, "")
    assert "set utwin" in said


@pytest.mark.parametrize("late", [0, 1], ids=["zenoh", "mqtt"])
async def test_the_first_subscriber_of_a_network_gets_the_last_value_once(late: int) -> None:
    early = 1 - late
    services = {"initial": True, "local": ["alpha", "beta"]}
    async with Topology("zenoh", "mqtt/off-vehicle", utwin={}, usubscription=services) as topology:
        publisher, receiver = topology.networks[early], topology.networks[late]
        topic = (publisher.authority, 0x10, 1, 0x8001)
        old, last, after = [Plain(1, topic, payload=payload) for payload in (b"old", b"last", b"after")]
        await topology.exchange(early, [old, last])

        def values() -> list[bytes]:
            return [each.payload for each in list(receiver.side.arrived) if each.type == 1 and each.source == topic]

        first, second = [
            UsubscriptionClient(receiver.side, (receiver.authority, number, 1, 0), "gw") for number in (0x20, 0x21)
        ]
        assert values() == [b"old", b"last"]  # by the route's pattern: nobody has subscribed yet
        assert await first.subscribe(topic) == SUBSCRIBED
        await until(lambda: len(values()) > 2, "the last value")
        assert await second.subscribe(topic) == SUBSCRIBED
        assert await first.subscribe(topic) == SUBSCRIBED
        await topology.exchange(early, [after])
        assert values() == [b"old", b"last", b"last", b"after"]
        topology.daemon.check_books()
