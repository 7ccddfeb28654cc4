"""The accounts of the demonstration: messages sent, received, and reported as failed. Pure: time is passed in.

A message is *open* from `DemoFlow.send` until its first copy or its dead letter arrives. A message that is open when the
daemon is idle is unaccounted for, which the streamer promises never happens.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping

_REMEMBERED = 50_000  # settled messages whose second copy is still recognised
_LATENCIES = 2_000
_RATE_S = 3.0

NO_ANSWER = "no answer"


class DemoFlow:
    """The account of one flow."""

    def __init__(self, name: str, path: str = "") -> None:
        self.name = name
        self.path = path
        self.sent = 0
        self.arrived = 0
        self.duplicates = 0
        self.out_of_order = 0
        self.dead: Counter[str] = Counter()
        self._open: dict[bytes, tuple[int, float]] = {}
        self._settled: dict[bytes, None] = {}
        self._newest = 0
        self._latencies_s: deque[float] = deque(maxlen=_LATENCIES)
        self._arrivals_s: deque[float] = deque(maxlen=_LATENCIES)
        self._first_sent_s: float | None = None

    def __contains__(self, uuid: bytes) -> bool:
        return uuid in self._open or uuid in self._settled

    @property
    def unaccounted(self) -> int:
        """Return how many messages have neither arrived nor been reported so far."""
        return len(self._open)

    def is_settled(self, uuid: bytes) -> bool:
        """Whether a message has arrived or was reported as failed."""
        return uuid in self._settled

    def send(self, uuid: bytes, now_s: float) -> None:
        """Record a message that is about to be sent."""
        self.sent += 1
        self._open[uuid] = (self.sent, now_s)
        if self._first_sent_s is None:
            self._first_sent_s = now_s

    def arrive(self, uuid: bytes, now_s: float) -> None:
        """Record the arrival of a copy of a message."""
        if (sent := self._settle(uuid)) is None:
            self.duplicates += 1
            return
        number, sent_s = sent
        self.arrived += 1
        if number < self._newest:
            self.out_of_order += 1
        self._newest = max(self._newest, number)
        self._latencies_s.append(now_s - sent_s)
        self._arrivals_s.append(now_s)

    def report(self, uuid: bytes, reason: str) -> bool:
        """Record a dead letter for a message. Return whether this was its first arrival or report."""
        if self._settle(uuid) is None:
            return False
        self.dead[reason] += 1
        return True

    def _settle(self, uuid: bytes) -> tuple[int, float] | None:
        sent = self._open.pop(uuid, None)
        if sent is not None:
            self._settled[uuid] = None
            if len(self._settled) > _REMEMBERED:
                del self._settled[next(iter(self._settled))]
        return sent

    def rate(self, now_s: float) -> float:
        """Return the arrivals per second over the last seconds."""
        if self._first_sent_s is None:
            return 0.0
        span_s = min(_RATE_S, max(1.0, now_s - self._first_sent_s))
        recent = 0
        for at_s in reversed(self._arrivals_s):
            if now_s - at_s > span_s:
                break
            recent += 1
        return recent / span_s

    def latency_s(self, share: float) -> float | None:
        """Return the latency that ``share`` (0 to 1) of the latest arrivals did not exceed; None: no arrivals."""
        return percentile(self._latencies_s, share)


def percentile(values: Iterable[float], share: float) -> float | None:
    """Return the smallest value that at least ``share`` of all values do not exceed (nearest rank); None: no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    rank = -int(-share * len(ordered) // 1)  # rounded up
    return ordered[min(len(ordered), max(1, rank)) - 1]


class Calls:
    """The account of Requests to one method. ``must_answer``: the service or the streamer owes an answer."""

    def __init__(self, name: str, must_answer: bool) -> None:
        self.name = name
        self.must_answer = must_answer
        self.asked = 0
        self.results: Counter[str] = Counter()
        self._open: set[bytes] = set()

    @property
    def waiting(self) -> int:
        """Return the number of Requests whose callers still wait."""
        return len(self._open)

    @property
    def unanswered(self) -> int:
        """Return the number of Requests whose caller gave up although an answer was due."""
        return self.results[NO_ANSWER] if self.must_answer else 0

    def ask(self, uuid: bytes) -> None:
        """Record a Request that is about to be sent."""
        self.asked += 1
        self._open.add(uuid)

    def answer(self, uuid: bytes, result: str) -> bool:
        """Record the answer to a Request, or that its caller gives up. Return whether the caller still waited."""
        if uuid not in self._open:
            return False
        self._open.discard(uuid)
        self.results[result] += 1
        return True


class Ledger:
    """All flows and all calls. ``flows`` maps names to paths.

    The warm-up has an account of its own: its messages test whether everything is connected, so they may be lost.
    """

    def __init__(self, flows: Mapping[str, str], answered: Iterable[str] = (), silent: Iterable[str] = ()) -> None:
        self.flows = {name: DemoFlow(name, path) for name, path in flows.items()}
        self.calls = {name: Calls(name, True) for name in answered} | {name: Calls(name, False) for name in silent}
        self.warm_up = DemoFlow("warm-up")
        self.unknown = 0
        self.letters: dict[tuple[str, str], tuple[int, str]] = {}

    def flow_of(self, uuid: bytes) -> DemoFlow | None:
        """Return the flow of a message; None: no flow sent it."""
        for flow in (*self.flows.values(), self.warm_up):
            if uuid in flow:
                return flow
        return None

    def is_settled(self, uuid: bytes) -> bool:
        """Whether a message of any flow has arrived or was reported before."""
        flow = self.flow_of(uuid)
        return flow is not None and flow.is_settled(uuid)

    def arrive(self, uuid: bytes, now_s: float) -> None:
        """Record the arrival of a message at any receiver."""
        if (flow := self.flow_of(uuid)) is None:
            self.unknown += 1
        else:
            flow.arrive(uuid, now_s)

    def report(self, uuid: bytes, reason: str, text: str) -> None:
        """Record a dead letter; ``uuid`` is the id of the message in it."""
        if (flow := self.flow_of(uuid)) is None:
            self.unknown += 1
        elif flow.report(uuid, reason) and flow is not self.warm_up:
            count, _ = self.letters.get((reason, flow.name), (0, ""))
            self.letters[reason, flow.name] = (count + 1, text)

    def answer(self, request: bytes, result: str) -> None:
        """Record a Response; ``request`` is the id of its Request. A late Response changes nothing."""
        for calls in self.calls.values():
            if calls.answer(request, result):
                return

    @property
    def open(self) -> int:
        """Return the number of open messages and of callers that wait."""
        return sum(flow.unaccounted for flow in self.flows.values()) + sum(c.waiting for c in self.calls.values())

    def problems(self) -> list[str]:
        """Return a sentence for each fault in the accounts, once the daemon is idle; empty: all is accounted for."""
        found = []
        for flow in self.flows.values():
            if flow.unaccounted:
                found.append(f"{flow.unaccounted} of {flow.sent} messages of '{flow.name}' are unaccounted for")
        for calls in self.calls.values():
            if missing := calls.unanswered + calls.waiting:
                found.append(f"{missing} of {calls.asked} callers of '{calls.name}' got no answer")
        if self.unknown:
            found.append(f"{self.unknown} messages arrived that nobody sent")
        return found
