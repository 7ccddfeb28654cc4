"""What happens to a pair of streamers, one active and one on standby: 19."""

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.fault.faults_daemon import MIB, fill, small_disk
from tests.fault.ledger import Breach, Verdict
from tests.fault.pair import NAMES, Gateway, PairHarness
from tests.fault.pair_stranger import call, forged
from tests.fault.proxy import BOTH, FORWARD
from tests.fault.registry import Run, fault
from tests.fault.setup import RECEIVE_MAXIMUM, UNCERTAIN_S, WINDOW, PairSetup

SEEDS = 20
NUMBER = 19
SIGN_S = 10.0
"""So long a sign may take to say what is so."""


def rate(run: Run) -> float:
    return run.lasts(200, 500)


def window(run: Run, times: int = 1) -> dict[str, int]:
    """What was unconfirmed when the active one changed: plain receivers may get it twice."""
    return {"cloud": times * WINDOW, "veh": times * (RECEIVE_MAXIMUM + int(2 * rate(run) * UNCERTAIN_S))}


async def under_way(run: Run, harness: PairHarness) -> tuple[Gateway, Gateway]:
    """Wait for a moment under load; return the active one and the standby."""
    await harness.until_flowing()
    await asyncio.sleep(run.between(0.1, 1.0))
    return await harness.until_pair()


async def killed(run: Run, harness: PairHarness) -> Gateway:
    """kill -9 of the active one; the other takes over. Nothing that was named to it before may be sent once more.

    Or a power cut, as far as the link is concerned: what was on its way to the other one is lost. It is away until the other
    one works: where the way is long or the machine busy, it would be back before, and work again.
    """
    first, second = await harness.until_pair()
    began_s = time.monotonic()
    if run.chance.random() < 0.5:
        harness.link.reset()
    else:
        harness.note_named()
    first.signal(signal.SIGKILL, stays=True)
    await harness.until_active(second)
    await harness.until_flowing(since_s=began_s)
    first.start()
    return first


@fault(NUMBER, "pair: active one killed", seeds=SEEDS)
async def active_killed(run: Run) -> Verdict:
    async with PairHarness(run.directory, run.seed, PairSetup("far streamer")) as harness:
        harness.load(rate(run))
        rounds = int(run.lasts(1, 3))
        for _ in range(rounds):
            await under_way(run, harness)
            await killed(run, harness)
            await harness.until_pair()
        return await harness.finish(window(run, rounds))


@fault(NUMBER, "pair: active one stopped for a while", seeds=SEEDS)
async def active_stopped(run: Run) -> Verdict:
    async with PairHarness(run.directory, run.seed, PairSetup("far streamer")) as harness:
        harness.load(rate(run))
        first, second = await under_way(run, harness)
        began_s = time.monotonic()
        first.signal(signal.SIGSTOP)
        await harness.until_takes_over(second)
        if run.chance.random() < 0.5:  # else it wakes while its links to the vehicle are there
            await harness.until_flowing(since_s=began_s)
            await asyncio.sleep(max(0.0, run.lasts(4, 30) - (time.monotonic() - began_s)))
        harness.said[first.name].is_recording = harness.said[second.name].is_recording = True
        to_broker = harness.proxies[first.name, "broker"]
        connections = to_broker.links
        first.signal(signal.SIGCONT)
        await harness.until_active(second)
        await harness.until_pair()
        await harness.until_flowing()
        verdict = await harness.finish(window(run))
        ids = [entry.id for entry in harness.ledger.entries() if entry.to == "veh"]
        assert harness.said[second.name].found(ids), "what is recorded has no ids"
        sent = [str(harness.ledger.entry(each)) for each in harness.said[first.name].found(ids)]
        verdict.add(Breach.DUPLICATES, [f"sent by the one that was stopped: {each}" for each in sent])
        spoken = [each for each in harness.to_broker[first.name].links if each > connections]
        verdict.add(
            Breach.DEAD, [f"the one that was stopped has spoken on connection {each} to the broker" for each in spoken]
        )
        return verdict


