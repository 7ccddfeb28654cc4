"""Remember which endpoints this streamer of a pair could connect when it was active. Pure: the caller passes the time in.

A broker that accepts TCP may still refuse the streamer, so an open port does not justify a handover. The law of this file:

- An endpoint that this streamer *has had* up, when it was last active or since, may be reported as within reach.
- An endpoint that it has never tried is *unknown*. It may be reported, so that it is tried once.
- An endpoint that was down when this streamer handed over for its sake was *refused*. It is not reported for a while after
  the start of the process, which doubles with each such handover (`FIRST_WAIT_S` to `LONGEST_WAIT_S`), until it was up for
  `STEADY_S` without an end: a broker may accept each session, and end it at once.

The counts outlive the process, because stepping back executes the program anew. The waits begin with the process.
"""

from collections.abc import Iterable, Mapping

STEADY_S = 10.0
FIRST_WAIT_S = 60.0
LONGEST_WAIT_S = 1800.0
_DOUBLINGS = 30


class Reach:
    """The endpoints that this streamer can connect. ``refused``: endpoint → vain handovers in a row; 0: it was up since."""

    def __init__(self, refused: Mapping[str, int], now_s: float) -> None:
        self.refused = dict(refused)
        self._began_s = now_s
        self._failed: set[str] = set()
        self._up_since_s: dict[str, float] = {}

    def connected(self, endpoints: Iterable[str], now_s: float) -> bool:
        """Note which endpoints are up; to be called every second or more often. Return whether that is news to persist."""
        self._up_since_s = {name: self._up_since_s.get(name, now_s) for name in endpoints}
        news = [
            name
            for name, since_s in self._up_since_s.items()
            if name not in self.refused or (self.refused[name] and now_s - since_s >= STEADY_S)
        ]
        self.refused.update(dict.fromkeys(news, 0))
        self._failed.difference_update(news)
        return bool(news)

    def failed(self, endpoints: Iterable[str]) -> bool:
        """Note endpoints that are down, at a handover for their sake, once for a process. Return as `connected`."""
        news = [name for name in endpoints if name not in self._failed]
        for name in news:
            self._failed.add(name)
            self.refused[name] = self.refused.get(name, 0) + 1
        return bool(news)

    def is_unknown(self, endpoint: str) -> bool:
        """Return whether this streamer has never tried to connect an endpoint."""
        return endpoint not in self.refused

    def may_try(self, endpoint: str, now_s: float) -> bool:
        """Return whether a handover to this streamer for the sake of an endpoint is worth an attempt."""
        times = self.refused.get(endpoint, 0)
        wait_s = FIRST_WAIT_S * 2.0 ** min(times - 1, _DOUBLINGS) if times else 0.0
        return now_s - self._began_s >= min(wait_s, LONGEST_WAIT_S)
