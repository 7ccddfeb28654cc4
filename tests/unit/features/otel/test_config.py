"""What may stand in the section `otel`, and what follows from it."""

from pathlib import Path
from typing import Any

import pytest

from streamer.config.load import warnings
from streamer.features.every import FILE
from streamer.features.otel import config as push
from streamer.features.otel.config import OtelConfig

RAW = {"authority": "gw", "endpoints": {"e": {"transport": "memory", "authorities": ["veh1"]}}, "routes": []}


def mistakes(**sections: Any) -> str:
    with pytest.raises(ValueError, match=r"expected|greater|less|Extra") as caught:
        FILE.model_validate(RAW | sections)
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


@pytest.mark.parametrize(
    ("endpoint", "is_open"),
    [
        ("http://collector:4318", True),
        ("http://192.0.2.1", True),
        ("http://localhost:4318", False),
        ("https://collector", False),
    ],
)
@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_what_others_can_read_is_told(tmp_path: Path, endpoint: str, is_open: bool, mode: int) -> None:
    (file := tmp_path / "headers").write_text("Authorization: Bearer x")
    file.chmod(mode)
    found = FILE.model_validate(RAW | {"otel": {"endpoint": endpoint, "headers_file": str(file)}})
    told = [each.partition(" ")[0] for each in warnings(found) if each.startswith("otel.")]
    assert sorted(told) == ["otel.endpoint:"] * is_open + ["otel.headers_file:"] * (mode != 0o600)
