"""A streamer that was installed without the extra for traces: what needs it says so, everything else works."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.long

# As if they were not installed: an import fails, and so does the search for them. One process for several commands, each
# with its own output; loading the program takes longer than they do.
_RUN = """\
import contextlib, io, json, sys
sys.modules.update(dict.fromkeys({missing!r}))
from streamer.main import main
for argv in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(argv)
    print(json.dumps([status, out.getvalue(), err.getvalue()]))
"""

CONFIG = """\
authority: gateway.veh1
endpoints:
  vehicle: {transport: memory, authorities: [veh1]}
  cloud: {transport: memory, authorities: ["*"]}
routes:
  - {from: vehicle, to: cloud}
"""


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def run(*commands: list[str | Path], missing: tuple[str, ...] = ("numpy", "pyarrow")) -> list[Done]:
    argvs = json.dumps([[str(word) for word in command] for command in commands])
    line = [sys.executable, "-c", _RUN.format(missing=missing), argvs]
    done = subprocess.run(line, capture_output=True, text=True, check=True, env=os.environ | {"COLUMNS": "80"})
    assert done.stderr == ""
    return [Done(*json.loads(each)) for each in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("missing", "named"),
    [(("numpy", "pyarrow"), "numpy and pyarrow"), (("numpy",), "numpy"), (("pyarrow",), "pyarrow")],
    ids=["both", "numpy", "pyarrow"],
)
def test_traces_in_the_configuration_are_a_mistake_that_says_what_to_install(
    tmp_path: Path, missing: tuple[str, ...], named: str
) -> None:
    file = tmp_path / "streamer.yaml"
    file.write_text(f"{CONFIG}trace: {{path: traces}}\n")
    checked, started = run(["check", "--config", file], ["run", "--config", file], missing=missing)
    assert (checked.returncode, checked.stdout) == (78, "")
    expected = f"trace.path: expected trace: null, or {named} installed (pip install 'uprotocol-ustreamer[trace]')"
    assert checked.stderr.startswith(f"{file}:7:15: {expected}")
    assert started.returncode == 78


def test_otel_in_the_configuration_is_a_mistake_that_says_what_to_install(tmp_path: Path) -> None:
    file = tmp_path / "streamer.yaml"
    file.write_text(f"{CONFIG}otel: {{endpoint: 'https://collector.example:4318'}}\n")
    without = tmp_path / "without.yaml"
    without.write_text(CONFIG)
    missing = ("opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter")
    checked, started, good = run(
        ["check", "--config", file], ["run", "--config", file], ["check", "--config", without], missing=missing
    )
    assert (checked.returncode, checked.stdout) == (78, "")
    expected = "otel.endpoint: expected otel: null, or opentelemetry installed (pip install 'uprotocol-ustreamer[otel]')"
    assert checked.stderr.startswith(f"{file}:7:18: {expected}")
    assert (started.returncode, good.returncode) == (78, 0)


def test_without_traces_nothing_asks_for_them(tmp_path: Path) -> None:
    file = tmp_path / "streamer.yaml"
    file.write_text(CONFIG)
    for done in run(["check", "--config", file], ["config", "--config", file]):
        assert (done.returncode, done.stderr) == (0, "")


def test_reading_traces_says_what_to_install(tmp_path: Path) -> None:
    for done in run(*(["traces", action, "--path", tmp_path] for action in ("tail", "summary"))):
        assert (done.returncode, done.stdout) == (1, "")
        expected = "traces can be read with numpy and pyarrow installed (pip install 'uprotocol-ustreamer[trace]')\n"
        assert done.stderr == expected
