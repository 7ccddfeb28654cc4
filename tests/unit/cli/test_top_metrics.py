"""What `streamer top` reads out of the metrics, against those of a real router."""

from math import inf

import pytest

from streamer.admin.metrics import Exposition
from streamer.cli.top_metrics import Sample, endpoint_figures, quantile, read, route_figures
from tests.flow.harness import SPEED, RouterHarness


def sample(harness: RouterHarness, at_s: float) -> Sample:
    return read(Exposition(harness.router).text().decode(), at_s)


async def test_rates_are_those_between_the_last_two_looks() -> None:
    async with RouterHarness() as harness:
        harness.arrive("vehicle", *(harness.speed() for _ in range(5)))
        samples = [sample(harness, 100.0)]
        harness.arrive("vehicle", *(harness.speed() for _ in range(20)))
        harness.arrive("vehicle", harness.notify(source=SPEED._replace(authority="nobody")))
        harness.pass_time(2000)
        harness.transports["cloud"].lose_link()
        harness.arrive("vehicle", harness.speed())
        harness.pass_time(500)
        samples.append(sample(harness, 102.0))
        routes = {(route.name, route.ingress): route for route in route_figures(samples)}
        up = routes["vehicle-cloud", "vehicle"]
        assert (up.accepted_per_s, up.delivered_per_s, up.failed_per_s, up.queued) == (10.5, 10.0, 0.0, 1)
        assert up.oldest_s == pytest.approx(0.5)
        assert routes["none", "vehicle"].failed_per_s == 0.5
        assert routes["cloud-vehicle", "cloud"].accepted_per_s == 0.0  # it has never moved, and is there
        assert not [name for name, _ in routes if "core" in name or name.startswith("rpc-error")]  # these have not, either
        endpoints = {each.name: each for each in endpoint_figures(samples)}
        assert (endpoints["vehicle"].state, endpoints["vehicle"].received_per_s) == ("up", 11.0)
        assert (endpoints["cloud"].state, endpoints["cloud"].transport) == ("not up", "memory")
        assert samples[1].version
        assert samples[1].dead_letters == 1


def test_bytes_are_shown_as_rates_of_each_direction() -> None:
    route = 'ustreamer_route_wire_bytes_total{{route="up",ingress="a",egress="b",direction="{}"}} {}\n'
    endpoint = 'ustreamer_endpoint_wire_bytes_total{{endpoint="a",transport="mqtt5",direction="{}"}} {}\n'
    before = route.format("sent", 100) + endpoint.format("received", 50) + route.format("elsewhere", 9)
    after = route.format("sent", 600) + route.format("received", 40) + endpoint.format("received", 150)
    samples = [read(before, 1.0), read(after, 11.0)]
    (up,) = route_figures(samples)
    (a,) = endpoint_figures(samples)
    assert (up.received_bytes_per_s, up.sent_bytes_per_s) == (4.0, 50.0)
    assert (a.received_bytes_per_s, a.sent_bytes_per_s) == (10.0, 0.0)


async def test_latencies_are_those_of_the_looks_that_are_kept() -> None:
    async with RouterHarness() as harness:
        fast, later = harness.speed(), harness.speed()
        harness.arrive("vehicle", fast)
        samples = [sample(harness, 100.0)]
        (route,) = (each for each in route_figures(samples) if each.name == "vehicle-cloud")
        assert route.end_to_end_s[1] is not None
        assert route.end_to_end_s[1] <= 0.0005
        harness.clock.advance(2000)
        harness.arrive("vehicle", later)
        samples.append(sample(harness, 101.0))
        (route,) = (each for each in route_figures(samples) if each.name == "vehicle-cloud")
        assert route.end_to_end_s[0] is not None
        assert 1 < route.end_to_end_s[0] <= 2.5
        samples = [samples[1], sample(harness, 103.0)]  # nothing came: those since the start
        (route,) = (each for each in route_figures(samples) if each.name == "vehicle-cloud")
        assert route.end_to_end_s[0] is not None


def test_a_counter_that_began_anew_counts_from_zero() -> None:
    text = 'ustreamer_accepted_messages_total{{route="up",ingress="a",egress="b"}} {}\n'
    (route,) = route_figures([read(text.format(1000), 1.0), read(text.format(30), 11.0)])
    assert route.accepted_per_s == 3.0


@pytest.mark.parametrize(
    ("buckets", "share", "value"),
    [
        ({}, 0.5, None),
        ({0.1: 0, inf: 0}, 0.5, None),
        ({0.1: 10, 1.0: 10, inf: 10}, 0.5, 0.05),
        ({0.1: 0, 1.0: 10, inf: 10}, 0.5, 0.55),
        ({0.1: 5, 1.0: 10, inf: 10}, 0.99, 0.982),
        ({0.1: 5, 1.0: 5, inf: 10}, 0.99, inf),
        ({0.1: 10, 1.0: 10, inf: 10}, 1.0, 0.1),
    ],
)
def test_quantiles_are_interpolated_inside_their_bucket(
    buckets: dict[float, float], share: float, value: float | None
) -> None:
    assert quantile(buckets, share) == (None if value is None else pytest.approx(value))
