"""Finds endpoints that have stalled: the link is up, messages are in flight, and the transport reports no result at all.

That is a fault of the transport or of the library below it, since both have time limits of their own. How long is too long,
the transport says (`UTransport.stall_s`). A full window is not asked for: a flow may have one message in flight when its
transport stalls, which holds up all others. No clock; the caller builds the transport anew.
"""

from streamer.delivery.router import Router
from streamer.transports.base import LinkState, UTransport


class Watchdog:
    """Watches the endpoints of a router."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._seen: dict[str, tuple[UTransport, int, float]] = {}  # with how many results, since when

    def stalled(self, now_s: float) -> list[str]:
        """Return the endpoints that have stalled; to be called regularly. ``now_s`` is monotonic."""
        found: list[str] = []
        seen, self._seen = self._seen, {}
        for name, egress in self._router.egresses.items():
            transport = egress.transport
            if transport.state is not LinkState.UP or not egress.in_flight:
                continue
            before = seen.get(name)
            if before is None or before[:2] != (transport, egress.results):
                before = transport, egress.results, now_s
            elif now_s - before[2] >= transport.stall_s:
                found.append(name)
                before = transport, egress.results, now_s
            self._seen[name] = before
        return found
