"""How Publishes wait, by their topics: only the latest one, or all of them in order."""

from pathlib import Path
from typing import Any

import pytest

from streamer.delivery.custody.custody import LATE_FLUSH_S
from streamer.delivery.lifecycle.reload import Reload
from streamer.routing.pause_rules import PauseRule
from streamer.transports.errors import RefusedError
from streamer.uprotocol.message import UMessage, UPriority
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.flow.harness import SPEED, RouterHarness, configuration, three_networks
from tests.flow.journaled_run import journaled_run
from tests.flow.pausing import UP, pause, resume
from tests.waiting import until

OTHER = UUri("veh1", 0xA8000, 2, 0x8A51)


def policy(*topics: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"queue_policy": {"topics": list(topics), **more}}


def latest(topic: UUri = SPEED) -> dict[str, Any]:
    return {"topic": str(topic), "keep": "latest"}


def every(topic: UUri = SPEED) -> dict[str, Any]:
    return {"topic": str(topic)}


def numbered(harness: RouterHarness, *numbers: int, source: UUri = SPEED, **options: Any) -> list[UMessage]:
    return [harness.speed(b"%d" % number, source, **options) for number in numbers]


def texts(messages: list[UMessage], source: UUri | None = None) -> list[bytes]:
    """The payloads of messages, or of those from one source."""
    return [message.payload or b"" for message in messages if source in (None, message.attributes.source)]


async def test_after_an_outage_only_the_latest_message_of_a_topic_is_sent_and_each_other_one_has_an_outcome() -> None:
    async with RouterHarness(configuration(**policy(latest()))) as harness:
        harness.transports["cloud"].lose_link()
        replaced = harness.arrive("vehicle", *numbered(harness, *range(7200)))
        harness.arrive("vehicle", *numbered(harness, 1, 2, 3, source=OTHER))
        assert harness.queued(UP) == 4
        assert [received.acknowledged for received in replaced] == [True] * 7199 + [False]
        harness.transports["cloud"].restore_link()
        assert texts(harness.sent("cloud")) == [b"7199", b"1", b"2", b"3"]
        assert harness.outcomes(UP) == {"superseded": 7199, "delivered": 4}
        assert harness.dead_letters("cloud") == []


async def test_without_an_entry_for_its_topic_nothing_is_replaced() -> None:
    async with RouterHarness(configuration(**policy(latest(OTHER)))) as harness:
        harness.transports["cloud"].lose_link()
        harness.arrive("vehicle", *numbered(harness, *range(5)))
        harness.transports["cloud"].restore_link()
        assert texts(harness.sent("cloud")) == [b"%d" % number for number in range(5)]


async def test_the_first_entry_that_matches_applies() -> None:
    entries = policy({"topic": str(SPEED), "keep": "all"}, latest(UUri("veh1", 0xFFFFFFFF, 0xFF, 0xFFFF)))
    async with RouterHarness(configuration(**entries)) as harness:
        harness.transports["cloud"].lose_link()
        harness.arrive("vehicle", *numbered(harness, 1, 2), *numbered(harness, 3, 4, source=OTHER))
        harness.transports["cloud"].restore_link()
        sent = harness.sent("cloud")
        assert (texts(sent, SPEED), texts(sent, OTHER)) == ([b"1", b"2"], [b"4"])


async def test_notifications_and_requests_are_never_replaced() -> None:
    everything = UUri("*", 0xFFFFFFFF, 0xFF, 0xFFFF)
    async with RouterHarness(configuration(**policy(latest(everything)))) as harness:
        for name in ("cloud", "vehicle"):
            harness.transports[name].lose_link()
        harness.arrive("vehicle", *(harness.notify(b"%d" % number) for number in range(3)))
        harness.arrive("cloud", *(harness.ask(payload=b"%d" % number) for number in range(3)))
        for name in ("cloud", "vehicle"):
            harness.transports[name].restore_link()
        assert texts(harness.sent("cloud")) == texts(harness.sent("vehicle")) == [b"0", b"1", b"2"]


async def test_each_addressed_copy_of_a_publish_is_replaced_on_its_own() -> None:
    async with RouterHarness(configuration(**policy(latest())), addressed=("cloud",)) as harness:
        harness.transports["cloud"].lose_link()
        harness.arrive("vehicle", *numbered(harness, 1, 2, 3))
        waiting = harness.queued(UP)
        harness.transports["cloud"].restore_link()
        assert texts(harness.sent("cloud")) == [b"3"] * waiting


