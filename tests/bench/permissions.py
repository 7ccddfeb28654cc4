"""What permissions cost: processor time of honest messages with many rules against none, and of new flows.

    python -m tests.bench.permissions [--rules 200] [--messages 20000] [--rounds 15]

The whole router runs on memory transports. Each round measures one after the other with and without the section; the best
round of each counts, because whatever else runs on the machine only adds.
"""

import argparse
import asyncio
from typing import Any

from streamer.config.permissions import TYPES
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import UMessage, UMessageType, notification, request
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import new_id
from tests.bench.in_memory import inject, spent_us
from tests.flow.harness import RouterHarness, configuration

FLOWS = 16


def rules(count: int) -> list[dict[str, Any]]:
    """So many rules of six shapes, of which the last one allows what is sent."""
    made: list[dict[str, Any]] = []
    for number in range(count - 1):
        uri, kind = f"//peer{number}/{number + 1:X}/1", TYPES[number % len(TYPES)]
        match number % 5:
            case 0:
                made.append({"deny": {"from": f"//peer{number}/FFFFFFFF/FF/FFFF"}})
            case 1:
                made.append({"allow": {"from": f"{uri}/FFFF", "to": f"//veh1/{number + 1:X}/1/FFFF"}})
            case 2:
                made.append({"deny": {"to": f"//veh{number}/{number + 1:X}/FF/FFFF", "types": [kind]}})
            case 3:
                made.append({"allow": {"from": f"//peer{number}/FFFFFFFF/FF/FFFF", "to": f"//veh1/{number + 1:X}/1/FFFF"}})
            case 4:
                made.append({"allow": {"to": f"//veh{number}/FFFFFFFF/FF/FFFF"}})
    return [*made, {"allow": {"from": "//cloud/FFFFFFFF/FF/FFFF", "to": "//veh1/FFFFFFFF/FF/FFFF"}}]


def section(count: int) -> dict[str, Any]:
    return {"endpoints": {"vehicle": {"rules": [{"allow": {}}]}, "cloud": {"rules": rules(count)}}}


def old_flows(harness: RouterHarness, count: int) -> list[UMessage]:
    """Notifications and Requests of a few flows."""
    ms = harness.clock.ms
    made = [
        notification(ms, UUri("cloud", number + 1, 1, 0x8001), UUri("veh1", number + 1, 1, 0))
        if number % 2
        else request(ms, UUri("cloud", number + 1, 1, 0), UUri("veh1", number + 1, 1, 7), 60_000)
        for number in range(FLOWS)
    ]
    return [UMessage(new_id(ms), made[number % FLOWS].attributes, b"x" * 256) for number in range(count)]


def new_flows(harness: RouterHarness, count: int) -> list[UMessage]:
    """Each message a flow of its own."""
    ms = harness.clock.ms
    sink = UUri("veh1", 1, 1, 0)
    return [notification(ms, UUri("cloud", number + 1, 1, 0x8001), sink, b"x" * 256) for number in range(count)]


async def cost_us(count: int, number_of_rules: int, is_new: bool) -> float:
    """Processor time of one message from its arrival until it is confirmed."""
    changes = {"permissions": section(number_of_rules)} if number_of_rules else {}
    async with RouterHarness(configuration(**changes), is_observed=False) as harness:
        make = new_flows if is_new else old_flows
        transport = harness.transports["cloud"]
        transport.inject(*map(MemoryReceived, old_flows(harness, FLOWS)))
        made = list(map(MemoryReceived, make(harness, count)))
        message_us = spent_us(lambda: inject(harness, made, "cloud"), count)
        sent = harness.transports["vehicle"].sent
        assert len(sent) == count + FLOWS, f"{len(sent)} of {count + FLOWS} arrived"
        assert {m.attributes.type for m in sent} <= {UMessageType.REQUEST, UMessageType.NOTIFICATION}
        return message_us


async def measure(number_of_rules: int, count: int, rounds: int) -> None:
    for name, is_new, messages in (("old flows", False, count), ("new flows", True, min(count, 4000))):
        best = {0: float("inf"), number_of_rules: float("inf")}
        for number in range(rounds):
            for each in sorted(best, reverse=bool(number % 2)):
                best[each] = min(best[each], await cost_us(messages, each, is_new))
        without, with_rules = best[0], best[number_of_rules]
        print(
            f"{name}: {without:.2f} us without permissions, {with_rules:.2f} us with {number_of_rules} rules: "
            f"{with_rules - without:+.2f} us, {100 * (with_rules / without - 1):+.1f} %",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rules", type=int, default=200)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.rules, arguments.messages, arguments.rounds))


if __name__ == "__main__":
    main()
