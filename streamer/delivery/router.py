"""The router: one ingress and one egress per endpoint, one queue per route, and the table that connects them.

It is synchronous: everything happens in calls from transports and from the tick, on the event loop. Only starting, stopping
and changing listeners wait for anything.
"""

import asyncio
import logging
import random as _random
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import NamedTuple, Protocol

from streamer.clock import Clock
from streamer.config.models import Config, QueuePolicy
from streamer.delivery.custody.custody import Custody
from streamer.delivery.custody.flush_times import Later
from streamer.delivery.custody.unconfirmed import UnconfirmedStore
from streamer.delivery.inbound.ingress import Ingress
from streamer.delivery.inbound.listening import Listening
from streamer.delivery.inbound.receiving import Receiving
from streamer.delivery.inbound.recovery import Recovery
from streamer.delivery.inbound.redrive import Redrive
from streamer.delivery.inbound.source_clocks import SourceClock
from streamer.delivery.inbound.step import MakeStep
from streamer.delivery.inbound.tokens import Tokens
from streamer.delivery.lanes.queue import RouteQueue
from streamer.delivery.observers import OutcomeObserver
from streamer.delivery.outbound.egress import Egress
from streamer.delivery.outcomes.failure_notices import FailureNotices, NoticeOptions
from streamer.delivery.outcomes.settle import NO_ROUTE, Settler
from streamer.delivery.pump import Pump
from streamer.delivery.seen import SeenIds
from streamer.delivery.stats import EndpointAccount, RouteAccount, RouterAccount, RouteStats
from streamer.journal.entries import JournalError
from streamer.journal.journal import Journal
from streamer.routing.interest import Interest, InterestObserver
from streamer.routing.pause_rules import PauseRules
from streamer.routing.table import FlowKey, RoutingTable
from streamer.transports.base import NO_BYTES, ByteCounts, LinkState, UTransport
from streamer.transports.local import LocalTransport
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import LOCAL_ENDPOINT, USTREAMER

logger = logging.getLogger("ustreamer.router")

TICK_S = 0.05
_UNCONFIRMED_REST_S = 0.1  # between ticks while messages are unconfirmed: a tick costs more than a message
_IDLE_REST_S = 1.0
_UNCONFIRMED_BYTES = 64 * 1024 * 1024  # without a journal
_SMALL_BACKLOG_MESSAGES = 2000  # looked through at every tick
_SELDOM_S = 0.5  # between rare tasks of the tick
_SET_BACK_S = 1.0


