"""Configuration files as tests write them, and what reading them gives."""

from pathlib import Path

import pytest

from streamer.config.load import ConfigError, Problem, load
from streamer.config.models import Config

PLAIN = """\
authority: gateway.veh1
endpoints:
  vehicle: {transport: memory, authorities: [veh1]}
  cloud: {transport: memory, authorities: ["*"]}
routes:
  - {from: vehicle, to: cloud}
  - {from: cloud, to: vehicle}
"""
PERMISSIONS = "permissions: {endpoints: {vehicle: {rules: [allow: {}]}, cloud: {rules: [allow: {}]}}}\n"

BROKER = PLAIN.replace(
    'cloud: {transport: memory, authorities: ["*"]}',
    'cloud:\n    transport: mqtt5\n    authorities: ["*"]\n    options:\n      broker: mqtt://127.0.0.1\n',
)

ZENOH = PLAIN.replace(
    "vehicle: {transport: memory, authorities: [veh1]}",
    "vehicle:\n    transport: zenoh\n    authorities: [veh1]\n    options:\n      connect: CONNECT\n",
)


def loaded(path: Path, text: str, **environ: str) -> Config:
    path.write_text(text)
    return load(path, environ)


def problems(path: Path, text: str | bytes, **environ: str) -> list[Problem]:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ConfigError) as caught:
        load(path, environ)
    return caught.value.problems
