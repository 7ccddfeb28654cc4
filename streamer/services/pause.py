"""Dispatch control: stop and start the dispatching of topics, for whoever asks and however.

One way for all callers: RPC on core.ustreamer, HTTP on the admin port, and through that the command line. What is stopped is
on disk before it is answered, and is stopped again after a restart.

To be wired: `SCHEMA` goes to `State.open`, `restore` is called after that and before the router recovers or starts, the
router's egresses get the same `Stops`, ``apply`` calls `Egress.apply_stops` of each, ``flows`` gives `Egress.stopped_lanes`
of each as their keys and the messages that wait. `close` comes before the state is closed. Other methods of core.ustreamer
are added to ``service``.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, NamedTuple

from google.protobuf.message import Message

from streamer.config.services import Control as Options
from streamer.delivery.lane import FlowKey
from streamer.routing.pause_rules import RULES_AT_MOST, Rule, RuleError, Stops
from streamer.services.rpc import Method, RpcService
from streamer.services.state import State, StateError, Statement
from streamer.transports.local import Core
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto, uri_to_proto
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import ANY_UE_ID, ANY_VERSION, UUri

STOP, START, FETCH = 1, 2, 3
"""The methods' resource ids."""

UE_ID, VERSION = 4, 1

_PAGE = 250  # entries of one answer: below 100 kB
_ALL = "SELECT source, sink FROM dispatch_stops ORDER BY number"

logger = logging.getLogger("ustreamer.control")

Flows = Callable[[], Iterable[tuple[FlowKey, int]]]
"""Every flow that is stopped now and has a lane, with the number of messages that wait in it."""


class Stopped(NamedTuple):
    """A rule, the lanes that it stops, and the messages that wait in them."""

    rule: Rule
    lanes: int
    messages: int


