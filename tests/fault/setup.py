"""What a fault is tried on: the networks, what is special about them, and the configuration of the daemon between them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.fault.load import GATEWAY, TOPIC_SIDES
from tests.fault.scripted import Script

RECEIVE_MAXIMUM = WINDOW = 1000
TOPICS = {side: topic for topic, side in TOPIC_SIDES.items()}
UNCERTAIN_S = 3.0
ZENOH_OPTIONS = {"uncertain_s": UNCERTAIN_S, "lease_ms": 2000, "wait_before_close_ms": 500}
WAYS = (("cloud", "veh"), ("veh", "cloud"), ("cloud", "plant"), ("plant", "cloud"))


@dataclass
class FaultSetup:
    """What a fault needs. ``changes`` replace top-level keys of the daemon's configuration."""

    sides: Iterable[str] = ("cloud", "veh", "plant")
    changes: dict[str, Any] = field(default_factory=dict)
    cloud_broker: dict[str, Any] = field(default_factory=dict)
    plant_broker: dict[str, Any] = field(default_factory=dict)
    cloud_options: dict[str, Any] = field(default_factory=dict)
    plant_options: dict[str, Any] = field(default_factory=dict)
    veh_options: dict[str, Any] = field(default_factory=lambda: dict(ZENOH_OPTIONS))
    plant_script: Script | None = None
    """Instead of a broker at plant, one that refuses as the script says; plant has no client then."""
    lease_ms: int | None = 2000
    has_receiver: bool = True
    through_router: bool = False
    ttl_ms: int = 600_000
    """Of Requests."""
    age_ms: int = 0
    """How old Requests are when they are sent: their ids say so."""
    ways: tuple[tuple[str, str], ...] = WAYS

    def configuration(self, endpoints: dict[str, Any]) -> dict[str, Any]:
        """The daemon's, for the endpoints that were opened."""
        routes = [
            {"from": here, "to": there, "publish": [f"//{here}/FFFFFFFF/FF/{TOPICS[there]:X}"], "publish_to": [there]}
            for here, there in self.ways
            if here in endpoints and there in endpoints
        ]
        config = {"authority": GATEWAY, "endpoints": endpoints, "routes": routes, "shutdown": {"drain_s": 3}}
        return config | self.changes


@dataclass
class PairSetup:
    """What a fault of a pair needs. ``changes`` replace top-level keys of both configurations."""

    plant: Literal["far streamer", "broker"] | None = None
    """Where plant is: behind another streamer, on a broker of its own that the two connect to, or nowhere."""
    is_readme: bool = False
    """As the README and the how-to have it: the cloud has all other authorities, and programs in the vehicle connect to the
    two, with Zenoh's own times. The two are linked over Zenoh, too."""
    through_router: bool = False
    """As the how-to has it as well: with the former, and all are linked to a Zenoh router instead."""
    has_publishes: bool = True
    """Whether the load has Publishes: if nobody listens, they go nowhere."""
    changes: dict[str, Any] = field(default_factory=dict)
    pair: dict[str, Any] = field(default_factory=dict)
    """Replaces keys of the section."""
    disks: dict[str, Path] | None = None
    """Of the journals."""
    environ: dict[str, str] = field(default_factory=dict)
    """Of both processes."""
