"""Runs of streamer check --probe."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from streamer.main import main
from streamer.transports.probe import Verdict
from tests.unit.features.check.probes import raw


def checked(tmp_path: Path, **sections: Any) -> int:
    file = tmp_path / "streamer.yaml"
    file.write_text(yaml.safe_dump(raw(**sections)))
    return main(["check", "--probe", "--config", str(file)])


def lines(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, str]]:
    """Verdict and text by key."""
    verdicts = tuple(each.value for each in Verdict)
    found = {}
    for line in capsys.readouterr().out.splitlines():
        if line.startswith(verdicts):
            key, _, text = line[13:].partition(": ")
            found[key] = (line[:13].strip(), text)
    return found
