"""The store against a model: whatever happens, every message ends once, and what may be lost does not count as delivered.

A message is *sent*, and may then be *aside* (a node was lost) or *suspect* (it has to be sent again). It ends as confirmed,
ended (it was sent often enough) or lost, or is in its lane again.
"""

from enum import Enum

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamer.delivery.custody.unconfirmed import MAX_RETURNS
from streamer.delivery.custody.unconfirmed_batch import LaneSummary, UnconfirmedBatch
from streamer.delivery.lanes.lane import Lane
from streamer.journal.entries import JournalError
from tests.unit.delivery.custody.unconfirmed_harness import ABSENT_S, UNCONFIRMED_S, StoreHarness
from tests.unit.delivery.fake_observer import ids_in
from tests.unit.delivery.messages import message

FLOWS = range(2)
flows = st.sampled_from(FLOWS)


class Is(Enum):
    """What the model knows of a message."""

    WAITING = "waiting"
    SENT = "sent"
    ASIDE = "aside"
    SUSPECT = "suspect"
    CONFIRMED = "confirmed"
    ENDED = "ended"
    LOST = "lost"


UNCONFIRMED = (Is.SENT, Is.ASIDE, Is.SUSPECT)


class Network(RuleBasedStateMachine):
    """Two flows over a network that does not confirm, and a journal that may not be readable."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = StoreHarness(max_bytes=1)
        self.known: dict[bytes, Is] = {}
        self.flow: dict[bytes, int] = {}
        self.order: list[bytes] = []  # of acceptance
        self.since_s: dict[bytes, float] = {}  # when it was sent, or set aside
        self.returns: dict[bytes, int] = {}
        self.being_stored: list[UnconfirmedBatch] = []

    def of(self, *states: Is, flow: int | None = None) -> list[bytes]:
        return [uuid for uuid in self.order if self.known[uuid] in states and flow in (None, self.flow[uuid])]

    @rule(flow=flows, count=st.integers(1, 4), unsent=st.integers(0, 1))
    def accept_and_send(self, flow: int, count: int, unsent: int) -> None:
        for _ in range(count):
            (delivery,) = self.harness.accept(message(flow, payload=b"x" * count))
            uuid = delivery.message.id
            self.known[uuid], self.flow[uuid], self.returns[uuid] = Is.WAITING, flow, 0
            self.order.append(uuid)
        self.send(flow, count - unsent)

    @rule(flow=flows, count=st.integers(1, 4))
    def send(self, flow: int, count: int) -> None:
        for sent in self.harness.send_waiting(self.harness.lane(flow), count):
            assert self.known[sent.id] is Is.WAITING
            suspects = self.of(Is.SUSPECT, flow=flow)
            assert all(self.order.index(sent.id) < self.order.index(uuid) for uuid in suspects)
            self.known[sent.id], self.since_s[sent.id] = Is.SENT, self.harness.clock.s

    @rule()
    def store(self) -> None:
        """Begin to store batches, or end that."""
        if self.being_stored:
            batches, self.being_stored = self.being_stored, []
            self.harness.stored(batches)
        else:
            self.being_stored = self.harness.take_unstored()

    @rule(flow=flows)
    def nobody_listens(self, flow: int) -> None:
        lane = self.harness.lane(flow)
        for summary in self.harness.store.redeliver(lane, self.harness.clock.s):
            for uuid in self.ids_of(lane, summary):
                assert (self.known[uuid], self.returns[uuid]) == (Is.SENT, MAX_RETURNS)
                self.known[uuid] = Is.ENDED
        for uuid in self.of(Is.SENT, Is.ASIDE, flow=flow):
            self.known[uuid] = Is.SUSPECT
            self.returns[uuid] += 1
            assert self.returns[uuid] <= MAX_RETURNS

    @rule(flow=flows)
    def interrupted(self, flow: int) -> None:
        assert self.harness.store.redeliver(self.harness.lane(flow), self.harness.clock.s, has_listener=True) == []
        for uuid in self.of(Is.SENT, Is.ASIDE, flow=flow):
            if self.returns[uuid] < MAX_RETURNS:
                self.known[uuid] = Is.SUSPECT
                self.returns[uuid] += 1

    @rule()
    def node_lost(self) -> None:
        self.harness.store.node_lost(self.harness.clock.s)
        for uuid in self.of(Is.SENT):
            if self.returns[uuid] < MAX_RETURNS:
                self.known[uuid], self.since_s[uuid] = Is.ASIDE, self.harness.clock.s

    @rule()
    def node_came(self) -> None:
        self.harness.store.node_came()
        for uuid in self.of(Is.ASIDE):
            self.known[uuid] = Is.SUSPECT
            self.returns[uuid] += 1

    @rule(seconds=st.sampled_from((UNCONFIRMED_S / 2, UNCONFIRMED_S, ABSENT_S)))
    def time_passes(self, seconds: float) -> None:
        for lane, summary in self.harness.confirmed(seconds):
            for uuid in self.ids_of(lane, summary):
                wait_s = {Is.SENT: UNCONFIRMED_S, Is.ASIDE: ABSENT_S}[self.known[uuid]]
                assert self.harness.clock.s - self.since_s[uuid] >= wait_s - 1e-6
                self.known[uuid] = Is.CONFIRMED

    @rule(seconds=st.sampled_from((0.0, UNCONFIRMED_S / 2)))
    def the_network_says_what_has_arrived(self, seconds: float) -> None:
        until_s = self.harness.clock.s - seconds
        for lane, summary in self.harness.confirmed(0, until_s):
            for uuid in self.ids_of(lane, summary):
                assert self.known[uuid] is Is.SENT
                assert self.since_s[uuid] <= until_s
                self.known[uuid] = Is.CONFIRMED
        if not seconds:
            assert self.of(Is.SENT) == []

    @rule(flow=flows, is_readable=st.booleans(), whole=st.booleans())
    def refill(self, flow: int, is_readable: bool, whole: bool) -> None:
        lane = self.harness.lane(flow)
        self.harness.keeper.fails = not is_readable
        try:
            lost = self.harness.store.refill(lane, whole)
        except JournalError:
            lost = []
        self.harness.keeper.fails = False
        for summary in lost:
            for uuid in self.ids_of(lane, summary):
                assert self.known[uuid] is Is.SUSPECT
                self.known[uuid] = Is.LOST
        for delivery in self.harness.keeper.back:
            uuid = delivery.message.id
            assert self.known[uuid] is Is.SUSPECT
            self.known[uuid] = Is.WAITING
        self.harness.keeper.back.clear()

    @precondition(lambda self: self.harness.keeper.bodies)
    @rule(data=st.data())
    def a_body_is_damaged(self, data: st.DataObject) -> None:
        bodies = self.harness.keeper.bodies
        del bodies[data.draw(st.sampled_from(list(bodies)))]

    def ids_of(self, lane: Lane, summary: LaneSummary) -> list[bytes]:
        ids = ids_in(summary.records)
        assert len(ids) == summary.count
        assert {self.harness.lane(self.flow[uuid]) for uuid in ids} == {lane}
        return ids

    @invariant()
    def the_counts_are_exact(self) -> None:
        assert self.harness.queue.unconfirmed == len(self.of(*UNCONFIRMED))
        assert self.harness.queue.messages == len(self.of(Is.WAITING))
        assert self.harness.store.is_full == bool(self.of(Is.SENT, Is.ASIDE))
        for flow in FLOWS:
            lane = self.harness.lane(flow)
            assert lane.unconfirmed == len(self.of(*UNCONFIRMED, flow=flow))
            assert [delivery.message.id for delivery in lane.waiting()] == self.of(Is.WAITING, flow=flow)

    def teardown(self) -> None:
        """Send everything that can be sent again, then let enough time pass."""
        for flow in FLOWS:
            self.refill(flow, True, True)
            self.send(flow, len(self.order))
        while self.being_stored or self.harness.store.has_unstored:
            self.store()
        self.time_passes(ABSENT_S)
        assert self.of(*UNCONFIRMED, Is.WAITING) == []
        assert all(received.acknowledged for received in self.harness.receipts)
        assert self.harness.is_empty


TestNetwork = Network.TestCase
TestNetwork.settings = settings(stateful_step_count=40, deadline=None)
