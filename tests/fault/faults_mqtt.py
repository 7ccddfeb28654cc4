"""What brokers and the links to them do: 2, 3, 4, 10, 14."""

import asyncio
from collections.abc import Callable

from tests.fault.harness import FaultHarness
from tests.fault.ledger import Allowance, Breach, Verdict
from tests.fault.proxy import BACK, BOTH, FORWARD
from tests.fault.registry import Run, fault
from tests.fault.setup import RECEIVE_MAXIMUM, WINDOW, FaultSetup
from tests.waiting import until

RATE = 300.0
BROKERS = ("cloud", "plant")
UNCONFIRMED = Allowance(duplicates=WINDOW + RECEIVE_MAXIMUM)
"""What was unconfirmed at one fault of one link: both directions."""

MQTT_ONLY = ("cloud", "plant")


def times(count: int) -> Allowance:
    return Allowance(duplicates=count * UNCONFIRMED.duplicates)


# -- 2: brokers die ---------------------------------------------------------------------------------------------------


async def kill_and_start_broker(harness: FaultHarness, side: str, away_s: float) -> None:
    """SIGKILL for a broker. What it had confirmed, to its client or to the daemon, and had not passed on, is its own loss.

    The daemon finds it again only when its client has subscribed: else the broker would have nobody to give messages to.
    """
    broker, node, tap, proxy = harness.brokers[side], harness.nodes[side], harness.taps[side], harness.proxies[side]
    await proxy.refuse()
    await asyncio.to_thread(broker.kill)
    await until(lambda: not node.is_ready, within_s=10, what=f"the client at {side} to lose its broker")
    await harness.daemon.until_down(side)
    known = harness.ledger.confirmed_ids(side)
    harness.ledger.excuse(known - tap.acknowledged, f"the broker of {side} had confirmed it to its sender")
    harness.ledger.excuse(set(tap.confirmed), f"the broker of {side} had confirmed it to the daemon")
    await asyncio.sleep(away_s)
    await asyncio.to_thread(broker.start)
    await until(lambda: node.is_ready, within_s=10, what=f"the client at {side} to come back")
    await proxy.heal()


async def broker_dies(run: Run, persistence: bool) -> Verdict:
    options = {"persistence": persistence, "extra": ("autosave_interval 1",)}
    async with FaultHarness(
        run.directory, run.seed, FaultSetup(MQTT_ONLY, cloud_broker=options, plant_broker=options)
    ) as harness:
        harness.load(RATE)
        side = run.chance.choice(BROKERS)
        await asyncio.sleep(run.between(0.3, 1.5))
        await kill_and_start_broker(harness, side, run.between(0, run.lasts(0.5, 5)))
        await harness.until_flowing()
        # a broker that comes back with an old state repeats what it had passed on: these copies are not the daemon's
        verdict = await harness.finish(Allowance(duplicates=10**9))
        copies = {name: tap.copies for name, tap in harness.taps.items()}
        verdict.add(Breach.DUPLICATES, [f"{name}: {n} by the daemon" for name, n in copies.items() if n > WINDOW])
        return verdict


@fault(2, "broker killed, without persistence")
async def broker_killed(run: Run) -> Verdict:
    return await broker_dies(run, persistence=False)


@fault(2, "broker killed, with persistence")
async def persistent_broker_killed(run: Run) -> Verdict:
    return await broker_dies(run, persistence=True)


@fault(2, "broker down at start", seeds=3)
async def broker_down_at_start(run: Run) -> Verdict:
    """As the daemon sees it: nobody listens on the broker's port."""
    async with FaultHarness(run.directory, run.seed, FaultSetup(MQTT_ONLY), starts_daemon=False) as harness:
        side = run.chance.choice(BROKERS)
        await harness.proxies[side].refuse()
        harness.daemon.start()
        harness.load(RATE)
        await asyncio.sleep(run.lasts(2, 60))
        assert harness.daemon.total("ustreamer_endpoint_up", endpoint=side) == 0
        await harness.proxies[side].heal()
        await harness.until_ready()
        await harness.until_flowing()
        return await harness.finish()


# -- 3: links ---------------------------------------------------------------------------------------------------------


@fault(3, "link stalled beyond the keep alive")
async def link_stalled(run: Run) -> Verdict:
    """No RST, no FIN: only the keep alive (2 s) and the acknowledgement's time-out (4 s) can tell."""
    async with FaultHarness(run.directory, run.seed, FaultSetup()) as harness:
        side = run.chance.choice(BROKERS)
        directions = run.chance.choice((BOTH, (FORWARD,), (BACK,)))
        harness.load(RATE)
        await asyncio.sleep(run.between(0.2, 0.8))
        harness.proxies[side].stall(directions)
        await harness.daemon.until_down(side, 15)
        await asyncio.sleep(run.between(0, run.lasts(0.5, 15)))
        await harness.proxies[side].heal()
        await harness.until_ready()
        return await harness.finish(times(3))


@fault(3, "link cut in the middle of a drain")
async def link_cut_in_a_drain(run: Run) -> Verdict:
    async def harm(harness: FaultHarness) -> None:
        await harness.proxies["plant"].cut()

    return await harm_in_a_drain(run, harm)


