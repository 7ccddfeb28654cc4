"""Until when certificates in use are valid, for the metrics. Files are read on a thread, once a minute."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from prometheus_client.core import GaugeMetricFamily, Metric

from streamer.config.models import Config
from streamer.delivery.router import Router
from streamer.files import Files
from streamer.transports.certificates import CertificateFile, valid_until_s

_INTERVAL_S = 60.0


class CertificateExpiry:
    """The certificates of a streamer's endpoints, of its HTTP port, and for its collector.

    ``until_s`` has Unix seconds by endpoint (empty: of the streamer itself) and file, without files that cannot be used.
    """

    def __init__(self, router: Router, config: Callable[[], Config]) -> None:
        self._router = router
        self._config = config
        self._files = Files()
        self._due_s = 0.0
        self._reading: asyncio.Task[None] | None = None
        self.until_s: dict[tuple[str, CertificateFile], float] = {}

    def families(self) -> Iterable[Metric]:
        """Yield the metric about the certificates."""
        family = GaugeMetricFamily(
            "ustreamer_certificate_expiry_timestamp_seconds",
            "When the certificates in a file expire, by endpoint; without one those of the HTTP port and for a collector.",
            labels=("endpoint", "role", "file"),
        )
        for (endpoint, file), until_s in self.until_s.items():
            family.add_metric((endpoint, file.role.value, str(file.path)), until_s)
        yield family

    def tick(self, now_s: float) -> None:
        """Read the files again if that is due; ``now_s`` is monotonic."""
        if now_s >= self._due_s and (self._reading is None or self._reading.done()):
            self._due_s = now_s + _INTERVAL_S
            self._reading = asyncio.create_task(self._read(list(self._in_use())), name="certificates")

    def close(self) -> None:
        """Read nothing any more."""
        if self._reading is not None:
            self._reading.cancel()

    def _in_use(self) -> Iterator[tuple[str, CertificateFile]]:
        for name, transport in self._router.transports.items():
            yield from ((name, each) for each in transport.report().certificates)
        yield from (("", each) for _, each in self._config().certificates())

    async def _read(self, files: list[tuple[str, CertificateFile]]) -> None:
        with suppress(OSError):  # a file system hangs: what was read before stays
            self.until_s = await self._files.run(lambda: dict(_dates(files)))


def _dates(files: list[tuple[str, CertificateFile]]) -> Iterator[tuple[tuple[str, CertificateFile], float]]:
    for name, file in files:
        with suppress(OSError, ValueError):
            yield (name, file), valid_until_s(file)
