"""What a network that does not confirm may have lost is sent again, in order, once somebody listens."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.transports.base import Presence
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import UUri
from tests.flow.stage import CLIMATE, CLOUD_APP, ORDERS, VEHICLE_APP, Stage, configuration

ROUTE = "cloud-vehicle"
UNCONFIRMED_S = 10
ABSENT_MS = 60_000
FLOW = (ORDERS, VEHICLE_APP)


def publishing() -> object:
    return configuration(
        routes=[
            {"from": "vehicle", "to": "cloud"},
            {"from": "cloud", "to": "vehicle", "publish": ["//cloud/FFFFFFFF/FF/FFFF"]},
        ]
    )


def order(stage: Stage, text: bytes = b"", **options: object) -> UMessage:
    return stage.notify(text, sink=VEHICLE_APP, source=ORDERS, **options)


def reach(stage: Stage, reached: Presence, source: UUri = ORDERS, sink: UUri | None = VEHICLE_APP) -> None:
    stage.transports["vehicle"].set_presence(source, sink, reached)
    stage.check_books()


async def test_a_message_counts_as_delivered_when_no_doubt_has_come_for_long_enough() -> None:
    async with Stage(unconfirmed_s=UNCONFIRMED_S) as stage:
        stage.arrive("cloud", order(stage))
        assert len(stage.sent("vehicle")) == 1
        stage.router.custody.flush()
        stage.pass_time(UNCONFIRMED_S * 1000 - 100)
        assert (stage.outcomes(ROUTE), stage.queued(ROUTE)) == ({}, 1)
        stage.pass_time(200)
        assert (stage.outcomes(ROUTE), stage.queued(ROUTE)) == ({"delivered": 1}, 0)


async def test_the_source_is_told_at_the_next_flush_not_when_it_is_certain() -> None:
    async with Stage(unconfirmed_s=UNCONFIRMED_S) as stage:
        (received,) = stage.arrive("cloud", order(stage))
        assert not received.acknowledged
        stage.router.custody.flush()
        assert received.acknowledged


async def test_nobody_listens_any_more_then_what_is_unsure_goes_again_in_order_before_newer() -> None:
    async with Stage(unconfirmed_s=UNCONFIRMED_S) as stage:
        first = [order(stage, b"%d" % number) for number in range(5)]
        stage.arrive("cloud", *first[:3])
        stage.router.custody.flush()
        stage.arrive("cloud", *first[3:])
        reach(stage, Presence.ABSENT)
        newer = [order(stage, b"%d" % number) for number in range(5, 8)]
        stage.arrive("cloud", *newer)
        stage.pass_time(UNCONFIRMED_S * 2000)
        assert stage.outcomes(ROUTE) == {}
        reach(stage, Presence.PRESENT)
        assert stage.sent("vehicle") == first + first + newer
        stage.pass_time(UNCONFIRMED_S * 1000 + 50)
        stage.router.custody.flush()
        stage.pass_time(UNCONFIRMED_S * 1000 + 50)
        assert stage.outcomes(ROUTE) == {"delivered": 8}


async def test_what_is_certain_is_not_sent_again() -> None:
    async with Stage(unconfirmed_s=UNCONFIRMED_S) as stage:
        confirmed, unconfirmed = order(stage, b"1"), order(stage, b"2")
        stage.arrive("cloud", confirmed)
        stage.router.custody.flush()
        stage.pass_time(UNCONFIRMED_S * 1000)
        stage.arrive("cloud", unconfirmed)
        reach(stage, Presence.ABSENT)
        reach(stage, Presence.PRESENT)
        assert stage.sent("vehicle") == [confirmed, unconfirmed, unconfirmed]


async def test_a_doubt_about_one_flow_leaves_the_others_alone() -> None:
    async with Stage(unconfirmed_s=UNCONFIRMED_S) as stage:
        other = UUri("veh1", 0xC, 1, 0)
        unconfirmed_in_flight, fine = order(stage, b"1"), stage.notify(b"2", sink=other, source=ORDERS)
        stage.arrive("cloud", unconfirmed_in_flight, fine)
        reach(stage, Presence.ABSENT)
        stage.router.custody.flush()
        stage.pass_time(UNCONFIRMED_S * 1000 + 50)
        assert (stage.outcomes(ROUTE), stage.queued(ROUTE)) == ({"delivered": 1}, 1)
        stage.arrive("cloud", stage.notify(b"3", sink=other, source=ORDERS))
        assert stage.sent("vehicle")[-1].payload == b"3"


async def test_what_was_in_flight_when_the_doubt_came_goes_again_too() -> None:
    async with Stage(unconfirmed_s=UNCONFIRMED_S) as stage:
        network = stage.transports["vehicle"]
        first = order(stage, b"1")
        stage.arrive("cloud", first)
        network.hold = True
        second, third = order(stage, b"2"), order(stage, b"3")
        stage.arrive("cloud", second, third)
        reach(stage, Presence.ABSENT)
        network.release_held()
        assert stage.sent("vehicle") == [first, second, third]
        reach(stage, Presence.PRESENT)
        assert stage.sent("vehicle") == [first, second, third] * 2


async def test_nobody_comes_then_it_is_a_dead_letter_with_unavailable_and_a_request_is_answered() -> None:
    async with Stage(unconfirmed_s=UNCONFIRMED_S) as stage:
        reach(stage, Presence.ABSENT)
        reach(stage, Presence.ABSENT, CLOUD_APP, CLIMATE)
        stage.arrive("cloud", order(stage), stage.ask(ttl=100_000))
        stage.pass_time(ABSENT_MS - 100)
        assert stage.queued(ROUTE) == 2
        stage.pass_time(200)
        assert stage.outcomes(ROUTE) == {"dead_lettered": 2}
        assert [letter.status.code for letter in stage.dead_letters("cloud")] == [14, 14]
        (answer,) = [m for m in stage.sent("cloud") if m.attributes.commstatus is not None]
        assert answer.attributes.commstatus == 14


async def test_a_ttl_that_passes_while_nobody_listens_is_unavailable() -> None:
    async with Stage(unconfirmed_s=UNCONFIRMED_S) as stage:
        reach(stage, Presence.ABSENT)
        stage.arrive("cloud", order(stage, ttl=1000))
        stage.pass_time(1100)
        assert stage.outcomes(ROUTE) == {"expired": 1}
        assert [letter.status.code for letter in stage.dead_letters("cloud")] == [14]


async def test_what_was_sent_and_is_doubted_expires_in_time_while_it_is_packed_away() -> None:
    async with Stage(unconfirmed_s=UNCONFIRMED_S) as stage:
        stage.arrive("cloud", order(stage, ttl=1000))
        reach(stage, Presence.ABSENT)
        stage.pass_time(1100)
        stage.pass_time(50)
        assert (stage.outcomes(ROUTE), stage.queued(ROUTE)) == ({"expired": 1}, 0)


async def test_a_publish_that_nobody_listens_to_is_delivered_to_nobody() -> None:
    async with Stage(publishing(), unconfirmed_s=UNCONFIRMED_S) as stage:
        reach(stage, Presence.ABSENT, ORDERS, None)
        (received,) = stage.arrive("cloud", stage.speed(source=ORDERS))
        assert stage.outcomes(ROUTE) == {"unheard": 1}
        assert received.acknowledged
        assert stage.sent("vehicle") == stage.dead_letters("cloud") == []


async def test_a_publish_waits_while_it_is_not_known_whether_anybody_listens() -> None:
    async with Stage(publishing(), unconfirmed_s=UNCONFIRMED_S) as stage:
        reach(stage, Presence.UNKNOWN, ORDERS, None)
        news = stage.speed(source=ORDERS)
        stage.arrive("cloud", news)
        assert stage.sent("vehicle") == []
        reach(stage, Presence.PRESENT, ORDERS, None)
        assert stage.sent("vehicle") == [news]


@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_publish_whose_listener_went_away_waits_for_it_as_long_as_is_allowed(comes_back: bool) -> None:
    async with Stage(publishing(), unconfirmed_s=UNCONFIRMED_S) as stage:
        before, after = stage.speed(b"1", source=ORDERS), stage.speed(b"2", source=ORDERS)
        stage.arrive("cloud", before)
        reach(stage, Presence.ABSENT, ORDERS, None)
        stage.arrive("cloud", after)
        assert stage.outcomes(ROUTE) == {}
        if comes_back:
            reach(stage, Presence.PRESENT, ORDERS, None)
            assert stage.sent("vehicle") == [before, before, after]
        else:
            stage.pass_time(ABSENT_MS + 100)
            stage.pass_time(50)
            assert stage.outcomes(ROUTE) == {"unheard": 2}
            stage.arrive("cloud", stage.speed(b"3", source=ORDERS))
            assert stage.outcomes(ROUTE) == {"unheard": 3}


async def test_a_node_is_lost_while_others_listen_then_it_is_sent_again_when_one_comes() -> None:
    async with Stage(unconfirmed_s=UNCONFIRMED_S) as stage:
        missed, later = order(stage, b"1"), order(stage, b"2")
        stage.arrive("cloud", missed)
        stage.router.node_changed("vehicle", False)
        stage.arrive("cloud", later)
        assert stage.sent("vehicle") == [missed, later]
        stage.router.custody.flush()
        stage.pass_time(UNCONFIRMED_S * 1000 + 50)
        assert stage.outcomes(ROUTE) == {"delivered": 1}
        stage.router.node_changed("vehicle", True)
        stage.check_books()
        assert stage.sent("vehicle") == [missed, later, missed]


async def test_a_node_is_lost_and_none_comes_then_those_who_were_there_have_had_it() -> None:
    async with Stage(unconfirmed_s=UNCONFIRMED_S) as stage:
        stage.arrive("cloud", order(stage))
        stage.router.node_changed("vehicle", False)
        stage.pass_time(ABSENT_MS - 100)
        assert stage.outcomes(ROUTE) == {}
        stage.pass_time(200)
        assert stage.outcomes(ROUTE) == {"delivered": 1}


async def test_many_are_sent_again_piece_by_piece_and_nothing_younger_overtakes() -> None:
    async with Stage(unconfirmed_s=UNCONFIRMED_S) as stage:
        sent = []
        for number in range(0, 3000, 100):
            batch = [order(stage, b"%d" % each) for each in range(number, number + 100)]
            stage.arrive("cloud", *batch)
            stage.router.custody.flush()
            sent += batch
        reach(stage, Presence.ABSENT)
        younger = [order(stage, b"younger") for _ in range(100)]
        stage.arrive("cloud", *younger)
        stage.transports["vehicle"].sent.clear()
        reach(stage, Presence.PRESENT)
        assert stage.sent("vehicle") == sent + younger


async def test_a_message_with_a_ttl_may_be_doubted_again_and_again() -> None:
    async with Stage(unconfirmed_s=UNCONFIRMED_S) as stage:
        twin = order(stage, b"1", ttl=600_000)
        stage.arrive("cloud", twin, order(stage, b"2", ttl=600_000))
        for _ in range(3):
            reach(stage, Presence.ABSENT)
            stage.pass_time(50)
            reach(stage, Presence.PRESENT)
            stage.pass_time(50)
        assert stage.queued(ROUTE) == 2
        assert stage.sent("vehicle").count(twin) == 4


async def test_at_the_bound_nothing_more_is_sent_and_what_is_doubted_is_sent_again_all_the_same() -> None:
    async with Stage(unconfirmed_s=UNCONFIRMED_S) as stage:
        store = stage.router.egresses["vehicle"].store
        assert store is not None
        store.is_patient, store.max_bytes = True, 10_000
        sent = [order(stage, bytes(1000)) for _ in range(20)]
        for each in sent:
            stage.arrive("cloud", each)
        left = len(stage.sent("vehicle"))
        assert 0 < left < 20
        reach(stage, Presence.ABSENT)
        reach(stage, Presence.PRESENT)
        assert stage.sent("vehicle")[left:][:left] == sent[:left]
        for _ in range(5):
            stage.pass_time(UNCONFIRMED_S * 1000 + 50)
            stage.router.custody.flush()
        assert list(dict.fromkeys(stage.sent("vehicle"))) == sent
        assert stage.outcomes(ROUTE) == {"delivered": 20}


async def test_without_a_journal_the_oldest_count_as_delivered_at_the_bound() -> None:
    async with Stage(unconfirmed_s=UNCONFIRMED_S) as stage:
        store = stage.router.egresses["vehicle"].store
        assert store is not None
        store.max_bytes = 10_000
        for _ in range(20):
            stage.arrive("cloud", order(stage, bytes(1000)))
            stage.router.custody.flush()
        assert len(stage.sent("vehicle")) == 20
        stage.pass_time(50)
        assert stage.outcomes(ROUTE)["delivered"] + stage.queued(ROUTE) == 20
        assert 0 < stage.queued(ROUTE) <= 10


class Receiver:
    """Hears what the network carries, unless it is stalled: then everything is lost, and its absence is noticed later."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.arrived: list[UMessage] = []
        self.is_stalled = False
        self.is_away = False
        self.stalled_ms = 0
        stage.transports["vehicle"].refuse = self._hear

    def _hear(self, message: UMessage) -> None:
        if not self.is_stalled:
            self.arrived.append(message)

    def stall(self) -> None:
        if not self.is_stalled:
            self.is_stalled = True
            self.stalled_ms = self.stage.clock.ms

    def leave(self) -> None:
        """Its absence is noticed."""
        if self.is_stalled and not self.is_away:
            self.is_away = True
            reach(self.stage, Presence.ABSENT)

    def come_back(self) -> None:
        """Over a new link: what was still on its way over the old one has gone with that."""
        if self.is_stalled:
            self.leave()
            self.stage.transports["vehicle"].release_held()
            self.is_stalled = self.is_away = False
            reach(self.stage, Presence.PRESENT)

    def before(self, ms: int) -> None:
        """So much time is about to pass: its lease may run out."""
        if self.is_stalled and self.stage.clock.ms + ms - self.stalled_ms >= UNCONFIRMED_S * 900:
            self.leave()