@fault(NUMBER, "pair: link cut, broker there", seeds=SEEDS)
async def link_cut(run: Run) -> Verdict:
    """Both work, and the broker gives the session to whoever connects last: that changes no role.

    What the one that steps back had accepted alone arrives once there is a link again.
    """
    async with PairHarness(run.directory, run.seed, PairSetup("far streamer")) as harness:
        harness.load(rate(run))
        first, second = await under_way(run, harness)
        if run.chance.random() < 0.5:
            await harness.link.sever()
        else:
            harness.link.stall()
        await harness.until_takes_over(second)
        take_overs = first.take_overs + second.take_overs
        await asyncio.sleep(run.lasts(5, 20))
        await harness.until_flowing()
        first.read_log()
        second.read_log()
        wrong = [] if first.is_active and second.is_active else ["one of the two has stepped back"]
        if first.take_overs + second.take_overs > take_overs:
            wrong.append("the roles have changed while the link was cut")
        await harness.link.heal()
        await harness.until_pair()
        await harness.until_flowing()
        everything = len(harness.ledger.entries())  # both work, and who is behind them gets it twice
        verdict = await harness.finish({"cloud": everything, "veh": everything}, inversions=True)
        verdict.add(Breach.DEAD, wrong)
        return verdict


@fault(NUMBER, "pair: link cut, no broker", seeds=SEEDS)
async def split(run: Run) -> Verdict:
    """Both work. Each of them hears something on Zenoh that the other one does not hear."""
    async with PairHarness(run.directory, run.seed, PairSetup("far streamer")) as harness:
        harness.load(rate(run))
        first, second = await under_way(run, harness)
        for each in run.chance.sample(["a", "b"], 2):
            await harness.proxies[each, "broker"].sever()
        await harness.link.sever()
        await harness.until_takes_over(second)
        assert first.is_active
        for deaf in (first, second):
            await harness.deafen(deaf)
            await asyncio.sleep(run.lasts(1, 5))
            await harness.undeafen(deaf)
        if run.chance.random() < 0.5:
            await harness.link.heal()
            await asyncio.sleep(run.between(0, 3))
        for each in run.chance.sample(["a", "b"], 2):
            await harness.proxies[each, "broker"].heal()
            await asyncio.sleep(run.between(0, 1))
        await harness.link.heal()
        await harness.until_pair()
        await harness.until_flowing()
        everything = len(harness.ledger.entries())  # both work, and who is behind them gets it twice
        return await harness.finish({"cloud": everything, "veh": everything}, inversions=True)


@fault(NUMBER, "pair: standby back with an empty disk, then the active one killed", seeds=SEEDS)
async def empty_standby(run: Run) -> Verdict:
    async with PairHarness(run.directory, run.seed, PairSetup("far streamer")) as harness:
        harness.load(rate(run))
        first, second = await under_way(run, harness)
        second.signal(signal.SIGKILL, stays=True)
        await harness.until(lambda: not second.is_running, "the end of the standby")
        second.empty_disk()
        await harness.until_flowing()
        await harness.pile_up(first, run.lasts(1, 5))
        second.start()
        await harness.until_whole()
        await harness.until_hears(second)
        await asyncio.sleep(run.between(0, 1))
        assert harness.ledger.missing(), "nothing waits"
        await harness.until_whole()
        first.signal(signal.SIGKILL, stays=True)
        await harness.until_active(second)
        await harness.until_flowing()
        first.start()
        await harness.until_pair()
        return await harness.finish(window(run, 2))


@fault(NUMBER, "pair: both killed, the one with the older journal comes first", seeds=SEEDS)
async def older_comes_first(run: Run) -> Verdict:
    """It waits for the other one, and then works. What that one had accepted alone is delivered once it is back."""
    async with PairHarness(run.directory, run.seed, PairSetup("far streamer")) as harness:
        harness.load(rate(run))
        first, second = await under_way(run, harness)
        second.signal(signal.SIGKILL, stays=True)
        await harness.until(lambda: not second.is_running, "the end of the standby")
        await harness.until_flowing()
        await harness.pile_up(first, run.lasts(1, 5))
        harness.stop_load()
        await harness.until_journaled(first)
        first.signal(signal.SIGKILL, stays=True)
        await harness.until(lambda: not first.is_running, "the end of the other one")
        assert harness.ledger.missing(), "nothing waits"
        await harness.proxies[first.name, "broker"].heal()
        second.start()
        await harness.until_active(second)
        harness.load(rate(run))
        await harness.until_flowing()
        await asyncio.sleep(run.between(0, 2))
        first.start()
        await harness.until_pair()
        await harness.until_flowing()
        return await harness.finish(window(run, 2), inversions=True)


