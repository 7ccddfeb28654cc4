"""`GET /api/v1/last-values`, asked over HTTP, and what `streamer last` makes of it."""

from pathlib import Path

import pytest

from streamer.features.api.payloads import PAYLOADS
from streamer.features.utwin.command import _row
from streamer.uprotocol.message import Options, UPayloadFormat, publish
from tests.clock import FakeClock
from tests.flow.harness import SPEED
from tests.unit.features.api.audit import audited
from tests.unit.features.api.daemon import DaemonHarness, running
from tests.unit.features.api.played import document_of

DOORS = SPEED._replace(resource=0x8001)


def publishes(served: DaemonHarness, clock: FakeClock, *payloads: bytes) -> None:
    """Each payload has a topic of its own, beginning with that of the doors."""
    text = Options(payload_format=UPayloadFormat.TEXT)
    for number, payload in enumerate(payloads):
        topic = DOORS._replace(resource=DOORS.resource + number)
        served.arrive("vehicle", publish(clock.wall_ms(), topic, payload, text))


async def test_each_look_is_in_the_audit_log_with_its_filters(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    async with running(tmp_path, clock=clock, utwin={}) as served:
        publishes(served, clock, b"secret", b"other")
        assert (await served.ask("/api/v1/last-values")).json["total"] == 2
        await served.ask("/api/v1/last-values", topic=str(DOORS), payload="text")
        assert (await served.ask("/api/v1/last-values", headers={})).status == 401
    seen = [line for line in audited(caplog) if line.startswith(("last_values_shown", "denied"))]
    assert seen[:2] == [
        "last_values_shown who=http where=127.0.0.1 filters=topic=any payload=length topics=2",
        f"last_values_shown who=http where=127.0.0.1 filters=topic={DOORS} payload=text topics=1",
    ]
    assert len(seen) == 3
    assert not any("secret" in line for line in audited(caplog))


async def test_as_much_of_a_payload_is_shown_as_by_a_tap(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running(tmp_path, clock=clock, utwin={}) as served:
        publishes(served, clock, b"x" * 2049)
        (value,) = (await served.ask("/api/v1/last-values", payload="text")).json["values"]
    assert (value["payload"], value["cut_bytes"], value["bytes"]) == ({"text": "x" * 2048}, 1, 2049)


@pytest.mark.parametrize("form", PAYLOADS)
async def test_every_answer_is_as_described(form: str, tmp_path: Path) -> None:
    clock = FakeClock()
    async with running(tmp_path, clock=clock, utwin={}) as served:
        publishes(served, clock, b"1", b"\xff" * 3000)
        document = await document_of(served)
        asked = await served.ask("/api/v1/last-values", payload=form)
    document.check("get", "/api/v1/last-values", asked)
    assert asked.json["total"] == 2


async def test_a_message_from_before_the_clock_was_set_back_is_younger_than_now(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running(tmp_path, clock=clock, utwin={}) as served:
        publishes(served, clock, b"1")
        clock.ms -= 3 * 3_600_000
        (value,) = (await served.ask("/api/v1/last-values")).json["values"]
    assert value["age_s"] == -10800
    assert _row(value)[1] == "-3h"
