"""What was sent, acknowledged, received and dead-lettered, message by message, and whether that adds up.

Pure: no network, no clock. Generators and receivers write here, from any thread; `Ledger.verdict` compares. The law:

    acknowledged − excused − arrived − dead-lettered − still queued = ∅

``excused`` is what somebody else lost after he had confirmed it (a broker without persistence that was killed).
"""

import hashlib
import math
import threading
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Any

FIRST = 5
"""How many examples a violation names."""


class Breach(Enum):
    LOST = "acknowledged to its sender and gone"
    INVERTED = "first arrival after a later message of its flow"
    CORRUPTED = "payload is not what was sent"
    DUPLICATES = "more duplicates than were unconfirmed at the fault"
    STRANGER = "arrived and was never sent"
    MISDIRECTED = "arrived at a side that it was not meant for"
    TWO_ENDS = "arrived and was dead-lettered"
    UNANSWERED = "a Request that was dead-lettered and whose sender got no error Response"
    REFUSED = "dead-lettered although nothing should be"
    BOOKS = "the metrics do not balance"
    DEAD = "nothing crosses any more"
    LEFT = "waits although everything has arrived: it would be sent again"
    LATE = "a route has worked for less of the time than it must"
    SIGN = "a sign has said what was not so"


def digest_of(payload: bytes) -> str:
    return hashlib.blake2b(payload, digest_size=8).hexdigest()


@dataclass(slots=True)
class Sent:
    """A message as its sender knows it."""

    id: bytes
    flow: str
    """Begins with the side that it comes from, and an arrow."""
    number: int
    to: str
    """The side that it is meant for."""
    digest: str
    sent_s: float
    """Since the start of the load."""
    is_request: bool = False
    acknowledged: bool = False

    @property
    def origin(self) -> str:
        return self.flow.partition("→")[0]

    def __str__(self) -> str:
        return f"{self.flow} number {self.number} (id {self.id.hex()}, sent at {self.sent_s:.3f} s)"


@dataclass(frozen=True)
class Violation:
    breach: Breach
    count: int
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.breach.name}: {self.count} ({self.breach.value})" + "".join(f"\n    {e}" for e in self.examples)


@dataclass(frozen=True)
class Allowance:
    """What a fault may cost. Nothing, unless the fault says why."""

    duplicates: int = 0
    dead_letters: bool = False
    two_ends: bool = False
    inversions: bool = False


@dataclass
class Verdict:
    """The outcome of a run: clean if there is no violation."""

    violations: list[Violation] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)
    took_s: list[float] = field(default_factory=list)
    """How long something took, for faults that report that."""
    worked: list[float] = field(default_factory=list)
    """For how much of the time a route has worked, in per cent (`Ledger.worked`)."""

    @property
    def is_clean(self) -> bool:
        return not self.violations

    def add(self, breach: Breach, examples: list[str]) -> None:
        if examples:
            self.violations.append(Violation(breach, len(examples), tuple(examples[:FIRST])))

    def __str__(self) -> str:
        figures = ", ".join(f"{name} {number}" for name, number in self.figures.items())
        return "\n".join([f"{'clean' if self.is_clean else 'NOT CLEAN'}: {figures}", *map(str, self.violations)])