class Task(Protocol):
    """Work that a router goes on with every half second while there is some, until it drains."""

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to do, now or soon."""

    def go_on(self, router: "Router") -> None:
        """Do what is due, without waiting, and not too much at once."""


class Additions(NamedTuple):
    """The parts that features add to a router, which does not know whose they are.

    ``observers`` of outcomes; ``steps`` that each batch passes where it arrives; ``gates`` that all have to be open for
    anything to be sent; observers of the ``interest`` in topics; ``tasks`` of the tick; whether another streamer of this
    authority hears the same networks (``is_not_alone``); on ``standby``: `Router.standby`.
    """

    observers: tuple[OutcomeObserver, ...] = ()
    steps: tuple[MakeStep, ...] = ()
    gates: tuple[Callable[[], bool], ...] = ()
    interest: tuple[InterestObserver, ...] = ()
    tasks: tuple[Task, ...] = ()
    is_not_alone: bool = False
    standby: Callable[[], str | None] | None = None

    def plus(self, other: "Additions") -> "Additions":
        """Return these and what another feature adds, behind them. At most one of them goes on standby."""
        return Additions(
            self.observers + other.observers,
            self.steps + other.steps,
            self.gates + other.gates,
            self.interest + other.interest,
            self.tasks + other.tasks,
            self.is_not_alone or other.is_not_alone,
            self.standby or other.standby,
        )


_NOTHING = Additions()


class Router:
    """Routes messages between the transports of the endpoints, as the configuration says."""

    def __init__(
        self,
        config: Config,
        transports: dict[str, UTransport],
        clock: Clock,
        random: Callable[[], float] = _random.random,
        later: Later | None = None,
        journal: Journal | None = None,
        additions: Additions = _NOTHING,
    ) -> None:
        self.clock = clock
        self.journal = journal
        self.transports = transports
        self.seen = SeenIds(config.remember.ids, config.remember.seconds, clock.monotonic_s())
        self.interest = Interest()
        self.pause_rules = PauseRules()
        self.is_draining = False  # or about to: the daemon sets it when it is asked to stop
        self._additions = additions
        self._is_registered = False
        self._tokens = Tokens()
        self._tokens.use(config.permissions)
        self.pump = Pump(clock, additions.gates)
        self.set_backs = 0  # how often the wall clock was set back
        self._zero_s = clock.wall_ms() / 1000 - clock.monotonic_s()  # when the monotonic clock was 0, by the wall clock
        memory_bytes = 0 if config.journal is None else config.journal.memory
        self._later = later or asyncio.get_running_loop().call_later
        self.custody = Custody(self._later, clock, self.seen, journal, memory_bytes, self._has_waiting_source)
        self.observers = list(additions.observers)
        self.notices = FailureNotices(NoticeOptions.of(config), self.custody, clock, self.observers)
        self.settler = Settler(clock, self.seen, self.custody, self.notices, self.observers)
        self.settler.log.use(config.log)
        self._random = random
        self.egresses: dict[str, Egress] = {}
        self.ingresses: dict[str, Ingress] = {}
        for name, transport in transports.items():
            self.add_endpoint(name, transport, config)
        self.redrive = Redrive(self.ingresses, self.custody, clock, self.pump)
        self.listening = Listening(transports, self.ingresses, self.interest, is_not_alone=additions.is_not_alone)
        self._policy = config.queue_policy
        self._recovery: Recovery | None = None  # while it is not complete
        self._queues: dict[str, RouteQueue] = {}
        self._retired: list[RouteQueue] = []
        self._seldom_s = clock.monotonic_s() + _SELDOM_S
        self._changed_interest: dict[UUri, None] = {}
        self.table = self.table_of(config, transports)
        self._use_table()

    def add_endpoint(self, name: str, transport: UTransport, config: Config) -> None:
        """Add an endpoint. No route leads there before the next table is used."""
        self.transports[name] = transport
        store = self._new_store(name, transport)
        egress = self.egresses[name] = Egress(
            name, transport, self.settler, self.custody, self.clock, self._random, self.pump, store, self.pause_rules
        )
        authorities = () if name == LOCAL_ENDPOINT else tuple(config.endpoints[name].authorities)
        for queue in self.notices.add_endpoint(name, egress, authorities, transport.options.addresses_publishes):
            egress.add_queue(queue)
        receiving = Receiving(name, transport, self._later, self.clock)
        self.ingresses[name] = Ingress(
            name,
            transport.context.flows,
            receiving,
            self.settler,
            self.seen,
            self.clock,
            self.custody,
            self.pump,
            self.interest,
            self._tokens,
            egress.request_answered,
            self._additions.steps,
        )
        if name != LOCAL_ENDPOINT:
            self.ingresses[name].counts_ttl_from_arrival = config.endpoints[name].ttl_clock == "arrival"

    def replace_transport(self, name: str, transport: UTransport) -> None:
        """Use another transport for an endpoint from now on. The earlier one has stopped."""
        stats = self.ingresses[name].stats
        stats.replaced_wire_bytes = stats.replaced_wire_bytes.plus(self.transports[name].report().wire_bytes or NO_BYTES)
        self.transports[name] = transport
        egress = self.egresses[name]
        egress.use_transport(transport, egress.store or self._new_store(name, transport))
        self.ingresses[name].reopen(transport)

    def remove_endpoint(self, name: str) -> None:
        """Remove an endpoint whose lanes are empty."""
        egress = self.egresses.pop(name)
        ingress = self.ingresses.pop(name)
        ingress.misrouted.end()
        self.pump.remove_egress(egress)
        self.pump.remove_ingress(ingress)
        if egress.store is not None:
            self.custody.remove_store(egress.store)
        self.notices.remove_endpoint(name)
        self._retired = [queue for queue in self._retired if queue.target != name]
        del self.transports[name]

    def _new_store(self, name: str, transport: UTransport) -> UnconfirmedStore | None:
        """Return a store for unconfirmed messages; None without a journal if the network confirms."""
        if not transport.unconfirmed_s and self.journal is None:
            return None
        blocks_when_full = self.journal is not None
        store = UnconfirmedStore(
            name, transport.unconfirmed_s, _UNCONFIRMED_BYTES, self.custody, self.seen, blocks_when_full
        )
        self.custody.add_store(store)
        return store

    def table_of(self, config: Config, transports: Mapping[str, UTransport]) -> RoutingTable:
        """Return the routing table of a configuration whose endpoints have these transports."""
        addressed = [name for name, transport in transports.items() if transport.options.addresses_publishes]
        core = self.transports.get(LOCAL_ENDPOINT)
        entities = core.entities if isinstance(core, LocalTransport) else ()
        return RoutingTable.from_config(config, addressed, entities)

    def _use_table(self) -> None:
        """Give every route of the table a queue, and every ingress the table.

        The route between two endpoints keeps its queue, also if it was removed meanwhile or has another name now, because
        the messages in the queue go before new ones.
        """
        before = {(queue.name, queue.source, queue.target): queue for queue in (*self._retired, *self._queues.values())}
        between = {names[1:]: names for names in before}
        kept: dict[str, RouteQueue] = {}
        for route in (*self.table.routes, *self.table.inner):
            names = (route.name, route.source, route.target)
            old = before.pop(names if names in before else between.get(names[1:], names), None)
            queue = kept[route.name] = old or self._new_queue(*names, route.policy)
            queue.rename(route.name)
            queue.use(route.policy, self.table.named(route.source))
        self._retired = list(before.values())
        self._queues = kept
        for egress in self.egresses.values():
            egress.apply_policies()
        for ingress in self.ingresses.values():
            ingress.use(
                self.table,
                {route.name: (kept[route.name], self.egresses[route.target]) for route in self.table.all_from(ingress.name)},
            )

    def _new_queue(self, name: str, source: str, target: str, policy: QueuePolicy) -> RouteQueue:
        egress = self.egresses[target]
        has_journal, number, named = self.journal is not None, self.custody.number, self.table.named(source)
        queue = RouteQueue(name, source, target, policy, RouteStats(), egress, number, has_journal, named)
        egress.add_queue(queue)
        return queue

    def start_recovery(self) -> None:
        """Prepare `recover`, because the journal is open."""
        assert self.journal is not None
        self._recovery = Recovery(
            self.journal,
            self.custody,
            self.settler,
            self.seen,
            self.clock,
            self._queue_for,
            self.egresses,
            {name: ingress.unrouted for name, ingress in self.ingresses.items()},
        )

    def recover(self) -> Generator[None]:
        """Put messages of an earlier process into lanes, some at each step. Nothing is sent until all are there.

        To be called before `start`, if possible. The steps end early if the journal cannot be read now, or cannot take all
        dead letters at once: call it again, as long as there is a `recovery_progress`.
        """
        if self._recovery is None:
            return
        self.pump.is_suspended = not self._recovery.has_passed
        try:
            yield from self._recovery.slices()
            if self._recovery.is_complete:
                self._set_back((self._recovery.latest_ms - self.clock.wall_ms()) / 1000)
                self._recovery = None
        except JournalError as exc:
            logger.error("recovery_interrupted error=%s", exc, extra={"state": ("recovery", "interrupted")})
        finally:
            self.pump.is_suspended = False
            self.pump.run()

    @property
    def recovery_progress(self) -> str:
        """How much of the journal is in lanes again, as text; empty once everything is."""
        if self._recovery is None or self.journal is None:
            return ""
        return f"recovering {self._recovery.entries} of {self.journal.entries_found} journal entries"

    def _queue_for(self, name: str, source: str, target: str) -> RouteQueue | None:
        """Return the queue of the route on which an earlier process accepted a message.

        If that route is gone: the queue of a route with the same flows, so that they stay in order, between the same
        endpoints or with the same name and target; else a new queue. None: the endpoint ``target`` is gone.
        """
        if target not in self.egresses:
            return None
        for queue in self.egresses[target].queues:
            if (queue.name, queue.source) == (name, source):
                return queue
        there = [queue for queue in self._queues.values() if queue.target == target]
        alike = [queue for queue in there if queue.source == source] or [queue for queue in there if queue.name == name]
        if alike:
            return alike[0]
        queue = self._new_queue(name, source, target, self._policy)
        self._retired.append(queue)
        return queue

    async def start(self) -> None:
        """Authenticate with the transports, register the listeners, connect, as far as `listen_in` has not done it."""
        has_listened = self.listening.is_standby
        self.listening.is_standby = False
        await self._register()
        for transport in self.transports.values():
            if not (has_listened and transport.shared is not None):
                await transport.start()

    async def listen_in(self) -> None:
        """Connect to the shared networks only, and register only listeners that cannot be taken for a receiver."""
        self.listening.is_standby = True
        await self._register()
        for transport in self.transports.values():
            if transport.shared is not None:
                await transport.start()

    def standby(self) -> str | None:
        """Return None if the streamer works, else why it could not work at once; empty if it could."""
        return None if self._additions.standby is None else self._additions.standby()

    async def _register(self) -> None:
        if not self._is_registered:
            self._is_registered = True
            await self._tokens.read()
            for transport in self.transports.values():
                await transport.authenticate(USTREAMER.at(self.table.authority))
        await self.listening.use(self.table)
        await self.listening.leave(self.table)

    async def prepare(self, config: Config) -> None:
        """Read the files of a configuration that `use` needs."""
        await self._tokens.prepare(config.permissions)

    def use(self, config: Config, table: RoutingTable) -> None:
        """Use another table and configuration. The endpoints are those of the table, or about to be removed."""
        self.table = table
        self._policy = config.queue_policy
        self.seen.resize(config.remember.ids, config.remember.seconds)
        self.settler.log.use(config.log)
        self._tokens.use(config.permissions)
        self.notices.use(NoticeOptions.of(config), table.authorities, table.addressed)
        for name, endpoint in config.endpoints.items():
            if name in self.ingresses:
                self.ingresses[name].counts_ttl_from_arrival = endpoint.ttl_clock == "arrival"
        self._use_table()

    def replace_observer(self, old: OutcomeObserver | None, new: OutcomeObserver | None) -> None:
        """Report every outcome to ``new`` instead of ``old`` from now on; None: to none."""
        if old is not None:
            self.observers.remove(old)
        if new is not None:
            self.observers.append(new)

    def set_interest(self, topic: UUri, interested: Mapping[str, int], owner: str, is_new: bool = False) -> None:
        """Set which authorities are interested in ``topic``, each with its sample period in ms, as far as ``owner`` knows.

        ``is_new``: subscribers have come or gone, and those who have come may get the last value.

        From the next cycle of the event loop on, the topic is subscribed to where it is published, and forwarded to them.
        """
        before = self.interest.at(topic)
        if self.interest.change(topic, interested, owner):
            for observer in self._additions.interest:
                observer.interest_changed(topic, before, is_new)
            self.listening.change(topic)
            if not self._changed_interest:
                asyncio.get_running_loop().call_soon(self._use_interest)
            self._changed_interest[topic] = None

    def apply_pause_rules(self) -> None:
        """Hold the flows that `pause_rules` match now, and release the others."""
        for egress in self.egresses.values():
            egress.apply_pause_rules()

    def paused_flows(self) -> Iterator[tuple[FlowKey, int]]:
        """Return every paused flow that has a lane, with the number of messages that wait in it."""
        return ((lane.key, lane.waiting_messages) for queue in self.queues() for lane in queue.paused_lanes())

    def _use_interest(self) -> None:
        topics, self._changed_interest = self._changed_interest, {}
        for ingress in self.ingresses.values():
            ingress.interest_changed(topics)
        for observer in self._additions.interest:
            observer.interest_used(self.interest)
        self.pump.send()

    def link_changed(self, endpoint: str, state: LinkState) -> None:
        """Send, if an endpoint's link is up now. The endpoint may be about to be added, or have been removed."""
        if state is LinkState.UP and endpoint in self.egresses:
            self.egresses[endpoint].pump(self.clock.wall_ms())

    def node_changed(self, endpoint: str, is_there: bool) -> None:
        """Handle that a node of an endpoint's network was lost, or has joined (``is_there``)."""
        if endpoint in self.egresses:
            self.egresses[endpoint].node_changed(is_there)

    def rest_s(self) -> float:
        """Return for how many seconds `tick` has nothing to do, unless `Custody.until_flushed` returns True earlier."""
        egresses = self.egresses.values()
        is_waiting = self.is_draining or self._recovery is not None or self.redrive.is_waiting
        is_waiting |= any(task.is_waiting for task in self._additions.tasks)
        is_waiting |= any(ingress.has_backlog or len(ingress.misrouted) for ingress in self.ingresses.values())
        is_waiting |= any(queue.messages for egress in egresses for queue in egress.queues)
        if is_waiting or any(egress.store is not None and egress.store.is_redelivering for egress in egresses):
            return 0.0
        return _UNCONFIRMED_REST_S if any(egress.unsettled() for egress in egresses) else _IDLE_REST_S

    def extend_waits(self, for_s: float) -> None:
        """Let unconfirmed messages wait ``for_s`` longer, because the process did not run for so long."""
        for store in [egress.store for egress in self.egresses.values() if egress.store is not None]:
            store.extend_waits(for_s)

    def tick(self) -> None:
        """Do everything that depends on the time; to be called every `TICK_S`, or after `rest_s`."""
        now_s, now_ms = self.clock.monotonic_s(), self.clock.wall_ms()
        earlier_s, self._zero_s = self._zero_s, now_ms / 1000 - now_s
        self._set_back(earlier_s - self._zero_s)
        if is_seldom := now_s >= self._seldom_s:
            self._seldom_s = now_s + _SELDOM_S
        self.settler.tick(now_s)
        for ingress in self.ingresses.values():
            # Looking through a large backlog at every tick would cost too much.
            if (
                ingress.has_backlog
                and (len(ingress.backlog) <= _SMALL_BACKLOG_MESSAGES or is_seldom)
                and ingress.expire_backlog()
            ):
                self._seldom_s = now_s  # there is more
            ingress.tick(now_s)
        for egress in self.egresses.values():
            egress.tick(now_s, now_ms)
        for queue in [queue for queue in self._retired if not queue.messages and not queue.unconfirmed]:
            self._retired.remove(queue)
            self.egresses[queue.target].remove_queue(queue)
        if is_seldom:
            if self.journal is not None:
                self.journal.tick()
            self._tokens.refresh(now_s)
            self.redrive.go_on()
            if not self.is_draining:
                for task in self._additions.tasks:
                    if task.is_waiting:
                        task.go_on(self)
                        self.pump.run()

    def _set_back(self, back_s: float) -> None:
        """Set deadlines anew if the wall clock is so many seconds behind. NTP sets it back by less all the time."""
        if back_s >= _SET_BACK_S:
            self.set_backs += 1
            for queue in self.queues():
                queue.deadlines.clock_set_back()
            consequence = "TTLs count from the arrival where an id is more than a day ahead now"
            logger.warning("clock_set_back seconds=%.0f consequence=%s", back_s, consequence)

    def queues(self) -> list[RouteQueue]:
        """Return the queues of every route, of removed routes that still have messages, and of the failure notices."""
        return [*self._queues.values(), *self._retired, *self.notices.queues()]

    def accounts(self) -> Iterator[RouteAccount]:
        """Yield the accounts of every route, of the failure notices, and of messages that no route takes.

        Each is made when it is asked for, and balances.
        """
        queues, ingresses = self.queues(), list(self.ingresses.items())
        for queue in queues:
            yield queue.account(self.clock.monotonic_s())
        for name, ingress in ingresses:
            yield RouteAccount(NO_ROUTE, name, "", ingress.unrouted, 0, 0, 0.0)

    def endpoint_accounts(self) -> list[EndpointAccount]:
        """Return the account of every endpoint."""
        return [
            EndpointAccount(
                name,
                transport.kind,
                self.ingresses[name].stats,
                len(self.ingresses[name].backlog),
                egress.in_flight,
                transport.link,
                [*report.problems, *egress.problems()],
                report.figures,
                transport.errors,
                0 if egress.store is None else egress.store.unconfirmed_bytes,
                egress.store.max_bytes if egress.store is not None and transport.unconfirmed_s else None,
                ByteCounts(egress.sent_payload_bytes, self.ingresses[name].stats.received_payload_bytes),
                _plus(self.ingresses[name].stats.replaced_wire_bytes, report.wire_bytes),
            )
            for name, transport in self.transports.items()
            for egress, report in ((self.egresses[name], transport.report()),)
        ]

    def _has_waiting_source(self, now_s: float) -> bool:
        return any(each.awaits_acknowledgements(now_s) for each in self.transports.values())

    def source_clocks(self) -> Iterator[tuple[str, SourceClock]]:
        """Yield what is known of the clocks of sources, with the endpoint where their messages arrive."""
        now_s = self.clock.monotonic_s()
        for name, ingress in self.ingresses.items():
            if name == LOCAL_ENDPOINT:
                continue
            for clock in ingress.source_clocks.read(now_s):
                yield name, clock

    def account(self) -> RouterAccount:
        """Return the router's counters that are in no account of a route or endpoint."""
        return RouterAccount(
            len(self.seen),
            len(self.interest.topics()),
            self.listening.refused,
            len(self.pause_rules),
            self.custody.payloads.spilled,
            self.redrive.count,
            self.notices.made,
            self.notices.suppressed,
            self._tokens.problem,
        )

    def unsettled(self) -> int:
        """Return how many deliveries have no outcome yet."""
        return sum(egress.unsettled() for egress in self.egresses.values())


def _plus(before: ByteCounts, now: ByteCounts | None) -> ByteCounts | None:
    """Return what an endpoint has carried, by earlier transports and by the present one; None if nothing is known."""
    return before.plus(now or NO_BYTES) if now is not None or any(before) else None
