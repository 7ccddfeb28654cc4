"""Plays a plan: moves every message along its path with numpy, and records what becomes of it. Knows no files.

All times are true times in µs since 1970. The streamers' clocks come in only when the records are written (`write`).
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spark_jobs.generate.plan import (
    DAY_US,
    DEAD_LETTER_RESOURCE,
    HOUR_US,
    PUBLISH,
    REQUEST,
    Plan,
    PlannedFlow,
    Uri,
    flows,
    times,
)
from spark_jobs.schema import FAILURES, OUTCOMES

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]

UCODES = ("OK", "DEADLINE_EXCEEDED", "INVALID_ARGUMENT", "UNAVAILABLE", "ALREADY_EXISTS", "NOT_FOUND", "PERMISSION_DENIED")
_UCODE_OF = {"expired": 1, "rejected": 2, "dead_lettered": 3, "duplicate": 4, "unwanted": 5, "unheard": 5, "sampled_out": 5}
CODE = {outcome: number for number, outcome in enumerate(OUTCOMES)}
_DELIVERED, _EXPIRED = CODE["delivered"], CODE["expired"]
_NEVER = np.int64(2**62)
_FAULT_KINDS = ("lost", "duplicate", "delivered_twice", "expired", "dead_lettered", "rejected", "untraced", "over_midnight")

OWN_ROUTE = 1
"""Bit of `Records.way`: route none, and no egress."""
REDELIVERED = 2
TO_ORIGIN = 4
"""Bit of `Records.way`: created by the streamer itself, and sent to where the message came from."""


def ucode_of(outcome: NDArray[np.int8]) -> NDArray[np.int8]:
    """The number in `UCODES` of the reason for each outcome."""
    return np.array([_UCODE_OF.get(name, 0) for name in OUTCOMES], np.int8)[outcome]


@dataclass
class Messages:
    """Columns, one row per message.

    ``request``: the row of the Request that it answers, or -1. ``faults``: by kind, the hop with that fault, or -1.
    """

    made_us: Longs
    flow: NDArray[np.int16]
    request: Longs
    faults: dict[str, NDArray[np.int8]] = field(default_factory=dict)
    id_high: NDArray[np.uint64] = field(init=False)
    id_low: NDArray[np.uint64] = field(init=False)

    def number(self, rng: np.random.Generator) -> "Messages":
        """Give every message a UUIDv7 (RFC 9562, 5.7): ms, version, 12 random bits, variant, 62 random bits."""
        count = len(self.made_us)
        ms = (self.made_us // 1000).astype(np.uint64)
        self.id_high = ms << np.uint64(16) | np.uint64(0x7000) | rng.integers(0, 1 << 12, count, dtype=np.uint64)
        self.id_low = np.uint64(1 << 63) | rng.integers(0, 1 << 62, count, dtype=np.uint64)
        return self


@dataclass
class Records:
    """The records of one streamer, as columns. ``message``: row over all batches. ``wait_us`` -1: it was never sent."""

    message: Longs
    ts_us: Longs
    latency_us: Longs
    wait_us: Longs
    outcome: NDArray[np.int8]
    way: NDArray[np.int8]
    dropped: Flags
    """The streamer could not write this record: it has a seq but is in no file."""

    @staticmethod
    def joined(parts: list["Records"]) -> "Records":
        names = Records.__dataclass_fields__
        return Records(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def taken(self, rows: NDArray[np.intp] | Flags) -> "Records":
        return Records(*(getattr(self, name)[rows] for name in Records.__dataclass_fields__))


@dataclass
class Played:
    """All messages (with rows numbered over all batches), the records of each streamer, and the truth: message rows by
    finding. ``status``: the code of each message's final outcome, or `LOST`."""

    flows: list[PlannedFlow]
    messages: Messages
    records: list[Records]
    truth: dict[str, Longs]
    missing_at: dict[int, int]
    status: NDArray[np.int8]


LOST = len(OUTCOMES)


@dataclass
class Ends:
    """How each message of a batch ended: outcome (or `LOST`), time, streamer, and the streamer before that one, or -1."""

    status: NDArray[np.int8]
    confirmed_us: Longs
    streamer: NDArray[np.int8]
    before: NDArray[np.int8]


