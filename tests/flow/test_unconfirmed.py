"""What a network that does not confirm may have lost is sent again, in order, once somebody listens."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.delivery.custody.unconfirmed import MAX_RETURNS
from streamer.transports.base import Presence
from streamer.uprotocol.message import UMessage, request, response
from streamer.uprotocol.uri import UUri
from tests.examples import examples
from tests.flow.harness import CLIMATE, CLOUD_APP, ORDERS, VEHICLE_APP, RouterHarness
from tests.flow.journaled_run import journaled_run
from tests.flow.unconfirmed import ABSENT_MS, ROUTE, UNCONFIRMED_S, publishing, reach

FLOW = (ORDERS, VEHICLE_APP)


def order(harness: RouterHarness, text: bytes = b"", **options: Any) -> UMessage:
    return harness.notify(text, sink=VEHICLE_APP, source=ORDERS, **options)


async def test_a_message_counts_as_delivered_when_its_receiver_stays_for_long_enough() -> None:
    async with RouterHarness(unconfirmed_s=UNCONFIRMED_S) as harness:
        harness.arrive("cloud", order(harness))
        assert len(harness.sent("vehicle")) == 1
        harness.router.custody.flush()
        harness.pass_time(UNCONFIRMED_S * 1000 - 100)
        assert (harness.outcomes(ROUTE), harness.queued(ROUTE)) == ({}, 1)
        harness.pass_time(200)
        assert (harness.outcomes(ROUTE), harness.queued(ROUTE)) == ({"delivered": 1}, 0)


async def test_the_source_is_acknowledged_at_the_next_flush_not_when_the_message_counts_as_delivered() -> None:
    async with RouterHarness(unconfirmed_s=UNCONFIRMED_S) as harness:
        (received,) = harness.arrive("cloud", order(harness))
        assert not received.acknowledged
        harness.router.custody.flush()
        assert received.acknowledged


async def test_unconfirmed_messages_of_a_lost_receiver_are_redelivered_in_order_before_newer_ones() -> None:
    async with RouterHarness(unconfirmed_s=UNCONFIRMED_S) as harness:
        first = [order(harness, b"%d" % number) for number in range(5)]
        harness.arrive("cloud", *first[:3])
        harness.router.custody.flush()
        harness.arrive("cloud", *first[3:])
        reach(harness, Presence.ABSENT)
        newer = [order(harness, b"%d" % number) for number in range(5, 8)]
        harness.arrive("cloud", *newer)
        harness.pass_time(UNCONFIRMED_S * 2000)
        assert harness.outcomes(ROUTE) == {}
        reach(harness, Presence.PRESENT)
        assert harness.sent("vehicle") == first + first + newer
        harness.pass_time(UNCONFIRMED_S * 1000 + 50)
        harness.router.custody.flush()
        harness.pass_time(UNCONFIRMED_S * 1000 + 50)
        assert harness.outcomes(ROUTE) == {"delivered": 8}


async def test_messages_that_count_as_delivered_are_not_redelivered() -> None:
    async with RouterHarness(unconfirmed_s=UNCONFIRMED_S) as harness:
        confirmed, unconfirmed = order(harness, b"1"), order(harness, b"2")
        harness.arrive("cloud", confirmed)
        harness.router.custody.flush()
        harness.pass_time(UNCONFIRMED_S * 1000)
        harness.arrive("cloud", unconfirmed)
        reach(harness, Presence.ABSENT)
        reach(harness, Presence.PRESENT)
        assert harness.sent("vehicle") == [confirmed, unconfirmed, unconfirmed]


async def test_a_lost_receiver_of_one_flow_leaves_the_others_alone() -> None:
    async with RouterHarness(unconfirmed_s=UNCONFIRMED_S) as harness:
        other = UUri("veh1", 0xC, 1, 0)
        unconfirmed_in_flight, fine = order(harness, b"1"), harness.notify(b"2", sink=other, source=ORDERS)
        harness.arrive("cloud", unconfirmed_in_flight, fine)
        reach(harness, Presence.ABSENT)
        harness.router.custody.flush()
        harness.pass_time(UNCONFIRMED_S * 1000 + 50)
        assert (harness.outcomes(ROUTE), harness.queued(ROUTE)) == ({"delivered": 1}, 1)
        harness.arrive("cloud", harness.notify(b"3", sink=other, source=ORDERS))
        assert harness.sent("vehicle")[-1].payload == b"3"


async def test_messages_in_flight_when_the_receiver_was_lost_are_redelivered_too() -> None:
    async with RouterHarness(unconfirmed_s=UNCONFIRMED_S) as harness:
        network = harness.transports["vehicle"]
        first = order(harness, b"1")
        harness.arrive("cloud", first)
        network.is_withholding = True
        second, third = order(harness, b"2"), order(harness, b"3")
        harness.arrive("cloud", second, third)
        reach(harness, Presence.ABSENT)
        network.release_withheld()
        assert harness.sent("vehicle") == [first, second, third]
        reach(harness, Presence.PRESENT)
        assert harness.sent("vehicle") == [first, second, third] * 2


async def test_without_any_receiver_it_is_a_dead_letter_with_unavailable_and_a_request_is_answered() -> None:
    async with RouterHarness(unconfirmed_s=UNCONFIRMED_S) as harness:
        reach(harness, Presence.ABSENT)
        reach(harness, Presence.ABSENT, CLOUD_APP, CLIMATE)
        harness.arrive("cloud", order(harness), harness.ask(ttl=100_000))
        harness.pass_time(ABSENT_MS - 100)
        assert harness.queued(ROUTE) == 2
        harness.pass_time(200)
        assert harness.outcomes(ROUTE) == {"dead_lettered": 2}
        assert [letter.status.code for letter in harness.dead_letters("cloud")] == [14, 14]
        (answer,) = [m for m in harness.sent("cloud") if m.attributes.commstatus is not None]
        assert answer.attributes.commstatus == 14


async def test_a_ttl_that_passes_while_the_receiver_is_absent_is_deadline_exceeded() -> None:
    async with RouterHarness(unconfirmed_s=UNCONFIRMED_S) as harness:
        reach(harness, Presence.ABSENT)
        harness.arrive("cloud", order(harness, ttl=1000))
        harness.pass_time(1100)
        assert harness.outcomes(ROUTE) == {"expired": 1}
        (letter,) = harness.dead_letters("cloud")
        assert (letter.status.code, letter.status.message) == (4, "its TTL passed while nobody listened")


async def test_a_message_that_was_sent_to_a_lost_receiver_ends_with_its_ttl_and_is_not_reported_as_failed() -> None:
    async with RouterHarness(unconfirmed_s=UNCONFIRMED_S) as harness:
        harness.arrive("cloud", order(harness, ttl=1000))
        reach(harness, Presence.ABSENT)
        harness.arrive("cloud", order(harness, b"never sent", ttl=1000))
        harness.pass_time(1100)
        harness.pass_time(50)
        assert (harness.outcomes(ROUTE), harness.queued(ROUTE)) == ({"unconfirmed": 1, "expired": 1}, 0)
        (letter,) = harness.dead_letters("cloud")
        assert letter.message.payload == b"never sent"


async def test_a_publish_without_a_subscriber_counts_as_delivered() -> None:
    async with RouterHarness(publishing(), unconfirmed_s=UNCONFIRMED_S) as harness:
        reach(harness, Presence.ABSENT, ORDERS, None)
        (received,) = harness.arrive("cloud", harness.speed(source=ORDERS))
        assert harness.outcomes(ROUTE) == {"unheard": 1}
        assert received.acknowledged
        assert harness.sent("vehicle") == harness.dead_letters("cloud") == []


async def test_a_publish_waits_while_it_is_unknown_whether_there_is_a_subscriber() -> None:
    async with RouterHarness(publishing(), unconfirmed_s=UNCONFIRMED_S) as harness:
        reach(harness, Presence.UNKNOWN, ORDERS, None)
        news = harness.speed(source=ORDERS)
        harness.arrive("cloud", news)
        assert harness.sent("vehicle") == []
        reach(harness, Presence.PRESENT, ORDERS, None)
        assert harness.sent("vehicle") == [news]


@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_publish_whose_subscriber_went_away_waits_for_it_as_long_as_is_allowed(comes_back: bool) -> None:
    async with RouterHarness(publishing(), unconfirmed_s=UNCONFIRMED_S) as harness:
        before, after = harness.speed(b"1", source=ORDERS), harness.speed(b"2", source=ORDERS)
        harness.arrive("cloud", before)
        reach(harness, Presence.ABSENT, ORDERS, None)
        harness.arrive("cloud", after)
        assert harness.outcomes(ROUTE) == {}
        if comes_back:
            reach(harness, Presence.PRESENT, ORDERS, None)
            assert harness.sent("vehicle") == [before, before, after]
        else:
            harness.pass_time(ABSENT_MS + 100)
            harness.pass_time(50)
            assert harness.outcomes(ROUTE) == {"unconfirmed": 1, "unheard": 1}
            harness.arrive("cloud", harness.speed(b"3", source=ORDERS))
            assert harness.outcomes(ROUTE) == {"unconfirmed": 1, "unheard": 2}


async def test_after_a_node_is_lost_while_others_listen_messages_are_redelivered_when_one_comes() -> None:
    async with RouterHarness(unconfirmed_s=UNCONFIRMED_S) as harness:
        missed, later = order(harness, b"1"), order(harness, b"2")
        harness.arrive("cloud", missed)
        harness.router.node_changed("vehicle", False)
        harness.arrive("cloud", later)
        assert harness.sent("vehicle") == [missed, later]
        harness.router.custody.flush()
        harness.pass_time(UNCONFIRMED_S * 1000 + 50)
        assert harness.outcomes(ROUTE) == {"delivered": 1}
        harness.router.node_changed("vehicle", True)
        harness.check_books()
        assert harness.sent("vehicle") == [missed, later, missed]


async def test_after_a_node_is_lost_and_none_comes_messages_count_as_delivered_to_the_others() -> None:
    async with RouterHarness(unconfirmed_s=UNCONFIRMED_S) as harness:
        harness.arrive("cloud", order(harness))
        harness.router.node_changed("vehicle", False)
        harness.pass_time(ABSENT_MS - 100)
        assert harness.outcomes(ROUTE) == {}
        harness.pass_time(200)
        assert harness.outcomes(ROUTE) == {"delivered": 1}


async def test_many_are_redelivered_piece_by_piece_and_nothing_younger_overtakes() -> None:
    async with RouterHarness(unconfirmed_s=UNCONFIRMED_S) as harness:
        sent = []
        for number in range(0, 3000, 100):
            batch = [order(harness, b"%d" % each) for each in range(number, number + 100)]
            harness.arrive("cloud", *batch)
            harness.router.custody.flush()
            sent += batch
        reach(harness, Presence.ABSENT)
        younger = [order(harness, b"younger") for _ in range(100)]
        harness.arrive("cloud", *younger)
        harness.transports["vehicle"].sent.clear()
        reach(harness, Presence.PRESENT)
        assert harness.sent("vehicle") == sent + younger


@pytest.mark.parametrize("ttl", [None, 600_000])
async def test_a_receiver_that_comes_and_goes_for_ever_gets_no_message_more_than_three_times(ttl: int | None) -> None:
    async with RouterHarness(unconfirmed_s=UNCONFIRMED_S) as harness:
        messages = [order(harness, b"%d" % number, ttl=ttl) for number in range(10)]
        for message in messages:
            harness.arrive("cloud", message)
            for presence in (Presence.ABSENT, Presence.PRESENT):
                reach(harness, presence)
                harness.pass_time(2100)
        assert [harness.sent("vehicle").count(message) for message in messages] == [3] * 9 + [2]
        assert (harness.outcomes(ROUTE), harness.queued(ROUTE)) == ({"unconfirmed": 8}, 2)
        assert harness.dead_letters("cloud") == []


@pytest.mark.parametrize("is_link_up", [True, False], ids=["in flight", "waiting"])
async def test_after_a_kill_what_was_redelivered_before_it_is_in_the_journal_once(tmp_path: Path, is_link_up: bool) -> None:
    """Its first batch is still there, because of the other flow."""
    path = tmp_path / "j.db"
    async with journaled_run(path, unconfirmed_s=UNCONFIRMED_S) as run:
        harness = run.harness
        lost = [order(harness, b"%d" % number) for number in range(3)]
        other = harness.notify(b"other", sink=UUri("veh1", 0xD, 1, 0), source=ORDERS)
        harness.arrive("cloud", *lost, other)
        await run.flush()
        reach(harness, Presence.ABSENT)
        reach(harness, Presence.PRESENT)
        await run.flush()
    async with journaled_run(path, unconfirmed_s=UNCONFIRMED_S) as run:
        harness = run.harness
        assert harness.queued(ROUTE) == 4
        run.hold()
        harness.pass_time(50)
        if not is_link_up:
            harness.transports["vehicle"].lose_link()
        await run.flush()
        harness.transports["vehicle"].restore_link()
        harness.transports["vehicle"].release_withheld()
        assert [message for message in harness.sent("vehicle") if message != other] == lost
        await run.flush()
        harness.pass_time(UNCONFIRMED_S * 1000 + 50)
        await run.flush()
        assert (harness.outcomes(ROUTE), run.journal.bytes) == ({"delivered": 4}, 0)


async def test_at_the_bound_nothing_new_is_sent_and_unconfirmed_messages_are_still_redelivered() -> None:
    async with RouterHarness(unconfirmed_s=UNCONFIRMED_S) as harness:
        store = harness.router.egresses["vehicle"].store
        assert store is not None
        store.blocks_when_full, store.max_bytes = True, 10_000
        sent = [order(harness, bytes(1000)) for _ in range(20)]
        for each in sent:
            harness.arrive("cloud", each)
        left = len(harness.sent("vehicle"))
        assert 0 < left < 20
        reach(harness, Presence.ABSENT)
        reach(harness, Presence.PRESENT)
        assert harness.sent("vehicle")[left:][:left] == sent[:left]
        for _ in range(5):
            harness.pass_time(UNCONFIRMED_S * 1000 + 50)
            harness.router.custody.flush()
        assert list(dict.fromkeys(harness.sent("vehicle"))) == sent
        assert harness.outcomes(ROUTE) == {"delivered": 20}


async def test_without_a_journal_the_oldest_end_as_unconfirmed_at_the_bound() -> None:
    async with RouterHarness(unconfirmed_s=UNCONFIRMED_S) as harness:
        store = harness.router.egresses["vehicle"].store
        assert store is not None
        store.max_bytes = 10_000
        for _ in range(20):
            harness.arrive("cloud", order(harness, bytes(1000)))
            harness.router.custody.flush()
        assert len(harness.sent("vehicle")) == 20
        harness.pass_time(50)
        assert harness.outcomes(ROUTE)["unconfirmed"] + harness.queued(ROUTE) == 20
        assert 0 < harness.queued(ROUTE) <= 10


class Receiver:
    """Hears what the network carries, unless it is stalled: then everything is lost, and its absence is noticed later."""

    def __init__(self, harness: RouterHarness) -> None:
        self.harness = harness
        self.arrived: list[UMessage] = []
        self.is_stalled = False
        self.is_away = False
        self.stalled_ms = 0
        harness.transports["vehicle"].refuse = self._hear

    def _hear(self, message: UMessage) -> None:
        if not self.is_stalled:
            self.arrived.append(message)

    def stall(self) -> None:
        if not self.is_stalled:
            self.is_stalled = True
            self.stalled_ms = self.harness.clock.ms

    def leave(self) -> None:
        """Its absence is noticed."""
        if self.is_stalled and not self.is_away:
            self.is_away = True
            reach(self.harness, Presence.ABSENT)

    def come_back(self) -> None:
        """Over a new link: what was still on its way over the old one has gone with that."""
        if self.is_stalled:
            self.leave()
            self.harness.transports["vehicle"].release_withheld()
            self.is_stalled = self.is_away = False
            reach(self.harness, Presence.PRESENT)

    def before(self, ms: int) -> None:
        """So much time is about to pass: its lease may run out."""
        if self.is_stalled and self.harness.clock.ms + ms - self.stalled_ms >= UNCONFIRMED_S * 900:
            self.leave()


STEPS = ("send", "send", "flush", "stall", "leave", "come back", "lost", "came", "wait", "long", "hold", "free")


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=60))
async def test_whatever_happens_first_arrivals_are_in_order_and_nothing_is_missing(steps: list[str]) -> None:
    """But for what was sent three times to a receiver that was lost each time: that ends as unconfirmed."""
    async with RouterHarness(unconfirmed_s=UNCONFIRMED_S) as harness:
        network = harness.transports["vehicle"]
        receiver = Receiver(harness)
        sent: list[UMessage] = []
        for step in steps:
            match step:
                case "send":
                    batch = [order(harness, b"%d" % number) for number in range(len(sent), len(sent) + 3)]
                    harness.arrive("cloud", *batch)
                    sent += batch
                case "flush":
                    harness.router.custody.flush()
                case "stall":
                    receiver.stall()
                case "leave":
                    receiver.leave()
                case "come back":
                    receiver.come_back()
                case "lost":
                    harness.router.node_changed("vehicle", False)
                case "came":
                    harness.router.node_changed("vehicle", True)
                case "wait":
                    receiver.before(50)
                    harness.pass_time(50)
                case "long":
                    receiver.before(UNCONFIRMED_S * 500)
                    harness.pass_time(UNCONFIRMED_S * 500)
                case "hold":
                    network.is_withholding = True
                case "free":
                    network.release_withheld()
            harness.check_books()
        network.release_withheld()
        receiver.come_back()
        for _ in range(3):
            harness.router.custody.flush()
            harness.pass_time(ABSENT_MS + 50)
        arrived = list(dict.fromkeys(receiver.arrived))
        given_up = [message for message in sent if message not in arrived]
        assert arrived == [message for message in sent if message not in given_up]
        assert all(harness.sent("vehicle").count(message) == 1 + MAX_RETURNS for message in given_up)
        outcomes = harness.outcomes(ROUTE)
        assert outcomes.get("unconfirmed", 0) >= len(given_up)
        assert sum(outcomes.values()) == outcomes.get("unconfirmed", 0) + outcomes.get("delivered", 0) == len(sent)
        assert harness.router.egresses["vehicle"].store is not None
        assert harness.router.egresses["vehicle"].store.bytes == 0


async def test_however_many_messages_are_sent_for_the_last_time_all_of_them_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.delivery.custody.unconfirmed._UNPACKED_MESSAGES", 2)
    async with RouterHarness(unconfirmed_s=UNCONFIRMED_S) as harness:
        messages = [order(harness, b"%d" % number) for number in range(10)]
        for message in messages:
            harness.arrive("cloud", message)
            harness.router.custody.flush()  # each in a batch of its own
        for _ in range(MAX_RETURNS):
            reach(harness, Presence.ABSENT)
            reach(harness, Presence.PRESENT)
            harness.router.custody.flush()
        assert harness.sent("vehicle") == messages * MAX_RETURNS
        harness.pass_time(2100)
        assert harness.sent("vehicle") == messages * (MAX_RETURNS + 1)


async def test_an_endpoint_without_room_for_unconfirmed_messages_says_so_and_lets_others_through(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with journaled_run(tmp_path / "j.db", unconfirmed_s=UNCONFIRMED_S) as run:
        harness = run.harness
        egress = harness.router.egresses["vehicle"]
        assert egress.store is not None
        greedy = [order(harness, bytes(100)) for _ in range(20)]
        egress.store.max_bytes = 20 * greedy[0].size
        harness.arrive("cloud", *greedy[:12])
        await run.flush()
        harness.pass_time(50)
        assert caplog.text.count("too much of it is unconfirmed") == 1
        harness.arrive("cloud", *greedy[12:])
        other = harness.notify(bytes(100), sink=UUri("veh1", 0xD, 1, 0), source=UUri("else", 0xC, 1, 0x8000))
        harness.arrive("cloud", other)
        assert harness.sent("vehicle") == [*greedy[:12], other]
        egress.store.max_bytes = egress.store.unconfirmed_bytes
        for _ in range(3):
            harness.pass_time(600)
        (account,) = (each for each in harness.router.endpoint_accounts() if each.name == "vehicle")
        assert account.unconfirmed_bytes >= (account.unconfirmed_max_bytes or 0) > 0
        assert "unconfirmed, and journal.max_bytes leaves room for" in account.problems[0]
        assert "unconfirmed_full endpoint=vehicle" in caplog.text
        harness.pass_time(UNCONFIRMED_S * 1000)
        assert harness.sent("vehicle") == [*greedy[:12], other, *greedy[12:]]
        assert egress.problems() == []


async def test_a_response_settles_its_request_that_waits_to_be_sent_again() -> None:
    async with RouterHarness(unconfirmed_s=UNCONFIRMED_S) as harness:
        asked = [request(harness.clock.ms, CLOUD_APP, CLIMATE, ttl=5000, payload=b"%d" % number) for number in range(2)]
        harness.arrive("cloud", *asked)
        harness.transports["vehicle"].set_presence(CLOUD_APP, CLIMATE, Presence.ABSENT)
        harness.arrive("vehicle", response(harness.clock.ms, asked[0], b"done"))
        harness.transports["vehicle"].set_presence(CLOUD_APP, CLIMATE, Presence.PRESENT)
        assert harness.sent("vehicle") == [*asked, asked[1]]  # nobody has answered the second one
        assert harness.outcomes(ROUTE) == {"delivered": 1}
        assert [each.payload for each in harness.sent("cloud")] == [b"done"]


async def test_a_response_that_comes_after_its_request_was_unpacked_settles_it_too() -> None:
    async with RouterHarness(unconfirmed_s=UNCONFIRMED_S) as harness:
        asked = request(harness.clock.ms, CLOUD_APP, CLIMATE, ttl=5000)
        harness.arrive("cloud", asked)
        vehicle = harness.transports["vehicle"]
        vehicle.set_presence(CLOUD_APP, CLIMATE, Presence.ABSENT)
        vehicle.lose_link()
        vehicle.set_presence(CLOUD_APP, CLIMATE, Presence.PRESENT)  # it is in its lane, and cannot be sent
        harness.arrive("vehicle", response(harness.clock.ms, asked))
        assert harness.outcomes(ROUTE) == {"delivered": 1}
        vehicle.restore_link()
        assert harness.sent("vehicle") == [asked]


async def test_a_steady_flow_whose_subscriber_is_gone_for_good_does_not_fill_the_queue() -> None:
    """After `absent_s` it is as if nobody had ever listened: no message of it waits, however many come."""
    async with RouterHarness(publishing(), unconfirmed_s=UNCONFIRMED_S) as harness:
        harness.arrive("cloud", harness.speed(b"0", source=ORDERS))
        reach(harness, Presence.ABSENT, ORDERS, None)
        for number in range(1, ABSENT_MS // 1000 + 3):
            harness.arrive("cloud", harness.speed(b"%d" % number, source=ORDERS))
            harness.pass_time(1000)
        assert (harness.outcomes(ROUTE), harness.queued(ROUTE)) == ({"unconfirmed": 1, "unheard": number}, 0)
        harness.arrive("cloud", again := harness.speed(source=ORDERS))
        assert harness.outcomes(ROUTE) == {"unconfirmed": 1, "unheard": number + 1}
        reach(harness, Presence.PRESENT, ORDERS, None)
        harness.arrive("cloud", heard := harness.speed(source=ORDERS))
        assert heard in harness.sent("vehicle")
        assert again not in harness.sent("vehicle")
