"""The short form: one seed of those faults that take few seconds, all of which have to leave a clean ledger.

``make fault`` runs every fault (`tests.fault.run`), with many seeds and at full length.
"""

import os
import shutil

import pytest

from tests.brokers import needs_mosquitto
from tests.fault.ledger import Verdict
from tests.fault.registry import FAULTS, named
from tests.fault.run import run_once

SEED = 1
QUICK = [
    "daemon killed, MQTT and Zenoh",
    "broker killed, without persistence",
    "link reset under load",
    "backlog drains without new traffic",
    "receiver killed and restarted",
    "disk full, then not",
    "head of a flow refused, then accepted",
    "each reason of a PUBACK",
    "receive maximum 1",
    "SIGTERM under load",
    "dead letter endpoint down",
]
MOUNTS = {"disk full, then not"}

pytestmark = [pytest.mark.mosquitto, needs_mosquitto]


@pytest.mark.parametrize("name", QUICK)
async def test_ledger_is_clean_after(name: str) -> None:
    if name in MOUNTS and (os.geteuid() != 0 or shutil.which("mount") is None):
        pytest.skip("it takes root's rights to mount a small file system")
    _, wrong, directory = await run_once(named(name), SEED, is_long=False)
    assert not wrong, f"{wrong}\nkept in {directory}"


async def test_failing_run_keeps_what_explains_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that is killed and has no journal loses messages: the harness has to notice, and to name the first ones."""
    fault = named("daemon killed with a backlog")
    monkeypatch.setattr("tests.fault.faults_daemon.journal", lambda run: None)
    verdict, wrong, directory = await run_once(fault, SEED, is_long=False)
    try:
        assert isinstance(verdict, Verdict)
        assert "LOST" in wrong
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
