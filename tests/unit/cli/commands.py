"""What tests of commands share: how one is run, and a configuration for it. No tests."""

from collections.abc import Callable

from streamer.cli.main import main

Run = Callable[..., tuple[int, str, str]]
"""Runs a command with some words; its status, output and complaints."""

GOOD = """\
authority: gateway.veh1
endpoints:
  vehicle: {transport: memory, authorities: [veh1], options: {bus: cli-vehicle}}
  cloud: {transport: memory, authorities: ["*"], options: {bus: cli-cloud, sink_authority: true}}
  phone: {transport: memory, authorities: [phone1], options: {bus: cli-phone}}
routes:
  - {from: vehicle, to: cloud, publish: ["//veh1/A8000/2/FFFF"], publish_to: [fleet, backup]}
  - {from: vehicle, to: phone, name: handy}
  - {from: cloud, to: vehicle}
metrics: null
"""

SPEED = "//veh1/A8000/2/8A50"


def status_of(*words: str) -> int:
    """Runs the command line; its exit status."""
    try:
        return main([*words])
    except SystemExit as exc:
        return int(exc.code or 0)
