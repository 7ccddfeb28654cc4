"""The ledger of the demonstration: sent, arrived, duplicates, order, dead letters, answers, and what is missing."""

import pytest

from demo.ledger import NO_ANSWER, Calls, DemoFlow, Ledger, percentile
from demo.metrics import read


def ids(count: int) -> list[bytes]:
    return [bytes([number]) * 16 for number in range(count)]


def flow_with(uuids: list[bytes]) -> DemoFlow:
    flow = DemoFlow("speed")
    for uuid in uuids:
        flow.send(uuid, 0.0)
    return flow


def test_what_was_sent_is_unaccounted_for_until_it_arrives() -> None:
    first, second = ids(2)
    flow = flow_with([first, second])
    flow.arrive(first, 1.0)
    assert (flow.sent, flow.arrived, flow.unaccounted) == (2, 1, 1)
    flow.arrive(second, 1.0)
    assert flow.unaccounted == 0


def test_a_second_copy_is_a_duplicate_and_nothing_else() -> None:
    (only,) = ids(1)
    flow = flow_with([only])
    flow.arrive(only, 1.0)
    flow.arrive(only, 2.0)
    assert (flow.arrived, flow.duplicates, flow.out_of_order, flow.unaccounted) == (1, 1, 0, 0)


def test_a_message_behind_a_newer_one_is_out_of_order() -> None:
    first, second, third = ids(3)
    flow = flow_with([first, second, third])
    for uuid in (second, first, third):
        flow.arrive(uuid, 1.0)
    assert (flow.arrived, flow.out_of_order) == (3, 1)


def test_a_duplicate_of_an_old_message_is_not_out_of_order() -> None:
    first, second = ids(2)
    flow = flow_with([first, second])
    for uuid in (first, second, first):
        flow.arrive(uuid, 1.0)
    assert (flow.duplicates, flow.out_of_order) == (1, 0)


def test_a_dead_letter_accounts_for_its_message_once() -> None:
    (only,) = ids(1)
    flow = flow_with([only])
    assert flow.report(only, "UNAVAILABLE")
    assert not flow.report(only, "UNAVAILABLE")
    assert flow.dead == {"UNAVAILABLE": 1}
    assert (flow.arrived, flow.unaccounted) == (0, 0)


def test_a_copy_that_arrives_after_its_dead_letter_is_a_duplicate() -> None:
    (only,) = ids(1)
    flow = flow_with([only])
    flow.report(only, "DEADLINE_EXCEEDED")
    flow.arrive(only, 1.0)
    assert (flow.arrived, flow.duplicates) == (0, 1)


def test_the_rate_counts_the_latest_seconds_only() -> None:
    uuids = ids(20)
    flow = flow_with(uuids)
    for number, uuid in enumerate(uuids):
        flow.arrive(uuid, number * 0.5)
    assert flow.rate(9.75) == pytest.approx(2.0)
    assert flow.rate(60.0) == 0.0


def test_latencies_are_from_sending_to_arrival() -> None:
    flow = DemoFlow("doors")
    assert flow.latency_s(0.5) is None
    for number, uuid in enumerate(ids(4)):
        flow.send(uuid, 10.0)
        flow.arrive(uuid, 10.0 + (number + 1) / 4)
    assert (flow.latency_s(0.5), flow.latency_s(0.99)) == (0.5, 1.0)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.5, 50.0), (0.501, 51.0), (0.99, 99.0), (1.0, 100.0)])
def test_percentile_is_the_nearest_rank(share: float, expected: float) -> None:
    assert percentile((float(value) for value in range(100, 0, -1)), share) == expected


def test_a_caller_gets_one_answer() -> None:
    asked, other = ids(2)
    calls = Calls("climate", must_answer=True)
    calls.ask(asked)
    assert calls.answer(asked, "OK")
    assert not calls.answer(asked, NO_ANSWER)
    assert not calls.answer(other, "OK")
    assert calls.results == {"OK": 1}
    assert (calls.waiting, calls.unanswered) == (0, 0)


