"""Receipts between streamers as a dialogue: what is submitted, put and receipted, and which results are told."""

from collections.abc import Sequence
from typing import Any

import pytest

from streamer.transports.base import UNCONFIRMED, MessageParcel, SendResult, Unconfirmed
from streamer.transports.errors import LinkLostError, MayHaveArrivedError, PermanentError, SendError
from streamer.transports.zenoh.ledger import ReceiptLedger
from streamer.transports.zenoh.receipt_proofs import Streamer
from streamer.uprotocol.message import notification, publish
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri

TOPIC = UUri.parse("//veh1/1/1/8000")
CLOUD = UUri.parse("//cloud/1/1/0")
OTHER = UUri.parse("//cloud/2/1/0")
ELSEWHERE = UUri.parse("//veh2/2/1/0")
PATIENCE_S = 45.0
S1, S2 = Streamer("gateway1", "1" * 32), Streamer("gateway2", "2" * 32)


class LedgerHarness:
    """A ledger that knows of one streamer, ``S1``, which serves ``cloud``. ``a1`` and ``a2`` are messages of one flow."""

    sinks = {"a": CLOUD, "b": OTHER, "x": ELSEWHERE}

    def __init__(self) -> None:
        self.ledger = ReceiptLedger(PATIENCE_S)
        self.ledger.add_streamer(S1, "cloud")
        self.parcels: dict[str, MessageParcel] = {}
        self.said: list[str] = []

    def submit(self, *names: str) -> bool:
        for name in names:
            self.parcels[name] = MessageParcel(notification(1, TOPIC, self.sinks[name[0]], name.encode()))
        return self.ledger.expect([self.parcels[name] for name in names], self.done)

    def put(self, *names: str, now_s: float = 0.0, outcome: SendError | Unconfirmed | None = UNCONFIRMED) -> list[str]:
        self.ledger.put([self.parcels[name] for name in names], outcome, self.done, now_s)
        return self.heard()

    def receipts(self, *names: str, by: Streamer = S1) -> list[str]:
        self.ledger.receipts(by, b"".join(self.parcels[name].message.id for name in names))
        return self.heard()

    def done(self, parcels: Sequence[Any], outcome: SendResult) -> None:
        word = {type(None): "delivered", Unconfirmed: "unconfirmed", LinkLostError: "lost", PermanentError: "refused"}[
            type(outcome)
        ]
        names = [(parcel.message.payload or b"").decode() for parcel in parcels]
        self.said.append(" ".join([word, *names]))

    def heard(self) -> list[str]:
        said, self.said = self.said, []
        return said


def test_message_is_delivered_when_its_receipt_has_come() -> None:
    d = LedgerHarness()
    assert d.submit("a1", "a2")
    assert d.put("a1", "a2") == []
    assert d.receipts("a1", "a2") == ["delivered a1 a2"]
    assert len(d.ledger) == 0


def test_message_that_no_streamer_serves_is_unconfirmed() -> None:
    d = LedgerHarness()
    assert not d.submit("x1")
    assert d.submit("x2", "a1", "x3")
    assert d.put("x2", "a1", "x3") == ["unconfirmed x2 x3"]


def test_publish_is_never_receipted() -> None:
    d = LedgerHarness()
    assert not d.ledger.expect([MessageParcel(publish(1, TOPIC))], d.done)


def test_receipt_may_come_before_the_put_is_reported() -> None:
    d = LedgerHarness()
    d.submit("a1")
    assert d.receipts("a1") == []
    assert d.put("a1") == ["delivered a1"]


def test_receipts_of_a_flow_keep_its_order_and_others_do_not_wait() -> None:
    d = LedgerHarness()
    d.submit("a1", "a2", "b1")
    d.put("a1", "a2", "b1")
    assert d.receipts("a2", "b1") == ["delivered b1"]
    assert d.receipts("a1") == ["delivered a1 a2"]


def test_streamer_that_goes_loses_everything_unreceipted_in_order() -> None:
    d = LedgerHarness()
    d.submit("a1", "b1", "a2", "a3")
    d.put("a1", "b1", "a2", "a3")
    d.receipts("a2")
    d.ledger.remove_streamer(S1, "cloud")
    assert sorted(d.heard()) == ["lost a1 a2 a3", "lost b1"]
    assert d.receipts("a1") == []
    assert not d.ledger.is_needed


def test_what_is_not_put_when_the_streamer_goes_is_lost_once_it_is_and_so_is_what_follows() -> None:
    d = LedgerHarness()
    d.submit("a1", "a2")
    d.put("a1")
    d.ledger.remove_streamer(S1, "cloud")
    assert d.heard() == ["lost a1"]
    assert d.submit("a3")  # it would overtake a2
    d.ledger.add_streamer(S2, "cloud")
    assert d.put("a2", "a3") == ["lost a2 a3"]
    d.submit("a4")
    d.put("a4")
    assert d.receipts("a4", by=S2) == ["delivered a4"]


def test_streamer_that_serves_the_same_authority_takes_over() -> None:
    d = LedgerHarness()
    d.ledger.add_streamer(S2, "cloud")
    d.submit("a1")
    d.put("a1")
    d.ledger.remove_streamer(S2, "cloud")
    assert d.heard() == []
    d.ledger.add_streamer(S2, "cloud")
    d.ledger.remove_streamer(S1, "cloud")
    assert d.heard() == ["lost a1"]
    assert d.submit("a2")


