"""``streamer check --probe``: tests this machine, with one line per probe. All run at once, and each is bounded in time.

A running streamer of this file is queried first: the ports and files that it uses are no problems.
"""

import asyncio
import getpass
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from streamer.config.metrics import MetricsConfig
from streamer.config.models import Config
from streamer.features.check import machine
from streamer.files import in_thread
from streamer.tools.running import NotAskedError, ask, configured
from streamer.tools.text import lines_out
from streamer.transports.installed import load_transport
from streamer.transports.probe import Answer, Probe, Verdict, blocking, can_listen, cannot_tell, ok, problem

ASK_S = 2.0
PROBE_S = 5.0
TOTAL_S = 15.0
"""The time for all probes together, which is enough unless hundreds of networks do not answer."""
_MAX_CONCURRENT = 100
_LONGEST = max(len(verdict.value) for verdict in Verdict)


Running: TypeAlias = Mapping[str, Any]
"""The page with the state of the streamer that answers at ``metrics.listen``, and its configuration as ``config``."""


def probe(path: Path, config: Config) -> int:
    """Run all probes, print a line for each, and return the exit status: 1 if there is a problem."""
    answers = asyncio.run(answers_for(path, config))
    lines_out(f"{answer.verdict.value:<{_LONGEST}}  {key}: {answer.text}" for key, answer in answers)
    count = Counter(answer.verdict for _, answer in answers)
    counted = ", ".join(f"{count[verdict]} {verdict.value}" for verdict in Verdict)
    lines_out([f"{path}: probed as user {_user()}: {counted}"])
    return 1 if count[Verdict.PROBLEM] else 0


def probed(path: Path, config: Config) -> tuple[list[dict[str, str]], int]:
    """Run all probes. Return each key with its verdict and text, and the exit status as `probe` does."""
    answers = asyncio.run(answers_for(path, config))
    shown = [{"key": key, "verdict": answer.verdict.value, "text": answer.text} for key, answer in answers]
    return shown, 1 if any(answer.verdict is Verdict.PROBLEM for _, answer in answers) else 0


async def answers_for(path: Path, config: Config) -> list[tuple[str, Answer]]:
    """Return every probe's key and answer, in the order of the file."""
    running = await _running(path, config)
    probes = list(_probes(config, running))
    for brought in await asyncio.gather(*(_of_endpoint(config, name, running) for name in config.endpoints)):
        probes += brought
    return list(zip((each.key for each in probes), await run_all(probes), strict=True))


async def _running(path: Path, config: Config) -> Running | None:
    try:
        daemon = configured(path, config)
        async with asyncio.timeout(ASK_S):
            used = await in_thread(partial(ask, daemon, "/config", lambda answer: answer["config"], within_s=ASK_S))
            return {**await in_thread(partial(ask, daemon, "", dict, within_s=ASK_S)), "config": used}
    except (NotAskedError, TimeoutError):
        return None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _probes(config: Config, running: Running | None) -> Iterator[Probe]:
    if config.metrics is not None:
        yield blocking("metrics.listen", partial(_metrics, config.metrics, config.authority, running))
    own = _own(config, running)
    yield from machine.files(config)
    for _, section in config.feature_sections():
        yield from section.probes(config, own)
    yield from machine.stores(config, None if config.metrics is None else _files_in_use(own))


def _own(config: Config, running: Running | None) -> Running | None:
    """Return the running streamer if it is that of this configuration."""
    return running if running is not None and running["config"]["authority"] == config.authority else None


def _files_in_use(running: Running | None) -> frozenset[str]:
    """Return the journal of a running streamer, by path."""
    journal = None if running is None else running["config"]["journal"]
    return frozenset() if journal is None else frozenset({str(journal["path"])})


def _metrics(metrics: MetricsConfig, authority: str, running: Running | None) -> Answer:
    if running is None:
        return can_listen(metrics.host, metrics.port)
    if running["config"]["authority"] != authority:
        return problem(f"{metrics.listen} is taken by the streamer of {running['config']['authority']}")
    return ok(f"{metrics.listen}: the running streamer listens there")


async def _of_endpoint(config: Config, name: str, running: Running | None) -> list[Probe]:
    """Return the probes of an endpoint's transport. Listing them may take time and fail, as each of them may."""
    endpoint = config.endpoints[name]
    own = _own(config, running)
    held = frozenset(() if own is None else _texts(own["config"]["endpoints"]))

    def found() -> list[Probe]:
        return list(load_transport(endpoint.transport).tools.probes(endpoint.options, held))

    here = f"endpoints.{name}.options"
    brought: list[Probe] = []

    async def collect() -> Answer:
        brought.extend(await in_thread(found))
        return ok("")

    answer = await _bounded(Probe(here, collect))
    if answer.verdict is not Verdict.OK:
        return [Probe(here, partial(_already, answer))]
    return [Probe(f"{here}.{each.key}", each.run) for each in brought]


async def _already(answer: Answer) -> Answer:
    return answer


async def run_all(probes: Sequence[Probe], total_s: float = TOTAL_S) -> list[Answer]:
    """Return all answers in order. A probe over its time limit is a problem; one that never began has no result."""
    gate = asyncio.Semaphore(_MAX_CONCURRENT)

    async def one(each: Probe) -> Answer:
        async with gate:
            return await _bounded(each)

    tasks = [asyncio.create_task(one(each), name=f"probe-{each.key}") for each in probes]
    if not tasks:
        return []
    _, late = await asyncio.wait(tasks, timeout=total_s)
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late, timeout=1)
    return [cannot_tell(f"not done within {total_s:g} s") if task in late else task.result() for task in tasks]


async def _bounded(each: Probe, within_s: float = PROBE_S) -> Answer:
    try:
        async with asyncio.timeout(within_s):
            return await each.run()
    except TimeoutError:
        return problem(f"no answer within {within_s:g} s")
    except Exception as exc:  # noqa: BLE001  # a bug in a plugin; its text may hold a secret
        return cannot_tell(f"the probe failed ({type(exc).__name__})")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # the user id has no name
        return "without a name"