async def test_what_was_sent_before_is_not_replaced() -> None:
    async with RouterHarness(configuration(**policy(latest()))) as harness:
        cloud = harness.transports["cloud"]
        cloud.is_withholding = True
        harness.arrive("vehicle", *numbered(harness, 1))
        cloud.lose_link()
        harness.arrive("vehicle", *numbered(harness, 2, 3))
        assert harness.queued(UP) == 2
        cloud.is_withholding = False
        cloud.restore_link()
        assert texts(harness.sent("cloud")) == [b"1", b"3"]
        assert harness.outcomes(UP) == {"superseded": 1, "delivered": 2}


async def test_a_refused_message_is_not_in_the_way_of_a_newer_one() -> None:
    async with RouterHarness(configuration(**policy(latest()))) as harness:
        harness.transports["cloud"].refuse = lambda message: RefusedError(UCode.UNAVAILABLE, "later")
        harness.arrive("vehicle", *numbered(harness, 1))
        harness.transports["cloud"].refuse = lambda message: None
        harness.arrive("vehicle", *numbered(harness, 2, 3))
        harness.pass_time(600)
        assert texts(harness.sent("cloud")) == [b"3"]
        assert harness.outcomes(UP) == {"superseded": 2, "delivered": 1}


@pytest.mark.parametrize("on_full", ["backpressure", "reject", "evict"])
async def test_a_newer_message_enters_a_full_queue_in_place_of_the_one_that_it_replaces(on_full: str) -> None:
    bounds = {"messages": 3, "on_full": on_full, "stalled_factor": 0}
    async with RouterHarness(configuration(**policy(latest(), queue=bounds))) as harness:
        harness.transports["cloud"].lose_link()
        harness.arrive("vehicle", *numbered(harness, 1), *numbered(harness, 2, 3, source=OTHER))
        harness.arrive("vehicle", *numbered(harness, 4))
        harness.transports["cloud"].restore_link()
        assert sorted(texts(harness.sent("cloud"))) == [b"2", b"3", b"4"]
        assert harness.outcomes(UP) == {"superseded": 1, "delivered": 3}


async def test_a_newer_message_replaces_the_one_that_waits_although_others_wait_for_room() -> None:
    bounds = {"messages": 3, "stalled_factor": 0}
    async with RouterHarness(configuration(**policy(latest(), queue=bounds))) as harness:
        harness.transports["cloud"].lose_link()
        harness.arrive("vehicle", *numbered(harness, 1), *numbered(harness, 2, 3, 4, 5, source=OTHER))
        assert len(harness.router.ingresses["vehicle"].backlog) == 2
        harness.arrive("vehicle", *numbered(harness, 6), *numbered(harness, 7, source=OTHER), *numbered(harness, 8))
        assert harness.outcomes(UP) == {"superseded": 2}
        harness.transports["cloud"].restore_link()
        harness.pass_time(50)
        sent = harness.sent("cloud")
        assert (texts(sent, SPEED), texts(sent, OTHER)) == ([b"8"], [b"2", b"3", b"4", b"5", b"7"])


async def test_no_message_overtakes_an_older_one_of_its_topic_that_waits_for_room() -> None:
    bounds = {"bytes": 3000, "stalled_factor": 0}
    async with RouterHarness(configuration(**policy(latest(), queue=bounds))) as harness:
        harness.transports["cloud"].lose_link()
        large = harness.speed(bytes(5000))
        harness.arrive("vehicle", *numbered(harness, 1), large, *numbered(harness, 3))
        assert len(harness.router.ingresses["vehicle"].backlog) == 2
        harness.transports["cloud"].restore_link()
        harness.pass_time(50)
        assert texts(harness.sent("cloud")) == [b"1", large.payload, b"3"]


async def test_a_newer_message_replaces_the_one_that_waits_however_much_more_is_queued_than_the_bounds_allow() -> None:
    async with RouterHarness(configuration(**policy(latest()))) as harness:
        harness.transports["cloud"].lose_link()
        harness.arrive("vehicle", *numbered(harness, 1), *numbered(harness, 2, 3, 4, source=OTHER))
        bounds = {"messages": 2, "stalled_factor": 0}
        await Reload(harness.router, configuration(**policy(latest(), queue=bounds)), {}).run()
        harness.arrive("vehicle", *numbered(harness, 5))
        assert harness.outcomes(UP) == {"superseded": 1}
        harness.transports["cloud"].restore_link()
        assert texts(harness.sent("cloud"), SPEED) == [b"5"]