@fault(NUMBER, "pair: strangers on the link", seeds=SEEDS)
async def strangers(run: Run) -> Verdict:
    """Who has another key, or only what was said once, is refused and counted. A frame that is not next ends the link."""
    async with PairHarness(run.directory, run.seed) as harness:
        harness.load(rate(run))
        await harness.until_flowing()
        listens = harness.gateways["a"]
        before = [each for gateway in harness.gateways.values() for each in gateway.reasons]
        calls = int(run.lasts(6, 40))
        wrong: list[str] = []
        for number in range(calls):
            how = ("key", "replay", "noise")[number % 3]
            answer = await call(harness.link_port, how, harness.tap.recorded[FORWARD], run.chance)
            if answer:
                wrong.append(f"a stranger with {how} was told {len(answer)} bytes")
        forgeries = int(run.lasts(2, 10))
        for number in range(forgeries):
            direction = BOTH[number % 2]
            frame = harness.tap.frames[direction]
            links = harness.link.links
            harness.link.inject(direction, frame if run.chance.random() < 0.5 else forged(frame, run.chance))
            await harness.until_linked_anew(links)
        await harness.until_flowing()
        refused = await asyncio.to_thread(listens.refused, "stranger")
        frames = sum([await asyncio.to_thread(each.refused, "frame") for each in harness.gateways.values()])
        verdict = await harness.finish(window(run, forgeries))
        reasons = [each for gateway in harness.gateways.values() for each in gateway.reasons]
        if len(reasons) > len(before):
            # On a slow machine, the silence after a forged frame may be long enough for a take-over, and one starts anew.
            expected = ("nothing was heard", "the other works", "both are on standby")
            wrong += [each for each in reasons if each not in before and not each.startswith(expected)]
        elif (refused, frames) != (calls, forgeries):
            wrong.append(f"{refused:g} strangers were counted, of {calls}, and {frames:g} frames, of {forgeries}")
        elif verdict.figures["duplicates"]:
            wrong.append(f"{verdict.figures['duplicates']} came twice")
        verdict.add(Breach.DEAD, wrong)
        return verdict


@fault(NUMBER, "pair: link that flaps", seeds=SEEDS)
async def flapping(run: Run) -> Verdict:
    """The other one takes over where the silence was long enough for that."""
    async with PairHarness(run.directory, run.seed, PairSetup("far streamer")) as harness:
        harness.load(rate(run))
        await harness.until_flowing()
        flaps = int(run.lasts(5, 40))
        for _ in range(flaps):
            match run.chance.choice(["reset", "sever", "stall"]):
                case "reset":
                    harness.link.reset()
                case "sever":
                    await harness.link.sever()
                case "stall":
                    harness.link.stall(run.chance.choice([BOTH, BOTH[:1], BOTH[1:]]))
            await asyncio.sleep(run.between(0, 0.8))
            await harness.link.heal()
            await asyncio.sleep(run.between(0, 0.8))
        await harness.until_pair()
        await harness.until_flowing()
        verdict = await harness.finish(window(run, flaps))
        if verdict.figures["take_overs"] > 2 * flaps:
            verdict.add(Breach.DEAD, [f"{verdict.figures['take_overs']} changes of roles with {flaps} interruptions"])
        return verdict


