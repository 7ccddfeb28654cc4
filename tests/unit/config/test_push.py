"""What may stand in the sections `otel` and `status`."""

from typing import Any

import pytest

from streamer.config import push
from streamer.config.models import Config
from streamer.config.push import OtelConfig


def mistakes(**sections: Any) -> str:
    raw = {"authority": "gw", "endpoints": {"e": {"transport": "memory", "authorities": ["veh1"]}}, "routes": []}
    with pytest.raises(ValueError, match=r"expected|greater|less|Extra") as caught:
        Config.model_validate(raw | sections)
    return str(caught.value)


@pytest.mark.parametrize("endpoint", ["http://collector", "https://[2001:db8::1]:4318", "https://collector:4318/otlp/"])
def test_the_address_of_a_collector(endpoint: str) -> None:
    assert OtelConfig(endpoint=endpoint).endpoint == endpoint.rstrip("/")


@pytest.mark.parametrize(
    "endpoint",
    ["collector:4318", "ftp://collector", "https://", "https://me:secret@collector", "https://c/?key=secret", "http://a b"],
)
def test_what_is_no_address_of_a_collector_is_refused_without_its_secrets(endpoint: str) -> None:
    text = mistakes(otel={"endpoint": endpoint})
    assert "the address of a collector" in text
    assert "secret" not in text


@pytest.mark.parametrize("endpoint", ["http://c:4318/v1/metrics", "https://c/otlp/v1/traces/"])
def test_what_is_appended_is_no_part_of_the_address_of_a_collector(endpoint: str) -> None:
    assert "without /v1/metrics and /v1/traces, which are appended" in mistakes(otel={"endpoint": endpoint})


@pytest.mark.parametrize(
    "otel",
    [
        {"tls": {"cert_file": "a.pem"}},
        {"spans": {"sample": 1.1}},
        {"spans": {"queue": 1}},
        {"interval_s": 0},
        {"headers": {"Authorization": "x"}},
    ],
)
def test_what_cannot_be_is_refused(otel: dict[str, Any]) -> None:
    assert mistakes(otel={"endpoint": "http://collector", **otel})


@pytest.mark.parametrize("missing", ["no_such_module", "no_such_package.module"])
def test_without_all_of_opentelemetry_it_is_said_how_to_install_it(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for modules in ((missing, "json"), ("json", missing)):
        monkeypatch.setattr(push, "OTEL_MODULES", modules)
        assert "otel: null, or opentelemetry installed (pip install 'uprotocol-ustreamer[otel]')" in mistakes(
            otel={"endpoint": "http://c"}
        )
    monkeypatch.setattr(push, "OTEL_MODULES", ("json", "json.decoder"))
    assert OtelConfig(endpoint="http://c").endpoint == "http://c"
