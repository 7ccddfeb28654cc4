"""Pause and resume: adds and removes the rules that keep flows from being sent, for callers of all interfaces.

These are RPC on core.ustreamer, HTTP on the admin port and, through that, the command line. A rule is on disk before the
caller gets its answer, and applies again after a restart.

A rule may have an end. The monotonic clock counts the time until then, so that setting the wall clock neither ends a pause
early nor makes it longer. A restart reads from the wall clock how much is left, and never more than was asked for.

Its owner calls `restore` once the journal is open, before the router recovers or starts, then `run`; `close` before
closing the file.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import inf
from typing import ClassVar, NamedTuple

from google.protobuf.message import Message

from streamer.clock import Clock
from streamer.config.metrics import ControlConfig
from streamer.features.host.access import Access, Caller
from streamer.features.host.router import RouterForServices
from streamer.features.host.rpc import Method
from streamer.features.host.service import Service
from streamer.features.host.state import Row, StateError, StateFile, Statement
from streamer.journal.file import HANGS_AFTER_S
from streamer.logs.audit import DENIED, audit
from streamer.routing.pause_rules import MAX_RULES, PauseRule, PauseRuleError
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto, uri_to_proto
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri

PAUSE, RESUME, FETCH = 1, 2, 3
"""Resource ids of the methods."""

MAX_FOR_MS = 366 * 24 * 3_600_000
"""The longest time after which a rule may end."""

_RETRY_S = 60.0  # until the disk takes the end of a rule
_PAGE = 250  # most entries in one response, which stays below 100 kB
_ALL = """SELECT source, sink, until_ms, for_ms FROM dispatch_stops LEFT JOIN dispatch_stop_ends USING (source, sink)
    ORDER BY number"""

logger = logging.getLogger("ustreamer.pause")


class PausedRule(NamedTuple):
    """A rule, the number of lanes that it pauses, and of messages that wait in them. ``left_s``, ``until_ms``: its end."""

    rule: PauseRule
    lanes: int
    messages: int
    left_s: float | None = None
    until_ms: int | None = None


class PauseService(Service):
    """Keeps the rules in the router's memory, and the same on disk."""

    TABLES: ClassVar[Mapping[str, str]] = {
        "dispatch_stops": """CREATE TABLE dispatch_stops (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            source TEXT NOT NULL,
            sink TEXT NOT NULL,
            UNIQUE (source, sink)
        ) STRICT""",
        "dispatch_stop_ends": """CREATE TABLE dispatch_stop_ends (
            source TEXT NOT NULL,
            sink TEXT NOT NULL,
            until_ms INTEGER NOT NULL,
            for_ms INTEGER NOT NULL,
            PRIMARY KEY (source, sink)
        ) STRICT""",
    }

    def __init__(
        self, state: StateFile, router: RouterForServices, options: ControlConfig, access: Access, clock: Clock
    ) -> None:
        """``access`` decides who may call the methods."""
        self._max_rules = options.max_rules
        self._state = state
        self._router = router
        self._pause_rules = router.pause_rules
        self._access = access
        self._clock = clock
        self._ends_s: dict[PauseRule, float] = {}
        """When rules end, on the monotonic clock; also of ended ones that are still on disk."""
        self._ends_changed = asyncio.Event()
        self._added_by: dict[PauseRule, UUri] = {}  # over uProtocol, since the start
        self._lock = asyncio.Lock()
        self._is_open = False

    def restore(self) -> None:
        """Read the rules from disk, and apply them in the router. Raises `StateError`."""
        for rule, left_s in self._state.read(_ALL, self._restored):
            if left_s is not None:
                self._ends_s[rule] = self._clock.monotonic_s() + left_s
            if left_s != 0:
                self._pause_rules.add(rule)
        self._ends_changed.set()
        self._is_open = True
        if len(self._pause_rules):
            logger.warning("pause_rules_restored rules=%d", len(self._pause_rules))
        self._router.apply_pause_rules()

    def _restored(self, row: Row) -> tuple[PauseRule, float | None]:
        """Return a rule from disk, and how long it applies: 0 if its end has passed, None for ever."""
        source, sink, until_ms, for_ms = row
        left_s = None if until_ms is None else min(max(0, until_ms - self._clock.wall_ms()), for_ms) / 1000
        return PauseRule.parse(source, sink or None), left_s

    async def run(self) -> None:
        """Remove rules when they end, until cancelled."""
        while True:
            self._ends_changed.clear()
            await self.end_due()
            left_s = min(self._ends_s.values(), default=None)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if left_s is None else max(0.0, left_s - self._clock.monotonic_s())):
                    await self._ends_changed.wait()

    async def end_due(self) -> None:
        """Remove the rules whose end has come. They no longer apply, even if the disk fails; it is tried again later."""
        for rule in list(self._ends_s):
            async with self._lock:
                now_s = self._clock.monotonic_s()
                if self._ends_s.get(rule, inf) > now_s:
                    continue
                if self._pause_rules.remove(rule):
                    self._added_by.pop(rule, None)
                    self._router.apply_pause_rules()
                    by = Caller(self._access.authority, "the end of the pause")
                    audit("resumed", **by._asdict(), rule=str(rule), rules=len(self._pause_rules))
                try:
                    await self._write(*_deletion(rule))
                except UStatusError:
                    self._ends_s[rule] = now_s + _RETRY_S
                else:
                    del self._ends_s[rule]

    def use(self, options: ControlConfig, access: Access) -> None:
        """Apply other permissions, and another bound of the rules per caller, from now on."""
        self._max_rules = options.max_rules
        self._access = access

    def close(self) -> None:
        """Refuse changes from now on: the caller is about to close the file."""
        self._is_open = False

    async def pause(self, rule: PauseRule, by: Caller, caller: UUri | None = None, for_ms: int | None = None) -> bool:
        """Pause the flows that match a rule; the rule is on disk when this returns. False: nothing has changed.

        ``caller``: the uEntity that requested it over uProtocol, whose number of rules is bounded. ``for_ms``: the time
        until the rule ends, which replaces an earlier end; None: it has no end.

        Raises `UStatusError`: RESOURCE_EXHAUSTED if there are too many rules, UNAVAILABLE if the disk fails.
        """
        async with self._lock:
            is_new = rule not in self._pause_rules
            if not is_new and for_ms is None and rule not in self._ends_s:
                return False
            if is_new and self._pause_rules.is_full:
                raise UStatusError(
                    UCode.RESOURCE_EXHAUSTED, f"there are {MAX_RULES} rules already; resume what need not be paused"
                )
            if is_new and caller is not None and list(self._added_by.values()).count(caller) >= self._max_rules:
                raise UStatusError(
                    UCode.RESOURCE_EXHAUSTED, f"{caller} has {self._max_rules} rules already; resume what need not be paused"
                )
            await self._write(
                ("INSERT OR IGNORE INTO dispatch_stops (source, sink) VALUES (?, ?)", _row(rule)),
                ("DELETE FROM dispatch_stop_ends WHERE source = ? AND sink = ?", _row(rule)),
                *self._end_on_disk(rule, for_ms),
            )
            self._pause_rules.add(rule)
            self._ends_s.pop(rule, None)
            if for_ms is not None:
                self._ends_s[rule] = self._clock.monotonic_s() + for_ms / 1000
            self._ends_changed.set()
            if is_new and caller is not None:
                self._added_by[rule] = caller
            self._router.apply_pause_rules()
        end = "" if for_ms is None else f" for {for_ms / 1000:g} s"
        audit("paused", **by._asdict(), rule=f"{rule}{end}", rules=len(self._pause_rules))
        return True

    async def resume(self, rule: PauseRule, by: Caller) -> None:
        """Remove the rule with exactly this topic and sink. It is gone from disk when this returns.

        Raises `UStatusError`: NOT_FOUND if there is no such rule, UNAVAILABLE if the disk fails.
        """
        async with self._lock:
            if rule not in self._pause_rules and self._is_open:
                raise UStatusError(UCode.NOT_FOUND, f"no rule pauses {rule}; expected exactly the topic and sink of a rule")
            await self._write(*_deletion(rule))
            self._pause_rules.remove(rule)
            self._ends_s.pop(rule, None)
            self._added_by.pop(rule, None)
            self._router.apply_pause_rules()
        audit("resumed", **by._asdict(), rule=str(rule), rules=len(self._pause_rules))

    def rules(self) -> list[PausedRule]:
        """Return every rule, oldest first, with what it pauses. A message counts under each rule that pauses it."""
        lanes = dict.fromkeys(self._pause_rules.rules, 0)
        messages = dict.fromkeys(self._pause_rules.rules, 0)
        for (source, sink), waiting in self._router.paused_flows():
            for rule in self._pause_rules.rules_for(source, sink):
                lanes[rule] += 1
                messages[rule] += waiting
        return [PausedRule(rule, lanes[rule], messages[rule], *self._end(rule)) for rule in self._pause_rules.rules]

    def _end(self, rule: PauseRule) -> tuple[float | None, int | None]:
        """Return the seconds until a rule ends, and when that is on the wall clock as it is set now."""
        if rule not in self._ends_s:
            return None, None
        left_ms = max(0, round((self._ends_s[rule] - self._clock.monotonic_s()) * 1000))
        return left_ms / 1000, self._clock.wall_ms() + left_ms

    def _end_on_disk(self, rule: PauseRule, for_ms: int | None) -> Iterator[Statement]:
        if for_ms is not None:
            row = *_row(rule), self._clock.wall_ms() + for_ms, for_ms
            yield "INSERT INTO dispatch_stop_ends (source, sink, until_ms, for_ms) VALUES (?, ?, ?, ?)", row

    async def _write(self, *statements: Statement) -> None:
        if not self._is_open:
            raise UStatusError(
                UCode.UNAVAILABLE, "the streamer is starting or stopping, or cannot use its journal; nothing has changed"
            )
        try:
            await self._state.write(statements, HANGS_AFTER_S)
        except StateError as exc:
            logger.error("pause_unchanged error=%s", exc)
            raise UStatusError(UCode.UNAVAILABLE, f"the change cannot be written to disk now; {exc.consequence}") from exc

    # Over uProtocol

    def methods(self) -> Mapping[int, Method]:
        """Return these methods of core.ustreamer by resource id."""
        return {
            PAUSE: Method(pb.StopDispatchRequest, self._on_pause),
            RESUME: Method(pb.StartDispatchRequest, self._on_resume),
            FETCH: Method(pb.FetchStopsRequest, self._on_fetch),
        }

    async def _on_pause(self, caller: UUri, request: pb.StopDispatchRequest) -> Message:
        by = self._check(caller, "pause flows")
        return pb.StopDispatchResponse(changed=await self.pause(_rule(request), by, caller))

    async def _on_resume(self, caller: UUri, request: pb.StartDispatchRequest) -> Message:
        await self.resume(_rule(request), self._check(caller, "resume flows"))
        return pb.StartDispatchResponse()

    async def _on_fetch(self, caller: UUri, request: pb.FetchStopsRequest) -> Message:
        self._check(caller, "list the rules")
        found = self.rules()[request.offset :]
        return pb.FetchStopsResponse(
            stops=[
                pb.DispatchStop(rule=_to_proto(each.rule), lanes=each.lanes, messages=each.messages)
                for each in found[:_PAGE]
            ],
            has_more_records=len(found) > _PAGE,
        )

    def _check(self, caller: UUri, what: str) -> Caller:
        by = self._access.caller(caller)
        if not self._access.may_control(caller):
            audit(DENIED, **by._asdict(), reason=f"may not {what} (control.allow)")
            text = f"{caller} may not {what} at {self._access.authority} (control.allow)"
            raise UStatusError(UCode.PERMISSION_DENIED, text)
        return by


def _deletion(rule: PauseRule) -> tuple[Statement, ...]:
    return tuple(
        (f"DELETE FROM {table} WHERE source = ? AND sink = ?", _row(rule))
        for table in ("dispatch_stops", "dispatch_stop_ends")
    )


def _row(rule: PauseRule) -> tuple[str, str]:
    return str(rule.source), "" if rule.sink is None else str(rule.sink)


def _rule(request: pb.StopDispatchRequest | pb.StartDispatchRequest) -> PauseRule:
    """Return the rule in a request. Raises `UStatusError`."""
    given = request.rule
    if not given.HasField("topic"):
        raise UStatusError(UCode.INVALID_ARGUMENT, "rule.topic: expected a UUri, which may have wildcards")
    try:
        return PauseRule(uri_from_proto(given.topic), uri_from_proto(given.sink) if given.HasField("sink") else None).check()
    except PauseRuleError as exc:
        raise UStatusError(UCode.INVALID_ARGUMENT, f"rule.{exc}") from exc


def _to_proto(rule: PauseRule) -> pb.DispatchRule:
    return pb.DispatchRule(topic=uri_to_proto(rule.source), sink=None if rule.sink is None else uri_to_proto(rule.sink))
