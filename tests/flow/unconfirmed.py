"""Flows over a network that does not confirm, for tests of what becomes of them."""

from streamer.config.models import Config
from streamer.transports.base import Presence
from streamer.uprotocol.uri import UUri
from tests.flow.harness import ORDERS, VEHICLE_APP, RouterHarness, configuration

ROUTE = "cloud-vehicle"


UNCONFIRMED_S = 10


ABSENT_MS = 60_000


def publishing() -> Config:
    return configuration(
        routes=[
            {"from": "vehicle", "to": "cloud"},
            {"from": "cloud", "to": "vehicle", "publish": ["//cloud/FFFFFFFF/FF/FFFF"]},
        ]
    )


def reach(harness: RouterHarness, reached: Presence, source: UUri = ORDERS, sink: UUri | None = VEHICLE_APP) -> None:
    harness.transports["vehicle"].set_presence(source, sink, reached)
    harness.check_books()
