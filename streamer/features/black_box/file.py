"""Writes and reads recordings: MCAP files with JSON, in the topics `MESSAGES` and `EVENTS`."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from streamer import __version__
from streamer.features.black_box.ring import EVENTS, MESSAGES, Shown

try:
    from mcap.reader import make_reader
    from mcap.writer import Writer
except ImportError as exc:
    raise ImportError("the package mcap is missing; install uprotocol-ustreamer[record]") from exc


def write(path: Path, shown: Sequence[Shown], about: dict[str, str]) -> None:
    """Write a recording; it is complete and on disk when it has its name. ``about``: its metadata. Raises OSError."""
    new = path.with_name(f".{path.name}.new")
    with open(new, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:  # payloads are in it
        writer = Writer(file)
        writer.start(profile="", library=f"ustreamer {__version__}")
        writer.add_metadata("recording", about)
        schema = writer.register_schema("ustreamer", "jsonschema", b'{"type": "object"}')
        channels = {topic: writer.register_channel(topic, "json", schema) for topic in (MESSAGES, EVENTS)}
        for number, each in enumerate(shown):
            writer.add_message(channels[each.topic], each.at_ns, each.data, each.at_ns, number)
        writer.finish()  # type: ignore[no-untyped-call]
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def read(path: Path, topic: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the events of a topic, each with its time in Unix nanoseconds. Raises OSError, and ValueError if it is none."""
    with path.open("rb") as file:
        try:
            for _, _, message in make_reader(file, validate_crcs=True).iter_messages(topics=[topic]):
                data: dict[str, Any] = json.loads(message.data)
                yield message.log_time, data
        except Exception as exc:  # the package and its decompressors have many, for damage
            raise ValueError(str(exc) or type(exc).__name__) from exc
