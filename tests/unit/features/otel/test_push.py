"""The push by itself: what a collector asks for, and spans that cannot be told."""

import asyncio
import math
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamer.features.otel import push as push_module
from streamer.features.otel.config import OtelConfig, OtelSpansConfig
from streamer.features.otel.convert import resource_of
from streamer.features.otel.push import _LONGEST_PAUSE_S, Collect, Push
from streamer.features.otel.session import CollectorAnswer
from streamer.features.otel.spans import Spans
from streamer.main import main
from tests.configurations import config_of
from tests.constants import with_constants
from tests.flow.harness import RouterHarness
from tests.ports import free_port
from tests.unit.features.api.daemon import running


async def nothing() -> list[Any]:
    return []


def pushing(spans: Spans | None = None, collect: Collect = nothing, **options: Any) -> Push:
    config = with_constants(OtelConfig, endpoint="http://127.0.0.1:9", spans=OtelSpansConfig(), **options)
    return Push(config, "gw", collect, spans, 0)


def test_a_pause_that_a_collector_asks_for_holds_for_everything() -> None:
    push, began_s = pushing(), time.monotonic()
    push._count("spans", CollectorAnswer(503, "", retry_after_s=100))
    push._count("metrics", None)
    assert push._not_before_s >= began_s + 100
    push._count("spans", CollectorAnswer(503, "", retry_after_s=1e9))
    assert push._not_before_s <= time.monotonic() + _LONGEST_PAUSE_S


async def test_spans_that_cannot_be_told_are_dropped_and_the_next_ones_go_on() -> None:
    async with RouterHarness() as harness:
        spans = Spans(1.0, 10)
        harness.router.replace_observer(None, spans)
        harness.arrive("vehicle", harness.speed())
        (record,) = spans.take(1)
        push = pushing(spans)
        push._pending = [record, record._replace(code=None)]  # type: ignore[arg-type]
        push._send_spans()
        assert (push._pending, push.spans_dropped, push.exports["spans", "failed"]) == ([], 2, 1)


def test_an_attribute_of_the_configuration_goes_before_ours() -> None:
    found = resource_of("gw", {"service.name": "fleet", "deployment.environment": "test"}).attributes
    assert (found["service.name"], found["service.instance.id"], found["deployment.environment"]) == ("fleet", "gw", "test")


class Turns(threading.Event):
    """Ends a push after so many turns, without a wait between them."""

    def __init__(self, turns: int) -> None:
        super().__init__()
        self.left = turns

    def wait(self, timeout: float | None = None) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize(
    ("is_pausing", "failing", "spans", "metrics"),
    [(False, "", 4, 1), (False, "metrics", 4, 4), (True, "metrics", 1, 1)],
    ids=["usually", "metrics fail", "the collector wants a pause"],
)
async def test_what_has_failed_is_sent_again_in_each_turn_but_not_in_a_pause_and_all_once_more_at_the_end(
    is_pausing: bool, failing: str, spans: int, metrics: int
) -> None:
    async with RouterHarness() as harness:
        sampled = Spans(1.0, 10)
        harness.router.replace_observer(None, sampled)
        harness.arrive("vehicle", harness.speed())
        push = pushing(sampled, timeout_s=0.1)
        push._loop, push._ending = asyncio.get_running_loop(), Turns(3)
        push._failing |= {failing} - {""}
        push._not_before_s = math.inf if is_pausing else 0.0
        await asyncio.to_thread(push._run)
        assert (push.exports["spans", "failed"], push.exports["metrics", "failed"]) == (spans, metrics)
        assert len(sampled) == 1


async def test_an_event_loop_that_is_busy_is_a_failed_export(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_module, "_COLLECT_S", 0.01)
    cancelled = asyncio.Event()

    async def never() -> list[Any]:
        try:
            return await asyncio.Future()
        finally:
            cancelled.set()

    push = pushing(collect=never)
    push._loop = asyncio.get_running_loop()
    await asyncio.to_thread(push._send_metrics)
    await cancelled.wait()
    assert push.exports["metrics", "failed"] == 1


OTEL = {"endpoint": "http://127.0.0.1:9"}


@pytest.fixture(params=["opentelemetry.sdk.metrics.export", "requests"])
def missing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A part of what the push needs that is not installed, although opentelemetry is."""
    name = str(request.param)
    for module in ("push", "session", "convert"):
        monkeypatch.delitem(sys.modules, f"streamer.features.otel.{module}", raising=False)
    monkeypatch.setitem(sys.modules, name, None)
    return name


async def test_a_reload_is_refused_if_a_part_is_missing_and_all_goes_on_as_before(tmp_path: Path, missing: str) -> None:
    async with running(tmp_path) as harness:
        before = harness.daemon.config
        harness.raw |= {"otel": OTEL, "queue_policy": {"window": 7}}
        harness.write()
        asked = await harness.ask("/api/v1/reload", {})
        assert asked.status == 422
        (problem,) = asked.json["problems"]
        expected = "otel: null, or all of what it needs installed (pip install 'uprotocol-ustreamer[otel]')"
        assert problem.startswith(f"otel: expected {expected}")
        assert missing in problem
        assert harness.daemon.config is before


def test_a_daemon_without_a_part_does_not_start_and_says_which(
    tmp_path: Path, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "streamer.yaml"
    endpoints = {"only": {"transport": "memory", "authorities": ["*"], "options": {"bus": str(tmp_path)}}}
    metrics = {"listen": f"127.0.0.1:{free_port()}"}
    raw: dict[str, Any] = config_of(endpoints, [], journal=None, metrics=metrics, otel=OTEL)
    file.write_text(yaml.safe_dump(raw))
    assert main(["run", "--config", str(file)]) == 78
    told = capsys.readouterr().err
    assert f"{file}: otel: expected otel: null" in told
    assert missing in told
