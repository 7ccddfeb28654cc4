"""The models: defaults, bounds, and what a route makes of the queue_policy section."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from streamer.config.load import json_schema
from streamer.config.metrics import MetricsConfig
from streamer.config.models import (
    Config,
    EndpointConfig,
    FeatureSection,
    QueueConfig,
    QueuePolicy,
    RetryConfig,
    RouteConfig,
    ShutdownConfig,
    with_sections,
)
from streamer.config.stores import JournalConfig
from streamer.transports.memory import MemoryOptions
from streamer.uprotocol.uri import UUri

MIB = 1024 * 1024


def raw(**changes: Any) -> dict[str, Any]:
    return {
        "authority": "gateway.veh1",
        "endpoints": {
            "vehicle": {"transport": "memory", "authorities": ["veh1"]},
            "cloud": {"transport": "memory", "authorities": ["*"]},
        },
        "routes": [{"from": "vehicle", "to": "cloud"}, {"from": "cloud", "to": "vehicle"}],
    } | changes


def messages(value: Any) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        Config.model_validate(value)
    return [error["msg"] for error in caught.value.errors()]


def test_endpoints_on_which_a_publish_needs_an_address_are_known_from_their_options() -> None:
    cloud = {"transport": "memory", "authorities": ["*"], "options": {"sink_authority": True}}
    vehicle = {"transport": "zenoh", "authorities": ["veh1"]}
    assert Config.model_validate(raw(endpoints={"vehicle": vehicle, "cloud": cloud})).addressed == {"cloud"}


def test_everything_but_authority_endpoints_and_routes_has_its_documented_default() -> None:
    config = Config.model_validate(raw())
    assert config.queue_policy == QueuePolicy(
        queue=QueueConfig(messages=10_000, bytes=64 * MIB, on_full="backpressure"),
        window=1000,
        flow_window=1000,
        retry=RetryConfig(initial_ms=500, max_ms=10_000, attempts=10),
    )
    assert config.permissions is None
    assert config.journal is None
    assert (config.dead_letter.resource, config.dead_letter.endpoints) == (0x8001, ["origin"])
    assert config.dead_letter.queue.model_dump() == {"messages": 10000, "bytes": 32 * MIB}
    assert config.metrics == MetricsConfig(listen="127.0.0.1:9464")
    assert config.log.model_dump() == {"level": "info", "format": "auto", "repeat_s": 10, "audit": None}
    assert config.shutdown.drain_s == 20
    assert config.remember.model_dump() == {"ids": 200_000}


def test_sections_that_are_given_have_defaults_too() -> None:
    assert JournalConfig.model_validate({"path": "/var/lib/j.db"}) == JournalConfig(
        path=Path("/var/lib/j.db"), max_bytes=1024 * MIB
    )


@pytest.mark.parametrize("section", ["journal", "metrics"])
def test_null_switches_a_section_off(section: str) -> None:
    assert getattr(Config.model_validate(raw(**{section: None})), section) is None


def test_a_route_lays_its_own_keys_over_the_queue_policy() -> None:
    config = Config.model_validate(
        raw(
            queue_policy={"queue": {"bytes": "1MiB"}, "window": 7, "retry": {"attempts": 3}},
            routes=[
                {"from": "vehicle", "to": "cloud", "queue": {"messages": 5}, "flow_window": 1},
                {"from": "cloud", "to": "vehicle"},
            ],
        )
    )
    own, plain = (route.queue_policy for route in config.routes)
    assert own == QueuePolicy(
        queue=QueueConfig(messages=5, bytes=MIB), window=7, flow_window=1, retry=RetryConfig(attempts=3)
    )
    assert plain == config.queue_policy


def test_a_section_of_a_route_counts_where_the_queue_policy_has_none_and_the_opposite() -> None:
    rate = {"messages": 5}
    routes: list[dict[str, Any]] = [
        {"from": "vehicle", "to": "cloud", "rate": rate},
        {"from": "cloud", "to": "vehicle", "rate_per_authority": None},
    ]
    config = Config.model_validate(raw(queue_policy={"rate": None, "rate_per_authority": rate}, routes=routes))
    first, second = (route.queue_policy for route in config.routes)
    assert first.rate is not None
    assert (first.rate, first.rate) == (first.rate_per_authority, config.queue_policy.rate_per_authority)
    assert (second.rate, second.rate_per_authority) == (None, None)


def test_a_route_can_be_built_alone() -> None:
    route = RouteConfig.model_validate({"from": "a", "to": "b", "window": 5})
    assert (route.name, route.queue_policy) == ("a-b", QueuePolicy(window=5))
    assert RouteConfig(from_="a", to="b", queue_policy=QueuePolicy(window=9)).queue_policy.window == 9  # type: ignore[call-arg]  # alias


def test_a_route_is_named_after_its_ends_unless_it_has_a_name() -> None:
    routes = [{"from": "vehicle", "to": "cloud", "name": "up"}, {"from": "cloud", "to": "vehicle"}]
    assert [route.name for route in Config.model_validate(raw(routes=routes)).routes] == ["up", "cloud-vehicle"]


def test_patterns_are_parsed() -> None:
    routes = [{"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF", "up://*/A/1/8000"]}]
    assert Config.model_validate(raw(routes=routes)).routes[0].publish == [
        UUri("veh1", 0xFFFFFFFF, 0xFF, 0xFFFF),
        UUri("*", 0xA, 1, 0x8000),
    ]


def test_options_become_the_transport_s_own_model() -> None:
    endpoint = EndpointConfig.model_validate(
        {"transport": "memory", "authorities": ["*"], "options": {"bus": "b", "unconfirmed_s": 3}}
    )
    assert endpoint.options == MemoryOptions(bus="b", unconfirmed_s=3)
    assert (
        EndpointConfig.model_validate({"transport": "memory", "authorities": ["*"], "options": None}).options
        == MemoryOptions()
    )


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (1, 1),
        ("17", 17),
        ("512KiB", 512 * 1024),
        ("64 MiB", 64 * MIB),
        ("1.5GiB", 1536 * MIB),
        ("2TiB", 2 * 1024 * 1024 * MIB),
        ("10kB", 10_000),
        ("10MB", 10_000_000),
        ("1GB", 1_000_000_000),
        ("7B", 7),
    ],
)
def test_sizes_are_bytes_or_text_with_a_unit(text: object, size: int) -> None:
    assert QueueConfig.model_validate({"bytes": text}).bytes == size


@pytest.mark.parametrize("text", ["", "MiB", "-1MiB", "1 Mib", "1MiBs", "0x10", 1.5, True, None, 0, "0MiB", "0.1B"])
def test_texts_that_are_not_sizes_are_refused(text: object) -> None:
    with pytest.raises(ValidationError, match="expected a size"):
        QueueConfig.model_validate({"bytes": text})


@pytest.mark.parametrize(
    ("listen", "host", "port"), [("0.0.0.0:80", "0.0.0.0", 80), ("[::1]:9464", "::1", 9464), ("localhost:0", "localhost", 0)]
)
def test_listen_has_a_host_and_a_port(listen: str, host: str, port: int) -> None:
    metrics = MetricsConfig(listen=listen)
    assert (metrics.host, metrics.port) == (host, port)


@pytest.mark.parametrize(
    "origin", ["gw.example", "https://gw.example/", "https://u@gw.example", "ftp://gw", "https://", "null", "*", "https://*"]
)
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ValidationError, match="expected the origin of a page"):
        MetricsConfig(origins=[origin])


@pytest.mark.parametrize("listen", ["9464", ":9464", "localhost", "::1:9464", "localhost:65536", "a b:1"])
def test_listen_without_host_or_port_is_refused(listen: str) -> None:
    with pytest.raises(ValidationError, match="expected host:port"):
        MetricsConfig(listen=listen)


@pytest.mark.parametrize("value", ["5", 5.0, True, None])
def test_a_number_is_not_guessed_from_something_else(value: object) -> None:
    with pytest.raises(ValidationError, match="valid integer"):
        QueuePolicy.model_validate({"window": value})


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_numbers_are_finite(value: float) -> None:
    with pytest.raises(ValidationError, match="finite"):
        ShutdownConfig(drain_s=value)


def test_a_number_that_cannot_be_used_later_is_refused() -> None:
    with pytest.raises(ValidationError, match="less than or equal"):
        ShutdownConfig(drain_s=1e308)


def test_mistakes_inside_and_between_the_parts_come_together() -> None:
    found = messages(
        raw(authority="*", dead_letter={"endpoints": ["nowhere"]}, routes=[{"from": "vehicle", "to": "vehicle"}])
    )
    assert [text.partition(":")[0] for text in found] == [
        "expected one authority, no wildcard",
        "expected one of the endpoints (origin, vehicle, cloud), found 'nowhere'",
        "the route leads back to 'vehicle', where it starts; expected another endpoint (nothing may loop)",
    ]


def test_checks_between_the_parts_hold_for_models_as_well() -> None:
    config = Config.model_validate(raw())
    route = config.routes[0]
    found = messages(raw(endpoints=config.endpoints, routes=[route, route]))
    assert found == ["routes[0] already leads from 'vehicle' to 'cloud'; expected one route for each direction"]


def test_one_authority_may_live_in_two_networks() -> None:
    endpoints = {name: {"transport": "memory", "authorities": ["veh1"]} for name in ("vehicle", "cloud")}
    Config.model_validate(raw(endpoints=endpoints))


@pytest.mark.parametrize("name", ["none", "dead-letter", "rpc-error"])
def test_route_names_of_metrics_and_traces_are_reserved(name: str) -> None:
    (text,) = messages(raw(routes=[{"from": "vehicle", "to": "cloud", "name": name}]))
    assert text.startswith("expected a name other than")


def test_an_error_does_not_show_what_was_in_the_file() -> None:
    with pytest.raises(ValidationError) as caught:
        Config.model_validate(raw(authority="Hunter2"))
    assert "Hunter2" not in str(caught.value)


def test_the_models_are_frozen() -> None:
    def sections(model: BaseModel) -> list[BaseModel]:
        children = [value for _, value in model if isinstance(value, BaseModel)]
        return [model, *(section for child in children for section in sections(child))]

    config = Config.model_validate(raw())
    assert all(section.model_config.get("frozen") for section in sections(config))
    with pytest.raises(ValidationError, match="frozen"):
        config.authority = "other"


class Echo(FeatureSection):
    """A section for this test."""

    times: int = 1


class Echoes(Echo):
    """A list of sections for this test."""

    @classmethod
    def field(cls) -> tuple[Any, Any]:
        return list[Echoes], []


def test_a_section_of_a_feature_stands_where_its_key_says_and_nowhere_without_the_feature() -> None:
    endpoints = {"e": {"transport": "memory", "authorities": ["a"], "echo": {"times": 2}}}
    file = {"authority": "gw", "endpoints": endpoints, "routes": [], "echo": {}}
    kind = with_sections({"echo": Echo, "endpoints.*.echo": Echo, "echoes": Echoes})
    config = kind.model_validate(file)
    assert (config.section(Echo), config.endpoints["e"].section(Echo)) == (Echo(times=1), Echo(times=2))
    assert [key for key, _ in config.feature_sections()] == ["echo", "endpoints.e.echo"]
    several = kind.model_validate({**file, "echoes": [{"times": 7}, {}]})
    assert [each.times for each in several.sections(Echoes)] == [7, 1]
    assert [key for key, _ in several.feature_sections()] == ["echo", "echoes[0]", "echoes[1]", "endpoints.e.echo"]
    texts = [json_schema(kind)["properties"][key]["description"] for key in ("echo", "echoes")]
    assert texts == ["A section for this test. None: off.", "A list of sections for this test."]
    with pytest.raises(ValidationError) as caught:
        with_sections({}).model_validate(file)
    assert [error["loc"] for error in caught.value.errors()] == [("endpoints", "e", "echo"), ("echo",)]
