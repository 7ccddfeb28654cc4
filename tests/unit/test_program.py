"""The process around the commands: its standard streams, which can be closed or full, and its end.

It ends at once, with the status of the command, and with everything that was printed.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.configurations import config_of, endpoint_of
from tests.ports import HOST
from tests.process import ROOT, StreamerProcess
from tests.zenoh_peers import free_endpoint, raw_peer

pytestmark = pytest.mark.long

CHECK = f"{sys.executable} -m streamer check --config config/minimal.yaml"

_MQTT = """\
authority: gateway
endpoints:
  cloud: {{transport: mqtt5, authorities: ["*"], options: {{broker: "mqtt://127.0.0.1:{port}", topics: off-vehicle}}}}
  vehicle: {{transport: memory, authorities: [veh1]}}
routes:
  - {{from: vehicle, to: cloud}}
"""

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
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (status, "printed\n", "told\n")


_IS_INTERRUPTED = """
import builtins, os, signal, sys

imported = builtins.__import__

def interrupts(name, *rest):
    if name == "uvloop":
        os.kill(os.getpid(), signal.SIGINT)
    return imported(name, *rest)

if {in_import}:
    builtins.__import__ = interrupts
from streamer import __main__ as entry

def command():
    print("printed")
    os.kill(os.getpid(), signal.SIGINT)
    return 0

entry.main = command
entry.program()
"""


def _obeys_ctrl_c() -> None:
    """Also where these tests run in the background of a script, which has it ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(("in_import", "printed"), [(True, ""), (False, "printed\n")])
def test_ctrl_c_ends_a_command_by_the_signal_and_without_a_traceback(in_import: bool, printed: str) -> None:
    line = [sys.executable, "-c", _IS_INTERRUPTED.format(in_import=in_import)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False, preexec_fn=_obeys_ctrl_c)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, printed, "")


def test_ctrl_c_ends_a_probe_that_waits_for_an_answer(tmp_path: Path) -> None:
    config = tmp_path / "streamer.yaml"
    with socket.create_server((HOST, 0)) as silent:
        port = silent.getsockname()[1]
        config.write_text(_MQTT.format(port=port))
        line = [sys.executable, "-m", "streamer", "check", "--probe", "--config", str(config)]
        pipe = subprocess.PIPE
        with subprocess.Popen(line, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, preexec_fn=_obeys_ctrl_c) as probe:
            silent.settimeout(20)
            connection, _ = silent.accept()
            with connection:
                probe.send_signal(signal.SIGINT)
                _, told = probe.communicate(timeout=60)
    assert (probe.returncode, "Traceback" in told) == (-signal.SIGINT, False)


def test_nobody_who_reads_is_no_error() -> None:
    line = f"{sys.executable} -m streamer schema | head -c 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("{", "")


def test_wrong_usage_has_status_2() -> None:
    line = [sys.executable, "-m", "streamer", "check"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "--config" in done.stderr) == (2, True)


_WAITS = """
import sys
with open({gate!r}) as gate:
    gate.read()
sys.exit(7)
"""


@pytest.fixture
def sighup_ends() -> Iterator[None]:
    """As a shell starts a program, whatever was run in this process before, and though nohup may have started the tests."""
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    handler = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@pytest.mark.usefixtures("sighup_ends")
@pytest.mark.parametrize(("command", "status"), [("run", 7), ("check", -signal.SIGHUP)])
@pytest.mark.parametrize("imported", ["uvloop", "yaml"])
def test_sighup_while_the_program_is_imported_ends_other_commands_but_not_the_daemon(
    imported: str, command: str, status: int, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / f"{imported}.py").write_text(_WAITS.format(gate=str(gate)))
    line = [sys.executable, "-m", "streamer", command, "--config", "config/minimal.yaml"]
    with subprocess.Popen(line, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(tmp_path)}) as process:
        writing = gate.open("w")  # somebody reads it now: the program is in the middle of its imports
        process.send_signal(signal.SIGHUP)
        if status == -signal.SIGHUP:
            assert process.wait(20) == status
        writing.close()
        assert process.wait(20) == status


