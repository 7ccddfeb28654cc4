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
        lambda is_there, zid: told.append("came" if is_there else "lost"),
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


async def test_a_survey_of_before_an_event_brings_no_lost_node_back() -> None:
    """Links are read on another thread, and a node may leave meanwhile: it would count as there until the next event."""
    changes: list[bool] = []
    session: Any = SimpleNamespace(info=FakeInfo())
    nodes = Nodes(
        asyncio.get_running_loop(),
        SimpleNamespace(),  # type: ignore[arg-type]
        session,
        "vehicle",
        OwnNodes().has,
        lambda is_there, zid: changes.append(is_there),
        lambda: None,
        lost_now=lambda: None,
        heard=lambda is_there, is_news, zid: None,
    )
    nodes.watch()
    session.info.tell(zenoh.SampleKind.PUT)
    await until(lambda: changes == [True], "the node")
    events = nodes._heard_events
    session.info.tell(zenoh.SampleKind.DELETE)
    await until(lambda: changes == [True, False], "its loss")
    nodes._surveyed({"a1"}, events)
    assert changes == [True, False]
    nodes._surveyed({"a1"}, nodes._heard_events)
    assert changes == [True, False, True]
    nodes.close()
