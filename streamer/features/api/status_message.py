"""The content of the status that core.ustreamer publishes: health, waiting messages, endpoints, the pair. Bounded."""

from heapq import nlargest

from streamer import __version__
from streamer.config.models import Config
from streamer.config.shown import fingerprint
from streamer.features.api.readiness import unready
from streamer.features.record import BuiltStreamer
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb

ROUTES = 20
ENDPOINTS = 50
REASONS = 10
TEXT = 200
"""The most characters of a name or a reason."""


class StatusView:
    """Reads the status of a streamer, which must have its router already."""

    def __init__(self, streamer: BuiltStreamer) -> None:
        self._streamer = streamer
        self._router = streamer.router
        self._started_ms = self._router.clock.wall_ms()
        self._began_s = self._router.clock.monotonic_s()
        self._fingerprint: tuple[Config, str] | None = None

    def health(self) -> list[str]:
        """Return why the streamer is not ready; empty if it is."""
        return unready(self._router)

    def status(self) -> pb.Status:
        """Return the present status."""
        router, reasons = self._router, unready(self._router)
        accounts = list(router.accounts())
        waiting = [account for account in accounts if account.queued]
        endpoints = router.endpoint_accounts()
        status = pb.Status(
            ready=not reasons,
            reasons=[reason[:TEXT] for reason in reasons[:REASONS]],
            version=__version__,
            uptime_s=int(router.clock.monotonic_s() - self._began_s),
            queued=sum(account.queued for account in accounts),
            routes=[
                pb.RouteStatus(
                    name=account.name[:TEXT],
                    queued=account.queued,
                    bytes=account.bytes,
                    oldest_age_ms=round(account.oldest_age_s * 1000),
                )
                for account in nlargest(ROUTES, waiting, key=lambda account: account.queued)
            ],
            routes_left_out=max(0, len(waiting) - ROUTES),
            endpoints=[
                pb.EndpointStatus(name=each.name[:TEXT], transport=each.transport[:TEXT], state=each.link.state.value)
                for each in endpoints[:ENDPOINTS]
            ],
            dead_letters=router.account().dead_letters,
            config_fingerprint=self._hash(),
        )
        status.started.FromMilliseconds(self._started_ms)
        for feature in self._streamer.features:
            feature.report(status)
        if router.journal is not None:
            journal = router.journal
            status.journal.CopyFrom(
                pb.JournalStatus(
                    state=journal.state.value,
                    problem=journal.problem[:TEXT],
                    bytes=journal.bytes,
                    max_bytes=journal.max_bytes,
                )
            )
        return status

    def _hash(self) -> str:
        config = self._streamer.config
        if self._fingerprint is None or self._fingerprint[0] is not config:
            self._fingerprint = config, fingerprint(config)
        return self._fingerprint[1]