def full_ledger() -> Ledger:
    return Ledger({"speed": "veh1 → cloud", "late": "cloud → veh1", "silent": "cloud → veh1"}, ["late"], ["silent"])


def test_books_with_everything_accounted_for_have_no_problems() -> None:
    speed, late, silent = ids(3)
    ledger = full_ledger()
    ledger.flows["speed"].send(speed, 0.0)
    for name, uuid in (("late", late), ("silent", silent)):
        ledger.flows[name].send(uuid, 0.0)
        ledger.calls[name].ask(uuid)
    assert ledger.open == 5
    ledger.arrive(speed, 1.0)
    ledger.report(late, "DEADLINE_EXCEEDED", "its TTL had passed")
    ledger.answer(late, "DEADLINE_EXCEEDED")
    ledger.arrive(silent, 1.0)
    ledger.answer(silent, NO_ANSWER)
    assert ledger.open == 0
    assert ledger.problems() == []
    assert ledger.letters == {("DEADLINE_EXCEEDED", "late"): (1, "its TTL had passed")}


def test_every_kind_of_hole_in_the_books_is_named() -> None:
    speed, late, stranger = ids(3)
    ledger = full_ledger()
    ledger.flows["speed"].send(speed, 0.0)
    ledger.flows["late"].send(late, 0.0)
    ledger.calls["late"].ask(late)
    ledger.report(late, "DEADLINE_EXCEEDED", "")
    ledger.answer(late, NO_ANSWER)
    ledger.arrive(stranger, 1.0)
    assert ledger.problems() == [
        "1 of 1 messages of 'speed' are unaccounted for",
        "1 of 1 callers of 'late' got no answer",
        "1 messages arrived that nobody sent",
    ]


def test_the_warm_up_is_not_part_of_the_books() -> None:
    lost, heard, refused = ids(3)
    ledger = full_ledger()
    for uuid in (lost, heard, refused):
        ledger.warm_up.send(uuid, 0.0)
    ledger.arrive(heard, 1.0)
    ledger.report(refused, "UNAVAILABLE", "")
    assert (ledger.open, ledger.problems(), ledger.letters) == (0, [], {})


METRICS = """\
# TYPE ustreamer_accepted_messages_total counter
ustreamer_accepted_messages_total{egress="cloud",ingress="vehicle",route="vehicle-cloud"} 7.0
ustreamer_accepted_messages_total{egress="",ingress="cloud",route="none"} 2.0
# TYPE ustreamer_outcomes_total counter
ustreamer_outcomes_total{code="OK",egress="cloud",ingress="vehicle",outcome="delivered",route="vehicle-cloud"} 4.0
ustreamer_outcomes_total{code="UNAVAILABLE",egress="cloud",ingress="vehicle",outcome="expired",route="vehicle-cloud"} 1.0
ustreamer_outcomes_total{code="ABORTED",egress="cloud",ingress="vehicle",outcome="expired",route="vehicle-cloud"} 1.0
# TYPE ustreamer_queue_messages gauge
ustreamer_queue_messages{egress="cloud",ingress="vehicle",route="vehicle-cloud"} 1.0
# TYPE ustreamer_endpoint_up gauge
ustreamer_endpoint_up{endpoint="cloud",transport="mqtt5"} 1.0
ustreamer_endpoint_up{endpoint="vehicle",transport="zenoh"} 0.0
"""


def test_metrics_are_read_into_books_that_balance_or_not() -> None:
    reading = read(METRICS)
    route, nowhere = reading.books
    assert (route.accepted, route.outcomes, route.queued) == (7, {"delivered": 4, "expired": 2}, 1)
    assert route.balance
    assert nowhere.route == "none (from cloud)"
    assert not nowhere.balance
    assert (reading.is_up("cloud"), reading.is_up("vehicle"), reading.is_up("nobody")) == (True, False, False)