class Control:
    """Keeps the rules: ``stops`` in memory, and the same on disk."""

    SCHEMA: ClassVar[tuple[str, ...]] = (
        """CREATE TABLE IF NOT EXISTS dispatch_stops (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            source TEXT NOT NULL,
            sink TEXT NOT NULL,
            UNIQUE (source, sink)
        )""",
    )

    def __init__(
        self,
        core: Core,
        state: State,
        stops: Stops,
        options: Options,
        local: Sequence[str],
        authority: str,
        apply: Callable[[], None],
        flows: Flows = lambda: (),
    ) -> None:
        """``local`` are the authorities whose uEntities may ask over uProtocol, if ``options`` do not say."""
        self._state = state
        self._stops = stops
        self._authority = authority
        self._apply = apply
        self._flows = flows
        self._turn = asyncio.Lock()
        self._is_open = False
        self.use(options, local)
        self.service = RpcService(core, UE_ID, VERSION)
        """The uEntity core.ustreamer."""
        self.service.add(
            {
                STOP: Method(pb.StopDispatchRequest, self._on_stop),
                START: Method(pb.StartDispatchRequest, self._on_start),
                FETCH: Method(pb.FetchStopsRequest, self._on_fetch),
            }
        )

    def use(self, options: Options, local: Sequence[str]) -> None:
        """Who may ask over uProtocol and over HTTP from now on."""
        self.is_open_to_all = options.http == "any"
        allow = options.allow
        self._allow = tuple(UUri(each, ANY_UE_ID, ANY_VERSION, 0) for each in local) if allow is None else tuple(allow)

    def restore(self) -> None:
        """Read the rules from disk, which is open. Raises `StateError`."""
        for rule in _rules_of(self._state.rows(_ALL)):
            self._stops.stop(rule)
        self._is_open = True
        if len(self._stops):
            logger.warning("dispatch_stopped rules=%d since=an_earlier_run", len(self._stops))
        self._apply()

    def close(self) -> None:
        """Change nothing any more: the disk is about to be closed."""
        self._is_open = False

    async def stop(self, rule: Rule) -> bool:
        """Stop what matches a rule; False if the rule was there already. It is on disk afterwards.

        Raises `UStatusError`: RESOURCE_EXHAUSTED if there are too many rules, UNAVAILABLE if the disk is.
        """
        async with self._turn:
            if rule in self._stops:
                return False
            if self._stops.is_full:
                raise UStatusError(
                    UCode.RESOURCE_EXHAUSTED, f"there are {RULES_AT_MOST} rules already; start what need not be stopped"
                )
            await self._write(("INSERT OR IGNORE INTO dispatch_stops (source, sink) VALUES (?, ?)", _row(rule)))
            self._stops.stop(rule)
            self._apply()
        logger.info("dispatch_stopped rule=%s rules=%d", rule, len(self._stops))
        return True

    async def start(self, rule: Rule) -> None:
        """Take away the rule with exactly these words. That is on disk afterwards.

        Raises `UStatusError`: NOT_FOUND if there is no such rule, UNAVAILABLE if the disk is.
        """
        async with self._turn:
            if rule not in self._stops and self._is_open:
                raise UStatusError(UCode.NOT_FOUND, f"no rule stops {rule}; what was stopped is started with the same words")
            await self._write(("DELETE FROM dispatch_stops WHERE source = ? AND sink = ?", _row(rule)))
            self._stops.start(rule)
            self._apply()
        logger.info("dispatch_started rule=%s rules=%d", rule, len(self._stops))

    def rules(self) -> list[Stopped]:
        """Every rule, oldest first, with what waits under it. A message waits under each rule that stops it."""
        lanes = dict.fromkeys(self._stops.rules, 0)
        messages = dict.fromkeys(self._stops.rules, 0)
        for (source, sink), waiting in self._flows():
            for rule in self._stops.all_for(source, sink):
                lanes[rule] += 1
                messages[rule] += waiting
        return [Stopped(rule, lanes[rule], messages[rule]) for rule in self._stops.rules]

    async def _write(self, statement: Statement) -> None:
        if not self._is_open:
            raise UStatusError(
                UCode.UNAVAILABLE, "the streamer begins or ends, or cannot use its state file; nothing has changed"
            )
        try:
            await self._state.write((statement,))
        except StateError as exc:
            logger.error("dispatch_unchanged error=%s", exc)
            raise UStatusError(UCode.UNAVAILABLE, "it cannot be written to disk now; nothing has changed") from exc

    # -- over uProtocol

    async def _on_stop(self, caller: UUri, asked: pb.StopDispatchRequest) -> Message:
        self._check(caller)
        return pb.StopDispatchResponse(changed=await self.stop(_rule(asked)))

    async def _on_start(self, caller: UUri, asked: pb.StartDispatchRequest) -> Message:
        self._check(caller)
        await self.start(_rule(asked))
        return pb.StartDispatchResponse()

    async def _on_fetch(self, caller: UUri, asked: pb.FetchStopsRequest) -> Message:
        self._check(caller)
        found = self.rules()[asked.offset :]
        return pb.FetchStopsResponse(
            stops=[
                pb.DispatchStop(rule=_to_proto(each.rule), lanes=each.lanes, messages=each.messages)
                for each in found[:_PAGE]
            ],
            has_more_records=len(found) > _PAGE,
        )

    def _check(self, caller: UUri) -> None:
        if not any(pattern.matches(caller) for pattern in self._allow):
            raise UStatusError(
                UCode.PERMISSION_DENIED, f"{caller} may not control the dispatching of {self._authority} (control.allow)"
            )


def _rules_of(rows: Iterable[Sequence[str]]) -> Iterable[Rule]:
    for source, sink in rows:
        try:
            yield Rule.parse(source, sink or None)
        except RuleError as exc:  # written by another version, or by hand
            logger.error("rule_unreadable source=%s sink=%s error=%s", source, sink, exc)


def _row(rule: Rule) -> tuple[str, str]:
    return str(rule.source), "" if rule.sink is None else str(rule.sink)


def _rule(asked: pb.StopDispatchRequest | pb.StartDispatchRequest) -> Rule:
    """The rule that a request names. Raises `UStatusError`."""
    given = asked.rule
    if not given.HasField("topic"):
        raise UStatusError(UCode.INVALID_ARGUMENT, "rule.topic: expected a UUri, which may have wildcards")
    try:
        return Rule(uri_from_proto(given.topic), uri_from_proto(given.sink) if given.HasField("sink") else None).check()
    except RuleError as exc:
        raise UStatusError(UCode.INVALID_ARGUMENT, f"rule.{exc}") from exc


def _to_proto(rule: Rule) -> pb.DispatchRule:
    return pb.DispatchRule(topic=uri_to_proto(rule.source), sink=None if rule.sink is None else uri_to_proto(rule.sink))
