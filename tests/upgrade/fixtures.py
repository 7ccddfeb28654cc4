"""What the released version has left behind (`make_fixtures`), for tests: a copy of the files, and what is to be in them."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from streamer.uprotocol.message import UMessage
from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.protobuf import message_from_proto
from tests.independent.message import Plain
from tests.independent.zenoh import to_attributes

FIXTURES = Path(__file__).parents[1] / "fixtures" / "0.1"
_BYTES = ("payload", "id", "reqid")
_URIS = ("source", "sink")


class Released(NamedTuple):
    """The files of a killed streamer, copied to ``directory``, and the books of those that it served."""

    directory: Path
    books: dict[str, Any]

    @property
    def journal(self) -> Path:
        return self.directory / "journal.db"

    @property
    def state(self) -> Path:
        return self.directory / "journal-state.db"

    @property
    def traces(self) -> Path:
        return self.directory / "traces"

    @property
    def now_ms(self) -> int:
        """A minute after the last message was made."""
        names = ("queued", "paused", "unconfirmed", "dead")
        return 60_000 + max(int.from_bytes(bytes.fromhex(each["id"])[:6]) for name in names for each in self.books[name])

    def messages(self, *names: str) -> list[UMessage]:
        """The messages of these books, in the order in which they were sent."""
        return [_message(_plain(each)) for name in names for each in self.books[name]]

    def configuration(self, endpoints: dict[str, Any], routes: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
        """In today's words."""
        return {
            "authority": "gw",
            "endpoints": endpoints,
            "routes": list(routes),
            "journal": {"path": str(self.journal)},
            "trace": {"path": str(self.traces)},
            "usubscription": {"local": ["veh1", "backend"]},
            "multicast": [{"provider": "//veh1/A8000/2/0", "broadcast": "doorOpened", "partitions": {"boot": 0x8013}}],
        }


def released(directory: Path) -> Released:
    """A copy of the files."""
    shutil.copytree(FIXTURES, directory, dirs_exist_ok=True)
    return Released(directory, json.loads((directory / "expected.json").read_text()))


def _plain(found: dict[str, Any]) -> Plain:
    values = dict(found)
    for name in _BYTES:
        values[name] = None if found[name] is None else bytes.fromhex(found[name])
    for name in _URIS:
        values[name] = None if found[name] is None else tuple(found[name])
    return Plain(**values)


def _message(plain: Plain) -> UMessage:
    return message_from_proto(pb.UMessage(attributes=to_attributes(plain), payload=plain.payload))
