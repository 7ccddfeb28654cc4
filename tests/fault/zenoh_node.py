"""A Zenoh peer or router as a process of its own: what its subscriptions bring goes to a file, a line each, at once.

A line is in the file when the callback returns, so that a kill loses no message that Zenoh had handed over.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable
from typing import Any

import zenoh

from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from tests.independent.zenoh import from_attributes


def session_config(
    *, mode: str = "peer", listen: Iterable[str] = (), connect: Iterable[str] = (), lease_ms: int | None = None
) -> zenoh.Config:
    """No scouting and no gossip: a node knows those whom it is told of, or it would go around the proxies."""
    config = zenoh.Config()
    settings: dict[str, Any] = {
        "mode": mode,
        "listen/endpoints": list(listen),
        "connect/endpoints": list(connect),
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
    }
    if lease_ms is not None:
        settings["transport/link/tx/lease"] = lease_ms
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    return config


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", default="peer")
    parser.add_argument("--listen", action="append", default=[])
    parser.add_argument("--connect", action="append", default=[])
    parser.add_argument("--key", action="append", default=[])
    parser.add_argument("--lease-ms", type=int)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    out = os.open(arguments.out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def take(sample: zenoh.Sample) -> None:
        assert sample.attachment is not None
        attachment = sample.attachment.to_bytes()
        message = from_attributes(pb.UAttributes.FromString(attachment[1:]), sample.payload.to_bytes())
        line = {
            "type": message.type,
            "source": message.source,
            "payload": message.payload.hex(),
            "commstatus": message.commstatus,
            "reqid": (message.reqid or b"").hex(),
            "id": message.id.hex(),
            "at_s": time.monotonic(),
        }
        os.write(out, json.dumps(line).encode() + b"\n")

    config = session_config(
        mode=arguments.mode, listen=arguments.listen, connect=arguments.connect, lease_ms=arguments.lease_ms
    )
    with zenoh.open(config) as session:
        subscribers = [session.declare_subscriber(key, take) for key in arguments.key]
        sys.stdout.write(f"ready {session.zid()}\n")
        sys.stdout.flush()
        sys.stdin.read()  # the parent's end of the pipe closes with the parent
        del subscribers


if __name__ == "__main__":
    main()
