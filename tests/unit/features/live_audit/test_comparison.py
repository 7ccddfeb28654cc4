"""Rows of two streamers are compared: copies and gaps, who is sure, what is bounded."""

import pytest

from streamer.features.live_audit import comparison as module
from streamer.features.live_audit.comparison import OPEN_S, SETTLE_S, UNREPORTED_S, WAIT_S, AuditFinding, RowComparison
from streamer.features.live_audit.rows import packed
from streamer.features.live_audit.sums import AWAY, FlowClass, IdCipher, Sum
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.uuid import new_id
from tests.clock import START_MS

MINUTE = START_MS // 60_000
FLOW = FlowClass("veh1", "cloud")
CIPHER = IdCipher()
IDS = [new_id(START_MS) for _ in range(20)]
LONG_S = 3 * SETTLE_S
"""When everybody is sure."""


def some(*numbers: int) -> Sum:
    return Sum(len(numbers), CIPHER.fold(b"".join(IDS[number] for number in numbers)))


class Compared:
    """A streamer that has forwarded the class for a while, and hears another one, `gw`."""

    def __init__(self, is_settled: bool = True) -> None:
        self.comparison = RowComparison(CIPHER)
        self.now_s = 0.0
        self.number = 0
        if is_settled:
            self.ours(some(0), minute=MINUTE - 60)
            self.hear({1: some(0)}, minute=MINUTE - 60)
            self.now_s = LONG_S
            assert self.judged() == []

    def ours(self, sums: Sum, minute: int = MINUTE, kind: int = 0) -> None:
        self.comparison.ours([(FLOW, minute, {("down", kind): sums})], self.now_s)

    def hear(
        self, sums: dict[int, Sum], minute: int = MINUTE, streamer: str = "gw", run: int = 1, number: int | None = None
    ) -> None:
        number = self.number if number is None else number
        (rows,) = packed(run, number, [(FLOW, minute, sums)])
        self.comparison.heard(streamer, ("down",), rows, self.now_s, START_MS)
        self.number = number + 1

    def judged(self, after_s: float = WAIT_S) -> list[tuple[str, str, int]]:
        self.now_s += after_s
        return [(each.streamer, each.verdict, each.messages) for each in self.comparison.judge(self.now_s)]


def test_nothing_is_judged_before_its_last_row_is_old() -> None:
    compared = Compared()
    compared.hear({1: some(1, 2)})
    compared.ours(some(1))
    assert compared.judged(WAIT_S - 1) == []
    compared.ours(some(2))
    assert compared.judged(1) == []
    assert compared.judged(WAIT_S) == []
    assert compared.comparison.counts["equal"] == 3


def test_a_copy_of_a_row_counts_once() -> None:
    compared = Compared()
    compared.hear({1: some(1)})
    compared.hear({1: some(1)}, number=compared.number - 1)
    compared.ours(some(1))
    assert compared.judged() == []
    assert compared.comparison.counts["equal"] == 2


@pytest.mark.parametrize(("run", "number", "missing"), [(1, 3, 2), (2, 0, 0)], ids=["a gap", "a restart"])
def test_after_rows_were_lost_a_difference_is_unknown_for_a_while(run: int, number: int, missing: int) -> None:
    compared = Compared()
    compared.ours(some(1, 2))
    compared.hear({1: some(1, 2, 3)}, run=run, number=number)
    assert compared.judged() == [("gw", "unknown", 1)]
    assert compared.comparison.lost_rows == missing
    compared.now_s += SETTLE_S
    compared.ours(some(4), minute=MINUTE + 1)
    compared.hear({1: some(4, 5)}, minute=MINUTE + 1, run=run)
    assert compared.judged() == [("gw", "lost", 1)]


def test_the_first_minutes_of_a_class_are_unknown_if_they_differ() -> None:
    compared = Compared(is_settled=False)
    compared.ours(some(1))
    compared.hear({1: some(1, 2)})
    assert compared.judged() == [("gw", "unknown", 1)]


def test_what_is_lost_is_named_and_counted() -> None:
    compared = Compared()
    compared.ours(some(1))
    compared.hear({1: some(1, 2)})
    compared.now_s += WAIT_S
    assert compared.comparison.judge(compared.now_s) == [AuditFinding("gw", FLOW, MINUTE, "lost", 1, IDS[2])]
    compared.hear({1: some(3)})
    assert compared.judged() == [("gw", "lost", 2)]
    compared.ours(some(2, 3))
    assert compared.judged() == [("gw", "equal", 0)]
    assert not compared.comparison.entries


