"""Where listeners for a topic are registered, and what happens when a transport refuses one."""

from collections.abc import Iterable
from typing import Any

import pytest

from streamer.config.models import Config
from streamer.delivery.inbound.listening import Listening, always, matches_sent, narrowed, where
from streamer.routing.interest import Interest
from streamer.routing.table import RoutingTable
from streamer.transports.listeners import Filter
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri

TOPIC = UUri("veh1", 0xA8000, 2, 0x8A50)


def table(*routes: dict[str, Any], authorities: dict[str, list[str]] | None = None) -> RoutingTable:
    authorities = authorities or {"vehicle": ["veh1"], "cloud": ["*"], "phone": ["phone1"]}
    return RoutingTable.from_config(
        Config.model_validate(
            {
                "authority": "gateway.veh1",
                "endpoints": {name: {"transport": "memory", "authorities": listed} for name, listed in authorities.items()},
                "routes": list(routes),
            }
        ),
        (),
    )


UP = {"from": "vehicle", "to": "cloud"}
ACROSS = {"from": "vehicle", "to": "phone"}


def test_a_topic_is_heard_where_it_is_published_if_a_route_leads_to_who_asked() -> None:
    assert list(where(TOPIC, {"backend": 0}, table(UP, ACROSS))) == ["vehicle"]


def test_no_route_to_who_asked_nothing_is_heard() -> None:
    assert list(where(TOPIC, {"backend": 0}, table(ACROSS))) == []


def test_nobody_asked_nothing_is_heard() -> None:
    assert list(where(TOPIC, {}, table(UP, ACROSS))) == []


def test_what_a_pattern_covers_is_heard_already() -> None:
    assert list(where(TOPIC, {"phone1": 0}, table(UP | {"publish": ["//veh1/FFFFFFFF/FF/FFFF"]}, ACROSS))) == []


def test_a_topic_that_lives_at_two_endpoints_is_heard_at_both() -> None:
    both = {"vehicle": ["veh1"], "mirror": ["veh1"], "cloud": ["*"]}
    routes = (UP, {"from": "mirror", "to": "cloud"})
    assert list(where(TOPIC, {"backend": 0}, table(*routes, authorities=both))) == ["vehicle", "mirror"]


ACROSS_ALL = {"from": "vehicle", "to": "cloud", "publish": ["//*/FFFFFFFF/FF/FFFF"]}


def sources(filters: Iterable[Filter]) -> set[str]:
    return {source.authority for source, _ in filters}


def test_where_authorities_are_listed_filters_are_narrowed_to_them() -> None:
    listed = table(ACROSS_ALL, authorities={"vehicle": ["veh1", "veh2"], "cloud": ["*"]})
    wide = set(always("vehicle", listed))
    narrow = set(narrowed(wide, listed.authorities["vehicle"]))
    assert sources(wide) == {"*"}
    assert sources(narrow) == {"veh1", "veh2"}
    assert {sink for _, sink in narrow} == {sink for _, sink in wide}
    assert len(narrow) == 2 * len(wide)


def test_a_pattern_with_an_authority_is_narrow_already() -> None:
    given = (UUri("veh1", 0xA8000, 2, 0x8A50), None)
    assert list(narrowed([given], ["veh1", "veh2"])) == [given]


def test_an_endpoint_for_everybody_may_hear_what_is_sent_there_only_through_filters_that_lead_back() -> None:
    one_way = table(UP, authorities={"vehicle": ["*"], "cloud": ["cloud"]})
    assert not [each for each in always("vehicle", one_way) if matches_sent(each, "vehicle", one_way)]
    patterns = table(ACROSS_ALL, authorities={"vehicle": ["*"], "cloud": ["cloud"]})
    assert [sink for _, sink in always("vehicle", patterns) if matches_sent((_, sink), "vehicle", patterns)] == [None]
    both = table(UP, authorities={"vehicle": ["*"], "cloud": ["*"]})
    assert all(matches_sent(each, "vehicle", both) for each in always("vehicle", both))


class LimitedTransport:
    """A transport that refuses listeners beyond a number."""

    shared = None

    def __init__(self, most: int) -> None:
        self.most = most
        self.filters: list[Filter] = []
        self.tried = self.changes = 0

    async def register_listener(self, source: UUri, sink: UUri | None, listener: object) -> None:
        self.tried += 1
        if len(self.filters) >= self.most:
            raise UStatusError(UCode.RESOURCE_EXHAUSTED, f"at most {self.most} listeners")
        self.filters.append((source, sink))
        self.changes += 1

    async def unregister_listener(self, source: UUri, sink: UUri | None, listener: object) -> None:
        self.filters.remove((source, sink))
        self.changes += 1


