"""Where a topic has to be heard, and what happens when a transport will not listen."""

from typing import Any

from streamer.config import Config
from streamer.router.hearing import Hearing, where
from streamer.router.table import RoutingTable
from streamer.router.wanted import Wanted
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


def test_a_topic_is_heard_where_it_is_published_if_a_route_leads_to_who_asked():
    assert list(where(TOPIC, {"backend": 0}, table(UP, ACROSS))) == ["vehicle"]


def test_no_route_to_who_asked_nothing_is_heard():
    assert list(where(TOPIC, {"backend": 0}, table(ACROSS))) == []


def test_nobody_asked_nothing_is_heard():
    assert list(where(TOPIC, {}, table(UP, ACROSS))) == []


def test_what_a_pattern_covers_is_heard_already():
    assert list(where(TOPIC, {"phone1": 0}, table(UP | {"publish": ["//veh1/FFFFFFFF/FF/FFFF"]}, ACROSS))) == []


def test_a_topic_that_lives_at_two_endpoints_is_heard_at_both():
    both = {"vehicle": ["veh1"], "mirror": ["veh1"], "cloud": ["*"]}
    routes = (UP, {"from": "mirror", "to": "cloud"})
    assert list(where(TOPIC, {"backend": 0}, table(*routes, authorities=both))) == ["vehicle", "mirror"]


class Narrow:
    """Listens to so many filters and refuses more."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.filters: list[Filter] = []

    async def register_listener(self, source: UUri, sink: UUri | None, listener: object) -> None:
        if len(self.filters) >= self.most:
            raise UStatusError(UCode.RESOURCE_EXHAUSTED, f"at most {self.most} listeners")
        self.filters.append((source, sink))

    async def unregister_listener(self, source: UUri, sink: UUri | None, listener: object) -> None:
        self.filters.remove((source, sink))


async def test_a_topic_that_a_transport_refuses_is_counted_and_heard_when_there_is_room():
    wanted = Wanted()
    narrow, roomy = Narrow(3), Narrow(100)
    transports: Any = {"vehicle": narrow, "cloud": roomy, "phone": roomy}
    ingresses: Any = dict.fromkeys(transports, object())
    hearing = Hearing(transports, ingresses, wanted)
    await hearing.use(table(UP))
    await hearing.leave(table(UP))
    narrow.most = len(narrow.filters) + 1
    topics = [TOPIC._replace(resource=resource) for resource in (0x8001, 0x8002)]
    for topic in topics:
        wanted.change(topic, {"backend": 0}, "test")
        hearing.change(topic)
    await hearing.catch_up()
    assert hearing.refused == 1
    assert [source for source, sink in narrow.filters if sink is None] == [topics[0]]
    wanted.change(topics[0], {}, "test")
    hearing.change(topics[0])
    await hearing.catch_up()
    assert hearing.refused == 0
    assert [source for source, sink in narrow.filters if sink is None] == [topics[1]]
