"""What the status says of a streamer, and that it stays small."""

from itertools import pairwise

from streamer import __version__
from streamer.config.shown import fingerprint
from streamer.features.api.status_message import ENDPOINTS, REASONS, ROUTES, TEXT, StatusView
from streamer.journal.moments import as_moment
from streamer.transports.base import LinkState
from streamer.transports.errors import PermanentError
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.flow.harness import RouterHarness, configuration


async def test_it_says_how_the_streamer_is() -> None:
    async with RouterHarness() as harness:
        view = StatusView(harness)
        started_ms = harness.clock.wall_ms()
        cloud = harness.transports["cloud"]
        cloud.refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        harness.arrive("vehicle", harness.speed())
        cloud.lose_link()
        harness.arrive("vehicle", harness.speed(), harness.speed())
        harness.pass_time(2500)
        status = view.status()
        text = f"endpoint cloud (memory) is not connected since {as_moment(started_ms)}"
        assert (status.ready, list(status.reasons)) == (False, [text])
        assert view.health() == list(status.reasons)
        assert (status.version, status.uptime_s) == (__version__, 2)
        assert status.started.ToMilliseconds() == started_ms
        assert status.config_fingerprint == fingerprint(harness.config)
        assert (status.queued, status.dead_letters, status.routes_left_out) == (2, 1, 0)
        (route,) = status.routes
        assert (route.name, route.queued, route.oldest_age_ms) == ("vehicle-cloud", 2, 2500)
        assert route.bytes > 0
        assert {each.name: each.state for each in status.endpoints} == {"vehicle": "up", "cloud": "down"}
        assert not status.HasField("journal")
        cloud.refuse = lambda message: None
        cloud.restore_link()
        assert (view.status().ready, view.status().queued) == (True, 0)


async def test_it_stays_small_whatever_there_is() -> None:
    names = [f"{'e' * 300}{number}" for number in range(70)]
    config = configuration(
        endpoints={name: {"transport": "memory", "authorities": [f"a{at}"]} for at, name in enumerate(names)},
        routes=[{"from": name, "to": far, "publish": ["//*/FFFFFFFF/FF/FFFF"]} for name, far in pairwise(names)],
        dead_letter={"endpoints": ["origin"]},
    )
    async with RouterHarness(config) as harness:
        for transport in harness.transports.values():
            transport.set_state(LinkState.DOWN)
        for at, name in enumerate(names[:-1]):
            harness.arrive(name, *(harness.speed(source=UUri(f"a{at}", 1, 1, 0x8000)) for _ in range(at + 1)))
        status = StatusView(harness).status()
    assert (len(status.routes), len(status.endpoints), len(status.reasons)) == (ROUTES, ENDPOINTS, REASONS)
    assert [route.queued for route in status.routes] == list(range(69, 69 - ROUTES, -1))
    assert status.routes_left_out == 69 - ROUTES
    assert max(len(name) for each in (status.routes, status.endpoints) for name in (part.name for part in each)) == TEXT
    assert status.ByteSize() < 20_000
