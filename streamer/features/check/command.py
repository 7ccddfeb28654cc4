"""``streamer check``: reports every problem of a configuration file; with ``--probe``, of this machine as well."""

import argparse
import os
from pathlib import Path

from streamer.config.claims import paths
from streamer.config.load import load, warnings
from streamer.config.models import Config
from streamer.config.secrets import dotted
from streamer.tools.cost import memory_hint, sum_line
from streamer.tools.memory import allowed_bytes, unit_bytes
from streamer.tools.text import CONFIG_DEFAULT, add_json, document_out, lines_out
from streamer.uprotocol.well_known import USTREAMER


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    text = "Report every problem of a configuration file. Without --probe, it connects to nothing."
    check = commands.add_parser("check", help=text, description=text)
    check.set_defaults(command=_check)
    check.add_argument("--config", type=Path, metavar="FILE", help=f"the configuration file; {CONFIG_DEFAULT}")
    text = "also test this machine: files, ports, disks, brokers; exit code 1 if the file is good but a test fails"
    check.add_argument("--probe", action="store_true", help=text)
    add_json(check)


def _check(arguments: argparse.Namespace) -> int:
    config = load(arguments.config, kind=arguments.kind)
    if arguments.as_json:
        return _check_as_json(arguments, config)
    endpoints = ", ".join(f"{name} ({endpoint.transport})" for name, endpoint in config.endpoints.items())
    routes = f"{len(config.routes)} route{'' if len(config.routes) == 1 else 's'}"
    lines_out([f"{arguments.config}: good. {USTREAMER.at(config.authority)}, endpoints {endpoints}, {routes}"])
    lines_out([f"{arguments.config}: {sum_line(config)}"])
    lines_out(f"{arguments.config}: hint: {hint}" for hint in _hints(config))
    if not arguments.probe:
        return 0
    from streamer.features.check.probe import probe  # noqa: PLC0415  # other commands do without

    return probe(arguments.config, config)


def _hints(config: Config) -> list[str]:
    files = {dotted(key): path for key, path in paths(config) if str(key[-1]).endswith("_file")}
    missing = [f"{key}: {file}: expected a file, found none" for key, file in files.items() if not os.path.exists(file)]
    return [*warnings(config), *missing, *memory_hint(config, allowed_bytes() | unit_bytes())]


def _check_as_json(arguments: argparse.Namespace, config: Config) -> int:
    document = {
        "file": str(arguments.config),
        "uentity": str(USTREAMER.at(config.authority)),
        "endpoints": {name: endpoint.transport for name, endpoint in config.endpoints.items()},
        "routes": len(config.routes),
        "notes": [sum_line(config)],
        "hints": _hints(config),
        "probes": None,
    }
    status = 0
    if arguments.probe:
        from streamer.features.check.probe import probed  # noqa: PLC0415  # other commands do without

        document["probes"], status = probed(arguments.config, config)
    document_out(document)
    return status
