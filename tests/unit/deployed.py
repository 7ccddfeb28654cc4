"""The files of a deployment, read for tests."""

import configparser
import re
import tomllib
from pathlib import Path
from typing import Any

from streamer.config.models import Config

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
    """What may be in memory: the formula of docs/bounds.md, with four subscriptions on each Zenoh endpoint."""
    assert config.journal is not None
    assert config.trace is None
    queues = [route.queue_policy.queue for route in config.routes]
    total = 70_000_000 + config.journal.memory + config.remember.ids * 100
    total += sum(queue.bytes + 600 * queue.messages * queue.stalled_factor for queue in queues)
    total += len(config.endpoints) * (16 * MIB + 2 * config.dead_letter.queue.bytes + 30 * MIB)
    if config.usubscription is not None and config.usubscription.external is None:
        total += 128 * MIB
    if config.utwin is not None:
        total += config.utwin.max_bytes
    if config.pair is not None:
        total += 128 * MIB
    for endpoint in config.endpoints.values():
        options = endpoint.options
        if endpoint.transport == "mqtt5":
            total += options.receive_excess_bytes + 2 * options.max_packet_bytes + 64 * MIB
        else:
            total += 16 * MIB + (256 + 4 * options.receive_buffer) * options.max_message_bytes
    return total
