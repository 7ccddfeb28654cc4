"""The flows that a running daemon knows, from its HTTP port."""

from typing import Any
from urllib.parse import urlencode

from streamer.features.flow import Flow
from streamer.tools.running import DaemonAddress, ask

_PAGE = 1000


def flows_of_daemon(daemon: DaemonAddress) -> tuple[list[Flow], int]:
    """Return all flows that the daemon knows, and how many it has forgotten for others. Raises `NotAskedError`."""
    flows: list[Flow] = []
    forgotten = 0
    after: str | None = ""
    while after is not None:
        query = urlencode({"limit": _PAGE} | ({"after": after} if after else {}))
        found, after, forgotten = ask(daemon, f"/known-flows?{query}", _read)
        flows += found
    return flows, forgotten


def _read(answer: Any) -> tuple[list[Flow], str | None, int]:
    following = answer["next"]
    if following is not None and not isinstance(following, str):
        raise TypeError
    return [Flow.from_json(each) for each in answer["flows"]], following, int(answer.get("forgotten", 0))
