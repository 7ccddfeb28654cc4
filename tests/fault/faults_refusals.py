"""A destination that refuses messages: 9."""

import asyncio
import random
from typing import Any

from tests.fault.harness import FaultHarness
from tests.fault.ledger import Allowance, Breach, Sent, Verdict
from tests.fault.registry import Run, fault
from tests.fault.scripted import Script
from tests.fault.setup import FaultSetup

PASSING = {0x80: 13, 0x83: 13, 0x91: 14, 0x97: 8}
"""Reasons that may go away (MQTT 5, 3.4.2.1), and the code that the dead letter says when the attempts are used up."""
FOR_GOOD = {0x87: 7, 0x90: 3, 0x99: 3}
"""Reasons that no repetition helps against, and the code that the dead letter says at once."""
CODES = FOR_GOOD | PASSING
ATTEMPTS = 3
RETRY = {"initial_ms": 20, "max_ms": 100}
SOURCES = {reason: 0x500 + n for n, reason in enumerate(CODES)}


def to_plant(script: Script, **queue_policy: Any) -> FaultSetup:
    return FaultSetup(
        ("cloud", "plant"),
        ways=(("cloud", "plant"),),
        plant_script=script,
        changes={"queue_policy": queue_policy},
        ttl_ms=60_000,
    )


def refusing(run: Run, share: float, only_head: bool) -> Script:
    """Refuses each message of a random choice one to five times, for passing reasons."""
    chance = random.Random(run.seed)
    times: dict[bytes, int] = {}

    def script(entry: Sent, refused: int) -> int | None:
        if only_head and entry.number > 0:
            return None
        if entry.id not in times:
            times[entry.id] = chance.randint(1, 5) if chance.random() < share else 0
        return chance.choice(list(PASSING)) if refused < times[entry.id] else None

    return script


@fault(9, "head of a flow refused, then accepted")
async def head_refused(run: Run) -> Verdict:
    setup = to_plant(refusing(run, 1, only_head=True), retry={**RETRY, "attempts": 100})
    async with FaultHarness(run.directory, run.seed, setup) as harness:
        harness.load(400)
        await asyncio.sleep(run.lasts(1.5, 5))
        verdict = await harness.finish()
        assert harness.scripted is not None
        assert harness.scripted.refusals.total() >= len(harness.flows("cloud", "plant"))
        return verdict


@fault(9, "refused in the middle of a flow")
async def middle_refused(run: Run) -> Verdict:
    """With ``flow_window: 1``, which is what keeps the order here."""
    setup = to_plant(refusing(run, 0.1, only_head=False), retry={**RETRY, "attempts": 100}, flow_window=1)
    async with FaultHarness(run.directory, run.seed, setup) as harness:
        harness.load(200)
        await asyncio.sleep(run.lasts(1.5, 10))
        verdict = await harness.finish()
        assert harness.scripted is not None
        assert harness.scripted.refusals.total() > 0
        return verdict


@fault(9, "each reason of a PUBACK", seeds=5)
async def each_reason(run: Run) -> Verdict:
    """One flow per reason: the first message is refused with it for ever, what follows is taken."""

    def script(entry: Sent, _refused: int) -> int | None:
        if entry.number > 0:
            return None
        return next((reason for reason, source in SOURCES.items() if entry.flow.endswith(f" {source:x}")), None)

    async with FaultHarness(run.directory, run.seed, to_plant(script, retry={**RETRY, "attempts": ATTEMPTS})) as harness:
        first = {reason: harness.send("cloud", "plant", source, 0) for reason, source in SOURCES.items()}
        for number in range(1, 4):
            for source in SOURCES.values():
                harness.send("cloud", "plant", source, number)
        await harness.settle_sends()
        verdict = await harness.finish(Allowance(dead_letters=True))
        assert harness.scripted is not None
        dead = harness.ledger.dead_letters()
        for reason, message_id in first.items():
            expected = [CODES[reason]], 1 if reason in FOR_GOOD else ATTEMPTS
            found = dead.get(message_id, []), harness.scripted.refusals[message_id]
            if found != expected:
                verdict.add(Breach.REFUSED, [f"reason {reason:#x}: codes and refusals {found} instead of {expected}"])
        assert set(dead) == set(first.values())
        return verdict
