"""The short form of what happens to a pair: one seed of the quicker faults, after which the ledger has to be clean.

``make fault ARGS="--only pair: --seeds 20"`` runs all of them at full length.
"""

import os
import shutil

import pytest

from tests.fault import faults_pair
from tests.fault.registry import FAULTS, Fault
from tests.fault.run import run_once

SEED = 1
QUICK = (
    "pair: both killed and one back with an empty disk",
    "pair: nobody listens",
    "pair: standby killed",
    "pair: black hole of the link that heals",
)
"""Of the faults of disks, brokers and the network, which take longer."""
FAULTS_OF_A_PAIR = [each for each in FAULTS if each.body.__module__ == faults_pair.__name__ or each.name in QUICK]
MOUNTS = ("pair: disk of the active one full", "pair: disk of the standby full")

pytestmark = pytest.mark.mosquitto


@pytest.mark.parametrize("fault", FAULTS_OF_A_PAIR, ids=lambda fault: fault.name)
async def test_ledger_is_clean_after(fault: Fault) -> None:
    if fault.name in MOUNTS and (os.geteuid() != 0 or shutil.which("mount") is None):
        pytest.skip("it takes root's rights to mount a small file system")
    _, wrong, directory = await run_once(fault, SEED, is_long=False)
    assert not wrong, f"{wrong}\nkept in {directory}"
