"""The end of the process: at once, with the status of the command, and with everything that was printed."""

import subprocess
import sys

import pytest

_STANDS_IN = """
import sys, threading, time
from streamer import __main__ as entry

def command():
    threading.Thread(target=time.sleep, args=(1000,)).start()  # as a thread of a library that nobody can end
    print("printed")
    print("told", file=sys.stderr)
    return {status}

entry.main = command
entry.program()
"""


@pytest.mark.parametrize("status", [0, 78])
def test_threads_of_libraries_do_not_hold_up_the_end(status: int) -> None:
    line = [sys.executable, "-c", _STANDS_IN.format(status=status)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (status, "printed\n", "told\n")


def test_nobody_who_reads_is_no_error() -> None:
    line = f"{sys.executable} -m streamer schema | head -c 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, text=True, timeout=20, check=False
    )
    assert (done.stdout, done.stderr) == ("{", "")


def test_wrong_usage_has_status_2() -> None:
    line = [sys.executable, "-m", "streamer", "check"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, "--config" in done.stderr) == (2, True)
