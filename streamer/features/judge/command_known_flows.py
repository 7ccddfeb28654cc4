"""The flows that a running daemon knows, from its HTTP port."""

from typing import Any
from urllib.parse import urlencode

from streamer.features.judge.flow import Flow
from streamer.tools.running import DaemonAddress, ask

_PAGE = 1000


def flows_of_daemon(daemon: DaemonAddress) -> list[Flow]:
    """Return all flows that the daemon knows. Raises `NotAskedError`."""
    flows: list[Flow] = []
    after: str | None = ""
    while after is not None:
        query = urlencode({"limit": _PAGE} | ({"after": after} if after else {}))
        found, after = ask(daemon, f"/known-flows?{query}", _read)
        flows += found
    return flows


def _read(answer: Any) -> tuple[list[Flow], str | None]:
    following = answer["next"]
    if following is not None and not isinstance(following, str):
        raise TypeError
    return [Flow.from_json(each) for each in answer["flows"]], following
