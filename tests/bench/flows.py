"""What a new flow costs over Zenoh: processor time of ours for flows of one message each, against one flow of as many.

    python -m tests.bench.flows [--flows 4000] [--json]

Prints microseconds per message, and what is added by each message being a flow of its own. The transport and everything
below it are measured: who listens, the put, its result. The messages are made before.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from functools import partial

from streamer.transports.base import MessageParcel, Presence
from streamer.transports.zenoh.transport import ZenohTransport
from streamer.uprotocol.message import UMessage, notification, publish
from streamer.uprotocol.uri import UUri
from tests.waiting import until
from tests.zenoh_peers import Outcomes, PeerProcess, free_endpoint, now_ms, running, until_up

_Make = Callable[[int], UMessage]

SINK = UUri.parse("//cloud/1/1/0")
KINDS: dict[str, _Make] = {
    "many sources": lambda n: notification(now_ms(), UUri("veh1", n + 1, 1, 0x8001), SINK, b"x"),
    "many sinks": lambda n: notification(now_ms(), UUri("veh1", 1, 1, 0x8001), UUri("cloud", n + 1, 1, 0), b"x"),
    "many topics": lambda n: publish(now_ms(), UUri("veh1", n + 1, 1, 0x8001), b"x"),
    "many authorities": lambda n: notification(now_ms(), UUri(f"veh{n}", 1, 1, 0x8001), SINK, b"x"),
}


async def cost_us(transport: ZenohTransport, make: _Make, count: int) -> float:
    """The processor time of one message, each with a flow that is watched."""
    outcomes = Outcomes()
    assert transport._control is not None
    parcels = [MessageParcel(make(number)) for number in range(count)]
    began_s = time.process_time()
    for start in range(0, count, 100):
        batch = parcels[start : start + 100]
        for parcel in batch:
            attributes = parcel.message.attributes
            transport.receivers.watch(attributes.source, attributes.sink, _ignore)
        transport.submit(batch, outcomes.done)
        await asyncio.sleep(0)
    await until(lambda: len(outcomes.reported) == count, "every result", 300.0)
    await transport._control.ask(lambda: None)
    return (time.process_time() - began_s) / count * 1e6


def _ignore(presence: Presence) -> None:
    """Nothing waits here for a change."""


async def measure(count: int) -> dict[str, tuple[float, float]]:
    """Microseconds per message by kind: of one flow, and of a flow each."""
    found = {}
    for name, make in KINDS.items():
        endpoint = free_endpoint()
        async with running(listen=[endpoint]) as transport, PeerProcess.running(connect=[endpoint]) as peer:
            await until_up(transport)
            for key in ("up/*/*/*/*/*/cloud/*/*/*/*", "up/veh1/*/*/*/*/{}/{}/{}/{}/{}"):
                await peer.subscribe(key)
            found[name] = (await cost_us(transport, partial(_first, make), count), await cost_us(transport, make, count))
    return found


def _first(make: _Make, number: int) -> UMessage:
    return make(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--flows", type=int, default=4000)
    parser.add_argument("--json", action="store_true", help="print a line of JSON")
    a = parser.parse_args()
    found = asyncio.run(measure(a.flows))
    if a.json:
        print(json.dumps({name: each for name, (_, each) in found.items()}))
        return
    for name, (one, each) in found.items():
        more = f"{each - one:6.1f} us more, {each / one:.1f} x"
        print(f"{name:18} one flow {one:6.1f} us, a flow each {each:6.1f} us: {more}")


if __name__ == "__main__":
    main()
