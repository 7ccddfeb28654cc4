"""Routing traces of the router of the flow tests. No tests."""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from streamer.features.traces.record import DTYPE, OUTCOMES, Buffer, to_columns
from streamer.features.traces.recorder import Recorder
from streamer.uprotocol.status import UCode
from tests.clock import FakeClock
from tests.flow.ledger import Counted


class TraceWitness:
    """Has one record of every outcome."""

    def __init__(self, clock: FakeClock, endpoints: Iterable[str]) -> None:
        self.observer = Recorder(
            dict.fromkeys(endpoints, "memory"), self._take, lambda: round(clock.ms * 1000 - clock.s * 1e6)
        )
        self._buffers: list[Buffer] = []
        self._traced: Counted = Counter()

    def check(self, counted: Counted) -> None:
        self.observer.hand_on()
        assert self._traced == counted

    def rows(self) -> list[dict[str, object]]:
        """Every record so far, in the order of the outcomes."""
        self.observer.hand_on()
        return [row for buffer in self._buffers for row in to_columns(buffer, 0).to_pylist()]

    def _take(self, buffer: Buffer) -> bool:
        self._buffers.append(buffer)
        rows = np.frombuffer(buffer.packed, DTYPE)
        for flow, outcome, code in zip(rows["flow"].tolist(), rows["outcome"].tolist(), rows["code"].tolist(), strict=True):
            of = buffer.flows[flow]
            self._traced[of.route, of.ingress, of.egress, OUTCOMES[outcome].value, UCode(code).name] += 1
        return True
