"""A daemon and a collector of OpenTelemetry that answers, refuses, is slow, is away, or wants TLS and a header."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from streamer.config.models import Config
from streamer.daemon import Daemon
from streamer.features.every import FILE
from streamer.features.otel import push
from streamer.features.otel.config import OtelConfig, OtelSpansConfig
from streamer.features.otel.feature import OtelFeature
from streamer.features.otel.push import read_headers
from streamer.transports.errors import PermanentError
from streamer.transports.memory import MemoryReceived, MemoryTransport
from streamer.uprotocol.message import Options, UMessage, publish
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import new_id
from tests.certificates import write_certificates
from tests.constants import with_constants
from tests.hosted import one_of
from tests.otel_collector import Collector, attributes, listening
from tests.ports import free_port
from tests.waiting import until

SPEED = UUri("veh1", 0xA8000, 2, 0x8A50)
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{PARENT}-01"
OF_THE_MOMENT = ("ustreamer_otel_", "process_", "python_", "ustreamer_event_loop_lag", "ustreamer_remembered_ids")
"""What changes by the export, or by itself."""


def configuration(endpoint: str, **otel: Any) -> Config:
    return FILE.model_validate(
        {
            "authority": "gateway.veh1",
            "endpoints": {
                "vehicle": {"transport": "memory", "authorities": ["veh1"], "options": {"bus": "otel-vehicle"}},
                "cloud": {"transport": "memory", "authorities": ["*"], "options": {"bus": "otel-cloud"}},
            },
            "routes": [{"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]}],
            "metrics": {"listen": "127.0.0.1:0"},
            "otel": with_constants(
                OtelConfig, **{"endpoint": endpoint, "interval_s": 0.1, "timeout_s": 0.7, "spans": {"sample": 0}, **otel}
            ),
        }
    )


class Running:
    """A daemon with memory endpoints."""

    def __init__(self, config: Config) -> None:
        self.daemon = Daemon(config)
        self.vehicle, self.cloud = self.daemon.transports["vehicle"], self.daemon.transports["cloud"]

    def publish(self, payload: bytes = b"x", traceparent: str | None = SAMPLED) -> UMessage:
        assert isinstance(self.vehicle, MemoryTransport)
        now_ms = self.vehicle.context.now_ms()
        message = publish(now_ms, SPEED, payload, Options(traceparent=traceparent))
        self.vehicle.inject(MemoryReceived(message))
        return message

    def samples(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        text = self.daemon.exposition.text().decode()
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def own(self, name: str, **labels: str) -> float:
        return self.samples()[name, frozenset(labels.items())]


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[Running]:
    found = Running(config)
    task = asyncio.create_task(found.daemon.run())
    await until(lambda: found.daemon.has_started, "the start")
    try:
        yield found
    finally:
        found.daemon.stop()
        await task


def stable(samples: dict[tuple[str, frozenset[tuple[str, str]]], float]) -> dict[Any, float]:
    return {key: value for key, value in samples.items() if not key[0].startswith(OF_THE_MOMENT)}


async def test_what_is_exported_equals_metrics_at_rest() -> None:
    async with listening(Collector()) as collector:
        async with running(configuration(collector.endpoint, attributes={"deployment.environment": "test"})) as it:
            assert isinstance(it.cloud, MemoryTransport)
            it.cloud.refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no") if not message.payload else None
            for number in range(20):
                it.publish(b"" if number % 5 == 0 else b"fine")
            before = len(collector.metrics)
            await until(lambda: len(collector.metrics) >= before + 2, "an export of everything")
            there, exported = it.samples(), collector.samples()
        resource = collector.resources[-1]
        assert {name: resource[name] for name in ("service.name", "service.instance.id", "deployment.environment")} == {
            "service.name": "ustreamer",
            "service.instance.id": "gateway.veh1",
            "deployment.environment": "test",
        }
        assert stable(exported) == stable(there)
        assert {name for name, _ in exported} == {name for name, _ in there}
        for metric in collector.last():
            points: list[Any] = [*metric.sum.data_points, *metric.histogram.data_points]
            for point in points:
                assert 0 < point.start_time_unix_nano < point.time_unix_nano
            assert metric.sum.is_monotonic or not metric.HasField("sum")


async def test_metrics_are_sent_again_after_each_interval_also_if_spans_are_sent_more_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(push, "_EXPORT_EVERY_S", 0.01)
    async with listening(Collector()) as collector, running(configuration(collector.endpoint, interval_s=1)):
        await until(lambda: len(collector.metrics) >= 3, "the third export")


async def test_spans_continue_the_trace_and_say_what_failed() -> None:
    async with listening(Collector()) as collector, running(configuration(collector.endpoint)) as it:
        assert isinstance(it.cloud, MemoryTransport)
        it.cloud.refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no") if not message.payload else None
        good, bad = it.publish(b"fine"), it.publish(b"")
        it.publish(traceparent=None)
        it.publish(traceparent=SAMPLED[:-1] + "0")
        await until(lambda: len(collector.spans) >= 2, "the spans")
        spans = {attributes(span)["uprotocol.id"]: span for span in collector.spans}
        assert spans.keys() == {good.id.hex(), bad.id.hex()}
        for span in spans.values():
            assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
            assert len(span.span_id) == 8
            assert span.span_id.hex() != PARENT
            assert span.name == "route vehicle-cloud"
            assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
        assert spans[good.id.hex()].status.code == 0
        failed = spans[bad.id.hex()]
        assert (failed.status.code, failed.status.message) == (2, "no")
        assert attributes(failed) == {
            "uprotocol.id": bad.id.hex(),
            "uprotocol.type": "publish",
            "uprotocol.source": str(SPEED),
            "uprotocol.priority": "CS1",
            "ustreamer.route": "vehicle-cloud",
            "ustreamer.ingress": "vehicle",
            "ustreamer.egress": "cloud",
            "ustreamer.outcome": "dead_lettered",
            "ustreamer.code": "PERMISSION_DENIED",
            "ustreamer.attempts": 1,
            "ustreamer.confirmed": True,
        }


async def test_a_collector_that_is_away_loses_no_span_and_holds_nothing_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    port = free_port()
    collector = Collector()
    async with running(configuration(f"http://127.0.0.1:{port}")) as it:
        await until(lambda: it.own("ustreamer_otel_exports_total", signal="metrics", result="failed") >= 3, "failures")
        sent = [it.publish() for _ in range(3)]
        await until(lambda: it.own("ustreamer_otel_exports_total", signal="spans", result="failed") >= 1, "failures")
        async with listening(collector, port=port):
            await until(lambda: len(collector.spans) == 3 and bool(collector.metrics), "what had waited")
            await until(lambda: it.own("ustreamer_otel_sent_spans_total") == 3, "the count")
        assert {attributes(span)["uprotocol.id"] for span in collector.spans} == {message.id.hex() for message in sent}
        assert it.own("ustreamer_otel_dropped_spans_total") == 0
    lines = [record.message for record in caplog.records if record.name == "ustreamer.otel"]
    assert [line.split()[:2] for line in lines[:2]] == [
        ["otel_export_failing", "signal=metrics"],
        ["otel_export_failing", "signal=spans"],
    ]


async def test_what_a_collector_refuses_for_now_is_sent_again_and_what_it_refuses_for_good_is_dropped() -> None:
    async with listening(Collector()) as collector, running(configuration(collector.endpoint, metrics=False)) as it:
        collector.answers = [503, 429, 401, 403, 404, 408]
        it.publish()
        await until(lambda: len(collector.spans) == 1, "the span")
        assert collector.requests == 7
        collector.answers = [400]
        it.publish()
        await until(lambda: it.own("ustreamer_otel_dropped_spans_total") == 1, "the refusal")
        it.publish()
        await until(lambda: len(collector.spans) == 2, "the next span")
        assert it.own("ustreamer_otel_exports_total", signal="spans", result="failed") == 7


async def test_a_redirect_is_a_refusal_and_nothing_goes_elsewhere(tmp_path: Path) -> None:
    secret = tmp_path / "headers"
    secret.write_text("Authorization: Bearer secret\nX-Key: secret\n")
    async with listening(Collector()) as other, listening(Collector()) as collector:
        collector.elsewhere = f"{other.endpoint}/v1/traces"
        options = {"metrics": False, "headers_file": str(secret)}
        async with running(configuration(collector.endpoint, **options)) as it:
            for status in (301, 302, 303, 307, 308):
                collector.answers = [status]
                before = it.own("ustreamer_otel_dropped_spans_total")
                it.publish()
                await until(
                    lambda before=before: it.own("ustreamer_otel_dropped_spans_total") == before + 1,  # type: ignore[misc]
                    f"the refusal of {status}",
                )
            it.publish()
            await until(lambda: len(collector.spans) == 1, "a span after that")
        assert other.requests == 0


async def test_a_stop_does_not_wait_for_a_pause_between_repetitions() -> None:
    async with listening(Collector()) as collector:
        async with running(configuration(collector.endpoint, timeout_s=300, metrics=False)) as it:
            collector.answers = [503]
            it.publish()
            await until(lambda: collector.requests == 1, "the refusal")
            push = one_of(it.daemon.features, OtelFeature).push
            assert push is not None
            thread = push._thread
        assert not thread.is_alive()
        assert len(collector.spans) == 1


async def test_a_collector_that_is_slow_costs_spans_and_no_message() -> None:
    collector, answering = Collector(), asyncio.Event()
    take = collector.take

    async def slowly(request: web.Request) -> web.Response:
        await answering.wait()
        return await take(request)

    collector.take = slowly  # type: ignore[method-assign]
    options = {"spans": with_constants(OtelSpansConfig, sample=0, queue=10), "timeout_s": 60, "metrics": False}
    async with listening(collector), running(configuration(collector.endpoint, **options)) as it:
        assert isinstance(it.cloud, MemoryTransport)
        it.publish()
        spans = one_of(it.daemon.features, OtelFeature).spans
        assert spans is not None
        await until(lambda: len(spans) == 0, "the export")
        for _ in range(50):
            it.publish()
        assert len(it.cloud.sent) == 51
        assert it.own("ustreamer_otel_dropped_spans_total") == 40
        answering.set()
        await until(lambda: len(collector.spans) == 11, "the others")


async def test_tls_a_client_certificate_and_headers_that_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    write_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    context.load_verify_locations(tmp_path / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    secret = tmp_path / "headers"
    secret.write_text("# of the collector\nAuthorization: Bearer first-secret\n\nX-Scope: fleet\n")
    tls = {"ca_file": "ca.pem", "cert_file": "client.pem", "key_file": "client.key"}
    async with listening(Collector(), context) as collector:
        config = configuration(
            collector.endpoint.replace("http", "https") + "/otlp",
            headers_file=str(secret),
            tls={key: str(tmp_path / name) for key, name in tls.items()},
        )
        async with running(config) as it:
            await until(lambda: it.own("ustreamer_otel_exports_total", signal="metrics", result="failed") >= 1, "404")
        assert not collector.requests  # there is no such path
        async with running(config.model_copy(update={"otel": _at(config, collector)})) as it:
            await until(lambda: bool(collector.metrics), "an export")
            assert collector.headers[-1]["authorization"] == "Bearer first-secret"
            assert collector.headers[-1]["x-scope"] == "fleet"
            secret.write_text("Authorization: Bearer other-secret\n")
            await until(lambda: collector.headers[-1]["authorization"] == "Bearer other-secret", "the other header")
            secret.write_text("no header other-secret\n")
            await until(lambda: "expected a header" in caplog.text, "the mistake")
            there = it.daemon.exposition.text().decode()
    assert "-secret" not in caplog.text
    assert "-secret" not in there


def _otel(config: Config) -> OtelConfig:
    return next(section for _, section in config.feature_sections() if isinstance(section, OtelConfig))


def _at(config: Config, collector: Collector) -> Any:
    return _otel(config).model_copy(update={"endpoint": collector.endpoint.replace("http", "https")})


async def test_a_collector_that_nobody_vouches_for_gets_nothing(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    async with listening(Collector(), context) as collector:
        config = configuration(collector.endpoint.replace("http", "https"))
        async with running(config) as it:
            await until(lambda: it.own("ustreamer_otel_exports_total", signal="metrics", result="failed") >= 2, "failures")
        assert collector.requests == 0


async def test_a_reload_begins_changes_and_ends_the_push(tmp_path: Path) -> None:
    file = tmp_path / "streamer.yaml"
    base = configuration("http://127.0.0.1:1").model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude={"otel"}
    )
    async with listening(Collector()) as collector:
        otel = {"endpoint": collector.endpoint, "interval_s": 0.1}
        file.write_text(yaml.safe_dump(base))
        found = Running(FILE.model_validate(base))
        found.daemon.path = file
        task = asyncio.create_task(found.daemon.run())
        await until(lambda: found.daemon.has_started, "the start")
        for step in ({"spans": {"sample": 0}}, {"spans": {"sample": 0}, "attributes": {"a": "b"}}):
            file.write_text(yaml.safe_dump(base | {"otel": otel | step}))
            assert await found.daemon.reload("test", "here") == []
            message, known = found.publish(), len(collector.spans)
            await until(lambda known=known: len(collector.spans) > known, "a span")  # type: ignore[misc]
            assert attributes(collector.spans[-1])["uprotocol.id"] == message.id.hex()
        file.write_text(yaml.safe_dump(base))
        assert await found.daemon.reload("test", "here") == []
        requests = collector.requests
        found.publish()
        assert not any(name.startswith("ustreamer_otel") for name, _ in found.samples())
        found.daemon.stop()
        await task
        assert collector.requests == requests


@pytest.mark.parametrize("is_refused", [False, True], ids=["it is away", "it refuses for now"])
async def test_spans_that_one_collector_has_not_taken_are_for_the_one_that_a_reload_names(is_refused: bool) -> None:
    async with listening(Collector()) as first, listening(Collector()) as second:
        first.answers = [503] * 100
        before = _otel(configuration(first.endpoint if is_refused else f"http://127.0.0.1:{free_port()}", metrics=False))
        after = _otel(configuration(second.endpoint, metrics=False))
        async with running(configuration("http://127.0.0.1:1").model_copy(update={"otel": before})) as it:
            sent = [it.publish() for _ in range(600)]  # more than go at once
            await until(lambda: it.own("ustreamer_otel_exports_total", signal="spans", result="failed") >= 1, "a failure")
            otel = one_of(it.daemon.features, OtelFeature)
            otel.config = it.daemon.config.model_copy(update={"otel": after})
            await otel.reloaded()
            sent += [it.publish()]
            await until(lambda: len(second.spans) >= len(sent), "the spans")
            assert it.own("ustreamer_otel_dropped_spans_total") == 0
        assert [attributes(span)["uprotocol.id"] for span in second.spans] == [message.id.hex() for message in sent]


@pytest.mark.parametrize("line", ["no header", ": value", "Name:", "Na me: x", "A: b\x07"])
def test_a_file_of_headers_that_cannot_be_read_is_told_without_its_content(tmp_path: Path, line: str) -> None:
    file = tmp_path / "headers"
    file.write_text(f"Good: one\n{line}\n")
    with pytest.raises(ValueError, match=r"^line 2: expected a header") as caught:
        read_headers(file)
    assert line not in str(caught.value)


def test_ids_are_no_less_random_than_sampling_needs() -> None:
    assert len({new_id(0)[-7:] for _ in range(1000)}) == 1000
