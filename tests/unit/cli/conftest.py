"""A good configuration; an empty folder of traces, and the command that reads it."""

from pathlib import Path

import pytest

from streamer.cli import traces as traces_command
from streamer.cli.main import main
from tests.unit.cli.configurations import GOOD
from tests.unit.cli.folders import NOW_US, Run


@pytest.fixture
def good(tmp_path: Path) -> str:
    path = tmp_path / "streamer.yaml"
    path.write_text(GOOD)
    return str(path)


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
        try:
            status = main(["traces", action, *(("--path", str(folder)) if where is None else where), *words])
        except SystemExit as exc:
            status = int(exc.code or 0)
        return status, *capsys.readouterr()

    return call