@fault(3, "link reset in the middle of a drain")
async def link_reset_in_a_drain(run: Run) -> Verdict:
    async def harm(harness: FaultHarness) -> None:
        harness.proxies["plant"].reset()

    return await harm_in_a_drain(run, harm)


async def harm_in_a_drain(run: Run, harm: Callable[[FaultHarness], object]) -> Verdict:
    """A backlog builds up, drains slowly, and the link breaks a few times meanwhile."""
    rounds = 3
    async with FaultHarness(run.directory, run.seed, FaultSetup(MQTT_ONLY)) as harness:
        proxy = harness.proxies["plant"]
        harness.load(RATE)
        await harness.until_flowing()
        await proxy.sever()
        await asyncio.sleep(run.lasts(1, 5))
        for _ in range(rounds):
            before = harness.ledger.arrivals()
            await proxy.heal()
            proxy.slow(300_000)
            wanted = before + run.chance.randint(20, 100)
            await harness.until(lambda: harness.ledger.arrivals() >= wanted, 20, "some arrivals")  # noqa: B023  # at once
            await harm(harness)  # type: ignore[misc]
        await proxy.heal()
        return await harness.finish(times(rounds + 1))


@fault(3, "link reset under load")
async def link_reset(run: Run) -> Verdict:
    rounds = int(run.lasts(4, 20))
    async with FaultHarness(run.directory, run.seed, FaultSetup()) as harness:
        harness.load(RATE)
        for _ in range(rounds):
            await asyncio.sleep(run.between(0.05, 0.6))
            harness.proxies[run.chance.choice(BROKERS)].reset()
        await harness.until_ready()
        return await harness.finish(times(rounds))


@fault(3, "link in single bytes")
async def link_in_fragments(run: Run) -> Verdict:
    async with FaultHarness(run.directory, run.seed, FaultSetup()) as harness:
        for proxy in harness.proxies.values():
            proxy.fragment()
        harness.load(40, most_bytes=300)
        await asyncio.sleep(run.lasts(1.5, 20))
        return await harness.finish()


@fault(3, "link slow")
async def link_slow(run: Run) -> Verdict:
    """50 kB/s, some of it for pings: nothing breaks, everything waits."""
    async with FaultHarness(run.directory, run.seed, FaultSetup(MQTT_ONLY)) as harness:
        harness.load(150)
        for side in BROKERS:
            harness.proxies[side].slow(50_000)
        await asyncio.sleep(run.lasts(2, 20))
        for side in BROKERS:
            harness.proxies[side].heal_flow()
        return await harness.finish(times(1))


# -- 4 ----------------------------------------------------------------------------------------------------------------


@fault(4, "backlog drains without new traffic")
async def backlog_drains(run: Run) -> Verdict:
    async with FaultHarness(run.directory, run.seed, FaultSetup()) as harness:
        side = run.chance.choice(BROKERS)
        harness.load(RATE)
        await harness.until_flowing()
        await harness.proxies[side].sever()
        await asyncio.sleep(run.lasts(1, 10))
        harness.stop_load()
        await harness.daemon.until_down(side)
        await harness.proxies[side].heal()
        await harness.settle()  # with nothing new: not even a probe
        missing = [str(entry) for entry in harness.ledger.missing()]
        verdict = await harness.finish(times(1))
        verdict.add(Breach.LOST, missing)
        return verdict


# -- 10 ---------------------------------------------------------------------------------------------------------------


@fault(10, "receive maximum 1")
async def receive_maximum_of_one(run: Run) -> Verdict:
    """mosquitto tells its ``max_inflight_messages`` as receive maximum. With resets: what is sent again counts too."""
    setup = FaultSetup(MQTT_ONLY, plant_broker={"max_inflight": 1})
    async with FaultHarness(run.directory, run.seed, setup) as harness:
        harness.load(RATE)
        for _ in range(3):
            await asyncio.sleep(run.between(0.2, run.lasts(0.5, 3)))
            harness.proxies["plant"].reset()
        await harness.until_ready()
        verdict = await harness.finish(times(3))
        most = harness.taps["plant"].most_unconfirmed
        assert most == 1, f"{most} unconfirmed messages at a receive maximum of 1"
        return verdict


# -- 14 ---------------------------------------------------------------------------------------------------------------


@fault(14, "dead letter endpoint down")
async def dead_letter_endpoint_down(run: Run) -> Verdict:
    """Requests have expired before they come, and the dead letters are to go where nobody answers."""
    setup = FaultSetup(changes={"dead_letter": {"endpoints": ["plant"]}}, ttl_ms=30_000, age_ms=60_000)
    async with FaultHarness(run.directory, run.seed, setup) as harness:
        await harness.proxies["plant"].sever()
        await harness.daemon.until_down("plant")
        harness.load(RATE, ("cloud", "veh"), ("veh", "cloud"))
        await asyncio.sleep(run.lasts(1.5, 15))
        harness.stop_load()
        await harness.settle_sends()
        assert not harness.ledger.dead_letters()
        await harness.proxies["plant"].heal()
        await harness.until_ready()
        verdict = await harness.finish(Allowance(dead_letters=True))
        dead = harness.ledger.dead_letters()
        assert dead, "nothing expired"
        accepted = harness.daemon.total("ustreamer_accepted_messages_total", route="dead-letter/plant")
        assert accepted == len(dead), f"{accepted} dead letters for {len(dead)} messages"
        return verdict
