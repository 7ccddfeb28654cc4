"""What the network and the vehicle do to a pair that is built as the README and the how-to say: 19."""

import asyncio
import functools
import itertools
import signal
import time

from tests.fault.faults_pair import NUMBER, SEEDS, SIGN_S, killed, rate, under_way, window
from tests.fault.ledger import Verdict
from tests.fault.pair import PairHarness
from tests.fault.proxy import BOTH
from tests.fault.registry import Run, fault
from tests.fault.setup import PairSetup

ROUND_TRIPS_MS = (40, 100, 450, 900)
BEYOND_THE_LEASE_S = 12.0
"""Longer than Zenoh's lease of 10 s."""
LONG_WAY_RATE = 100.0
LONG_WAY_S = 0.1
WHOLE_WITHIN_S = 20.0
WORKS = 95.0


def as_readme(run: Run, has_publishes: bool = True) -> PairHarness:
    return PairHarness(run.directory, run.seed, PairSetup(is_readme=True, has_publishes=has_publishes))


# -- receivers that are away ------------------------------------------------------------------------------------------


async def nobody_listens(run: Run, *, through_router: bool) -> Verdict:
    """The receiver is away, and something happens to one of the two. Everything waits, and arrives once it is back."""
    setup = PairSetup(is_readme=True, through_router=through_router, has_publishes=False)
    async with PairHarness(run.directory, run.seed, setup) as harness:
        first, second = await harness.until_pair()
        await harness.receiver_leaves()
        harness.load(rate(run), ["cloud"])
        await asyncio.sleep(run.lasts(1, 5))
        harness.stop_load()
        await harness.until_received()
        one, number = run.one_of(*itertools.product((second, first), (signal.SIGKILL, signal.SIGSTOP)))
        one.signal(number)
        if number is signal.SIGSTOP:
            await asyncio.sleep(BEYOND_THE_LEASE_S)
            one.signal(signal.SIGCONT)
        await harness.until_pair()
        harness.load(rate(run), ["cloud"])
        await asyncio.sleep(run.lasts(1, 5))
        await harness.receiver_returns()
        return await harness.finish()


for _where, _through_router in {"": False, " behind a router": True}.items():
    _body = functools.partial(nobody_listens, through_router=_through_router)
    fault(NUMBER, f"pair: nobody listens{_where}", seeds=SEEDS)(_body)


@fault(NUMBER, "pair: both killed and programs with Zenoh's own times", seeds=SEEDS)
async def both_killed(run: Run) -> Verdict:
    """The two are back before the programs are."""
    async with as_readme(run, has_publishes=False) as harness:
        harness.load(rate(run), ["cloud"])
        for _ in range(3):
            await harness.until_flowing([("cloud", "veh")])
            await asyncio.sleep(run.between(0.1, 1))
            for gateway in run.chance.sample(list(harness.gateways.values()), 2):
                gateway.signal(signal.SIGKILL)
                await asyncio.sleep(run.between(0, 0.3))
            await harness.until_pair()
        return await harness.finish(window(run, 3))


@fault(NUMBER, "pair: node that joins and leaves once a second", seeds=SEEDS)
async def restless(run: Run) -> Verdict:
    """It subscribes to nothing, and delays nothing. Each time, what is not confirmed may have been lost with it.

    What was not when it left for good waits `absent_s` for it.
    """
    setup = PairSetup(is_readme=True, changes={"queue_policy": {"absent_s": 10}})
    async with PairHarness(run.directory, run.seed, setup) as harness:
        harness.load(rate(run))
        await under_way(run, harness)
        lasts_s = run.lasts(10, 30)
        async with harness.restless_node():
            with harness.measured(WORKS):
                await asyncio.sleep(lasts_s)
        await harness.until_pair()
        return await harness.finish(window(run, int(lasts_s)))


# -- one of the two ---------------------------------------------------------------------------------------------------


@fault(NUMBER, "pair: standby stopped for a while", seeds=SEEDS)
async def standby_stopped(run: Run) -> Verdict:
    async with as_readme(run) as harness:
        harness.load(rate(run))
        _, second = await under_way(run, harness)
        second.signal(signal.SIGSTOP)
        await asyncio.sleep(run.lasts(BEYOND_THE_LEASE_S, 3 * BEYOND_THE_LEASE_S))
        await harness.until_flowing()
        second.signal(signal.SIGCONT)
        await harness.until_pair()
        return await harness.finish()


@fault(NUMBER, "pair: active one stopped beyond Zenoh's lease", seeds=SEEDS)
async def active_stopped(run: Run) -> Verdict:
    async with as_readme(run) as harness:
        harness.load(rate(run))
        first, second = await under_way(run, harness)
        began_s = time.monotonic()
        first.signal(signal.SIGSTOP)
        await harness.until_takes_over(second)
        await harness.until_flowing(since_s=began_s)
        await asyncio.sleep(max(0.0, BEYOND_THE_LEASE_S - (time.monotonic() - began_s)))
        first.signal(signal.SIGCONT)
        await harness.until_active(second)
        await harness.until_pair()
        await harness.until_flowing()
        return await harness.finish(window(run))


