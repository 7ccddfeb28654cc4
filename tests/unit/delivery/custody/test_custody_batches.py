"""Custody of batches of unconfirmed messages, with a journal: stored, acknowledged and deleted together."""

from pathlib import Path

import pytest

from tests.unit.delivery.custody_harness import acknowledged, journaled
from tests.unit.delivery.messages import message


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def test_a_batch_that_is_closed_while_a_commit_hangs_is_stored_after_it(path: Path) -> None:
    with journaled(path) as harness:
        harness.accept(message())
        harness.flush()
        delivery = harness.accept(message(1), watch=False)
        harness.send_unconfirmed(delivery.lane)
        harness.flush()
        harness.commit()
        harness.write()
        assert len(harness.in_file("segments")) == 1


def test_an_unconfirmed_batch_is_stored_and_then_its_sources_are_told(path: Path) -> None:
    with journaled(path) as harness:
        delivery = harness.accept(message())
        received = delivery.received
        harness.send_unconfirmed(delivery.lane)
        harness.flush()
        assert not acknowledged(received)
        harness.commit()
        assert acknowledged(received)
        assert list(harness.seen.young.values()) == [None]
        assert (harness.in_file("rows"), len(harness.in_file("segments"))) == ([], 1)


def test_a_row_that_leaves_unconfirmed_goes_in_the_transaction_in_which_its_batch_comes(path: Path) -> None:
    with journaled(path) as harness:
        delivery = harness.accept(message())
        harness.write()
        harness.send_unconfirmed(delivery.lane)
        harness.write()
        assert harness.journal.commits == 2
        assert (harness.in_file("rows"), len(harness.in_file("segments"))) == ([], 1)
        assert harness.custody.payloads.in_memory == 0


def test_a_batch_goes_in_the_transaction_in_which_its_messages_come_back_as_rows(path: Path) -> None:
    with journaled(path) as harness:
        delivery = harness.accept(message())
        lane, seq = delivery.lane, delivery.seq
        harness.send_unconfirmed(lane)
        harness.write()
        harness.store.redeliver(lane, harness.clock.s)
        assert harness.store.refill(lane) == []
        harness.write()
        assert harness.journal.commits == 2
        assert (harness.in_file("rows"), harness.in_file("segments")) == ([seq], [])


def test_a_batch_that_came_back_before_it_was_stored_is_written_as_rows_only(path: Path) -> None:
    with journaled(path) as harness:
        delivery = harness.accept(message())
        lane, seq, received = delivery.lane, delivery.seq, delivery.received
        harness.send_unconfirmed(lane)
        harness.store.redeliver(lane, harness.clock.s)
        assert harness.store.refill(lane) == []
        harness.write()
        assert (harness.in_file("rows"), harness.in_file("segments")) == ([seq], [])
        assert acknowledged(received)


def test_a_batch_is_read_from_the_journal_while_it_is_there(path: Path) -> None:
    with journaled(path) as harness:
        lane = harness.accept(message(payload=b"x")).lane
        harness.send_unconfirmed(lane)
        harness.write()
        (number,) = harness.in_file("segments")
        assert isinstance(number, int)
        assert b"x" in harness.custody.batch_body(number)
        harness.custody.forget_batch(number)
        harness.write()
        assert harness.in_file("segments") == []


@pytest.mark.parametrize("others", [0, 1], ids=["all of it", "one message of two"])
def test_a_batch_that_came_back_and_was_settled_before_it_was_stored_is_acknowledged(path: Path, others: int) -> None:
    with journaled(path) as harness:
        sent = [harness.accept(message(flow)) for flow in range(1 + others)]
        came, lanes = [each.received for each in sent], [each.lane for each in sent]
        for lane in lanes:
            harness.send_unconfirmed(lane)
        harness.store.redeliver(lanes[0], harness.clock.s)
        assert harness.store.refill(lanes[0]) == []
        harness.settle(lanes[0].waiting()[0])
        harness.write()
        assert all(acknowledged(each) for each in came)
        assert len(harness.in_file("segments")) == others
        assert list(harness.seen.young.values()) == [None] * len(came)
