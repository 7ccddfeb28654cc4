"""Streamers in a row, each with its own clock and live audit, and links between them that a test makes lose messages."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from streamer.delivery.router import Additions
from streamer.features.live_audit.comparison import RowComparison
from streamer.features.live_audit.config import LiveAuditConfig
from streamer.features.live_audit.counter import CountingStep, MessageCounter
from streamer.features.live_audit.service import LiveAudit
from streamer.features.live_audit.sums import IdCipher
from streamer.uprotocol.message import UMessage, UMessageType
from streamer.uprotocol.well_known import USTREAMER
from tests.clock import START_MS, FakeClock
from tests.flow.harness import ORDERS, VEHICLE_APP, RouterHarness, configuration
from tests.unit.features.host.local_transport import RecordingLocalTransport

STEP_S = 5
SETTLED_S = 240
GATEWAYS = ("gw-a", "gw-m", "gw-s")


Link = Callable[[Sequence[UMessage]], Sequence[UMessage]]
"""Returns what gets through of the messages that leave."""


def everything(messages: Sequence[UMessage]) -> Sequence[UMessage]:
    return messages


class UncheckedHarness(RouterHarness):
    """Books are checked elsewhere, and take most of the time."""

    def check_books(self) -> None:
        pass


def tell(audit: LiveAudit, message: UMessage) -> None:
    """Give a service the Notification, as core.ustreamer does."""
    (method,) = audit.methods().values()
    call = method.call(message.attributes.source, method.request.FromString(message.payload or b""))
    with pytest.raises(StopIteration):
        call.send(None)  # type: ignore[attr-defined]  # it waits for nothing


class Station:
    """One streamer between the networks `down` and `up`; `start` is also what happens to it after a kill."""

    def __init__(self, name: str, to: str | None, clock: FakeClock) -> None:
        self.name = name
        self.to = to
        self.clock = clock
        self.link: Link = everything
        self.start()

    def start(self) -> None:
        cipher = IdCipher()
        counter = MessageCounter(cipher.fold)
        self.router = UncheckedHarness(
            configuration(
                authority=self.name,
                endpoints={
                    "down": {
                        "transport": "memory",
                        "authorities": ["veh1", *(name for name in GATEWAYS if name != self.name)],
                    },
                    "up": {"transport": "memory", "authorities": ["*"]},
                },
                routes=[{"from": "down", "to": "up", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]}, {"from": "up", "to": "down"}],
            ),
            clock=self.clock,
            additions=Additions(observers=(counter,), steps=(lambda inlet: CountingStep(inlet.endpoint, counter),)),
        )
        self.taken = {"up": 0, "down": 0}
        self.local = RecordingLocalTransport(self.name, USTREAMER)
        comparison = RowComparison(cipher) if self.to is None else None
        options = LiveAuditConfig(to=self.to)
        self.audit = LiveAudit(self.local, options, counter, comparison, self._homes, self.clock)

    async def restart(self) -> None:
        """Go on as after a kill: nothing is left of what was in memory."""
        self.start()
        await self.router.router.start()

    def _homes(self, authority: str) -> tuple[str, ...]:
        return ("down",) if authority in GATEWAYS else ("up",)

    def left(self, endpoint: str) -> list[UMessage]:
        """Take what has left through an endpoint since the last call, and at the end the rows."""
        sent = self.router.transports[endpoint].sent
        found, self.taken[endpoint] = sent[self.taken[endpoint] :], len(sent)
        if endpoint == "up":
            found, self.local.said = found + self.local.said, []
        return found

    def arrive(self, endpoint: str, messages: Sequence[UMessage]) -> None:
        """Take messages from a network; rows of others go on, or to the audit if this is where they end."""
        for message in messages:
            if message.attributes.type is not UMessageType.NOTIFICATION or message.attributes.source[1:3] != USTREAMER:
                self.router.arrive(endpoint, message)
            elif self.to is None:
                tell(self.audit, message)
            else:
                self.local.said.append(message)


class Row:
    """Stations from the vehicle to the cloud: `gw-a`, perhaps others, and `hub`, which compares."""

    def __init__(self, *names: str, clocks_h: Sequence[float] = (0, 0, 0, 0)) -> None:
        clocks = [FakeClock(START_MS + round(hours * 3_600_000)) for hours in clocks_h]
        self.stations = [Station(name, "hub", clock) for name, clock in zip(names, clocks, strict=False)]
        self.cloud = Station("hub", None, clocks[len(names)])
        self.stations.append(self.cloud)
        self.published = 0

    async def open(self) -> None:
        for station in self.stations:
            await station.router.router.start()

    def __getitem__(self, name: str) -> Station:
        return next(station for station in self.stations if station.name == name)

    def pass_s(self, seconds: int, each: Callable[[], object] = lambda: None) -> None:
        """Let time pass; ``each`` is called every five seconds, before messages are carried."""
        for _ in range(0, seconds, STEP_S):
            each()
            self.carry()
            for station in self.stations:
                station.router.pass_time(STEP_S * 1000)
                station.audit.run_once()
            self.carry()

    def carry(self) -> None:
        """Carry what has left one station to the next, both ways."""
        for lower, upper in zip(self.stations, self.stations[1:], strict=False):
            upper.arrive("down", lower.link(lower.left("up")))
        for upper, lower in zip(self.stations[:0:-1], self.stations[-2::-1], strict=True):
            lower.arrive("up", upper.link(upper.left("down")))

    def publish(self, number: int = 1, **options: Any) -> list[UMessage]:
        """Publish messages in the vehicle."""
        first = self.stations[0]
        made = [first.router.speed(**options) for _ in range(number)]
        self.published += number
        first.arrive("down", made)
        return made

    def order(self) -> UMessage:
        """Send a Notification from the cloud to the vehicle."""
        made = self.cloud.router.notify(source=ORDERS, sink=VEHICLE_APP)
        self.cloud.arrive("up", [made])
        return made

    @property
    def counts(self) -> dict[str, int]:
        found = self.cloud.audit.comparison
        assert found is not None
        return found.counts

    def found(self, verdict: str = "lost") -> list[tuple[str, int, bytes | None]]:
        """What the cloud has found: streamer, messages, id."""
        findings = self.cloud.audit.findings
        return [(each.streamer, each.messages, each.message_id) for each in findings if each.verdict == verdict]


async def settled(*names: str, **options: Any) -> Row:
    """Streamers that have forwarded messages of one class for a while."""
    row = Row(*names, **options)
    await row.open()
    row.pass_s(SETTLED_S, row.publish)
    row.cloud.audit.findings.clear()
    row.pass_s(120)
    row.counts.update(dict.fromkeys(row.counts, 0))
    row.published = 0
    return row


def losing(*lost: UMessage) -> Link:
    ids = [message.id for message in lost]
    return lambda messages: [message for message in messages if message.id not in ids]
