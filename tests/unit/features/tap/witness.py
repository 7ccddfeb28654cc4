"""A tap at the router of the flow tests. No tests."""

import sys
from collections import Counter
from collections.abc import Iterable

from streamer.features.tap.tap import SENT, Tap, TapFilter
from tests.clock import FakeClock
from tests.flow.ledger import Counted


class TapWitness:
    """Shows every outcome once: as delivered or as sent; what could not be read later was shown as sent."""

    def __init__(self, clock: FakeClock, endpoints: Iterable[str]) -> None:
        self.observer = Tap(TapFilter(), sys.maxsize, with_payload=False, max_bytes=sys.maxsize)
        self._shown: Counted = Counter()

    def check(self, counted: Counted) -> None:
        for each in self.observer.take():
            self._shown[each.route, each.ingress, each.egress, each.outcome, each.code.name] += 1
        for key, number in counted.items():
            shown = self._shown[key]
            sent = self._shown[(*key[:3], SENT, "OK")]
            is_settled_later = key[3] in ("delivered", "unconfirmed") or key[4] == "DATA_LOSS"
            assert shown <= number <= shown + (sent if is_settled_later else 0), (key, number, shown, sent)
        assert {key for key, shown in self._shown.items() if shown and key[3] != SENT} <= counted.keys()
