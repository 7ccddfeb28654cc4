"""Receipts as a dialogue with other streamers: what is declared, given and believed."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from streamer.transports.zenoh import receipts as receipts_module
from streamer.transports.zenoh.receipt_proofs import HELLO, MOST_IDS, RECEIPTS, SERVES
from streamer.transports.zenoh.receipts import _MAX_COUNTERS, _MAX_IDS, _MAX_SESSIONS, Receipted
from streamer.uprotocol.message import notification
from streamer.uprotocol.uri import UUri
from tests.unit.transports.zenoh.receipts_dialogue import (
    DELETE,
    FAR,
    OTHER,
    OTHER_KEY,
    PATIENCE_S,
    STRANGER,
    TOPIC,
    Dialogue,
    streamer,
    uuid,
)

# -- who is there


def test_nobody_learns_that_we_expect_receipts_before_they_can_arrive() -> None:
    assert Dialogue().session.declared == [RECEIPTS, SERVES, f"token {HELLO}", HELLO]


@pytest.mark.parametrize(("serves", "streamers"), [((), (FAR,)), (("veh1",), ())])
def test_who_has_nobody_to_give_receipts_for_or_to_does_not_ask_who_expects_them(
    serves: tuple[str, ...], streamers: tuple[str, ...]
) -> None:
    dialogue = Dialogue(serves, streamers)
    assert dialogue.session.declared == [RECEIPTS, SERVES, f"token {HELLO}"]
    dialogue.receipts.serve(serves)
    assert HELLO not in dialogue.session.declared
    dialogue.receipts.serve(["veh2"])
    assert (HELLO in dialogue.session.declared) is bool(streamers)


def test_a_streamer_that_expects_receipts_is_told_once_whom_we_serve_until_it_goes() -> None:
    dialogue = Dialogue(("veh2", "veh1"))
    for receiver in (streamer(1), streamer(1), streamer(2, OTHER)):
        dialogue.hello(receiver)
    assert [dialogue.served(receiver) for receiver in (streamer(1), streamer(2, OTHER))] == [["veh1", "veh2"]] * 2
    dialogue.hello(streamer(1), DELETE)
    assert [dialogue.served(receiver) for receiver in (streamer(1), streamer(2, OTHER))] == [[], ["veh1", "veh2"]]
    dialogue.hello(streamer(1), DELETE)
    assert dialogue.refused == []


def test_a_streamer_is_told_when_others_are_served() -> None:
    dialogue = Dialogue(("veh1", "veh2"))
    dialogue.hello(streamer())
    kept = [token for token in dialogue.session.tokens if "/veh2/" in token]
    dialogue.receipts.serve(["veh2", "veh3"])
    assert dialogue.served(streamer()) == ["veh2", "veh3"]
    assert kept[0] in dialogue.session.tokens
    assert dialogue.session.declared.count(f"token {SERVES}") == 3
    assert dialogue.session.declared.count(HELLO) == 1


def test_of_one_streamer_only_so_many_sessions_are_told_the_oldest_is_dropped() -> None:
    dialogue = Dialogue()
    dialogue.hello(streamer(0, OTHER))
    for number in range(_MAX_SESSIONS):
        dialogue.hello(streamer(number))
    dialogue.hello(streamer(0))
    told = [streamer(number) for number in range(_MAX_SESSIONS)]
    assert all(dialogue.served(each) for each in told)
    dialogue.hello(streamer(_MAX_SESSIONS))
    assert [bool(dialogue.served(each)) for each in (*told, streamer(_MAX_SESSIONS))] == [False, *[True] * _MAX_SESSIONS]
    assert dialogue.served(streamer(0, OTHER))


# -- giving receipts


def acknowledge(dialogue: Dialogue, *numbers: int) -> None:
    for number in numbers:
        dialogue.receipts.acknowledge(uuid(number))


def test_every_streamer_that_expects_receipts_gets_those_of_a_moment_at_once() -> None:
    dialogue = Dialogue()
    receivers = [streamer(), streamer(0, OTHER)]
    for each in receivers:
        dialogue.hello(each)
    acknowledge(dialogue, 1, 2)
    assert len(dialogue.loop.timers) == 1
    dialogue.loop.fire()
    assert dialogue.loop.timers == []
    acknowledge(dialogue, 3)
    dialogue.loop.fire()
    assert [dialogue.given(each) for each in receivers] == [[(1, [uuid(1), uuid(2)]), (2, [uuid(3)])]] * 2


def test_a_received_message_gives_a_receipt_for_its_id_when_it_is_acknowledged() -> None:
    dialogue = Dialogue()
    dialogue.hello(streamer())
    message = notification(1, TOPIC, UUri("veh1", 1, 1, 0), b"")
    Receipted(message, dialogue.receipts).acknowledge()
    dialogue.loop.fire()
    assert dialogue.given(streamer()) == [(1, [message.id])]


def test_one_receipt_has_only_so_many_ids_and_the_next_waits_until_it_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    dialogue = Dialogue()
    dialogue.hello(streamer())
    acknowledge(dialogue, *range(MOST_IDS + 1))
    posted: list[Callable[[], None]] = []
    monkeypatch.setattr(dialogue.receipts, "_control", SimpleNamespace(post=posted.append))
    dialogue.loop.fire()
    acknowledge(dialogue, MOST_IDS + 1)
    assert (len(posted), dialogue.loop.timers) == (1, [])
    posted.pop()()
    dialogue.loop.run()
    dialogue.loop.fire()
    posted.pop()()
    assert [len(ids) for _, ids in dialogue.given(streamer())] == [MOST_IDS, 2]
    dialogue.loop.run()
    assert dialogue.loop.timers == []


def test_receipts_go_on_after_one_could_not_be_put() -> None:
    dialogue = Dialogue()
    dialogue.hello(streamer())
    dialogue.session.failing = {RECEIPTS}
    acknowledge(dialogue, 1)
    dialogue.loop.fire()
    dialogue.session.failing = set()
    acknowledge(dialogue, 2)
    dialogue.loop.fire()
    assert dialogue.given(streamer()) == [(2, [uuid(2)])]


def test_without_anybody_to_give_them_to_or_for_no_receipts_are_kept() -> None:
    nobody, nothing, gone, closed = (Dialogue() for _ in range(4))
    for each in (nothing, gone, closed):
        each.hello(streamer())
    nothing.receipts.serve(())
    gone.hello(streamer(), DELETE)
    closed.receipts.close()
    for each in (nobody, nothing, gone, closed):
        acknowledge(each, 1)
        assert (each.receipts._ids, each.loop.timers, each.session.puts) == ([], [], [])


def test_only_so_many_receipts_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts_module, "_MAX_IDS", 10)
    dialogue = Dialogue()
    dialogue.hello(streamer())
    acknowledge(dialogue, *range(20))
    dialogue.loop.fire()
    acknowledge(dialogue, 20)  # there is room again
    dialogue.loop.fire()
    assert [ids for _, ids in dialogue.given(streamer())] == [[uuid(number) for number in range(10)], [uuid(20)]]
    assert _MAX_IDS * 16 <= 1 << 20


def test_the_last_receipts_are_given_before_the_session_closes_and_none_later() -> None:
    dialogue = Dialogue()
    dialogue.hello(streamer())
    acknowledge(dialogue, *range(2 * MOST_IDS + 1))
    dialogue.receipts.close()
    assert [len(ids) for _, ids in dialogue.given(streamer())] == [MOST_IDS, MOST_IDS, 1]
    declared = list(dialogue.session.declared)
    dialogue.hello(streamer(1))
    dialogue.serve(streamer(1))
    dialogue.loop.fire()
    dialogue.receipts.serve(["veh2"])
    assert (len(dialogue.session.puts), dialogue.session.declared) == (3, declared)
    assert not dialogue.receipts.ledger.is_needed


# -- waiting for receipts


def test_a_message_is_confirmed_by_a_receipt_of_who_serves_its_sink() -> None:
    dialogue = Dialogue()
    assert dialogue.send("before") is not None
    dialogue.serve(streamer())
    first, second = dialogue.send("a"), dialogue.send("b")
    assert dialogue.said == [("before", "unconfirmed")]
    dialogue.receipt(streamer(), 0, first)
    dialogue.receipt(streamer(), 1, second)
    assert dialogue.said[1:] == [("a", "confirmed"), ("b", "confirmed")]
    assert dialogue.refused == []


def test_what_waits_for_a_streamer_that_goes_is_lost_as_far_as_it_served_it() -> None:
    dialogue = Dialogue()
    for authority in ("cloud", "depot"):
        dialogue.serve(streamer(), authority)
    dialogue.send("to cloud")
    kept = dialogue.send("to depot", "depot")
    dialogue.serve(streamer(), "cloud", DELETE)
    dialogue.serve(streamer(), "cloud", DELETE)
    dialogue.serve(streamer(), "elsewhere", DELETE)
    assert dialogue.said == [("to cloud", "lost")]
    dialogue.receipt(streamer(), 1, kept)
    assert dialogue.said[1:] == [("to depot", "confirmed")]
    dialogue.serve(streamer(), "depot", DELETE)
    late = dialogue.send("late", "depot")
    dialogue.receipt(streamer(), 2, late)  # its link is gone: that is nobody's fault
    assert (dialogue.said[2:], dialogue.refused) == ([("late", "unconfirmed")], [])


def test_what_was_said_of_a_streamer_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    dialogue = Dialogue()
    dialogue.serve(streamer())
    for _ in range(2):
        dialogue.serve(streamer(), kind=DELETE)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [f"zenoh_streamer_{what} endpoint=vehicle streamer={FAR} serves=cloud" for what in ("found", "lost")]


def test_a_receipt_counts_once_also_after_its_link_was_away() -> None:
    dialogue = Dialogue()
    dialogue.serve(streamer())
    uuids = [dialogue.send(text) for text in "abc"]
    dialogue.receipt(streamer(), 5, uuids[0])
    dialogue.receipt(streamer(), 5, uuids[1])
    dialogue.receipt(streamer(), 4, uuids[1])
    assert (dialogue.said, dialogue.refused) == ([("a", "confirmed")], [1, 1])
    dialogue.serve(streamer(), kind=DELETE)
    dialogue.said.clear()
    dialogue.serve(streamer())
    again = dialogue.send("again")
    dialogue.receipt(streamer(), 5, again)
    assert (dialogue.said, dialogue.refused) == ([], [1, 1, 1])
    dialogue.receipt(streamer(), 6, again)
    assert dialogue.said == [("again", "confirmed")]


def test_of_one_streamer_only_so_many_sessions_are_waited_for() -> None:
    dialogue = Dialogue()
    dialogue.serve(streamer(0, OTHER), "depot")
    for number in range(_MAX_SESSIONS):
        dialogue.serve(streamer(number))
    waiting = dialogue.send("waits for the oldest")
    dialogue.serve(streamer(0), "elsewhere")
    assert dialogue.said == []
    dialogue.serve(streamer(_MAX_SESSIONS))
    assert dialogue.said == [("waits for the oldest", "lost")]
    dialogue.receipt(streamer(0), 1, waiting)
    assert dialogue.refused == []
    other = dialogue.send("to depot", "depot")
    dialogue.receipt(streamer(0, OTHER), 1, other)
    assert dialogue.said[1:] == [("to depot", "confirmed")]


def test_of_one_streamer_only_so_many_counters_are_remembered() -> None:
    dialogue = Dialogue()
    dialogue.serve(streamer(0, OTHER), "depot")
    for number in range(_MAX_COUNTERS + 5):
        dialogue.serve(streamer(number))
        dialogue.serve(streamer(number), kind=DELETE)
    remembered = [streamer(number) for number in range(5, _MAX_COUNTERS + 5)]
    assert list(dialogue.receipts._counters) == [streamer(0, OTHER), *remembered]


# -- what proves nothing


def test_what_does_not_prove_itself_or_comes_from_strangers_is_counted_and_changes_nothing() -> None:
    dialogue = Dialogue()
    dialogue.hello(streamer(), key=OTHER_KEY)
    dialogue.hello(streamer(0, STRANGER))
    dialogue.serve(streamer(), key=OTHER_KEY)
    dialogue.serve(streamer(0, STRANGER))
    assert dialogue.session.declared == [RECEIPTS, SERVES, f"token {HELLO}", HELLO]
    assert not dialogue.receipts.ledger.is_needed
    dialogue.serve(streamer())
    waiting = dialogue.send("a")
    dialogue.receipt(streamer(), 1, waiting, key=OTHER_KEY)
    dialogue.receipt(streamer(0, STRANGER), 1, waiting)
    dialogue.sample(RECEIPTS, "ustreamer/2/receipts/x")
    assert (dialogue.said, dialogue.refused) == ([], [1] * 7)


def test_our_own_token_is_no_streamer_and_no_forgery() -> None:
    dialogue = Dialogue(streamers=("gateway", FAR))
    dialogue.hello(dialogue.own)
    assert (dialogue.served(dialogue.own), dialogue.refused) == ([], [])


def test_many_forgeries_are_told_at_once() -> None:
    dialogue = Dialogue()
    run = dialogue.loop.run
    dialogue.loop.run = lambda: None  # type: ignore[method-assign]
    for _ in range(100):
        dialogue.hello(streamer(), key=OTHER_KEY)
    assert len(dialogue.loop.soon) == 1
    run()
    dialogue.hello(streamer(), key=OTHER_KEY)
    run()
    assert dialogue.refused == [100, 1]


# -- time


def test_a_receipt_is_waited_for_only_so_long_by_one_timer_which_ends_with_the_last_message() -> None:
    dialogue = Dialogue()
    dialogue.send("not receipted")
    assert dialogue.loop.timers == []
    dialogue.serve(streamer())
    dialogue.send("a")
    dialogue.send("b", "cloud")
    for _ in range(int(PATIENCE_S) - 1):
        assert len(dialogue.loop.timers) == 1
        dialogue.loop.fire()
    assert dialogue.said[1:] == []
    dialogue.loop.fire()
    assert dialogue.said[1:] == [("a", "unconfirmed"), ("b", "unconfirmed")]
    assert dialogue.loop.timers == []


def test_after_the_end_no_timer_is_left_and_no_receipt_is_heard() -> None:
    dialogue = Dialogue()
    dialogue.serve(streamer())
    waiting = dialogue.send("a")
    dialogue.receipts.close()
    dialogue.send("b")
    dialogue.receipt(streamer(), 1, waiting)
    dialogue.loop.fire()
    assert (dialogue.loop.timers, dialogue.said, dialogue.refused) == ([], [], [])


def test_with_the_link_all_that_waits_is_lost() -> None:
    dialogue = Dialogue()
    dialogue.serve(streamer())
    dialogue.send("a")
    dialogue.receipts.lose_all()
    assert dialogue.said == [("a", "lost")]


def test_what_a_streamer_has_served_is_away_until_it_serves_it_again_or_is_there_without_it() -> None:
    dialogue = Dialogue()
    for authority in ("cloud", "plant"):
        dialogue.serve(streamer(), authority)
    for authority in ("cloud", "plant"):
        dialogue.serve(streamer(), authority, DELETE)
    assert dialogue.away[-1] == {"cloud", "plant"}
    dialogue.loop.fire()
    assert dialogue.away[-1] == {"cloud", "plant"}
    dialogue.serve(streamer(1), "cloud")  # it is back, with another session
    assert dialogue.away[-1] == {"plant"}
    dialogue.loop.fire()
    assert dialogue.away[-1] == set()
    dialogue.serve(streamer(1), "cloud", DELETE)
    dialogue.receipts.close()
    assert dialogue.loop.timers == []


def test_a_streamer_that_serves_nothing_any_more_and_is_there_is_not_waited_for() -> None:
    dialogue = Dialogue()
    dialogue.hello(streamer())
    dialogue.serve(streamer(), "cloud")
    dialogue.serve(streamer(), "cloud", DELETE)
    assert dialogue.away[-1] == {"cloud"}
    dialogue.loop.fire()
    assert dialogue.away[-1] == set()
