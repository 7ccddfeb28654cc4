"""Two runs of the tests on one machine do not take each other's ports."""

import os
import socket
import subprocess
import sys

import pytest

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


def test_ports_whose_connections_have_ended_are_given_when_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    few = range(ports.mine().stop - 3, ports.mine().stop)
    monkeypatch.setattr(ports, "mine", lambda: few)
    for port in few:
        with socket.create_server((ports.HOST, port)) as server, socket.create_connection((ports.HOST, port)) as client:
            accepted, _ = server.accept()
            accepted.close()  # the side that closes first waits
            assert client.recv(1) == b""
    found = {ports.free_port() for _ in few}
    assert found == set(few)
    with socket.create_server((ports.HOST, few[0])):
        assert few[0] not in {ports.free_port() for _ in range(9)}