class Ledger:
    """Written by all sides of one run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: dict[bytes, Sent] = {}
        self._arrived: Counter[bytes] = Counter()
        self._arrived_s: dict[bytes, float] = {}
        self._last: dict[str, tuple[int, str]] = {}
        self._dead: dict[bytes, list[int]] = {}
        self._answered: dict[bytes, int] = {}
        self._excused: dict[bytes, str] = {}
        self._breaches: dict[Breach, list[str]] = {}

    # -- what happens -------------------------------------------------------------------------------------------------

    def sent(self, entry: Sent) -> None:
        with self._lock:
            self._sent[entry.id] = entry

    def acknowledged(self, message_id: bytes) -> None:
        with self._lock:
            self._sent[message_id].acknowledged = True

    def arrived(self, side: str, message_id: bytes, digest: str, at_s: float | None = None) -> None:
        """A message came out on a side, so many seconds after the start of the load, if that matters."""
        with self._lock:
            entry = self._sent.get(message_id)
            if entry is None:
                self._breach(Breach.STRANGER, f"id {message_id.hex()} at {side}")
                return
            if entry.to != side:
                self._breach(Breach.MISDIRECTED, f"{entry} at {side} instead of {entry.to}")
                return
            if entry.digest != digest:
                self._breach(Breach.CORRUPTED, f"{entry} at {side}: {digest} instead of {entry.digest}")
            self._arrived[message_id] += 1
            if self._arrived[message_id] > 1:
                return
            if at_s is not None:
                self._arrived_s[message_id] = at_s
            number, what = self._last.get(entry.flow, (-1, ""))
            if entry.number < number:
                self._breach(Breach.INVERTED, f"{entry} after {what}")
            else:
                self._last[entry.flow] = entry.number, str(entry)

    def dead_lettered(self, side: str, message_id: bytes, digest: str, code: int) -> None:
        """A dead letter came out on a side, with the original's id and payload."""
        with self._lock:
            entry = self._sent.get(message_id)
            if entry is None:
                self._breach(Breach.STRANGER, f"dead letter for id {message_id.hex()} at {side}")
                return
            if entry.digest != digest:
                self._breach(Breach.CORRUPTED, f"{entry} in a dead letter: {digest} instead of {entry.digest}")
            self._dead.setdefault(message_id, []).append(code)

    def answered(self, request_id: bytes, code: int) -> None:
        """An error Response came back to the sender of a Request."""
        with self._lock:
            self._answered[request_id] = code

    def excuse(self, message_ids: set[bytes], why: str) -> None:
        """Somebody else has lost these, or nobody had accepted them yet."""
        with self._lock:
            for message_id in message_ids:
                self._excused[message_id] = why

    def _breach(self, breach: Breach, example: str) -> None:
        self._breaches.setdefault(breach, []).append(example)

    # -- what it adds up to -------------------------------------------------------------------------------------------

    def missing(self) -> list[Sent]:
        """Acknowledged and neither arrived nor dead-lettered nor excused, in the order of sending."""
        with self._lock:
            return [
                entry
                for message_id, entry in self._sent.items()
                if entry.acknowledged
                and message_id not in self._arrived
                and message_id not in self._dead
                and message_id not in self._excused
            ]

    def entry(self, message_id: bytes) -> Sent | None:
        with self._lock:
            return self._sent.get(message_id)

    def entries(self) -> list[Sent]:
        with self._lock:
            return list(self._sent.values())

    def confirmed_ids(self, side: str) -> set[bytes]:
        """Acknowledged messages from a side."""
        with self._lock:
            return {entry.id for entry in self._sent.values() if entry.acknowledged and entry.origin == side}

    def arrivals(self) -> int:
        """Messages that have arrived, each counted once."""
        with self._lock:
            return len(self._arrived)

    def crossed(self, skip: int) -> set[tuple[str, str]]:
        """Ways (from, to) on which something has arrived, the first ``skip`` messages that were sent left aside."""
        with self._lock:
            sent = islice(self._sent.values(), skip, None)
            return {(entry.origin, entry.to) for entry in sent if entry.id in self._arrived}

    def worked(self, way: tuple[str, str], since_s: float, until_s: float, within_s: float) -> float:
        """Return for how much of a time a way (from, to) has worked, in per cent.

        Each second counts by the share of its messages that arrived in time; one in which nothing could be sent is lost.
        """
        sent: Counter[int] = Counter()
        in_time: Counter[int] = Counter()
        with self._lock:
            for entry in self._sent.values():
                if (entry.origin, entry.to) == way and since_s <= entry.sent_s < until_s:
                    second = int(entry.sent_s - since_s)
                    sent[second] += 1
                    in_time[second] += self._arrived_s.get(entry.id, math.inf) - entry.sent_s <= within_s
        shares = [in_time[second] / sent[second] if sent[second] else 0.0 for second in range(int(until_s - since_s))]
        return 100 * sum(shares) / max(1, len(shares))

    def arrivals_at(self, side: str) -> int:
        with self._lock:
            return sum(1 for message_id in self._arrived if self._sent[message_id].to == side)

    def has_arrived(self, message_id: bytes) -> bool:
        with self._lock:
            return message_id in self._arrived

    def copied(self, side: str) -> dict[bytes, int]:
        """Ids of what has arrived at a side more than once, and how often beyond the first time."""
        with self._lock:
            return {
                message_id: count - 1
                for message_id, count in self._arrived.items()
                if count > 1 and self._sent[message_id].to == side
            }

    def dead_letters(self) -> dict[bytes, list[int]]:
        """Ids and codes of what was dead-lettered."""
        with self._lock:
            return {message_id: list(codes) for message_id, codes in self._dead.items()}

    def answers(self) -> dict[bytes, int]:
        with self._lock:
            return dict(self._answered)

    def unanswered(self) -> list[Sent]:
        """Requests that were dead-lettered and not answered."""
        with self._lock:
            return [
                self._sent[message_id]
                for message_id in self._dead
                if self._sent[message_id].is_request and message_id not in self._answered
            ]

    def figures(self) -> Counter[str]:
        with self._lock:
            copies = sum(self._arrived.values()) - len(self._arrived)
            return Counter(
                sent=len(self._sent),
                acknowledged=sum(entry.acknowledged for entry in self._sent.values()),
                arrived=len(self._arrived),
                duplicates=copies,
                dead_lettered=len(self._dead),
                excused=sum(1 for message_id in self._excused if message_id not in self._arrived),
            )

    def verdict(self, allowance: Allowance, queued: int = 0) -> Verdict:
        """Compare. ``queued`` is how many messages the daemon says that it still holds."""
        verdict = Verdict(figures=self.figures())
        missing = self.missing()
        if len(missing) > queued:
            verdict.add(Breach.LOST, [str(entry) for entry in missing])
        with self._lock:
            for breach, examples in self._breaches.items():
                if breach is not Breach.INVERTED or not allowance.inversions:
                    verdict.add(breach, examples)
            verdict.figures["inversions"] = len(self._breaches.get(Breach.INVERTED, []))
            both = [str(self._sent[message_id]) for message_id in self._dead if message_id in self._arrived]
            dead = [f"{self._sent[message_id]}: code {codes}" for message_id, codes in self._dead.items()]
            often = [
                f"{count} times {self._sent[message_id]}" for message_id, count in self._arrived.most_common() if count > 1
            ]
        if verdict.figures["duplicates"] > allowance.duplicates:
            verdict.add(Breach.DUPLICATES, often)
        if not allowance.two_ends:
            verdict.add(Breach.TWO_ENDS, both)
        if not allowance.dead_letters:
            verdict.add(Breach.REFUSED, dead)
        verdict.add(Breach.UNANSWERED, [str(entry) for entry in self.unanswered()])
        return verdict

    def dump(self) -> dict[str, Any]:
        """Everything, for the file that a failing run leaves behind."""
        with self._lock:
            return {
                "sent": [
                    {
                        "id": entry.id.hex(),
                        "flow": entry.flow,
                        "number": entry.number,
                        "sent_s": round(entry.sent_s, 4),
                        "acknowledged": entry.acknowledged,
                        "arrived": self._arrived[entry.id],
                        "arrived_s": self._arrived_s.get(entry.id),
                        "dead_lettered": self._dead.get(entry.id),
                        "excused": self._excused.get(entry.id),
                    }
                    for entry in self._sent.values()
                ],
                "breaches": {breach.name: examples for breach, examples in self._breaches.items()},
            }
