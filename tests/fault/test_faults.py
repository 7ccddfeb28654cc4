"""The short form: one seed of those faults that take few seconds, all of which have to leave a clean ledger.

``make fault`` runs every fault (`tests.fault.run`), with many seeds and at full length.
"""

import os
import shutil

import pytest

from tests.fault.harness import FaultHarness
from tests.fault.ledger import Breach, Verdict
from tests.fault.registry import FAULTS, Fault, Run, named
from tests.fault.run import run_once
from tests.fault.setup import FaultSetup

SEED = 1
QUICK = [
    "daemon killed, MQTT and Zenoh",
    "broker killed, without persistence",
    "link reset under load",
    "backlog drains without new traffic",
    "receiver killed and restarted",
    "journal at its bound",
    "disk full, then not",
    "head of a flow refused, then accepted",
    "each reason of a PUBACK",
    "receive maximum 1",
    "SIGTERM under load",
    "SIGTERM while a receiver is away",
    "dead letter endpoint down",
    "endpoint moves by reloads",
    "daemon killed in the middle of a stop",
    "journal emptied while in use, then daemon killed",
]
MOUNTS = {"disk full, then not"}

pytestmark = pytest.mark.mosquitto


@pytest.mark.parametrize("name", QUICK)
async def test_ledger_is_clean_after(name: str) -> None:
    if name in MOUNTS and (os.geteuid() != 0 or shutil.which("mount") is None):
        pytest.skip("it takes root's rights to mount a small file system")
    _, wrong, directory = await run_once(named(name), SEED, is_long=False)
    assert not wrong, f"{wrong}\nkept in {directory}"


async def lose_a_backlog(run: Run) -> Verdict:
    """No journal: what waits when the daemon is killed has been acknowledged, and is gone."""
    async with FaultHarness(run.directory, run.seed, FaultSetup(("cloud", "plant"))) as harness:
        await harness.proxies["plant"].sever()
        await harness.daemon.until_down("plant")
        harness.load(200, ("cloud", "plant"))
        await harness.until(lambda: len(harness.ledger.missing()) > 50, 10, "a backlog")
        harness.stop_load()
        await harness.settle_sends()
        await harness.kill_daemon()
        await harness.proxies["plant"].heal()
        await harness.restart_daemon()
        return await harness.finish()


async def test_failing_run_keeps_what_explains_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real loss: the harness has to notice it, to name the first messages, and to leave everything behind."""
    monkeypatch.setattr("tests.fault.harness.QUIET_S", 0.5)
    verdict, wrong, directory = await run_once(Fault(0, "backlog without journal", lose_a_backlog, 1), SEED, is_long=False)
    try:
        assert isinstance(verdict, Verdict)
        assert [violation.breach for violation in verdict.violations] == [Breach.LOST]
        assert " cloud→plant " in wrong
        assert (directory / "verdict.txt").read_text().strip() == wrong.strip()
        assert (directory / "ledger.json").exists()
        assert list(directory.glob("streamer-*.log"))
        assert list(directory.glob("streamer-*.yaml"))
    finally:
        shutil.rmtree(directory)


def test_every_fault_has_a_name_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert {fault.number for fault in FAULTS} >= {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14}
