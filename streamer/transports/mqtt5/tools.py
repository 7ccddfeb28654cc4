"""The part of the MQTT transport that commands and services use without a connection."""

from collections.abc import Collection, Iterable, Mapping
from functools import partial

from streamer.transports.base import Tools
from streamer.transports.certificates import expiry_probe
from streamer.transports.mqtt5.options import Mqtt5Options
from streamer.transports.mqtt5.probe import try_broker
from streamer.transports.mqtt5.wire import topic_filter
from streamer.transports.probe import Probe
from streamer.uprotocol.uri import UUri


class Mqtt5Tools(Tools):
    """The topic filters of both forms of topics, and the probes of certificates and brokers."""

    def filter_texts(self, source: UUri, sink: UUri | None, authority: str) -> Mapping[str, str]:
        return {
            "mqtt_in_vehicle": topic_filter(source, sink, "in-vehicle", authority),
            "mqtt_off_vehicle": topic_filter(source, sink, "off-vehicle", authority),
        }

    def probes(self, options: Mqtt5Options, held: Collection[str]) -> Iterable[Probe]:
        yield from (expiry_probe(key, file) for key, file in options.certificates().items())
        brokers = options.brokers
        keys = ["broker"] if len(brokers) == 1 else [f"broker.{number}" for number in range(len(brokers))]
        for key, broker in zip(keys, brokers, strict=True):
            yield Probe(key, partial(try_broker, options, broker))
