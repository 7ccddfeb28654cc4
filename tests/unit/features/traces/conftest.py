"""An empty folder of traces, and the command that searches it."""

from pathlib import Path

import pytest

from streamer.features.traces import command as traces_command
from tests.unit.features.traces.folders import NOW_US
from tests.unit.tools.commands import Run, status_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "traces"
    path.mkdir()
    return path


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs an action at `NOW_US`; its status, output and complaints."""
    monkeypatch.setattr(traces_command, "_now_ms", lambda: NOW_US // 1000)

    def call(action: str, *words: str, where: tuple[str, ...] | None = None) -> tuple[int, str, str]:
        status = status_of("traces", action, *(("--path", str(folder)) if where is None else where), *words)
        return status, *capsys.readouterr()

    return call
