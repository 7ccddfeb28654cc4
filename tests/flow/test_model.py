"""The router against a model: whatever happens, in whatever order, nothing is lost, nothing is invented.

Messages arrive in several flows, classes and TTLs; links fail and come back; the destination holds, refuses for now and
for ever; time passes; flows are paused and go on; the configuration is read again; copies arrive. After each step the
books balance, and at the end every message that was accepted has been delivered exactly once or reported as a dead
letter exactly once.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from streamer.config.models import Config
from streamer.delivery.lifecycle.reload import Reload
from streamer.routing.pause_rules import PauseRule
from streamer.transports.base import Done, Parcel, Received
from streamer.transports.errors import PermanentError, RefusedError, SendError
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import Options, UMessage, UMessageType, UPriority, notification, publish
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.protobuf import id_from_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import created_ms
from tests.examples import examples
from tests.flow.harness import CLOUD_APP, RouterHarness, configuration, three_networks
from tests.flow.pausing import pause, resume

FLOWS = [UUri("veh1", 0xA, 1, 0x8000 + n) for n in range(4)]
EVERY_TOPIC = "//veh1/FFFFFFFF/FF/FFFF"


class Recorder:
    """Notes when a message is sent first, and refuses some: payload byte 0 says how often, 255 for ever."""

    def __init__(self, harness: RouterHarness) -> None:
        self.harness = harness
        self.refusals: Counter[bytes] = Counter()
        self.first_sent_ms: dict[bytes, int] = {}
        self.refused_in_flow: set[UUri] = set()

    def submitted(self, message: UMessage) -> None:
        self.first_sent_ms.setdefault(message.id, self.harness.clock.ms)

    def verdict(self, message: UMessage) -> SendError | None:
        times = (message.payload or b"\0")[0]
        if times == 255:
            self.refused_in_flow.add(message.attributes.source)
            return PermanentError(UCode.PERMISSION_DENIED, "never")
        if self.refusals[message.id] < times:
            self.refusals[message.id] += 1
            self.refused_in_flow.add(message.attributes.source)
            return RefusedError(UCode.RESOURCE_EXHAUSTED, "not now")
        return None


class Traffic(RuleBasedStateMachine):
    """One way, vehicle to cloud. Subclasses say what happens at the bound and how wide the flow window is."""

    on_full = "backpressure"
    flow_window = 1000

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.harness = RouterHarness(self.config())
        self.cloud = self.harness.transports["cloud"]
        self.recorder = Recorder(self.harness)
        self.cloud.refuse = self.recorder.verdict
        submit = self.cloud.submit

        def recording(parcels: Sequence[Parcel], done: Done) -> None:
            for parcel in parcels:
                self.recorder.submitted(parcel.message)
            submit(parcels, done)

        self.cloud.submit = recording  # type: ignore[method-assign]
        self.loop.run_until_complete(self.harness.router.start())
        self.arrived: dict[bytes, UMessage] = {}
        self.order: dict[tuple[UMessageType, UUri], list[bytes]] = {}
        self.receipts: dict[bytes, list[MemoryReceived]] = {}
        self.kept: set[bytes] = set()
        self.letters: list[bytes] = []  # ids of the messages that dead letters are about

    def config(self, publish_patterns: bool = True, messages: int = 6) -> Config:
        return configuration(
            routes=[
                {"from": "vehicle", "to": "cloud", "publish": [EVERY_TOPIC] if publish_patterns else []},
                {"from": "cloud", "to": "vehicle"},
            ],
            queue_policy={
                "queue": {"messages": messages, "on_full": self.on_full},
                "window": 4,
                "flow_window": self.flow_window,
                "retry": {"initial_ms": 100, "max_ms": 400, "attempts": 3},
            },
            dead_letter={"queue": {"messages": 100_000}},
        )

    # what happens

    @rule(
        batch=st.lists(
            st.tuples(
                st.integers(0, len(FLOWS) - 1),
                st.booleans(),
                st.sampled_from([UPriority.UNSPECIFIED, UPriority.CS0, UPriority.CS4, UPriority.CS6]),
                st.sampled_from([None, None, None, 0, 50, 1000]),
                st.sampled_from([0, 0, 0, 0, 0, 1, 2, 3, 255]),
            ),
            min_size=1,
            max_size=6,
        )
    )
    def arrive(self, batch: list[tuple[int, bool, UPriority, int | None, int]]) -> None:
        messages = []
        for flow, to_somebody, priority, ttl, refusals in batch:
            options = Options(priority=priority, ttl=ttl)
            payload = bytes([refusals])
            if to_somebody:
                made = notification(self.harness.clock.ms, FLOWS[flow], CLOUD_APP, payload, options)
            else:
                made = publish(self.harness.clock.ms, FLOWS[flow], payload, options)
            messages.append(made)
        self.enter(*messages)

    def enter(self, *messages: UMessage) -> None:
        for message, received in zip(messages, self.harness.arrive("vehicle", *messages), strict=True):
            if message.id not in self.arrived:
                self.arrived[message.id] = message
                flow = (message.attributes.type, message.attributes.source)
                self.order.setdefault(flow, []).append(message.id)
            self.receipts.setdefault(message.id, []).append(received)

    @precondition(lambda self: self.arrived)
    @rule(data=st.data())
    def a_copy_arrives(self, data: st.DataObject) -> None:
        self.enter(self.arrived[list(self.arrived)[data.draw(st.integers(0, len(self.arrived) - 1))]])

    @rule()
    def link_fails(self) -> None:
        self.cloud.lose_link()

    @rule()
    def link_returns(self) -> None:
        self.cloud.restore_link()

    @rule()
    def confirmations_stop(self) -> None:
        self.cloud.is_withholding = True

    @precondition(lambda self: self.cloud._unconfirmed)
    @rule(data=st.data())
    def some_confirmations_come(self, data: st.DataObject) -> None:
        self.cloud.release_withheld(data.draw(st.integers(1, len(self.cloud._unconfirmed))))

    @rule()
    def confirmations_flow_again(self) -> None:
        self.cloud.release_withheld()

    @rule(ms=st.sampled_from([1, 49, 51, 100, 400, 1001]))
    def time_passes(self, ms: int) -> None:
        self.harness.pass_time(ms)

    @rule(ms=st.sampled_from([1, 51, 1001]))
    def time_passes_unnoticed(self, ms: int) -> None:
        self.harness.clock.advance(ms)

    @rule(messages=st.sampled_from([3, 6, 50]))
    def configuration_is_read_again(self, messages: int) -> None:
        self.loop.run_until_complete(Reload(self.harness.router, self.config(messages=messages)).run())

    @rule()
    def route_goes_and_comes_back(self) -> None:
        """Between two files that differ, so that the route is new for the router, and its messages are not."""
        everything = self.config()
        without = everything.model_copy(update={"routes": everything.routes[1:]})
        held = self.waiting_outside()
        if held:  # the backlog would find no route, and rightly be refused
            return
        self.loop.run_until_complete(Reload(self.harness.router, without).run())
        self.harness.check_books()
        self.loop.run_until_complete(Reload(self.harness.router, everything).run())

    def paused(self) -> list[PauseRule]:
        return list(self.harness.router.pause_rules.rules)

    @rule(flow=st.sampled_from(FLOWS), sink=st.sampled_from([None, CLOUD_APP]))
    def flow_is_paused(self, flow: UUri, sink: UUri | None) -> None:
        pause(self.harness.router, flow, sink)

    @precondition(lambda self: self.paused())
    @rule(data=st.data())
    def flow_goes_on(self, data: st.DataObject) -> None:
        resume(self.harness.router, data.draw(st.sampled_from(self.paused())))

    @rule()
    def custody_is_taken(self) -> None:
        self.kept |= {uuid for uuid in self.arrived if uuid not in self.waiting_outside() and not self.ended(uuid)}
        self.harness.router.custody.flush()

    # what must hold

    def waiting_outside(self) -> set[bytes]:
        return {received.message.id for received in self.backlog()}

    def waits_outside(self, received: MemoryReceived) -> bool:
        return any(received is waiting for waiting in self.backlog())

    def backlog(self) -> list[Received]:
        found: list[Received] = []

        def note(received: Received) -> bool:
            found.append(received)
            return False

        self.harness.router.ingresses["vehicle"].backlog.remove(note)  # removes none
        return found

    def delivered(self) -> list[bytes]:
        return [message.id for message in self.cloud.sent]

    def reported(self) -> list[bytes]:
        letters = self.harness.transports["vehicle"].sent
        for letter in letters[len(self.letters) :]:
            self.letters.append(id_from_proto(pb.DeadLetter.FromString(letter.payload or b"").message.attributes.id))
        return self.letters

    def ended(self, uuid: bytes) -> bool:
        return uuid in self.delivered() or uuid in self.reported()

    @invariant()
    def books_balance(self) -> None:
        self.harness.check_books()
        names = [(a.name, a.source, a.target) for a in self.harness.router.accounts()]
        assert len(names) == len(set(names)), "two accounts under one name"

    @invariant()
    def nothing_ends_twice(self) -> None:
        ends = [*self.delivered(), *self.reported()]
        assert len(ends) == len(set(ends))
        assert self.arrived.keys() >= set(ends)

    @invariant()
    def sources_hear_when_it_is_settled_and_not_before(self) -> None:
        ended = set(self.delivered()) | set(self.reported())
        for uuid, receipts in self.receipts.items():
            if uuid in ended:  # a copy that still waits outside is found to be one when its turn comes
                assert all(received.acknowledged for received in receipts if not self.waits_outside(received))
            elif uuid not in self.kept:
                # Of copies that wait outside only the youngest counts: the others are worth nothing to their source.
                assert not receipts[-1].acknowledged

    @invariant()
    def nothing_is_sent_first_after_its_ttl(self) -> None:
        for uuid, sent_ms in self.recorder.first_sent_ms.items():
            message = self.arrived.get(uuid)
            if message is not None and message.attributes.ttl:
                assert sent_ms <= created_ms(uuid) + message.attributes.ttl

    @invariant()
    def what_may_be_sent_is_listed(self) -> None:
        """Else nothing would wake it."""
        for queue in self.harness.router.egresses["cloud"].queues:
            for lane in queue.lanes.values():
                assert lane.ready_class >= 0 or not lane.is_ready

    @invariant()
    def bounds_hold(self) -> None:
        egress = self.harness.router.egresses["cloud"]
        assert egress.in_flight <= 4
        assert self.harness.queued("vehicle-cloud") <= 50

    @invariant()
    def order_is_kept(self) -> None:
        delivered = self.delivered()
        place = {uuid: number for number, uuid in enumerate(delivered)}
        for (_, source), uuids in self.order.items():
            if self.flow_window > 1 and source in self.recorder.refused_in_flow:
                continue
            places = [place[uuid] for uuid in uuids if uuid in place]
            assert places == sorted(places)

    def teardown(self) -> None:
        try:
            self.cloud.restore_link()
            self.cloud.release_withheld()
            for paused in self.paused():
                resume(self.harness.router, paused)
            for _ in range(200):
                self.harness.pass_time(500)
                if not self.harness.router.unsettled() and not self.waiting_outside():
                    break
            assert self.harness.router.unsettled() == 0
            assert self.waiting_outside() == set()
            ends = Counter(self.delivered()) + Counter(self.reported())
            assert ends == Counter(self.arrived.keys())
            assert all(received.acknowledged for receipts in self.receipts.values() for received in receipts)
            self.books_balance()
            self.order_is_kept()
            self.nothing_is_sent_first_after_its_ttl()
            for message in self.cloud.sent:
                assert message == self.arrived[message.id]
            assert self.harness.router.egresses["cloud"].in_flight == 0
        finally:
            for transport in self.harness.transports.values():
                self.loop.run_until_complete(transport.stop())
            self.loop.close()


@pytest.mark.parametrize("flow_window", [1, 1000])
@pytest.mark.parametrize("on_full", ["backpressure", "reject", "evict"])
def test_nothing_is_lost_and_nothing_invented_whatever_happens(on_full: str, flow_window: int) -> None:
    machine = type("Machine", (Traffic,), {"on_full": on_full, "flow_window": flow_window})
    run_state_machine_as_test(machine, settings=settings(max_examples=examples(25), stateful_step_count=40, deadline=None))


@given(st.lists(st.sampled_from(["cloud", "phone", "arrive", "tick"]), max_size=60))
@example(["cloud", "cloud", *["arrive"] * 5, "tick"])  # two backlogs that handed a message to and fro
@settings(max_examples=examples(100))
def test_backlog_of_two_routes_keeps_its_order_on_both(steps: list[str]) -> None:
    config = three_networks(
        routes=[
            {"from": "vehicle", "to": "cloud", "publish": [EVERY_TOPIC], "queue": {"messages": 2}},
            {"from": "vehicle", "to": "phone", "publish": [EVERY_TOPIC], "queue": {"messages": 3}},
            {"from": "cloud", "to": "vehicle"},
        ]
    )
    asyncio.run(_held_back_for_two_routes(RouterHarness(config), steps))


async def _held_back_for_two_routes(harness: RouterHarness, steps: list[str]) -> None:
    messages: list[UMessage] = []
    async with harness:
        networks = {name: harness.transports[name] for name in ("cloud", "phone")}
        for transport in networks.values():
            transport.is_withholding = True
        for step in ["arrive"] * 6 + steps:
            if step == "arrive":
                messages.append(harness.speed(len(messages).to_bytes(2, "big")))
                harness.arrive("vehicle", messages[-1])
            elif step == "tick":
                harness.pass_time(1)
            elif networks[step]._unconfirmed:
                networks[step].release_withheld(1)
        for transport in networks.values():
            transport.release_withheld()
        harness.pass_time(1)
        assert harness.sent("cloud") == messages
        assert harness.sent("phone") == messages