class Player:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rng = np.random.default_rng(plan.seed)
        self.flows = flows(len(plan.streamers))
        self.down = [self._outages(name) for name in plan.streamers]
        self.records: list[list[Records]] = [[] for _ in plan.streamers]
        self.truth: dict[str, list[Longs]] = {}
        self.missing_at: dict[int, int] = {}
        self.base = 0

    def play(self) -> Played:
        batches = [self._planted(self._spontaneous())]
        ends = [self._run(batches[0])]
        batches.append(self._answers(batches[0], ends[0]))
        ends.append(self._run(batches[1]))
        batches.append(self._letters(batches, ends))
        ends.append(self._run(batches[2]))
        made_us, flow, request = (
            np.concatenate([getattr(batch, name) for batch in batches]) for name in ("made_us", "flow", "request")
        )
        messages = Messages(made_us, flow, request)
        messages.id_high = np.concatenate([batch.id_high for batch in batches])
        messages.id_low = np.concatenate([batch.id_low for batch in batches])
        truth = {finding: np.concatenate(rows) for finding, rows in self.truth.items()}
        records = [Records.joined(parts) for parts in self.records]
        status = np.concatenate([end.status for end in ends])
        return Played(self.flows, messages, records, truth, self.missing_at, status)

    def _outages(self, name: str) -> list[tuple[int, int]]:
        """When the streamer does not run, in true time: an hour of its own clock each."""
        skew_us = self.plan.faults.skew_ms.get(name, 0) * 1000
        starts = [
            self.plan.start_us + day * DAY_US + hour * HOUR_US - skew_us
            for streamer, day, hour in self.plan.faults.outages
            if streamer == name
        ]
        return [(start, start + HOUR_US) for start in sorted(starts)]

    def _up(self, at_us: Longs, streamer: int) -> Longs:
        """When the streamer handles it: immediately, or within seconds after an outage."""
        for start, end in self.down[streamer]:
            waiting = (at_us >= start) & (at_us < end)
            at_us = np.where(waiting, end + 200_000 + (at_us - start) // 2000, at_us)
        return at_us

    def _spontaneous(self) -> Messages:
        weights = np.array([flow.weight for flow in self.flows])
        hops = np.array([len(flow.path) for flow in self.flows])
        # a Request brings a Response
        hops = hops * np.where([flow.kind == REQUEST for flow in self.flows], 2, 1)
        per_message = float((weights * hops).sum() / weights.sum())
        share = np.rint(np.array(self.plan.records_per_day) / per_message).astype(np.int64)
        made = times(self.plan, share, self.rng)
        flow = self.rng.choice(len(weights), len(made), p=weights / weights.sum()).astype(np.int16)
        for surge in self.plan.faults.surges:
            start = self.plan.start_us + surge.day * DAY_US + surge.hour * HOUR_US
            there = np.flatnonzero((made >= start) & (made < start + HOUR_US))
            on_route = there[np.isin(flow[there], [n for n, f in enumerate(self.flows) if f.route == surge.route])]
            more = self.rng.choice(on_route, int(len(on_route) * (surge.factor - 1)))
            made = np.concatenate([made, start + self.rng.integers(0, HOUR_US, len(more))])
            flow = np.concatenate([flow, flow[more]])
        order = np.argsort(made, kind="stable")
        return Messages(made[order], flow[order], np.full(len(made), -1, np.int64)).number(self.rng)

    def _planted(self, messages: Messages) -> Messages:
        """Choose the messages on which faults are planted: one fault each, well inside the timeline."""
        plan, count = self.plan, len(messages.made_us)
        hops = np.array([len(flow.path) for flow in self.flows])[messages.flow]
        has_ttl = np.array([flow.ttl_ms is not None for flow in self.flows])[messages.flow]
        usual = np.array([flow.end == "delivered" for flow in self.flows])[messages.flow]
        into_day = (messages.made_us - plan.start_us) % DAY_US
        first_us = plan.start_us + plan.faults.not_before * DAY_US
        free = usual & (messages.made_us >= first_us) & (messages.made_us < plan.end_us - HOUR_US)
        eligible = {
            "lost": hops > 1,
            "untraced": hops > 2,
            "expired": has_ttl,
            "over_midnight": ~has_ttl & (into_day > 22 * HOUR_US),
        }
        for kind in _FAULT_KINDS:
            messages.faults[kind] = np.full(count, -1, np.int8)
            wanted = int(getattr(plan.faults, kind))
            candidates = np.flatnonzero(free & eligible.get(kind, True))
            if len(candidates) < wanted:
                raise ValueError(f"{wanted} × {kind} do not fit: only {len(candidates)} messages can have that fault")
            rows = self.rng.choice(candidates, wanted, replace=False)
            low, high = (1 if kind == "untraced" else 0), hops[rows] - (kind in ("lost", "untraced"))
            messages.faults[kind][rows] = self.rng.integers(low, high)
            free[rows] = False
        for surge in plan.faults.surges:
            start = plan.start_us + surge.day * DAY_US + surge.hour * HOUR_US
            there = free & (messages.made_us >= start) & (messages.made_us < start + HOUR_US)
            on_route = np.isin(messages.flow, [n for n, f in enumerate(self.flows) if f.route == surge.route])
            failing = there & on_route & (self.rng.random(count) < surge.rejected_share)
            messages.faults["rejected"][failing] = 0
        return messages

    def _run(self, batch: Messages) -> "Ends":
        """Move a batch along its paths."""
        count = len(batch.made_us)
        ends = Ends(np.empty(count, np.int8), np.empty(count, np.int64), np.empty(count, np.int8), np.empty(count, np.int8))
        paths = sorted({(flow.path, flow.end) for flow in self.flows})
        for path, end in paths:
            of_path = [number for number, flow in enumerate(self.flows) if (flow.path, flow.end) == (path, end)]
            rows = np.flatnonzero(np.isin(batch.flow, of_path))
            if len(rows):
                self._travel(batch, rows, path, end, ends)
        self.base += count
        return ends

    def _delay(self, count: int, median_us: float, sigma: float) -> Longs:
        return np.exp(self.rng.normal(np.log(median_us), sigma, count).astype(np.float32)).astype(np.int64) + 1

    def _travel(
        self, batch: Messages, rows: NDArray[np.intp], path: tuple[int, ...], end: str, ends: "Ends"
    ) -> None:  # fmt: skip
        made, count = batch.made_us[rows], len(rows)
        fault = {kind: batch.faults[kind][rows] if batch.faults else np.full(count, -1, np.int8) for kind in _FAULT_KINDS}
        ttl_us = np.array([_NEVER if f.ttl_ms is None else f.ttl_ms * 1000 for f in self.flows])[batch.flow[rows]]
        own = np.array([f.route == "dead-letter" for f in self.flows])[batch.flow[rows]]
        alive = np.ones(count, np.bool_)
        arrive = self._up(made + np.where(own, 50, self._delay(count, 2500, 0.5)), path[0])
        for hop, streamer in enumerate(path):
            last = hop == len(path) - 1
            leave = arrive + self._delay(count, 700, 0.8)
            leave += np.where(fault["expired"] == hop, ttl_us, 0)
            midnight = self.plan.start_us + ((made - self.plan.start_us) // DAY_US + 1) * DAY_US
            leave = np.where(fault["over_midnight"] == hop, midnight + (made % HOUR_US) + HOUR_US // 4, leave)
            leave = self._up(leave, streamer)
            transit = self._delay(count, 1800, 0.4)
            after = leave + transit
            if not last:
                after = self._up(after, path[hop + 1])
                leave = after - transit
            confirm = after + self._delay(count, 900, 0.6)
            outcome = np.full(count, CODE[end] if last else _DELIVERED, np.int8)
            for kind in ("rejected", "dead_lettered"):
                outcome[fault[kind] == hop] = CODE[kind]
            late = (leave >= made + ttl_us) & (outcome == _DELIVERED)
            outcome[late] = _EXPIRED
            confirm = np.where(late, np.maximum(arrive, made + ttl_us) + 500, confirm)
            way = np.where(outcome == _DELIVERED, 0, OWN_ROUTE if end != "delivered" else 0).astype(np.int8)
            way |= np.where(own & (hop == 0), TO_ORIGIN, 0).astype(np.int8)
            ok = outcome == _DELIVERED
            lost = alive & ok & (fault["lost"] == hop)
            untraced = alive & ok & (fault["untraced"] == hop)
            wait = np.where(ok, leave - arrive, -1)
            self._note(streamer, rows, alive, arrive, confirm, wait, outcome, way, untraced)
            # set aside: the source sends twice, or the streamer before redelivers after a lost link
            repeated = alive & ((fault["duplicate"] == hop) | (fault["delivered_twice"] == hop - 1) & (hop > 0))
            duplicate = np.full(count, CODE["duplicate"], np.int8)
            aside = self._up(arrive + self._delay(count, 400_000, 0.5), streamer)
            self._note(
                streamer, rows, repeated, aside, aside + 60, np.full(count, -1), duplicate, np.int8(OWN_ROUTE) | 0 * way
            )
            self._found("duplicate", rows[repeated])
            # confirmed, but the streamer crashed before it noticed: redelivered from the journal
            twice = alive & ok & (fault["delivered_twice"] == hop)
            more = way | np.int8(REDELIVERED)
            self._note(streamer, rows, twice, arrive, confirm + self._delay(count, 300_000, 0.3), wait, outcome, more)
            self._found("delivered_twice", rows[twice])
            self._found("lost", rows[lost])
            self.missing_at.update((self.base + int(row), path[hop + 1]) for row in rows[lost])
            for kind in ("expired", "rejected", "dead_lettered"):
                self._found(kind, rows[alive & (outcome == CODE[kind])])
            stops = alive & (~ok | lost | last)
            ends.status[rows[stops]] = np.where(lost, LOST, outcome)[stops]
            ends.confirmed_us[rows[stops]] = confirm[stops]
            ends.streamer[rows[stops]] = streamer
            ends.before[rows[stops]] = path[hop - 1] if hop else -1
            alive &= ~stops
            # seen on both sides only if it reached the next streamer
            self._found("untraced", rows[untraced & alive])
            arrive = after

    def _found(self, finding: str, rows: NDArray[np.intp]) -> None:
        self.truth.setdefault(finding, []).append(self.base + rows.astype(np.int64))

    def _note(
        self, streamer: int, rows: NDArray[np.intp], which: Flags, arrive: Longs, confirm: Longs, wait: Longs,
        outcome: NDArray[np.int8], way: NDArray[np.int8], dropped: Flags | None = None,
    ) -> None:  # fmt: skip
        if not which.any():
            return
        lacking = np.zeros(int(which.sum()), np.bool_) if dropped is None else dropped[which]
        self.records[streamer].append(
            Records(
                rows[which] + self.base,
                arrive[which],
                (confirm - arrive)[which],
                wait[which],
                outcome[which],
                way[which],
                lacking,
            )
        )

    def _answers(self, asked: Messages, ends: "Ends") -> Messages:
        """A Response to each Request that arrived."""
        answer = np.array([flow.answer for flow in self.flows], np.int16)[asked.flow]
        rows = np.flatnonzero((answer >= 0) & (ends.status == _DELIVERED))
        made = ends.confirmed_us[rows] + self._delay(len(rows), 8_000, 0.7)
        return Messages(made, answer[rows], rows.astype(np.int64)).number(self.rng)

    def _letters(self, batches: list[Messages], ends: list["Ends"]) -> Messages:
        """A dead letter for each failure, from the streamer where it failed back to where the message came from."""
        failed = [np.isin(end.status, [CODE[outcome] for outcome in FAILURES]) for end in ends]
        made = np.concatenate([end.confirmed_us[rows] for end, rows in zip(ends, failed, strict=True)])
        streamer = np.concatenate([end.streamer[rows] for end, rows in zip(ends, failed, strict=True)])
        before = np.concatenate([end.before[rows] for end, rows in zip(ends, failed, strict=True)])
        of = np.concatenate([batch.flow[rows] for batch, rows in zip(batches, failed, strict=True)])
        flow = np.empty(len(made), np.int16)
        letters: dict[tuple[int, int, bool, str | None], int] = {}
        kinds = np.stack([streamer, before, of], axis=1)
        distinct, kind = np.unique(kinds, axis=0, return_inverse=True)
        for number, (at, origin, original) in enumerate(distinct.tolist()):
            failing = self.flows[original]
            key = (at, origin, failing.upward, failing.entry if origin < 0 else None)
            if key not in letters:
                letters[key] = len(self.flows)
                self.flows.append(self._letter(*key))
            flow[kind.reshape(-1) == number] = letters[key]
        return Messages(made, flow, np.full(len(made), -1, np.int64)).number(self.rng)

    def _letter(self, at: int, origin: int, was_upward: bool, entry: str | None) -> PlannedFlow:
        """The flow of dead letters back to another streamer, which does not forward them, or (-1) out of the chain."""
        source = Uri(self.plan.streamers[at], 4, 1, DEAD_LETTER_RESOURCE)
        path, end = ((at,), "delivered") if origin < 0 else ((at, origin), "unwanted")
        upward = not was_upward
        return PlannedFlow(
            source, None, PUBLISH, path, "dead-letter", 0, payload_bytes=300, upward=upward, exit=entry, end=end
        )