STEPS = ("send", "send", "flush", "stall", "leave", "come back", "lost", "came", "wait", "long", "hold", "free")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=60))
async def test_whatever_happens_first_arrivals_are_in_order_and_nothing_is_missing(steps: list[str]) -> None:
    async with Stage(unconfirmed_s=UNCONFIRMED_S) as stage:
        network = stage.transports["vehicle"]
        receiver = Receiver(stage)
        sent = []
        for step in steps:
            match step:
                case "send":
                    batch = [order(stage, b"%d" % number) for number in range(len(sent), len(sent) + 3)]
                    stage.arrive("cloud", *batch)
                    sent += batch
                case "flush":
                    stage.router.custody.flush()
                case "stall":
                    receiver.stall()
                case "leave":
                    receiver.leave()
                case "come back":
                    receiver.come_back()
                case "lost":
                    stage.router.node_changed("vehicle", False)
                case "came":
                    stage.router.node_changed("vehicle", True)
                case "wait":
                    receiver.before(50)
                    stage.pass_time(50)
                case "long":
                    receiver.before(UNCONFIRMED_S * 500)
                    stage.pass_time(UNCONFIRMED_S * 500)
                case "hold":
                    network.hold = True
                case "free":
                    network.release_held()
            stage.check_books()
        network.release_held()
        receiver.come_back()
        for _ in range(3):
            stage.router.custody.flush()
            stage.pass_time(ABSENT_MS + 50)
        assert list(dict.fromkeys(receiver.arrived)) == sent
        assert stage.outcomes(ROUTE) == ({"delivered": len(sent)} if sent else {})
        assert stage.router.egresses["vehicle"].store is not None
        assert stage.router.egresses["vehicle"].store.bytes == 0
