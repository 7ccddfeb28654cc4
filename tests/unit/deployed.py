"""The files of a deployment, read for tests."""

import configparser
import re
import tomllib
from pathlib import Path
from typing import Any

from streamer.config.models import Config
from streamer.tools import cost

ROOT = Path(__file__).parents[2]


def unit(path: Path = ROOT / "deploy/systemd/streamer.service") -> dict[str, dict[str, str]]:
    """A unit file; of keys that are given twice the last one counts (ExecReload, SystemCallFilter)."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read(path)
    return {name: dict(parser[name]) for name in parser.sections()}


def dockerfile() -> list[list[str]]:
    """Stages of the Dockerfile, each a list of instructions, continued lines joined."""
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    stages: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("FROM "):
            stages.append([])
        if line.strip() and not line.startswith("#"):
            assert stages, f"{line!r} stands before the first stage"
            stages[-1].append(line)
    return stages


def instruction(stage: list[str], name: str) -> str:
    """The last instruction of that name, as the last one counts."""
    return [line.removeprefix(name).strip() for line in stage if line.startswith(f"{name} ")][-1]


def project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def coming_version() -> str:
    """The next release, which examples name."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ustreamer"]["version"])


MIB = 1 << 20


def memory_bytes(config: Config) -> int:
    """What may be in memory, with the largest messages that its Zenoh endpoints accept."""
    sizes = [each.options.max_message_bytes for each in config.endpoints.values() if each.transport == "zenoh"]
    return cost.memory_bytes(config, max(sizes, default=0))
