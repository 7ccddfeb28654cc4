"""The short form of what happens to a pair: one seed of each fault, after which the ledger has to be clean.

``make fault ARGS="--only pair: --seeds 20"`` runs them at full length.
"""

import os
import shutil

import pytest

from tests.fault.registry import FAULTS
from tests.fault.run import run_once

SEED = 1
FAULTS_OF_A_PAIR = [fault for fault in FAULTS if fault.name.startswith("pair:")]
MOUNTS = ("pair: disk of the active one full", "pair: disk of the standby full")
NOT_YET = ("pair: handed over by command",)

pytestmark = pytest.mark.mosquitto


@pytest.mark.parametrize("name", [fault.name for fault in FAULTS_OF_A_PAIR if fault.name not in NOT_YET])
async def test_ledger_is_clean_after(name: str) -> None:
    if name in MOUNTS and (os.geteuid() != 0 or shutil.which("mount") is None):
        pytest.skip("it takes root's rights to mount a small file system")
    fault = next(each for each in FAULTS_OF_A_PAIR if each.name == name)
    _, wrong, directory = await run_once(fault, SEED, is_long=False)
    assert not wrong, f"{wrong}\nkept in {directory}"