async def test_a_topic_that_a_transport_refuses_is_counted_and_heard_when_there_is_room() -> None:
    interest = Interest()
    narrow, roomy = LimitedTransport(3), LimitedTransport(100)
    transports: Any = {"vehicle": narrow, "cloud": roomy, "phone": roomy}
    ingresses: Any = dict.fromkeys(transports, object())
    listening = Listening(transports, ingresses, interest)
    await listening.use(table(UP))
    await listening.leave(table(UP))
    narrow.most = len(narrow.filters) + 1
    topics = [TOPIC._replace(resource=resource) for resource in (0x8001, 0x8002)]
    for topic in topics:
        interest.change(topic, {"backend": 0}, "test")
        listening.change(topic)
    await listening.catch_up()
    assert listening.refused == 1
    assert [source for source, sink in narrow.filters if sink is None] == [topics[0]]
    interest.change(topics[0], {}, "test")
    listening.change(topics[0])
    await listening.catch_up()
    assert listening.refused == 0
    assert [source for source, sink in narrow.filters if sink is None] == [topics[1]]


class SubscriberHarness:
    """A `Listening` with a vehicle that allows few listeners; the other transports allow any number."""

    def __init__(self, begin: RoutingTable) -> None:
        self.interest = Interest()
        self.vehicle, self.roomy = LimitedTransport(1000), LimitedTransport(1000)
        transports: Any = {"vehicle": self.vehicle, "cloud": self.roomy, "phone": self.roomy}
        self.listening = Listening(transports, dict.fromkeys(transports, object()), self.interest)  # type: ignore[arg-type]
        self.begin = begin

    async def __aenter__(self) -> "SubscriberHarness":
        await self.listening.use(self.begin)
        await self.listening.leave(self.begin)
        return self

    async def __aexit__(self, *exc: object) -> None: ...

    async def want(self, topic: UUri, *interested: str) -> None:
        self.interest.change(topic, dict.fromkeys(interested, 0), "test")
        self.listening.change(topic)
        await self.listening.catch_up()

    async def reload(self, to: RoutingTable) -> None:
        await self.listening.use(to)
        await self.listening.leave(to)

    @property
    def topics(self) -> list[UUri]:
        return [source for source, sink in self.vehicle.filters if sink is None]


LISTED = UP | {"publish": [str(TOPIC)]}


async def test_a_reload_that_is_refused_takes_nothing_from_who_subscribed() -> None:
    other = UUri("veh1", 0xB, 1, 0x9000)
    async with SubscriberHarness(table(UP)) as harness:
        await harness.want(TOPIC, "backend")
        harness.vehicle.most = len(harness.vehicle.filters)
        with pytest.raises(UStatusError):
            await harness.listening.use(table(UP | {"publish": [str(TOPIC), str(other)]}))
        assert harness.topics == [TOPIC]
        await harness.want(TOPIC)
        assert harness.topics == []


async def test_a_topic_that_is_listed_and_unlisted_is_heard_without_a_gap_while_somebody_wants_it() -> None:
    async with SubscriberHarness(table(UP)) as harness:
        await harness.want(TOPIC, "backend")
        before = harness.vehicle.changes
        await harness.reload(table(LISTED))
        await harness.reload(table(UP))
        assert (harness.topics, harness.vehicle.changes) == ([TOPIC], before)
        await harness.reload(table(LISTED))
        await harness.want(TOPIC)
        assert harness.topics == [TOPIC]
        await harness.reload(table(UP))
        assert harness.topics == []


async def test_a_listener_that_cannot_be_taken_away_costs_its_topic_and_not_the_others() -> None:
    async with SubscriberHarness(table(UP)) as harness:
        await harness.want(TOPIC, "backend")
        harness.vehicle.filters.remove((TOPIC, None))
        await harness.want(TOPIC)
        other = TOPIC._replace(resource=0x8001)
        await harness.want(other, "backend")
        assert harness.topics == [other]


async def test_who_leaves_makes_room_for_as_many_and_each_refusal_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    topics = [TOPIC._replace(resource=0x8001 + number) for number in range(30)]
    async with SubscriberHarness(table(UP)) as harness:
        harness.vehicle.most = len(harness.vehicle.filters) + 10
        for topic in topics:
            await harness.want(topic, "backend")
        assert harness.listening.refused == 20
        tried = harness.vehicle.tried
        for topic in topics[:5]:
            await harness.want(topic)
        assert harness.listening.refused == 15
        assert harness.vehicle.tried == tried + 5
        assert sum("listener_refused" in record.message for record in caplog.records) == 20