_SIGNALLED_LATE = """
import logging, os, signal
from streamer import __main__ as entry

command = entry.main

def tell():
    os.kill(os.getpid(), signal.{number})
    return True

def signalled():
    if "{moment}" == "while it says that it has stopped":
        logging.getLogger("ustreamer.daemon").addFilter(lambda record: not record.msg.startswith("stopped") or tell())
        return command()
    status = command()
    tell()
    return status

entry.main = signalled
entry.program()
"""


@pytest.mark.parametrize("moment", ["while it says that it has stopped", "after that"])
@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT", "SIGHUP"])
async def test_a_signal_in_the_last_moments_of_the_daemon_does_not_change_its_end(
    tmp_path: Path, number: str, moment: str
) -> None:
    bus = {"transport": "memory", "options": {"bus": "one"}}
    config = config_of(
        {"one": bus | {"authorities": ["a"]}, "two": bus | {"authorities": ["b"], "options": {"bus": "two"}}},
        [{"from": "one", "to": "two"}],
    )
    script = _SIGNALLED_LATE.format(number=number, moment=moment)
    async with StreamerProcess(tmp_path, config, program=[sys.executable, "-c", script]) as daemon:
        daemon.signal(signal.SIGTERM)
        assert await daemon.ended() == 0
        assert '"stopped"' in daemon.log.splitlines()[-1]


def shell(line: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-c", line], cwd=ROOT, env=os.environ | environ, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&-", "<&- >&- 2>&-"])
def test_standard_streams_that_are_closed_are_no_error(closed: str) -> None:
    done = shell(f"{CHECK} {closed}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("" if ">&-" in closed.split() else shell(CHECK).stdout)


def test_output_that_cannot_be_written_has_status_74_and_a_reason() -> None:
    done = shell(f"{CHECK} >/dev/full")
    assert (done.returncode, done.stderr) == (74, "standard output could not be written: No space left on device\n")


@pytest.mark.parametrize("output", ["-", "streamer.yaml"])
def test_init_tells_its_output_from_the_file_that_it_writes(tmp_path: Path, output: str) -> None:
    path = "-" if output == "-" else tmp_path / output
    done = shell(f"{sys.executable} -m streamer init --yes --output {path} >/dev/full")
    assert done.returncode == 74
    assert done.stderr.endswith("\nstandard output could not be written: No space left on device\n")
    assert output == "-" or "endpoints:" in (tmp_path / output).read_text()


def test_a_complaint_that_cannot_be_written_leaves_the_status_as_it_is() -> None:
    assert shell(f"{sys.executable} -m streamer check --config config/slo.yaml 2>&-").returncode == 78


def test_what_the_encoding_of_the_output_lacks_is_printed_by_its_number(tmp_path: Path) -> None:
    config = tmp_path / "fahrzeug-\N{GREEK SMALL LETTER ALPHA}.yaml"
    config.write_text((ROOT / "config/minimal.yaml").read_text())
    done = shell(f"{sys.executable} -m streamer check --config {config}", PYTHONIOENCODING="latin-1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "fahrzeug-\\u03b1.yaml: good" in done.stdout


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full 2>/dev/full", "2> >(head -c 1)"])
async def test_a_daemon_without_standard_streams_starts_and_ends_as_any_other(closed: str, tmp_path: Path) -> None:
    one, other = free_endpoint(), free_endpoint()
    config = config_of(
        {"vehicle": endpoint_of("zenoh", "veh1", listen=[one]), "cloud": endpoint_of("zenoh", "*", listen=[other])},
        [{"from": "vehicle", "to": "cloud"}],
        authority="gateway",
        journal={"path": str(tmp_path / "journal.db")},
    )
    program = ["bash", "-c", f'exec {sys.executable} -m streamer "$@" {closed}', "streamer"]
    daemon = StreamerProcess(tmp_path, config, program=program)
    with raw_peer(connect=[one, other]):
        async with daemon:
            daemon.signal(signal.SIGTERM)
            assert await daemon.ended() == 0