@fault(NUMBER, "pair: standby killed", seeds=SEEDS)
async def standby_killed(run: Run) -> Verdict:
    async with as_readme(run) as harness:
        harness.load(rate(run))
        for _ in range(int(run.lasts(2, 5))):
            _, second = await under_way(run, harness)
            second.signal(signal.SIGKILL)
            await harness.until(lambda: not second.is_running, "the end of the standby")  # noqa: B023  # at once
            await harness.until_flowing()
            await harness.until_pair()
        return await harness.finish()


@fault(NUMBER, "pair: vehicle linked to the active one only", seeds=SEEDS)
async def linked_to_the_active(run: Run) -> Verdict:
    """The standby says so, and nothing is handed over to it until it hears the vehicle."""
    async with as_readme(run) as harness:
        harness.load(rate(run))
        first, second = await under_way(run, harness)
        ways = [harness.proxies[second.name, what] for what in ("source", "receiver")]
        for way in ways:
            await way.sever()
        if not await harness.happens(lambda: not second.is_ready(), SIGN_S):
            harness.sign_was_wrong("the standby is ready, and does not hear the vehicle")
        status, said = await first.command("handover")
        if status == 0:
            harness.sign_was_wrong("handed over to one that does not hear the vehicle")
            await harness.until_active(second)
        await asyncio.sleep(run.lasts(1, 5))
        for way in ways:
            await way.heal()
        first, second = await harness.until_pair()
        assert await harness.happens(second.is_ready, SIGN_S), "the standby is not ready"
        status, said = await first.command("handover")
        assert status == 0, said
        await harness.until_takes_over(second)
        await harness.until_pair()
        await harness.until_flowing()
        return await harness.finish(window(run))


# -- the way between the two ------------------------------------------------------------------------------------------


@fault(NUMBER, "pair: hole in one direction", seeds=SEEDS)
async def one_way(run: Run) -> Verdict:
    """On the link or on Zenoh between the two, which hear each other over the other one."""
    async with as_readme(run) as harness:
        assert harness.near is not None
        harness.load(rate(run))
        await under_way(run, harness)
        proxy, direction = run.one_of(*itertools.product((harness.near, harness.link), BOTH))
        proxy.stall([direction])
        await asyncio.sleep(run.lasts(BEYOND_THE_LEASE_S, 3 * BEYOND_THE_LEASE_S))
        await harness.until_flowing()
        await proxy.heal()
        await harness.until_pair()
        await harness.until_flowing()
        return await harness.finish()


@fault(NUMBER, "pair: black hole of the link that heals", seeds=SEEDS)
async def black_hole(run: Run) -> Verdict:
    """As soon as the standby says that it is ready, the other disk may be gone."""
    async with as_readme(run, has_publishes=False) as harness:
        await harness.until_pair()
        await harness.receiver_leaves()
        harness.load(rate(run), ["cloud"])
        harness.link.stall()
        await asyncio.sleep(run.lasts(8, 20))
        await harness.link.heal()
        began_s = time.monotonic()
        await asyncio.sleep(run.between(1, 3))
        harness.stop_load()
        await harness.until_received()
        first, second = await harness.until_roles()  # on a busy machine they may have changed
        assert await harness.happens(second.is_ready, WHOLE_WITHIN_S), "the standby is not ready"
        harness.took(began_s)
        first.signal(signal.SIGKILL, stays=True)
        await harness.until(lambda: not first.is_running, "the end of the active one")
        await harness.until_active(second)
        first.empty_disk()
        first.start()
        await harness.until_pair()
        await harness.receiver_returns()
        return await harness.finish()


async def over_a_round_trip(run: Run, trip_ms: int) -> Verdict:
    """So long takes the way there and back between the two, and between them and the vehicle."""
    async with as_readme(run) as harness:
        harness.delay(trip_ms / 2000)
        harness.load(LONG_WAY_RATE)
        await harness.until_flowing()
        with harness.measured(WORKS):
            await asyncio.sleep(run.lasts(5, 20))
        await under_way(run, harness)
        await killed(run, harness)
        await harness.until_pair()
        await harness.until_flowing()
        return await harness.finish(window(run))


for _trip_ms in ROUND_TRIPS_MS:
    fault(NUMBER, f"pair: round trip of {_trip_ms} ms", seeds=SEEDS)(functools.partial(over_a_round_trip, trip_ms=_trip_ms))


@fault(NUMBER, "pair: copy under load over a long way", seeds=SEEDS)
async def copy_under_load(run: Run) -> Verdict:
    """100 ms each way, and 100 messages a second: the standby has everything within 20 s."""
    async with PairHarness(run.directory, run.seed) as harness:
        harness.load(LONG_WAY_RATE)
        first, second = await under_way(run, harness)
        second.signal(signal.SIGKILL, stays=True)
        await harness.until(lambda: not second.is_running, "the end of the standby")
        second.empty_disk()
        harness.link.delay(LONG_WAY_S)
        harness.proxies[first.name, "receiver"].stall()
        await asyncio.sleep(run.lasts(1, 5))
        began_s = time.monotonic()
        second.start()
        assert await harness.happens(second.is_ready, WHOLE_WITHIN_S), "the standby is not ready"
        harness.took(began_s)
        await harness.until_whole()
        first.signal(signal.SIGKILL, stays=True)
        await harness.until_active(second)
        first.start()
        harness.proxies[first.name, "receiver"].reset()  # or what the first one had sent would come after it was sent again
        harness.proxies[first.name, "receiver"].heal_flow()
        await harness.until_flowing()
        await harness.until_pair()
        return await harness.finish(window(run, 2))
