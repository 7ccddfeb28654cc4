"""Runs of streamer check --probe."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamer.features.check import machine, probe
from streamer.features.every import FILE
from streamer.main import main
from streamer.transports.probe import Answer, Probe, Verdict


def raw(**sections: Any) -> dict[str, Any]:
    endpoints = {"vehicle": {"transport": "memory", "authorities": ["veh1"], "options": {"bus": "v"}}}
    return {"authority": "gw", "endpoints": endpoints, "routes": [], "metrics": None, **sections}


def answers(probes: Iterable[Probe]) -> dict[str, Answer]:
    listed = list(probes)
    return dict(zip((each.key for each in listed), asyncio.run(probe.run_all(listed)), strict=True))


def of_stores(used: Any = frozenset(), **sections: Any) -> dict[str, Answer]:
    return answers(machine.stores(FILE.model_validate(raw(**sections)), used))


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
