"""A streamer that was installed without the extra for traces: what needs it says so, everything else works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# As if they were not installed: an import fails, and so does the search for them.
_RUN = "import sys; sys.modules.update(dict.fromkeys({missing!r})); from streamer.cli.main import main; sys.exit(main())"

CONFIG = """\
authority: gateway.veh1
endpoints:
  vehicle: {transport: memory, authorities: [veh1]}
  cloud: {transport: memory, authorities: ["*"]}
routes:
  - {from: vehicle, to: cloud}
"""


def run(*argv: str | Path, missing: tuple[str, ...] = ("numpy", "pyarrow")) -> "subprocess.CompletedProcess[str]":
    line = [sys.executable, "-c", _RUN.format(missing=missing), *map(str, argv)]
    return subprocess.run(line, capture_output=True, text=True, check=False, env=os.environ | {"COLUMNS": "80"})


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
    checked = run("check", "--config", file, missing=missing)
    assert (checked.returncode, checked.stdout) == (78, "")
    expected = f"trace.path: expected trace: null, or {named} installed (pip install 'ustreamer[trace]')"
    assert checked.stderr.startswith(f"{file}:7:15: {expected}")
    assert run("run", "--config", file, missing=missing).returncode == 78


def test_otel_in_the_configuration_is_a_mistake_that_says_what_to_install(tmp_path: Path) -> None:
    file = tmp_path / "streamer.yaml"
    file.write_text(f"{CONFIG}otel: {{endpoint: 'https://collector.example:4318'}}\n")
    missing = ("opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter")
    checked = run("check", "--config", file, missing=missing)
    assert (checked.returncode, checked.stdout) == (78, "")
    expected = "otel.endpoint: expected otel: null, or opentelemetry installed (pip install 'ustreamer[otel]')"
    assert checked.stderr.startswith(f"{file}:7:18: {expected}")
    assert run("run", "--config", file, missing=missing).returncode == 78
    file.write_text(CONFIG)
    assert run("check", "--config", file, missing=missing).returncode == 0


def test_without_traces_nothing_asks_for_them(tmp_path: Path) -> None:
    file = tmp_path / "streamer.yaml"
    file.write_text(CONFIG)
    for command in ("check", "config"):
        done = run(command, "--config", file)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("action", ["tail", "summary"])
def test_reading_traces_says_what_to_install(tmp_path: Path, action: str) -> None:
    done = run("traces", action, "--path", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "traces can be read with numpy and pyarrow installed (pip install 'ustreamer[trace]')\n"
