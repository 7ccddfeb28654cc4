"""Recovery: messages that an earlier process has left in the journal are in their lanes before anything new arrives."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from streamer.delivery.inbound.recovery import Recovered, Recovery
from streamer.delivery.lanes.lane import MAY_HAVE_ARRIVED, REDELIVERED, RESTORED
from streamer.delivery.lanes.queue import RouteQueue
from streamer.delivery.outbound.egress import Egress
from streamer.delivery.pump import Pump
from streamer.delivery.seen import key_of
from streamer.delivery.stats import RouteStats
from streamer.journal import codec
from streamer.journal.entries import Batch, JournalError, Row, Segment
from streamer.routing.outcome import Outcome
from streamer.transports.base import LinkState
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import everything_at
from tests.unit.delivery.custody_harness import CustodyHarness, journaled
from tests.unit.delivery.fake_transport import FakeTransport
from tests.unit.delivery.messages import message, queue_policy, topic
from tests.unit.delivery.settler_harness import SettlerHarness


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@contextmanager
def earlier(path: Path) -> Iterator[CustodyHarness]:
    """An earlier process that leaves messages in the journal."""
    with journaled(path) as harness:
        yield harness
        harness.write()


def write(harness: CustodyHarness, batch: Batch) -> None:
    harness.journal.write(batch, lambda: None)
    harness.commit()


class RecoveryHarness(SettlerHarness):
    """The next process, with the route ``up``. ``is_unconfirmed``: the network of `cloud` does not confirm."""

    def __init__(self, held: CustodyHarness, is_unconfirmed: bool = True) -> None:
        super().__init__(held)
        self.transport = FakeTransport()
        self.transport.state = LinkState.DOWN
        store = held.store if is_unconfirmed else None
        pump = Pump(self.clock)
        self.egress = Egress("cloud", self.transport, self.settler, self.custody, self.clock, lambda: 0.5, pump, store)
        self.queue = RouteQueue(
            "up", "vehicle", "cloud", held.queue.policy, RouteStats(), self.egress, self.custody.number, True
        )
        self.egress.add_queue(self.queue)
        self.unrouted = {"vehicle": RouteStats()}
        self.recovery = self.recover({("up", "vehicle", "cloud"): self.queue})

    def recover(self, queues: dict[tuple[str, str, str], RouteQueue]) -> Recovery:
        return Recovery(
            self.held.journal,
            self.custody,
            self.settler,
            self.seen,
            self.clock,
            lambda name, source, target: queues.get((name, source, target)),
            {"cloud": self.egress},
            self.unrouted,
        )

    def run(self) -> Recovered:
        """Recover as far as that is possible now."""
        for _ in self.recovery.slices():
            pass
        return self.recovery.found

    def at_hand(self, flow: int = 0) -> list[UMessage]:
        """The messages of a flow after a refill."""
        lane = self.queue.lane((topic(flow), None))
        assert self.held.store.refill(lane, whole=True) == []
        return [delivery.message for delivery in lane.waiting()]


@contextmanager
def later(path: Path, is_unconfirmed: bool = True) -> Iterator[RecoveryHarness]:
    with journaled(path) as held:
        yield RecoveryHarness(held, is_unconfirmed)


# rows


@pytest.mark.parametrize("history", [0, MAY_HAVE_ARRIVED])
def test_messages_that_waited_are_in_their_lanes_in_order(path: Path, history: int) -> None:
    sent = [message(0, payload=b"1"), message(1), message(0, payload=b"2")]
    with earlier(path) as process:
        deliveries = [process.accept(each) for each in sent]
        deliveries[0].attempts, deliveries[0].history = 3, history
        entered_ms = deliveries[0].entered_ms
    with later(path) as harness:
        harness.clock.advance(5000)
        assert harness.run() == Recovered(waiting=3)
        assert harness.at_hand(0) == [sent[0], sent[2]]
        assert harness.at_hand(1) == [sent[1]]
        first = harness.queue.lane((topic(0), None)).waiting()[0]
        assert (first.seq, first.attempts, first.entered_ms) == (1, 3, entered_ms)
        assert (first.journaled, first.received.is_acknowledged) == (True, True)
        assert first.history == REDELIVERED | RESTORED | history
        assert (harness.queue.stats.accepted, harness.queue.messages) == (3, 3)
        assert harness.custody.payloads.in_memory == sum(delivery.size for delivery in harness.queue.waiting())


def test_a_message_leaves_with_the_sink_that_it_was_to_leave_with(path: Path) -> None:
    came = message()
    left = replace(came, attributes=replace(came.attributes, sink=everything_at("fleet")))
    with earlier(path) as process:
        process.accept(left, received=MemoryReceived(came))
        process.clock.advance(50)
    with later(path) as harness:
        harness.run()
        (delivery,) = harness.queue.waiting()
        assert (delivery.message, delivery.received.message) == (left, came)
        assert delivery.lane.key == (topic(), everything_at("fleet"))


def test_a_copy_of_a_recovered_message_shares_its_fate(path: Path) -> None:
    sent = message()
    with earlier(path) as process:
        process.accept(sent)
    with later(path) as harness:
        harness.run()
        (delivery,) = harness.queue.waiting()
        assert harness.seen.young[key_of(sent)] is delivery.received


def test_recovered_messages_are_sent_as_soon_as_the_link_is_up(path: Path) -> None:
    sent = message()
    with earlier(path) as process:
        process.accept(sent)
    with later(path, is_unconfirmed=False) as harness:
        harness.run()
        harness.transport.state = LinkState.UP
        harness.egress.pump(harness.clock.ms)
        assert harness.transport.submitted == [sent]
        harness.held.write()
        assert harness.held.in_file("rows") == []


def test_a_row_that_cannot_be_read_is_counted_and_goes_and_the_others_are_recovered(path: Path) -> None:
    with earlier(path) as process:
        write(process, Batch(rows=[Row(process.journal.number(), "up", "vehicle", "cloud", 0, 0, "=", b"\xff")]))
        process.accept(message())
    with later(path) as harness:
        assert harness.run() == Recovered(waiting=1, unreadable=1)
        harness.held.write()
        assert harness.held.in_file("rows") == [2]


def test_a_message_whose_route_leads_nowhere_any_more_is_a_dead_letter_where_it_came_in(path: Path) -> None:
    with earlier(path) as process:
        process.accept(message(), process.new_queue("formerly"))
        process.accept(message())
    with later(path) as harness:
        assert harness.run() == Recovered(waiting=1, homeless=1)
        assert harness.unrouted["vehicle"].outcomes == {(Outcome.DEAD_LETTERED, UCode.UNAVAILABLE): 1}
        assert [letter.status.code for letter in harness.letters()] == [int(UCode.UNAVAILABLE)]
        harness.held.write()
        assert 1 not in harness.held.in_file("rows")


def test_a_message_whose_endpoints_are_both_gone_is_kept_as_a_letter(path: Path) -> None:
    with earlier(path) as process:
        process.accept(message(), process.new_queue("formerly"))
    with later(path) as harness:
        harness.unrouted.clear()
        assert harness.run() == Recovered(homeless=1)
        harness.held.write()
        assert harness.held.in_file("letters", "ingress") == ["vehicle"]


# batches


def test_unconfirmed_messages_are_to_be_sent_again_before_newer_ones(path: Path) -> None:
    sent = [message(payload=b"%d" % number) for number in range(3)]
    with earlier(path) as process:
        for each in sent[:2]:
            lane = process.accept(each).lane
        process.send_unconfirmed(lane)
        process.accept(sent[2])
    with later(path) as harness:
        assert harness.run() == Recovered(waiting=1, unconfirmed=2)
        assert (harness.queue.unconfirmed, harness.queue.stats.accepted) == (2, 3)
        assert harness.queue.lane((topic(), None)).wants_redelivery
        assert harness.at_hand() == sent


def test_another_copy_of_a_recovered_message_is_a_duplicate(path: Path) -> None:
    in_batch, with_sink, in_row = message(payload=b"1"), message(1, ttl=5000), message(payload=b"2")
    with earlier(path) as process:
        for each in (in_batch, with_sink):
            process.send_unconfirmed(process.accept(each).lane)
        process.accept(in_row)
    with later(path) as harness:
        assert harness.run() == Recovered(waiting=1, unconfirmed=2)
        assert [key_of(each) in harness.seen for each in (in_batch, with_sink, in_row)] == [True] * 3
        assert key_of(message()) not in harness.seen


def test_a_message_that_is_a_row_and_in_a_batch_is_recovered_once(path: Path) -> None:
    sent = message()
    with earlier(path) as process:
        delivery = process.accept(sent)
        seq = delivery.seq
        process.send_unconfirmed(delivery.lane)
        process.write()
        write(process, Batch(rows=[Row(seq, "up", "vehicle", "cloud", 0, 0, codec.UNCHANGED, codec.pack(sent))]))
    with later(path) as harness:
        assert harness.run() == Recovered(waiting=1)
        assert harness.at_hand() == [sent]
        assert harness.queue.unconfirmed == 0


@pytest.mark.parametrize("endpoint", ["cloud", "formerly"])
def test_a_batch_that_cannot_be_read_is_counted_and_goes_wherever_it_was_sent(
    endpoint: str, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with earlier(path) as process:
        write(process, Batch(segments=[Segment(process.journal.number(), endpoint, b"\xff")]))
    with later(path) as harness:
        assert harness.run() == Recovered(unreadable=1)
        assert f"batch_unreadable endpoint={endpoint} number=" in caplog.text
        harness.held.write()
        assert harness.held.in_file("segments") == []


def test_messages_in_batches_whose_endpoint_is_gone_become_dead_letters_once(path: Path) -> None:
    """One is a row as well, two are in a later batch. There are so many that their letters are not written all at once."""
    with earlier(path) as process:
        process.store.target = "formerly"
        sent = [message(payload=b"%d" % number) for number in range(4)]
        numbers = []
        for both in (sent[:2], sent[2:]):
            deliveries = [process.accept(each) for each in both]
            numbers += [delivery.seq for delivery in deliveries]
            process.send_unconfirmed(deliveries[0].lane)
            process.write()
        row = Row(numbers[0], "up", "vehicle", "formerly", 0, 0, codec.UNCHANGED, codec.pack(sent[0]))
        *_, last = process.in_file("segments", "body")
        assert isinstance(last, bytes)
        write(process, Batch(rows=[row], segments=[Segment(process.journal.number(), "formerly", last)]))
    with later(path) as harness:
        while not harness.recovery.is_complete:
            found = harness.run()
            harness.held.write()
        assert found == Recovered(homeless=4)
        assert harness.unrouted["vehicle"].outcomes == {(Outcome.DEAD_LETTERED, UCode.UNAVAILABLE): 4}
        assert harness.held.in_file("segments") == []
        assert numbers[0] not in harness.held.in_file("rows")
        assert set(harness.held.in_file("letters", "id")) == {each.id for each in sent}


# when the journal cannot be read in the middle


def test_recovery_goes_on_where_it_was_interrupted_and_takes_nothing_twice(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = [message(payload=b"%d" % number) for number in range(4)]
    with earlier(path) as process:
        for each in sent[:3]:
            process.accept(each)
    with later(path) as harness:
        whole = list(harness.held.journal.rows())

        def interrupted() -> Iterator[Row]:
            yield from whole[:2]
            raise JournalError("the disk cannot be read")

        with monkeypatch.context() as patched:
            patched.setattr(harness.held.journal, "rows", interrupted)
            with pytest.raises(JournalError):
                harness.run()
        assert [delivery.message for delivery in harness.queue.waiting()] == sent[:2]
        assert harness.queue.may_retire
        harness.accept(sent[3], harness.queue)  # a new message, meanwhile
        assert harness.run() == Recovered(waiting=3)
        assert harness.at_hand() == sent
        assert harness.queue.stats.accepted == 4


def test_batches_that_were_read_before_an_interruption_are_taken_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with earlier(path) as process:
        for flow in range(2):
            process.send_unconfirmed(process.accept(message(flow)).lane)
            process.write()
    with later(path) as harness:
        whole = list(harness.held.journal.segments())

        def interrupted() -> Iterator[Segment]:
            yield whole[0]
            raise JournalError("the disk cannot be read")

        with monkeypatch.context() as patched:
            patched.setattr(harness.held.journal, "segments", interrupted)
            with pytest.raises(JournalError):
                harness.run()
        assert harness.run() == Recovered(unconfirmed=2)
        assert harness.queue.unconfirmed == 2


def test_lanes_stay_while_they_are_being_filled(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with earlier(path) as process:
        for flow in range(3):
            process.accept(message(flow))
    with later(path) as harness:
        harness.queue._retire_at = 1
        assert harness.run() == Recovered(waiting=3)
        assert [lane.retired for lane in harness.queue.lanes.values()] == [False] * 3
        assert harness.queue.may_retire


# what is said of it


def test_recovered_messages_are_said_once_and_nothing_if_there_are_none(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with later(path) as harness:
        harness.run()
    with earlier(path) as process:
        process.accept(message())
    with later(path) as harness:
        harness.run()
    said = [record.getMessage() for record in caplog.records if record.name == "ustreamer.recovery"]
    assert said == ["recovered waiting=1 unconfirmed=0 unreadable=0 homeless=0"]


def test_the_journal_is_not_read_again_before_it_has_taken_the_dead_letters(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.delivery.inbound.recovery._MAX_WAITING_LETTERS", 1)
    with earlier(path) as process:
        for _ in range(3):
            process.accept(message(), process.new_queue("formerly"))
    with later(path) as harness:
        egress = harness.recovery._egresses.pop("cloud")
        reads: list[str] = []
        rows = harness.held.journal.rows

        def counted() -> Iterator[Row]:
            reads.append("rows")
            return rows()

        monkeypatch.setattr(harness.held.journal, "rows", counted)
        for _ in range(3):
            assert harness.run() == Recovered(homeless=1)
        assert (len(reads), harness.recovery.has_passed, harness.recovery.is_complete) == (1, True, False)
        while not harness.recovery.is_complete:
            harness.held.write()
            harness.run()
        assert harness.run() == Recovered(homeless=3)
        harness.recovery._egresses["cloud"] = egress


# in slices


def test_a_large_journal_is_recovered_in_slices_and_in_order(path: Path) -> None:
    sent = [message(number % 3, payload=b"%d" % number) for number in range(600)]
    with earlier(path) as process:
        for each in sent:
            process.accept(each)
    with later(path) as harness:
        steps = [harness.queue.messages for _ in harness.recovery.slices()]
        assert steps == [256, 512]
        assert harness.recovery.found == Recovered(waiting=600)
        assert harness.recovery.entries == harness.held.journal.entries_found == 600
        for flow in range(3):
            assert harness.at_hand(flow) == sent[flow::3]


def test_a_slice_of_large_messages_is_short(path: Path) -> None:
    with earlier(path) as process:
        for _ in range(4):
            process.accept(message(payload=bytes(600_000)))
    with later(path) as harness:
        assert [harness.queue.messages for _ in harness.recovery.slices()] == [2, 4]


def test_each_batch_is_a_slice(path: Path) -> None:
    with earlier(path) as process:
        for flow in range(3):
            process.send_unconfirmed(process.accept(message(flow)).lane)
            process.write()
    with later(path) as harness:
        assert [harness.queue.unconfirmed for _ in harness.recovery.slices()] == [1, 2, 3]


def test_what_arrives_in_the_middle_is_sent_after_what_is_not_recovered_yet(path: Path) -> None:
    sent = [message(payload=b"%d" % number) for number in range(302)]
    with earlier(path) as process:
        for each in sent[:300]:
            process.accept(each)
    with later(path) as harness:
        slices = harness.recovery.slices()
        next(slices)
        for each in sent[300:]:
            harness.accept(each, harness.queue)
        assert list(slices) == []
        assert harness.at_hand() == sent


def test_the_oldest_is_evicted_first_whatever_arrived_in_the_middle(path: Path) -> None:
    with earlier(path) as process:
        for number in range(300):
            process.accept(message(number % 2))
    with later(path) as harness:
        harness.queue.use(queue_policy(queue={"on_full": "evict"}))
        slices = harness.recovery.slices()
        next(slices)
        newest = harness.accept(message(), harness.queue)
        assert list(slices) == []
        order = [delivery.seq for delivery in harness.queue._waiting_up_to(6)]
        assert order == [*range(1, 301), newest.seq]


def test_messages_of_a_flow_share_their_attributes(path: Path) -> None:
    """A million of them would not fit into memory otherwise."""
    with earlier(path) as process:
        for _ in range(3):
            process.accept(message(payload=b"x"))
    with later(path) as harness:
        harness.run()
        waiting = harness.queue.waiting()
        assert len({id(delivery.message.attributes) for delivery in waiting}) == 1


def test_payloads_beyond_the_memory_stay_in_the_journal(path: Path) -> None:
    with earlier(path) as process:
        for number in range(3):
            process.accept(message(payload=b"%d" % number * 1000))
    with journaled(path, memory_bytes=2000) as held:
        harness = RecoveryHarness(held)
        harness.run()
        waiting = list(harness.queue.waiting())
        assert [delivery.spilled for delivery in waiting] == [False, True, True]
        assert [delivery.message is delivery.received.message for delivery in waiting] == [True] * 3