@fault(NUMBER, "pair: slow link", seeds=SEEDS)
async def slow_link(run: Run) -> Verdict:
    """200 ms each way, 1 MB/s."""
    async with PairHarness(run.directory, run.seed, PairSetup("far streamer")) as harness:
        harness.link.slow(MIB)
        harness.link.delay(0.2)
        harness.load(rate(run))
        await harness.until_flowing()
        await asyncio.sleep(run.lasts(2, 20))
        if run.chance.random() < 0.7:
            harness.proxies[harness.active.name, "receiver"].stall()  # what comes from the broker waits, on both disks
            await asyncio.sleep(run.between(0.2, 1))
            first = await killed(run, harness)
            harness.proxies[first.name, "receiver"].heal_flow()
        await harness.until_pair()
        await harness.until_flowing()
        return await harness.finish(window(run))


@fault(NUMBER, "pair: SIGTERM of the active one", seeds=SEEDS)
async def active_terminated(run: Run) -> Verdict:
    async with PairHarness(run.directory, run.seed, PairSetup("far streamer")) as harness:
        harness.load(rate(run))
        for _ in range(int(run.lasts(1, 3))):
            first, second = await under_way(run, harness)
            began_s = time.monotonic()
            first.signal(signal.SIGTERM)
            await harness.until_active(second)
            await harness.until_flowing(since_s=began_s)
            await harness.until_pair()
        return await harness.finish()


@fault(NUMBER, "pair: handed over by command", seeds=SEEDS)
async def handed_over(run: Run) -> Verdict:
    async with PairHarness(run.directory, run.seed, PairSetup("far streamer")) as harness:
        harness.load(rate(run))
        for _ in range(int(run.lasts(1, 3))):
            first, second = await under_way(run, harness)
            began_s = time.monotonic()
            status, said = await first.command("handover")
            assert status == 0, said
            await harness.until_takes_over(second)
            await harness.until_flowing(since_s=began_s)
            await harness.until_pair()
        return await harness.finish()


@fault(NUMBER, "pair: active one without the cloud", seeds=SEEDS)
async def without_the_cloud(run: Run) -> Verdict:
    async with PairHarness(run.directory, run.seed, PairSetup("far streamer", pair={"prefer_s": 2})) as harness:
        harness.load(rate(run))
        first, second = await under_way(run, harness)
        began_s = time.monotonic()
        await harness.proxies[first.name, "broker"].sever()
        await harness.until_active(second)
        await harness.until_flowing(since_s=began_s)
        await asyncio.sleep(run.between(0, 1))
        await harness.proxies[first.name, "broker"].heal()
        await harness.until_pair()
        await harness.until_flowing()
        return await harness.finish(window(run))


@contextmanager
def small_disks(run: Run) -> Iterator[dict[str, Path]]:
    """Two file systems, which are soon full."""
    with ExitStack() as stack:
        found = {}
        for name in NAMES:
            (run.directory / name).mkdir()
            found[name] = stack.enter_context(small_disk(run.directory / name, 48 * MIB)) / "journal"
        yield found


@fault(NUMBER, "pair: disk of the active one full", seeds=SEEDS)
async def active_full(run: Run) -> Verdict:
    with small_disks(run) as disks:
        async with PairHarness(run.directory, run.seed, PairSetup("far streamer", disks=disks)) as harness:
            harness.load(rate(run))
            first, second = await under_way(run, harness)
            began_s = time.monotonic()
            filler = await asyncio.to_thread(fill, first.disk.parent)
            await harness.until_active(second)
            await harness.until_flowing(since_s=began_s)
            await asyncio.sleep(run.lasts(1, 10))
            filler.unlink()
            await harness.until_pair()
            await harness.until_flowing()
            return await harness.finish(window(run))


@fault(NUMBER, "pair: disk of the standby full", seeds=SEEDS)
async def standby_full(run: Run) -> Verdict:
    with small_disks(run) as disks:
        async with PairHarness(run.directory, run.seed, PairSetup("far streamer", disks=disks)) as harness:
            harness.load(rate(run))
            first, second = await under_way(run, harness)
            filler = await asyncio.to_thread(fill, second.disk.parent)
            await asyncio.sleep(run.lasts(1, 10))
            await harness.until_flowing()
            await harness.until_active(first)
            filler.unlink()
            await harness.until_pair()
            await harness.until_flowing()
            await killed(run, harness)
            await harness.until_pair()
            return await harness.finish(window(run))