async def test_with_evict_present_values_come_in_however_much_is_left_out() -> None:
    bounds = {"messages": 20, "on_full": "evict"}
    topics = [SPEED._replace(resource=0x8001 + number) for number in range(5)]
    async with RouterHarness(configuration(**policy(*map(latest, topics), queue=bounds))) as harness:
        harness.transports["cloud"].lose_link()
        for number in range(100):
            made = [harness.speed(b"%d" % number, topic) for topic in topics]
            harness.arrive("vehicle", *made, *numbered(harness, *range(10 * number, 10 * number + 10), source=OTHER))
        harness.transports["cloud"].restore_link()
        sent = harness.sent("cloud")
        assert [texts(sent, topic) for topic in topics] == [[b"99"]] * 5
        assert texts(sent, OTHER) == [b"%d" % number for number in range(985, 1000)]
        assert harness.outcomes(UP) == {"superseded": 495, "dead_lettered": 985, "delivered": 20}


async def test_a_newer_message_that_does_not_fit_leaves_the_older_one_where_it_is() -> None:
    bounds = {"bytes": 2000, "on_full": "reject"}
    async with RouterHarness(configuration(**policy(latest(), queue=bounds))) as harness:
        harness.transports["cloud"].lose_link()
        harness.arrive("vehicle", *numbered(harness, 1))
        harness.arrive("vehicle", harness.speed(bytes(5000)))
        assert harness.queued(UP) == 1
        harness.transports["cloud"].restore_link()
        assert texts(harness.sent("cloud")) == [b"1"]


async def test_what_a_large_newer_message_replaces_is_not_evicted_for_it() -> None:
    bounds = {"bytes": 2500, "on_full": "evict"}
    async with RouterHarness(configuration(**policy(latest(), queue=bounds))) as harness:
        harness.transports["cloud"].lose_link()
        harness.arrive("vehicle", harness.speed(bytes(400)), harness.speed(bytes(800), OTHER), harness.speed(bytes(1500)))
        harness.transports["cloud"].restore_link()
        assert harness.outcomes(UP) == {"superseded": 1, "dead_lettered": 1, "delivered": 1}


async def test_what_cannot_be_evicted_for_a_newer_message_leaves_the_older_one_where_it_is() -> None:
    bounds = {"bytes": 2500, "on_full": "evict"}
    async with RouterHarness(configuration(**policy(latest(), queue=bounds))) as harness:
        harness.transports["cloud"].lose_link()
        urgent = harness.speed(bytes(800), OTHER, priority=UPriority.CS5)
        harness.arrive("vehicle", harness.speed(bytes(400)), urgent, harness.speed(bytes(1500)))
        harness.transports["cloud"].restore_link()
        assert harness.outcomes(UP) == {"rejected": 1, "delivered": 2}


async def test_a_paused_topic_keeps_its_latest_message() -> None:
    async with RouterHarness(configuration(**policy(latest()))) as harness:
        pause(harness.router, SPEED)
        harness.arrive("vehicle", *numbered(harness, 1, 2, 3))
        assert harness.queued(UP) == 1
        resume(harness.router, SPEED)
        assert texts(harness.sent("cloud")) == [b"3"]


async def test_the_latest_and_all_others_survive_a_kill(tmp_path: Path) -> None:
    entries = policy(latest(), every(OTHER))
    async with journaled_run(tmp_path / "journal", **entries) as run:
        run.harness.transports["cloud"].lose_link()
        run.harness.arrive("vehicle", *numbered(run.harness, 1, 2), *numbered(run.harness, 3, 4, source=OTHER))
        run.harness.pass_time(100)
        await run.flush()
    paused = [PauseRule(SPEED, None), PauseRule(OTHER, None)]
    async with journaled_run(tmp_path / "journal", pause_rules=paused, **entries) as run:
        assert run.harness.queued(UP) == 3
        run.harness.arrive("vehicle", *numbered(run.harness, 5), *numbered(run.harness, 6, source=OTHER))
        for topic in (SPEED, OTHER):
            resume(run.harness.router, topic)
        sent = run.harness.sent("cloud")
        assert (texts(sent, SPEED), texts(sent, OTHER)) == ([b"2", b"5"], [b"3", b"4", b"6"])  # 2 may have been sent


