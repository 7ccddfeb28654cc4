"""Who listens is asked while messages are sent, on the same key and the same session, with real eclipse-zenoh sessions."""

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from streamer.transports.zenoh.control import ControlThread
from streamer.transports.zenoh.presence import WatchedFlows
from streamer.transports.zenoh.presence_watch import MAX_KEPT, PresenceWatch
from streamer.transports.zenoh.sender import Publishers
from streamer.transports.zenoh.wire import key_for
from streamer.uprotocol.message import UMessage, publish
from streamer.uprotocol.uri import UUri
from tests.waiting import until
from tests.zenoh_peers import RawSubscriber, free_endpoint, now_ms, raw_peer, until_matched

FLOWS = 400
ASKED = 30  # times, meanwhile


def message(flow: int) -> UMessage:
    return publish(now_ms(), UUri("veh1", flow + 1, 1, 0x8000), b"x")


@pytest.fixture
def _busy_threads() -> Iterator[None]:
    """Threads take turns a hundred times as often."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(before_s / 100)
    yield
    sys.setswitchinterval(before_s)


@pytest.mark.usefixtures("_busy_threads")
@pytest.mark.parametrize(("mode", "other"), [("client", "router"), ("peer", "peer")])
async def test_nothing_is_lost_of_a_flow_that_gets_its_publisher_while_it_is_asked_about(mode: str, other: str) -> None:
    endpoint = free_endpoint()
    with raw_peer(listen=[endpoint], mode=other) as receiver, raw_peer(connect=[endpoint], mode=mode) as session:
        subscriber = RawSubscriber(receiver)
        await until_matched(session, "up/veh1/1/0/1/8000/{}/{}/{}/{}/{}")
        control = ControlThread(asyncio.get_running_loop(), "vehicle")
        loop, undeclaring = asyncio.get_running_loop(), threading.Lock()
        watch = PresenceWatch(loop, control, session, lambda key: None, undeclaring, WatchedFlows())  # as if none were known
        publishers = Publishers(session, "gateway", undeclaring)
        others = [key_for(message(FLOWS + number).attributes, "gateway") for number in range(MAX_KEPT)]
        await control.ask(lambda: watch._ask_blocking(others))  # from now on no publisher is kept
        sent: Counter[int] = Counter()
        for flow in range(FLOWS):
            key = key_for(message(flow).attributes, "gateway")
            asking = control.ask(lambda key=key: watch._ask_blocking([key] * ASKED))  # type: ignore[misc]
            while not asking.done() or sent[flow] < 5:  # the fourth has a publisher
                assert publishers.put(message(flow)) is None
                sent[flow] += 1
                await asyncio.sleep(0)
        last = message(FLOWS)
        assert publishers.put(last) is None
        await until(lambda: any(each.id == last.id for each in subscriber.messages()), "the last message", 30)
        watch.close()
        control.end()
        arrived = Counter(each.attributes.source.ue_id - 1 for each in subscriber.messages())
    assert arrived - Counter([FLOWS]) == sent
