"""A peer that may connect sends whatever it likes: what comes in is what the permissions allow, on every network."""

import time
from pathlib import Path
from typing import Any

import pytest

from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from tests.e2e.topology import Topology
from tests.independent.message import Plain
from tests.independent.mqtt import mqtt_properties, mqtt_topic
from tests.tokens import AUDIENCE, ISSUER, OTHER_KEY, token, write_keys
from tests.waiting import until

BACKEND, STRANGER = ("beta", 0xC0, 1, 0), ("beta", 0xBAD, 1, 0)
CLIMATE, DOORS = ("alpha", 0xB, 1, 7), ("alpha", 0xB, 1, 8)
NETWORKS = [("zenoh", "mqtt/off-vehicle"), ("mqtt/in-vehicle", "zenoh"), ("zenoh", "mqtt/in-vehicle")]
PERMISSION_DENIED, UNAUTHENTICATED = 7, 16


def request(source: tuple[str, int, int, int] = BACKEND, sink: tuple[str, int, int, int] = CLIMATE, **more: Any) -> Plain:
    return Plain(2, source, sink, b"x", priority=5, ttl=60_000, **more)


def attacks() -> dict[str, Plain]:
    """What the peers behind the second network may send without the section, and not with it."""
    return {
        "a method that is denied": request(sink=DOORS),
        "a uEntity that is not listed": request(STRANGER),
        "uSubscription": request(sink=("alpha", 0, 3, 1)),
        "a Notification": Plain(4, ("beta", 0xC0, 1, 0x8001), ("alpha", 0xB, 1, 0), b"x"),
        "a Publish": Plain(1, ("beta", 0xC0, 1, 0x9000), None, b"x"),
        "a Response that nobody has asked for": Plain(
            3, ("beta", 0xC0, 1, 9), ("alpha", 0xB, 1, 0), b"x", priority=5, ttl=60_000, reqid=request().id
        ),
    }


def permissions(*rules: dict[str, Any], methods: Any = (), tap: Any = None, **second: Any) -> dict[str, Any]:
    endpoints = {"first": {"rules": [{"allow": {}}]}, "second": {"rules": list(rules), **second}}
    return {"endpoints": endpoints, "methods": list(methods), "tap": tap}


ONLY_CLIMATE = (
    {"deny": {"to": "//alpha/B/1/8"}},
    {"allow": {"from": "//beta/C0/1/0", "to": "//alpha/B/1/FFFF", "types": ["request"]}},
)


def answers(topology: Topology) -> dict[bytes | None, int | None]:
    """The code of every error Response at the second network, by the id of its Request."""
    return {m.reqid: m.commstatus for m in topology.networks[1].side.arrived if m.type == 3 and m.commstatus}


@pytest.mark.parametrize(("first", "second"), NETWORKS, ids=[" and ".join(each) for each in NETWORKS])
async def test_what_no_rule_allows_stays_outside(first: str, second: str) -> None:
    async with Topology(first, second, permissions=permissions(*ONLY_CLIMATE)) as topology:
        hostile, honest = attacks(), request()
        network = topology.networks[1]
        await network.side.send(network.as_sent(message) for message in (*hostile.values(), honest))
        asked = {message.id for message in hostile.values() if message.type == 2}
        await until(
            lambda: topology.networks[0].side.arrived and answers(topology).keys() >= asked, "the honest one, answers"
        )
        assert topology.networks[0].side.arrived == [honest]
        assert answers(topology) == dict.fromkeys(asked, PERMISSION_DENIED)
        texts = {pb.UStatus.FromString(m.payload).message for m in network.side.arrived if m.type == 3}
        assert texts == {"not allowed"}
        topology.daemon.check_books()


async def test_without_the_section_all_of_it_comes_in() -> None:
    """What the section is for: everything but the Request to our own service arrives."""
    async with Topology("zenoh", "mqtt/off-vehicle") as topology:
        messages = attacks()
        for_us = messages.pop("uSubscription")
        network = topology.networks[1]
        await network.side.send(network.as_sent(message) for message in (for_us, *messages.values()))
        await until(lambda: len(topology.networks[0].side.arrived) == len(messages), "everything")


async def test_a_client_speaks_only_for_the_authorities_that_its_identity_is_bound_to() -> None:
    """The property is what a broker adds that passes on who has sent a message."""
    section = permissions({"allow": {}}, identities={"beta-7f": ["beta"]})
    options = {"identity_property": "client"}
    async with Topology("zenoh", "mqtt/off-vehicle", permissions=section, second_options=options) as topology:
        client = topology.networks[1].side.client  # type: ignore[union-attr]  # it is on MQTT
        mallory, nobody, twice, honest = (request() for _ in range(4))
        for message, names in ((mallory, ["mallory"]), (nobody, []), (twice, ["beta-7f", "mallory"]), (honest, ["beta-7f"])):
            properties: Any = mqtt_properties(message)
            properties.UserProperty = [*properties.UserProperty, *(("client", name) for name in names)]
            await client.publish(mqtt_topic(message, "off-vehicle"), message.payload, qos=1, properties=properties)
        await until(lambda: topology.networks[0].side.arrived and len(answers(topology)) == 2, "the honest one, two answers")
        assert topology.networks[0].side.arrived == [honest]
        assert answers(topology) == dict.fromkeys((mallory.id, nobody.id), UNAUTHENTICATED)


async def test_levels_and_tokens_are_asked_for_and_believed_so_far(tmp_path: Path) -> None:
    now_s = time.time()
    scope = ["//alpha/B/1/8"]
    tap = {
        "verifier": "jwt",
        "options": {"jwks_file": str(write_keys(tmp_path / "jwks.json")), "issuer": ISSUER, "audience": AUDIENCE},
    }
    methods = [{"method": "//alpha/B/1/8", "permission_level": 2, "tap": True}]
    section = permissions({"allow": {}}, methods=methods, tap=tap, max_permission_level=2)
    good, forged, expired = (
        token(now_s, scope=scope),
        token(now_s, key=OTHER_KEY, scope=scope),
        token(now_s - 3600, scope=scope),
    )
    async with Topology("zenoh", "mqtt/off-vehicle", permissions=section) as topology:
        low = request(sink=DOORS, permission_level=1, token=good)
        bare = request(sink=DOORS, permission_level=2)
        bad = [request(sink=DOORS, permission_level=2, token=text) for text in (forged, expired, "x.y.z")]
        honest = request(sink=DOORS, permission_level=9, token=good)
        await topology.networks[1].side.send((low, bare, *bad, honest))
        await until(lambda: topology.networks[0].side.arrived and len(answers(topology)) == 5, "one message, five answers")
        (arrived,) = topology.networks[0].side.arrived
        assert (arrived.id, arrived.permission_level, arrived.token) == (honest.id, 2, good)
        expected = {low.id: PERMISSION_DENIED, bare.id: PERMISSION_DENIED}
        assert answers(topology) == expected | {message.id: UNAUTHENTICATED for message in bad}
        log = topology.daemon.log
        assert "its signature is wrong" in log
        assert not any(part in log for text in (good, forged, expired) for part in text.split(".")[1:])