@pytest.mark.parametrize("newer", [(2,), (2, 4, 5)], ids=["one", "one after the other"])
async def test_a_kill_between_two_values_leaves_one_of_them(tmp_path: Path, newer: tuple[int, ...]) -> None:
    """What a newer value replaces is deleted from the journal when that one is there, not before."""
    async with journaled_run(tmp_path / "journal", **policy(latest())) as run:
        run.harness.transports["cloud"].lose_link()
        run.harness.arrive("vehicle", *numbered(run.harness, 1))
        run.harness.pass_time(5000)
        await run.flush()
        run.harness.router.custody.late_flush_s = LATE_FLUSH_S
        run.harness.arrive("vehicle", *numbered(run.harness, 3, source=OTHER))
        run.harness.clock.advance(100)  # it is due
        for number in newer:
            run.harness.arrive("vehicle", *numbered(run.harness, number))
        for flush in list(run.harness.due):
            flush()
        await until(lambda: not run.journal.is_busy, "the commit")
    async with journaled_run(tmp_path / "journal", **policy(latest())) as run:
        assert texts(run.harness.sent("cloud")) == [b"3", b"%d" % newer[-1]]


async def test_a_reload_changes_how_messages_wait() -> None:
    async with RouterHarness() as harness:
        harness.transports["cloud"].lose_link()
        harness.arrive("vehicle", *numbered(harness, 1, 2))
        await Reload(harness.router, configuration(**policy(latest())), {}).run()
        harness.arrive("vehicle", *numbered(harness, 3))
        harness.transports["cloud"].restore_link()
        assert texts(harness.sent("cloud")) == [b"3"]
        assert harness.outcomes(UP) == {"superseded": 2, "delivered": 1}


async def test_the_first_message_of_each_topic_is_sent_before_the_second_one_of_any_on_any_route() -> None:
    """Even if the windows of the flows are wide, because much has been sent before."""
    kinds = [latest, every]
    topics = [UUri("veh1", 0xA8000, 2, 0x8001 + number) for number in range(90)]
    elsewhere = [topic._replace(authority="phone1") for topic in topics]
    routes = [
        {"from": "vehicle", "to": "cloud", "publish": list(map(str, topics))},
        {"from": "phone", "to": "cloud", "publish": list(map(str, elsewhere)), "topics": []},
    ]
    changes = policy(*(kinds[n % 2](topic) for n, topic in enumerate(topics)))
    async with RouterHarness(three_networks(routes=routes, **changes)) as harness:

        def arrive(*numbers: int) -> None:
            for endpoint, of in (("vehicle", topics), ("phone", elsewhere)):
                harness.arrive(endpoint, *(harness.speed(b"%d" % n, topic) for n in numbers for topic in of))

        for number in range(10):
            arrive(number)
        harness.transports["cloud"].lose_link()
        before = len(harness.sent("cloud"))
        arrive(*range(100, 110))
        harness.transports["cloud"].restore_link()
        first = harness.sent("cloud")[before:][: len(topics) + len(elsewhere)]
        assert [texts(first, topic) for topic in topics] == [[b"109"], [b"100"]] * 45
        assert [texts(first, topic) for topic in elsewhere] == [[b"100"]] * 90


async def test_few_topics_send_their_messages_in_longer_rows() -> None:
    """A turn of all of them has about 64 messages."""
    topics = [UUri("veh1", 0xA8000, 2, 0x8001 + number) for number in range(4)]
    async with RouterHarness(configuration(**policy(*map(every, topics)))) as harness:
        for _ in range(20):
            harness.arrive("vehicle", *(harness.speed(b"", topic) for topic in topics))
        harness.transports["cloud"].lose_link()
        before = len(harness.sent("cloud"))
        harness.arrive("vehicle", *(harness.speed(b"", topic) for _ in range(40) for topic in topics))
        harness.transports["cloud"].restore_link()
        sent = [message.attributes.source for message in harness.sent("cloud")[before:]]
        assert sent[:64] == [topic for topic in topics for _ in range(16)]
