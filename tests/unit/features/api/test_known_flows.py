"""The flows that a daemon knows: each once, with what decisions depend on, where it went, and its messages per day."""

import asyncio
from pathlib import Path

import pytest

from streamer.features.flow import Flow
from streamer.features.judge import page_known_flows as module
from streamer.features.judge.command_known_flows import flows_of_daemon
from streamer.features.judge.page_known_flows import known_flows
from streamer.tools.running import DaemonAddress, DaemonRefusedError
from streamer.uprotocol.message import Options, UMessageType, UPriority, publish, request
from streamer.uprotocol.uri import UUri
from tests.flow.harness import SPEED
from tests.unit.features.api.daemon import DaemonHarness, running

METHOD = UUri("veh1", 0xA8000, 2, 7)
APP = UUri("app", 1, 1, 0)
DAY_S = 86_400


async def known(served: DaemonHarness, after_s: float = 0.0) -> dict[Flow, Flow]:
    """The flows of the daemon, by themselves without what is counted of them, ``after_s`` from now."""
    router = served.daemon.router
    found = await known_flows(router, router.clock.monotonic_s() + after_s)
    plain = {flow._replace(went_to=(), messages_per_day=0.0): flow for flow in found}
    assert len(plain) == len(found)
    return plain


async def test_flows_are_known_with_their_decision_and_messages(tmp_path: Path) -> None:
    async with running(tmp_path) as served:
        now_ms = served.daemon.router.clock.wall_ms()
        served.arrive("vehicle", *(publish(now_ms, SPEED, b"") for _ in range(3)))
        served.arrive("vehicle", publish(now_ms, SPEED, b"", Options(priority=UPriority.CS5)))
        served.arrive("cloud", request(now_ms, APP, METHOD, 5000, b""))
        served.arrive("cloud", publish(now_ms, UUri("app", 1, 1, 0x8001), b""))
        found = await known(served, after_s=DAY_S)
    speed = Flow(UMessageType.PUBLISH, SPEED, None, "vehicle", "", UPriority.CS1, None, False)
    assert {flow: counted.went_to for flow, counted in found.items()} == {
        speed: ("cloud",),
        speed._replace(priority=UPriority.CS5): ("cloud",),
        Flow(UMessageType.REQUEST, APP, METHOD, "cloud", "", UPriority.CS4, None, True): ("vehicle",),
        Flow(UMessageType.PUBLISH, UUri("app", 1, 1, 0x8001), None, "cloud", "", UPriority.CS1, None, False): (),
    }
    assert found[speed].messages_per_day == pytest.approx(3, rel=0.01)


async def test_messages_of_one_flow_with_several_ttls_are_added_up(tmp_path: Path) -> None:
    async with running(tmp_path) as served:
        now_ms = served.daemon.router.clock.wall_ms()
        served.arrive("vehicle", *(publish(now_ms, SPEED, b"", Options(ttl=1000 + each)) for each in range(5)))
        (flow,) = (await known(served, after_s=DAY_S)).values()
    assert flow.messages_per_day == pytest.approx(5, rel=0.01)


async def test_a_flow_that_waits_is_known_after_its_endpoint_has_forgotten_it(tmp_path: Path) -> None:
    async with running(tmp_path) as served:
        served.transport("cloud").lose_link()
        now_ms = served.daemon.router.clock.wall_ms()
        served.arrive("vehicle", publish(now_ms, SPEED, b"", Options(priority=UPriority.CS3)))
        served.daemon.router.ingresses["vehicle"].flows.clear()
        (flow,) = await known_flows(served.daemon.router, 0.0)
    assert flow == Flow(UMessageType.PUBLISH, SPEED, None, "vehicle", None, UPriority.CS3, None, None, ("cloud",), 0.0)


async def test_a_flow_that_waits_and_is_remembered_is_known_once(tmp_path: Path) -> None:
    async with running(tmp_path) as served:
        served.transport("cloud").lose_link()
        served.arrive("vehicle", publish(served.daemon.router.clock.wall_ms(), SPEED, b""))
        assert len(await known_flows(served.daemon.router, 0.0)) == 1


@pytest.mark.parametrize(
    ("source", "sink", "kind"),
    [(SPEED, None, UMessageType.PUBLISH), (SPEED, APP, UMessageType.NOTIFICATION), (APP, METHOD, UMessageType.REQUEST),
     (METHOD, APP, UMessageType.RESPONSE)],
)  # fmt: skip
def test_the_type_of_messages_follows_from_their_addresses(source: UUri, sink: UUri | None, kind: UMessageType) -> None:
    assert module._kind(source, sink) is kind


async def test_the_page_has_each_flow_on_one_page_and_the_command_reads_all(tmp_path: Path) -> None:
    async with running(tmp_path) as served:
        now_ms = served.daemon.router.clock.wall_ms()
        served.arrive("vehicle", *(publish(now_ms, SPEED._replace(ue_id=each), b"") for each in range(1, 8)))
        served.arrive("cloud", request(now_ms, APP, METHOD, 5000, b""))
        pages, after = [], None
        while True:
            answer = (await served.ask("/api/v1/known-flows", limit=3, **({} if after is None else {"after": after}))).json
            pages.append([Flow.from_json(each) for each in answer["flows"]])
            assert answer["total"] == 8
            if (after := answer["next"]) is None:
                break
        assert [len(page) for page in pages] == [3, 3, 2]
        daemon = DaemonAddress(served.url, "here", lambda: None)
        at_once, forgotten = await asyncio.to_thread(flows_of_daemon, daemon)
    assert forgotten == 0
    rates = {flow.messages_per_day for flow in at_once}
    assert 0.0 not in rates
    without = [flow._replace(messages_per_day=0.0) for flow in at_once]
    assert without == [flow._replace(messages_per_day=0.0) for page in pages for flow in page]


async def test_the_command_says_when_the_daemon_has_forgotten_flows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.uprotocol.cache._ENTRIES", 3)
    async with running(tmp_path) as served:
        now_ms = served.daemon.router.clock.wall_ms()
        served.arrive("vehicle", *(publish(now_ms, SPEED._replace(ue_id=each), b"") for each in range(1, 12)))
        daemon = DaemonAddress(served.url, "here", lambda: None)
        flows, forgotten = await asyncio.to_thread(flows_of_daemon, daemon)
    assert len(flows) <= 6
    assert forgotten >= 5


async def test_an_unknown_parameter_of_the_page_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as served:
        assert (await served.ask("/api/v1/known-flows", state="all")).status == 400


async def test_a_daemon_that_does_not_know_the_page_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.KnownFlowPages, "routes", lambda self: [])
    async with running(tmp_path) as served:
        daemon = DaemonAddress(served.url, "here", lambda: None)
        with pytest.raises(DaemonRefusedError):
            await asyncio.to_thread(flows_of_daemon, daemon)


async def test_the_event_loop_goes_on_while_many_flows_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FLOWS_PER_ITERATION", 2)
    async with running(tmp_path) as served:
        now_ms = served.daemon.router.clock.wall_ms()
        served.arrive("vehicle", *(publish(now_ms, SPEED._replace(ue_id=each), b"") for each in range(1, 8)))
        asking = asyncio.create_task(known_flows(served.daemon.router, 0.0))
        turns = 0
        while not asking.done():
            await asyncio.sleep(0)
            turns += 1
    assert len(asking.result()) == 7
    assert turns > 3
