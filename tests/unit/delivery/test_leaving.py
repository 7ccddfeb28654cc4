"""What is said of a transport that fails while it starts, stops or receives no more."""

import asyncio
import json

import pytest

from streamer.delivery.leaving import attempt, stop_all
from streamer.logs.lines import JsonFormatter
from streamer.transports.errors import ConfigurationError
from tests.unit.delivery.fake_transport import FakeTransport


async def refuse() -> None:
    raise ConfigurationError("broker", "cannot be used")


async def break_down() -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("what", ["start", "stop", "stop_receiving"])
async def test_a_failure_is_an_event_of_its_own_with_the_endpoint(what: str, caplog: pytest.LogCaptureFixture) -> None:
    for endpoint, call in (("vehicle", refuse), ("cloud", break_down)):
        await attempt(call, what, endpoint)
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    assert [(line["level"], line["event"], line["endpoint"]) for line in lines] == [
        ("error", f"{what}_failed", "vehicle"),
        ("error", f"{what}_failed", "cloud"),
    ]
    assert (lines[0]["key"], lines[0]["reason"]) == ("broker", "cannot be used")
    # The log tells kinds of lines apart by the event and its first value.
    assert {(record.msg.split(" ")[0], record.args[0]) for record in caplog.records if isinstance(record.args, tuple)} == {
        (f"{what}_failed", "vehicle"),
        (f"{what}_failed", "cloud"),
    }


class Last(FakeTransport):
    """Its link is closed when all others have begun to close theirs."""

    def __init__(self, meeting: asyncio.Barrier) -> None:
        super().__init__()
        self.has_stopped = False
        self._meeting = meeting

    async def stop(self) -> None:
        await self._meeting.wait()
        self.has_stopped = True


class Broken(FakeTransport):
    """It cannot be stopped."""

    async def stop(self) -> None:
        await break_down()


async def test_links_are_closed_at_once_and_none_waits_for_another() -> None:
    meeting = asyncio.Barrier(5)
    transports = {f"broker{number}": Last(meeting) for number in range(5)}
    await asyncio.wait_for(stop_all({"broken": Broken(), **transports}), 10)
    assert all(transport.has_stopped for transport in transports.values())
