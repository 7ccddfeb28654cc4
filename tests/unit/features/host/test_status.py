"""When core.ustreamer publishes its status, and how."""

import asyncio

import pytest

from streamer.features.host.status import LIFETIME, StatusConfig, StatusService
from streamer.uprotocol.message import UMessageType, UPayloadFormat
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USTREAMER
from tests.clock import FakeClock
from tests.unit.features.host.local_transport import RecordingLocalTransport
from tests.waiting import until


class World:
    """A service with a clock that the test sets, and a streamer whose health it says."""

    def __init__(self, every_s: float | None = 60) -> None:
        self.clock = FakeClock()
        self.local = RecordingLocalTransport("gw", USTREAMER)
        self.reasons: list[str] = []
        self.looked = 0
        self.service = StatusService(
            self.local, None if every_s is None else StatusConfig(every_s=every_s), self, self.clock
        )

    def health(self) -> list[str]:
        return list(self.reasons)

    def status(self) -> pb.Status:
        self.looked += 1
        return pb.Status(ready=not self.reasons, reasons=self.reasons)

    def pass_s(self, seconds: float) -> int:
        """How many were published after so long."""
        before = len(self.local.said)
        self.clock.advance(round(seconds * 1000))
        self.service.run_once()
        return len(self.local.said) - before


def test_it_is_a_publish_on_its_topic_that_expires() -> None:
    world = World(every_s=20)
    world.service.run_once()
    (message,) = world.local.said
    attributes = message.attributes
    assert (attributes.type, attributes.source, attributes.sink) == (UMessageType.PUBLISH, UUri("gw", 4, 1, 0x8002), None)
    assert (attributes.ttl, attributes.payload_format) == (20_000 * LIFETIME, UPayloadFormat.PROTOBUF)
    assert pb.Status.FromString(message.payload or b"") == pb.Status(ready=True, interval_ms=20_000)


def test_it_comes_at_once_and_then_every_so_often() -> None:
    world = World()
    assert world.pass_s(0) == 1
    assert world.pass_s(59) == 0
    assert world.pass_s(1) == 1
    assert world.looked == 2


def test_a_change_of_health_is_told_at_once_but_not_too_often() -> None:
    world = World()
    world.service.run_once()
    assert world.pass_s(10) == 0
    world.reasons = ["endpoint cloud is not connected"]
    assert world.pass_s(0) == 1
    told = pb.Status.FromString(world.local.said[-1].payload or b"")
    assert (told.ready, list(told.reasons)) == (False, ["endpoint cloud is not connected"])
    world.reasons = []
    assert world.pass_s(1) == 0  # it flaps
    assert world.pass_s(5) == 1  # and is told what it is, a little later
    assert world.pass_s(5) == 0


def test_what_can_wait_is_bounded_however_often_the_health_changes() -> None:
    world = World(every_s=60)
    published = 0
    for second in range(60 * LIFETIME):  # as long as the first of them lives
        world.reasons = [str(second)]
        published += world.pass_s(1)
    assert published <= 10 * LIFETIME + 1


def test_without_options_nothing_is_published_and_nobody_looks() -> None:
    world = World(every_s=None)
    assert world.pass_s(1000) == 0
    assert world.looked == 0


async def test_it_runs_and_a_reload_turns_it_on_and_off(caplog: pytest.LogCaptureFixture) -> None:
    world = World(every_s=None)
    running = asyncio.create_task(world.service.run())
    await asyncio.sleep(0)
    world.service.use(StatusConfig())
    await until(lambda: len(world.local.said) == 1, "the first")
    world.clock.advance(30_000)
    world.reasons = ["down"]
    world.service.health_changed()
    await until(lambda: len(world.local.said) == 2, "the change")
    world.service.use(StatusConfig())  # nothing new
    world.service.use(None)
    world.reasons = []
    world.service.health_changed()
    assert world.pass_s(1000) == 0
    world.status = None  # type: ignore[method-assign,assignment]
    world.service.use(StatusConfig())
    await until(lambda: "status_failed" in caplog.text, "a fault")
    assert not running.done()
    running.cancel()
