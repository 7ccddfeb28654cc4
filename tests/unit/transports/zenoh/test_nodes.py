"""What is told of other nodes, by events that come on another thread."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import zenoh

from streamer.transports.own_nodes import OwnNodes
from streamer.transports.zenoh.nodes import Nodes
from tests.waiting import until


class FakeInfo:
    """Of a session. ``tell`` calls the listener on a thread of its own, and returns when that has ended."""

    def __init__(self) -> None:
        self._listener: Any = None

    def declare_transport_events_listener(self, listener: Any, history: bool) -> None:
        assert history
        self._listener = listener

    def tell(self, kind: zenoh.SampleKind, zid: str = "a1") -> None:
        event = SimpleNamespace(kind=kind, transport=SimpleNamespace(zid=zid, is_multicast=False))
        thread = threading.Thread(target=self._listener, args=(event,))
        thread.start()
        thread.join()


async def test_a_loss_is_told_at_once_and_each_event_is_followed_by_a_turn_of_the_loop() -> None:
    told: list[str] = []
    own = OwnNodes()
    session: Any = SimpleNamespace(info=FakeInfo())
    nodes = Nodes(
        asyncio.get_running_loop(),
        SimpleNamespace(),  # type: ignore[arg-type]  # no survey comes to its turn
        session,
        "vehicle",
        own.has,
        lambda is_there: told.append("came" if is_there else "lost"),
        lambda: None,
        lost_now=lambda: told.append("lost now"),
        heard=lambda is_there, is_news, zid: told.append("heard"),
    )
    nodes.watch()
    ours = own.new_id()
    session.info.tell(zenoh.SampleKind.PUT, ours)
    session.info.tell(zenoh.SampleKind.DELETE, ours)  # nothing is told: no message is for it
    session.info.tell(zenoh.SampleKind.PUT)
    session.info.tell(zenoh.SampleKind.DELETE)
    session.info.tell(zenoh.SampleKind.DELETE)  # Zenoh says it twice
    assert told == ["lost now", "lost now"]  # the loop is busy until here
    await until(lambda: told.count("heard") == 3, "the loop's turn")
    assert told[2:] == ["came", "heard", "lost", "heard", "heard"]
    nodes.close()