def test_what_came_more_often_than_it_was_sent_came_twice() -> None:
    compared = Compared()
    compared.ours(some(1, 1, 2))
    compared.hear({1: some(1, 2)})
    assert compared.judged() == [("gw", "twice", 1)]


def test_as_many_but_others_means_that_one_is_lost() -> None:
    compared = Compared()
    compared.ours(some(1, 2))
    compared.hear({1: some(1, 3)})
    assert compared.judged() == [("gw", "lost", 1)]


def test_two_that_share_a_class_are_compared_together() -> None:
    compared = Compared()
    compared.hear({1: some(10)}, minute=MINUTE - 60, streamer="other", number=0)
    compared.now_s += LONG_S
    compared.judged()
    compared.ours(some(1, 2, 3))
    compared.hear({1: some(1, 2)}, number=1)
    compared.hear({1: some(3, 4)}, streamer="other", number=1)
    assert compared.judged() == [("gw other", "lost", 1)]


@pytest.mark.parametrize("kind", range(2, 7))
def test_what_ended_in_order_is_not_lost(kind: int) -> None:
    compared = Compared()
    compared.ours(some(1))
    compared.ours(some(2, 3), kind=kind)
    compared.hear({1: some(1, 2, 3)})
    assert compared.judged() == []


def test_what_a_streamer_holds_that_was_restarted_is_lost() -> None:
    compared = Compared()
    for streamer in ("gw", "middle"):
        compared.hear({1: some(0)}, minute=MINUTE - 60, streamer=streamer, number=1)
    compared.now_s += LONG_S
    compared.judged()
    compared.ours(some(1))
    compared.hear({1: some(1, 2, 3)}, number=2)
    compared.hear({AWAY: some(1, 2, 3), 1: some(1)}, streamer="middle", number=2)
    assert compared.judged() == []
    compared.hear({AWAY: some(4), 1: some(4)}, minute=MINUTE + 1, streamer="middle", run=2, number=0)
    compared.hear({1: some(5)}, number=3)
    assert ("gw", "lost", 3) in compared.judged()


def test_what_nobody_reports_is_unknown_in_the_end() -> None:
    compared = Compared(is_settled=False)
    compared.ours(some(1, 2))
    assert compared.judged(UNREPORTED_S - 1) == []
    assert len(compared.comparison.entries) == 1
    compared.judged(1)
    assert (len(compared.comparison.entries), compared.comparison.counts["unknown"]) == (0, 2)


def test_what_one_does_not_report_of_what_it_reports_is_open_for_a_day() -> None:
    compared = Compared()
    compared.ours(some(1, 2))
    compared.judged(OPEN_S - 1)
    assert len(compared.comparison.entries) == 1
    compared.judged(1)
    assert (len(compared.comparison.entries), compared.comparison.counts["unknown"]) == (0, 2)


def test_what_is_not_forwarded_here_is_not_compared() -> None:
    compared = Compared(is_settled=False)
    compared.hear({1: some(1)})
    assert compared.judged() == []
    assert not compared.comparison.entries


def test_minutes_more_than_a_day_away_are_left_out() -> None:
    compared = Compared()
    for minute in (MINUTE - 1441, MINUTE + 1441):
        compared.hear({1: some(1)}, minute=minute)
    assert not compared.comparison.entries


def test_one_that_is_divided_among_several_is_not_compared() -> None:
    compared = Compared()
    compared.ours(some(1))
    (rows,) = packed(1, 1, [(FLOW, MINUTE, {1: some(1, 2)})])
    compared.comparison.heard("gw", (), rows, compared.now_s, START_MS)
    assert compared.judged() == []


def test_the_oldest_is_given_up_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 3)
    compared = Compared()
    for number in range(5):
        compared.ours(some(number), minute=MINUTE + number)
    assert [minute for _, minute in compared.comparison.entries] == [MINUTE + 2, MINUTE + 3, MINUTE + 4]
    assert compared.comparison.counts["unknown"] == 2


def test_rows_of_strangers_without_sums_are_harmless() -> None:
    compared = Compared()
    flow = pb.AuditClass(source=0, sink=0, minutes=[pb.AuditMinute(minute=MINUTE), pb.AuditMinute(minute=MINUTE + 1)])
    rows = pb.AuditRows(run=1, number=1, authorities=["veh1"], classes=[flow])
    compared.comparison.heard("gw", ("down",), rows, compared.now_s, START_MS)
    assert compared.judged(OPEN_S) == []
