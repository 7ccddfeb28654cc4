"""What uTwin adds to a router: the steps that fill the last values, and the initial values."""

import asyncio
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from streamer.clock import Clock
from streamer.config.models import Config
from streamer.delivery.inbound.step import InboundStep, Inlet
from streamer.delivery.router import Additions
from streamer.features.utwin.initial_values import InitialValues
from streamer.features.utwin.last_values import LastValues
from streamer.features.utwin.remembering import Remembering
from streamer.uprotocol.well_known import LOCAL_ENDPOINT


class TwinFeature:
    """The last Publish of each topic that a router takes from its networks, and those that it sends to new subscribers."""

    def __init__(self, config: Config, clock: Clock) -> None:
        """``config``: with a section for uTwin."""
        assert config.utwin is not None
        bounds = config.utwin.max_topics, config.utwin.max_bytes
        self.last_values = LastValues(*bounds, config.listed_authorities, asyncio.Event())
        self.initial_values = InitialValues(self.last_values, clock)
        self.use(config)

    @property
    def additions(self) -> Additions:
        """Return what the router's constructor gets."""
        return Additions(steps=(self._step,), interest=(self.initial_values,), tasks=(self.initial_values,))

    def use(self, config: Config) -> None:
        """Apply a reloaded configuration."""
        self.initial_values.use([] if config.usubscription is None else config.usubscription.initial_topics)

    def families(self) -> Iterable[Metric]:
        """Yield the metrics about what is kept."""
        values = self.last_values
        yield GaugeMetricFamily("ustreamer_utwin_topics", "Topics whose last message uTwin keeps.", len(values))
        yield GaugeMetricFamily("ustreamer_utwin_bytes", "Bytes of these messages.", values.bytes)
        yield CounterMetricFamily(
            "ustreamer_utwin_forgotten_messages", "Last messages for which uTwin had no room any more.", values.forgotten
        )

    def _step(self, inlet: Inlet) -> InboundStep | None:
        return None if inlet.endpoint == LOCAL_ENDPOINT else Remembering(self.last_values)
