"""Two runs of the tests on one machine do not take each other's ports."""

import os
import subprocess
import sys

from tests import ports
from tests.process import ROOT

_PRINT = "import sys; from tests.ports import mine; print(mine().start, mine().stop, flush=True); sys.stdin.read()"


def test_workers_of_the_same_number_have_different_ports() -> None:
    environ = os.environ | {"PYTEST_XDIST_WORKER": "gw0"}
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", _PRINT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environ
        )
        for _ in range(2)
    ]
    ranges = []
    for run in runs:
        assert run.stdout is not None
        start, stop = map(int, run.stdout.readline().split())
        ranges.append(set(range(start, stop)))
    for run in runs:
        run.communicate(timeout=30)
    assert ranges[0]
    assert ranges[1]
    assert not ranges[0] & ranges[1]


def test_a_long_run_never_ends_for_want_of_ports_and_gets_each_again_only_after_all_others() -> None:
    many = len(ports.mine())
    given = [ports.free_port() for _ in range(3 * many)]
    for start in range(0, 2 * many, 7):
        soon = given[start : start + many // 2]
        assert len(set(soon)) == len(soon)
