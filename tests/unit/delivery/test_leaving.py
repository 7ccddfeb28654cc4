"""What is said of a transport that fails while it starts, stops or receives no more."""

import json

import pytest

from streamer.delivery.leaving import attempt
from streamer.logs.lines import JsonFormatter
from streamer.transports.errors import ConfigurationError


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
