"""Discovery: transports are found by their entry points, also those of other packages."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamer.transports.base import LinkState, TransportContext, UTransport
from streamer.transports.installed import available_transports, load_transport, loadable_transports
from streamer.transports.memory import MemoryTransport
from streamer.uprotocol.uri import UUri

TOPIC = UUri("veh1", 0xA, 1, 0x8000)

PLUGIN = """
from streamer.transports.base import TransportOptions, UTransport

class Options(TransportOptions):
    pigeons: int = 3

class PigeonTransport(UTransport):
    kind = "pigeon"
    Options = Options
    async def start(self): ...
    async def stop(self): ...
    def submit(self, parcels, done): ...
    async def receive(self, source_filter, sink_filter=None): ...
    async def register_listener(self, source_filter, sink_filter, listener): ...
    async def unregister_listener(self, source_filter, sink_filter, listener): ...
"""


def forget_transports() -> None:
    """What another test has installed is gone."""
    load_transport.cache_clear()
    loadable_transports.cache_clear()


@pytest.fixture
def pigeons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed distribution of another package: a module and its dist-info."""
    (tmp_path / "pigeon_carrier.py").write_text(PLUGIN)
    info = tmp_path / "pigeon_carrier-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon-carrier\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[ustreamer.transports]\npigeon = pigeon_carrier:PigeonTransport\nbroken = pigeon_carrier_broken:Nothing\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    forget_transports()
    yield
    forget_transports()
    sys.modules.pop("pigeon_carrier", None)


@pytest.mark.usefixtures("pigeons")
def test_transport_of_another_package_is_found_by_its_entry_point() -> None:
    assert set(available_transports()) >= {"pigeon", "memory", "mqtt5", "zenoh"}
    kind = load_transport("pigeon")
    assert issubclass(kind, UTransport)
    options = kind.Options()
    transport = kind(TransportContext("loft", "gateway"), options)
    assert transport.options is options
    assert (transport.state, transport.capacity, vars(options)["pigeons"]) == (LinkState.DOWN, 1000, 3)


@pytest.mark.usefixtures("pigeons")
def test_what_a_transport_says_nothing_about_has_a_default() -> None:
    kind = load_transport("pigeon")
    assert not kind.Options().addresses_publishes
    assert not kind.Options().proves_identity
    assert kind.tools.filter_texts(TOPIC, None, "cloud") == {}


@pytest.mark.usefixtures("pigeons")
def test_transports_that_cannot_be_loaded_are_left_out() -> None:
    assert "broken" in available_transports()
    assert set(loadable_transports()) == set(available_transports()) - {"broken"}
    assert loadable_transports()["pigeon"] is load_transport("pigeon")


@pytest.mark.usefixtures("pigeons")
def test_transport_that_cannot_be_loaded_says_why() -> None:
    with pytest.raises(ModuleNotFoundError, match="pigeon_carrier_broken"):
        load_transport("broken")


def test_unknown_transport_is_a_lookup_error_that_names_the_installed_ones() -> None:
    forget_transports()
    with pytest.raises(LookupError, match=r"'pigeon'.*memory") as caught:
        load_transport("pigeon")
    assert "mqtt5" in str(caught.value)


def test_memory_transport_is_found_by_its_entry_point() -> None:
    assert load_transport("memory") is MemoryTransport
