"""The demonstration as a user runs it: it ends, everything is accounted for, and nothing is left behind."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

LIMIT_S = 240


class Demo:
    """``python -m demo --plain`` in a temporary directory of its own, in which everything that it leaves is found."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        self._process = subprocess.Popen(
            [sys.executable, "-m", "demo", "--plain", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=os.environ | {"TMPDIR": str(directory), "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"},
        )
        self.children: list[psutil.Process] = []

    def read_until(self, text: str) -> None:
        """Read standard output up to a line with ``text``."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if text in line:
                return
        raise AssertionError(f"the demo ended before it said {text!r}: {self._process.communicate()}")

    def note_children(self) -> None:
        self.children = psutil.Process(self._process.pid).children(recursive=True)

    def interrupt(self) -> None:
        """Ctrl-C. Returns once it is delivered: signals that wait together count as one."""
        self._process.send_signal(signal.SIGINT)
        status = Path(f"/proc/{self._process.pid}/status")
        deadline_s = time.monotonic() + LIMIT_S
        while self._process.poll() is None and has_pending(status.read_text(), signal.SIGINT):
            assert time.monotonic() < deadline_s, "SIGINT is not delivered"
            time.sleep(0.001)

    def end(self) -> tuple[int, str, str]:
        """Wait for its end: exit status, standard output (what is not read yet), standard error."""
        out, err = self._process.communicate(timeout=LIMIT_S)
        return self._process.returncode, out, err

    def close(self) -> None:
        """End what still runs, if a test failed."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.communicate()


def has_pending(status: str, number: signal.Signals) -> bool:
    """Whether a signal waits for a process, by its /proc/PID/status."""
    masks = re.findall(r"^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)$", status, re.MULTILINE)
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="demo-test-") as name:
        yield Path(name)


def rows(out: str, title: str) -> dict[str, list[str]]:
    """The cells of one table of the summary, by the first cell."""
    found: dict[str, list[str]] = {}
    for line in out.partition(title)[2].splitlines()[2:]:  # after the rest of the title, and the head
        if not line.strip():
            break
        name, *cells = re.split(r"\s{2,}", line.strip())
        found[name] = cells
    return found


def wait_for_end(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run after a while."""
    deadline_s = time.monotonic() + 10
    while (alive := [each for each in processes if each.is_running()]) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return alive


def test_the_demo_accounts_for_every_message_and_leaves_nothing_behind(directory: Path) -> None:
    demo = Demo(directory, "--seconds", "4")
    try:
        demo.read_until("request, climate")
        demo.note_children()
        status, out, err = demo.end()
    finally:
        demo.close()
    assert (status, err) == (0, "")
    assert "All " in out
    assert "messages are accounted for" in out

    # name: from → to, sent, arrived, twice, disorder, dead-lettered, unaccounted
    flows = rows(out, "What was sent, and what became of it")
    assert len(flows) == 8
    for name, (_, sent, arrived, _, disorder, dead, unaccounted) in flows.items():
        letters = sum(int(number) for number in re.findall(r"(\d+) [A-Z_]+", dead))
        assert int(sent) > 0, name
        assert int(sent) == int(arrived) + letters, name
        assert (disorder, unaccounted) == ("–", "0"), name
    assert int(flows["speed"][1]) >= 100
    assert "DEADLINE_EXCEEDED" in flows["request, comes too late"][5]
    assert "DEADLINE_EXCEEDED" in flows["request, vehicle is asleep"][5]
    assert "PERMISSION_DENIED" in flows["request, no route leads"][5]

    reasons = {cells[1] for cells in rows(out, "Dead letters").values()}
    assert reasons == {"DEADLINE_EXCEEDED", "PERMISSION_DENIED"}
    books = rows(out, "The daemon's books")
    assert {"vehicle-cloud", "cloud-vehicle", "cloud-garage"} <= books.keys()
    assert {cells[-1] for cells in books.values()} == {"yes"}

    assert len(demo.children) == 2, "the broker and the daemon"
    assert wait_for_end(demo.children) == []
    assert list(directory.iterdir()) == []


def test_ctrl_c_ends_it_with_a_summary(directory: Path) -> None:
    demo = Demo(directory)
    try:
        demo.read_until("speed 5")
        demo.note_children()
        demo.interrupt()
        status, out, err = demo.end()
    finally:
        demo.close()
    assert (status, err) == (0, "")
    assert "messages are accounted for" in out
    assert wait_for_end(demo.children) == []
    assert list(directory.iterdir()) == []


def test_more_ctrl_c_ends_it_at_once_and_completely(directory: Path) -> None:
    demo = Demo(directory)
    try:
        demo.read_until("speed 5")
        demo.note_children()
        for _ in range(4):
            demo.interrupt()
        status, out, err = demo.end()
    finally:
        demo.close()
    if "accounted for" in out:  # all had settled before the second signal came
        assert (status, err) == (0, "")
    else:
        assert (status, err) == (1, "demo: ended before everything had settled\n")
    assert wait_for_end(demo.children) == []
    assert list(directory.iterdir()) == []


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_pair_loses_nothing_when_the_active_one_is_killed_and_is_protected_again(directory: Path) -> None:
    demo = Demo(directory, "--pair", "--seconds", "6")
    try:
        demo.read_until("first is started again")
        demo.note_children()
        status, out, err = demo.end()
    finally:
        demo.close()
    assert (status, err) == (0, "")
    assert "messages are accounted for" in out
    assert "0 still wait, 0 are lost" in re.sub(r"\s+", " ", out)
    flows = rows(out, "What was sent, and what became of it")
    assert len(flows) == 8
    for name, (_, sent, arrived, _, disorder, dead, unaccounted) in flows.items():
        letters = sum(int(number) for number in re.findall(r"(\d+) [A-Z_]+", dead))
        assert int(sent) == int(arrived) + letters, name
        assert (disorder, unaccounted) == ("–", "0"), name
    shown = out.partition("The pair")[2]
    assert re.findall(r"^ (first|second) +(\w+) +(.*?) *$", shown, re.MULTILINE) == [
        ("first", "standby", "has a copy of everything, and could take over"),
        ("second", "active", "works, in epoch 2"),
    ]
    assert re.findall(r"^ [\d.]+ s +(\w+) +(.*?) *$", shown, re.MULTILINE) == [
        ("second", "is on standby, with a copy of everything"),
        ("first", "is killed (SIGKILL)"),
        ("second", "has taken over, and delivers in both directions"),
        ("first", "is started again"),
        ("first", "is on standby, with a copy of everything"),
    ]
    assert len(demo.children) == 3, "the broker and two daemons"
    assert wait_for_end(demo.children) == []
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("more", [(), pytest.param(("--pair",), marks=[pytest.mark.long, pytest.mark.timeout(300)])])
def test_a_daemon_that_dies_is_reported_with_its_log(directory: Path, more: tuple[str, ...]) -> None:
    demo = Demo(directory, *more)
    try:
        demo.read_until("is on standby" if more else "request, climate")
        demo.note_children()
        daemon = next(child for child in demo.children if "streamer" in child.cmdline())
        daemon.kill()
        status, _, err = demo.end()
    finally:
        demo.close()
    assert status == 1
    assert "the daemon ended by itself (exit status -9)" in err
    logs = re.findall(r"(\S+\.log)\b", err.partition("the daemon's log lines are in")[2])
    assert {Path(log) for log in logs} == set(directory.iterdir())
    assert len(logs) == 1 + len(more)
    assert all("starting" in Path(log).read_text() for log in logs)
    assert wait_for_end(demo.children) == []
