"""Scrapes of the metrics of a router after some of everything."""

from prometheus_client.parser import text_string_to_metric_families

from streamer.features.api.metrics import Exposition
from streamer.features.usubscription.page import families
from streamer.transports.errors import PermanentError, RefusedError
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.flow.harness import ORDERS, RouterHarness, configuration

PACKETS = ("received_messages", "malformed_packets", "unwanted_packets")
"""What becomes of the packets that arrive."""


class Scrape:
    """One scrape: samples by name and labels. A sample that comes twice fails, as it does in Prometheus."""

    def __init__(self, harness: RouterHarness, exposition: Exposition | None = None) -> None:
        self.families = list(
            text_string_to_metric_families(
                (exposition or Exposition(harness.router, [lambda: families({"subscriptions": 7})])).text().decode()
            )
        )
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in self.families:
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self.samples, f"twice: {sample}"
                self.samples[key] = sample.value

    def sum(self, name: str, **labels: str) -> float:
        return sum(v for (n, found), v in self.samples.items() if n == name and labels.items() <= dict(found).items())

    def check_books(self) -> None:
        routes = {tuple(sorted(labels)) for name, labels in self.samples if name == "ustreamer_accepted_messages_total"}
        assert routes
        for route in routes:
            labels = dict(route)
            accepted = self.sum("ustreamer_accepted_messages_total", **labels)
            outcomes = self.sum("ustreamer_outcomes_total", **labels)
            assert accepted == outcomes + self.sum("ustreamer_queue_messages", **labels), labels
        endpoints = [dict(labels) for name, labels in self.samples if name == "ustreamer_received_packets_total"]
        assert endpoints
        for labels in endpoints:
            became = sum(self.sum(f"ustreamer_{what}_total", **labels) for what in PACKETS)
            assert self.sum("ustreamer_received_packets_total", **labels) == became, labels


async def played() -> RouterHarness:
    """A router after some of everything."""
    harness = RouterHarness(configuration(queue_policy={"retry": {"attempts": 2}}))
    await harness.router.start()
    cloud = harness.transports["cloud"]
    cloud.refuse = lambda message: {
        b"not now": RefusedError(UCode.RESOURCE_EXHAUSTED, "not now"),
        b"never": PermanentError(UCode.PERMISSION_DENIED, "never"),
    }.get(message.payload or b"")
    message = harness.speed(b"fine")
    harness.arrive(
        "vehicle", message, message, harness.speed(b"never"), harness.notify(b"not now"), harness.speed(b"x", ttl=1)
    )
    harness.arrive("cloud", harness.ask(), harness.ask(source=UUri("veh1", 1, 1, 0)))
    harness.arrive("cloud", harness.speed(source=ORDERS))
    harness.router.ingresses["cloud"].stats.packets += 1
    harness.router.ingresses["cloud"].on_receive(MemoryReceived(harness.speed(source=ORDERS)))
    harness.pass_time(700)
    cloud.is_withholding = True
    harness.arrive("vehicle", harness.speed(b"in flight"), harness.speed(b"waits", source=UUri("veh1", 9, 1, 0x8000)))
    harness.pass_time(1500)
    return harness