def test_flow_without_receipts_is_unconfirmed_in_the_end() -> None:
    d = LedgerHarness()
    d.submit("a1", "a2", "b1", "a3")
    d.put("a1", "a2", now_s=100.0)
    d.put("b1", now_s=101.0)
    d.ledger.tick(100.0 + PATIENCE_S - 0.1)
    assert d.heard() == []
    d.ledger.tick(100.0 + PATIENCE_S)
    assert d.heard() == ["unconfirmed a1 a2"]
    assert d.put("a3") == ["unconfirmed a3"]
    d.ledger.tick(101.0 + PATIENCE_S)
    assert d.heard() == ["unconfirmed b1"]
    assert len(d.ledger) == 0


def test_streamer_that_was_silent_is_not_waited_for_until_it_gives_a_receipt() -> None:
    d = LedgerHarness()
    d.submit("a1")
    d.put("a1", now_s=100.0)
    d.ledger.tick(100.0 + PATIENCE_S)
    d.heard()
    assert not d.submit("a2")
    assert d.put("a2") == ["unconfirmed a2"]
    assert d.receipts("a1") == []
    assert d.submit("a3")
    assert d.put("a3") == []
    assert d.receipts("a3") == ["delivered a3"]


def test_streamer_that_was_silent_is_waited_for_again_once_it_has_left_and_come_back() -> None:
    d = LedgerHarness()
    d.ledger.add_streamer(S1, "veh2")
    d.submit("a1")
    d.put("a1", now_s=100.0)
    d.ledger.tick(100.0 + PATIENCE_S)
    d.heard()
    d.ledger.remove_streamer(S1, "cloud")
    d.ledger.add_streamer(S1, "cloud")  # it has served another authority all the time
    assert not d.submit("a2")
    for authority in ("cloud", "veh2"):
        d.ledger.remove_streamer(S1, authority)
    d.ledger.add_streamer(S1, "cloud")
    assert d.submit("a3")


def test_another_streamer_is_waited_for_while_one_is_silent() -> None:
    d = LedgerHarness()
    d.submit("a1")
    d.put("a1", now_s=100.0)
    d.ledger.tick(100.0 + PATIENCE_S)
    d.heard()
    d.ledger.add_streamer(S2, "cloud")
    assert d.submit("a2")
    d.put("a2")
    assert d.receipts("a2", by=S2) == ["delivered a2"]


def test_receipt_before_the_end_of_the_patience_counts_although_an_earlier_one_is_missing() -> None:
    d = LedgerHarness()
    d.submit("a1", "a2")
    d.put("a1", "a2", now_s=100.0)
    assert d.receipts("a2") == []
    d.ledger.tick(100.0 + PATIENCE_S)
    assert d.heard() == ["unconfirmed a1", "delivered a2"]


def test_receipt_of_a_streamer_that_the_message_was_not_sent_to_does_not_count() -> None:
    d = LedgerHarness()
    d.ledger.add_streamer(S2, "veh2")
    d.submit("a1", "x1")
    d.put("a1", "x1")
    assert d.receipts("a1", by=S2) == []
    assert d.receipts("x1", by=S1) == []
    assert d.receipts("x1", by=S2) == ["delivered x1"]
    assert d.receipts("a1", by=S1) == ["delivered a1"]


@pytest.mark.parametrize("error", [LinkLostError(), MayHaveArrivedError()])
def test_lost_put_loses_the_earlier_messages_of_its_flow_in_order(error: SendError) -> None:
    d = LedgerHarness()
    d.submit("a1", "a2", "b1")
    d.put("a1")
    assert d.put("a2", outcome=error) == ["lost a1 a2"]  # without a receipt it has not arrived, however often it was sent
    d.put("b1")
    assert d.receipts("b1") == ["delivered b1"]


def test_refused_message_does_not_hold_up_its_flow() -> None:
    d = LedgerHarness()
    d.submit("a1", "a2")
    assert d.put("a1", outcome=PermanentError(UCode.INVALID_ARGUMENT, "no")) == ["refused a1"]
    d.put("a2")
    assert d.receipts("a2") == ["delivered a2"]


def test_lost_link_loses_everything() -> None:
    d = LedgerHarness()
    d.submit("a1", "b1")
    d.put("a1", "b1")
    d.ledger.lose_all()
    assert d.heard() == ["lost a1", "lost b1"]
    assert len(d.ledger) == 0


def test_same_message_twice_waits_once() -> None:
    d = LedgerHarness()
    d.submit("a1")
    twin = MessageParcel(d.parcels["a1"].message)
    assert not d.ledger.expect([twin], d.done)
    d.put("a1")
    d.ledger.put([twin], UNCONFIRMED, d.done, 0.0)
    assert d.heard() == ["unconfirmed a1"]
    assert d.receipts("a1") == ["delivered a1"]


def test_receipts_that_are_not_ours_or_cut_short_are_ignored() -> None:
    d = LedgerHarness()
    d.submit("a1")
    d.put("a1")
    d.ledger.receipts(S1, b"x" * 16 + d.parcels["a1"].message.id[:15])
    assert d.heard() == []


def test_an_authority_is_away_from_when_its_streamer_leaves_until_one_serves_it_again() -> None:
    d = LedgerHarness()
    d.ledger.add_streamer(S2, "cloud")
    d.ledger.remove_streamer(S2, "cloud")
    assert d.ledger.away == frozenset()
    d.ledger.add_streamer(S1, "plant")
    for authority in ("cloud", "plant"):
        d.ledger.remove_streamer(S1, authority)
    assert d.ledger.away == {"cloud", "plant"}
    d.ledger.add_streamer(Streamer("gateway1", "9" * 32), "cloud")
    assert d.ledger.away == {"plant"}
    d.ledger.give_up("gateway2")
    assert d.ledger.away == {"plant"}
    d.ledger.give_up("gateway1")
    assert d.ledger.away == frozenset()
