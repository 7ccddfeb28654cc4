"""Nobody starves: lower classes under a flood of CS6, honest authorities beside a flood of flows or invented names."""

import pytest

from streamer.config.models import Config, QueuePolicy
from streamer.uprotocol.message import UMessage, UPriority
from streamer.uprotocol.uri import UUri
from tests.constants import with_constants
from tests.flow.harness import VEHICLE_APP, RouterHarness, configuration

HONEST = UUri("backend", 1, 1, 0x8000)
FLOOD = UUri("fleet", 0xF, 1, 0x8000)


def open_to_all(**changes: object) -> Config:
    """The cloud has one authority that is known by name, and everybody else."""
    return configuration(
        endpoints={
            "vehicle": {"transport": "memory", "authorities": ["veh1"]},
            "cloud": {"transport": "memory", "authorities": ["backend", "*"]},
        },
        **changes,
    )


def flow(number: int, authority: str = "fleet") -> UUri:
    return UUri(authority, 1 + number // 0x7000, 1, 0x8000 + number % 0x7000)


async def sent_one_by_one(harness: RouterHarness, arrivals: list[UMessage], count: int) -> list[UMessage]:
    """What leaves for the vehicle first, over a link that takes one message at a time."""
    transport = harness.transports["vehicle"]
    transport.is_withholding = True
    harness.arrive("cloud", *arrivals)
    while len(transport.sent) < count:
        transport.release_withheld(1)
    return transport.sent[:count]


ONE_AT_A_TIME = {"window": 1}


@pytest.mark.parametrize("flows", [1, 40, 200], ids=["one-flow", "some-flows", "many-flows"])
async def test_every_class_moves_under_a_flood_of_the_highest(flows: int) -> None:
    async with RouterHarness(configuration(queue_policy=ONE_AT_A_TIME)) as harness:
        urgent = [harness.notify(b"6", VEHICLE_APP, flow(n % flows), priority=UPriority.CS6) for n in range(3000)]
        normal = [harness.notify(b"1", VEHICLE_APP, flow(n % 5, "shop"), priority=UPriority.CS1) for n in range(300)]
        idle = [harness.notify(b"0", VEHICLE_APP, flow(n % 5, "logs"), priority=UPriority.CS0) for n in range(50)]
        first = [m.payload for m in await sent_one_by_one(harness, [*urgent, *normal, *idle], 2000)][1000:]
        assert first.count(b"6") in range(890, 901)
        assert first.count(b"0") in range(9, 12)


async def test_what_is_large_does_not_take_more_than_the_share_of_the_lower_classes() -> None:
    async with RouterHarness(configuration(queue_policy=ONE_AT_A_TIME)) as harness:
        urgent = [harness.notify(b"", VEHICLE_APP, FLOOD, priority=UPriority.CS6) for _ in range(2000)]
        large = [harness.notify(b"x" * 59_400, VEHICLE_APP, HONEST) for _ in range(100)]
        first = await sent_one_by_one(harness, [*urgent, *large], 1000)
        assert sum(1 for m in first if m.payload) == 2  # one tenth of the bytes, 100 times as large


async def test_without_a_share_the_highest_class_goes_strictly_first() -> None:
    async with RouterHarness(
        configuration(queue_policy=with_constants(QueuePolicy, **ONE_AT_A_TIME, lower_share=0))
    ) as harness:
        urgent = [harness.notify(b"6", VEHICLE_APP, FLOOD, priority=UPriority.CS6) for _ in range(100)]
        normal = [harness.notify(b"1", VEHICLE_APP, HONEST) for _ in range(100)]
        first = await sent_one_by_one(harness, [*normal, *urgent], 101)
        assert [m.payload for m in first] == [b"6"] * 100 + [b"1"]


async def test_a_flood_of_flows_does_not_hold_up_somebody_elses_message() -> None:
    async with RouterHarness(configuration(queue_policy=ONE_AT_A_TIME | {"queue": {"messages": 20_000}})) as harness:
        flood = [harness.notify(b"flood", VEHICLE_APP, flow(number)) for number in range(3000)]
        honest = [harness.notify(b"honest", VEHICLE_APP, HONEST) for _ in range(5)]
        first = await sent_one_by_one(harness, [*flood, *honest], 12)
        assert [m.payload for m in first].count(b"honest") == 5


async def test_invented_authorities_do_not_hold_up_those_that_are_known_by_name() -> None:
    async with RouterHarness(open_to_all(queue_policy=ONE_AT_A_TIME)) as harness:
        flood = [harness.notify(b"flood", VEHICLE_APP, flow(1, f"invented-{number}")) for number in range(3000)]
        honest = [harness.notify(b"honest", VEHICLE_APP, HONEST) for _ in range(5)]
        first = await sent_one_by_one(harness, [*flood, *honest], 12)
        assert [m.payload for m in first].count(b"honest") == 5


async def test_unlisted_authorities_are_served_round_robin() -> None:
    async with RouterHarness(open_to_all(queue_policy=ONE_AT_A_TIME)) as harness:
        flood = [harness.notify(b"flood", VEHICLE_APP, flow(number)) for number in range(3000)]
        other = [harness.notify(b"other", VEHICLE_APP, flow(1, "unknown")) for _ in range(5)]
        first = await sent_one_by_one(harness, [*flood, *other], 12)
        assert [m.payload for m in first].count(b"other") == 5


async def test_the_last_part_of_a_queue_is_not_for_unlisted_authorities() -> None:
    async with RouterHarness(open_to_all(queue_policy={"queue": {"messages": 100}})) as harness:
        harness.transports["vehicle"].lose_link()
        harness.arrive("cloud", *(harness.notify(b"flood", VEHICLE_APP, flow(number)) for number in range(1000)))
        assert harness.queued("cloud-vehicle") == 80
        assert not harness.router.ingresses["cloud"].has_backlog  # nobody is held up
        harness.arrive("cloud", *(harness.notify(b"honest", VEHICLE_APP, HONEST) for _ in range(20)))
        assert harness.queued("cloud-vehicle") == 100
        assert harness.outcomes("cloud-vehicle") == {"rejected": 920}
        harness.transports["vehicle"].restore_link()
        assert [m.payload for m in harness.sent("vehicle")].count(b"honest") == 20


async def test_where_nobody_is_known_by_name_everybody_may_fill_the_queue_and_waits_outside() -> None:
    async with RouterHarness(configuration(queue_policy={"queue": {"messages": 100}})) as harness:
        harness.transports["vehicle"].lose_link()
        harness.arrive("cloud", *(harness.notify(b"", VEHICLE_APP, flow(number)) for number in range(150)))
        assert harness.queued("cloud-vehicle") == 100
        assert len(harness.router.ingresses["cloud"].backlog) == 50
        harness.transports["vehicle"].restore_link()
        assert len(harness.sent("vehicle")) == 150


async def test_a_source_authority_may_use_no_more_than_its_quota_of_a_queue() -> None:
    config = configuration(queue_policy={"queue": {"messages": 100, "per_authority": 0.25}})
    async with RouterHarness(config) as harness:
        harness.transports["vehicle"].lose_link()
        for authority in ("a", "b", "c"):
            harness.arrive("cloud", *(harness.notify(b"", VEHICLE_APP, flow(number, authority)) for number in range(50)))
        assert harness.queued("cloud-vehicle") == 75
        assert harness.outcomes("cloud-vehicle") == {"rejected": 75}
        harness.transports["vehicle"].restore_link()
        harness.transports["vehicle"].lose_link()
        harness.arrive("cloud", *(harness.notify(b"", VEHICLE_APP, flow(number, "a")) for number in range(50)))
        assert harness.queued("cloud-vehicle") == 25  # what is delivered counts no more
