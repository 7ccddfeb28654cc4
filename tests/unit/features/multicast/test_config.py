"""The section `multicast`: names, topics, and what contradicts itself."""

from pathlib import Path
from typing import Any

import pytest

from streamer.config.load import ConfigError, load
from streamer.features.every import FILE
from streamer.features.multicast.config import MulticastConfig, catalogue
from streamer.uprotocol.uri import UUri
from tests.configurations import config_of, endpoint_of

DOORS = {"provider": "//veh1/A8000/2/0", "broadcast": "doorOpened", "partitions": {"": 0x8001, "Front/left": 0xFFFE}}


def loaded(*entries: dict[str, Any]) -> Any:
    return FILE.model_validate(config_of({"e": endpoint_of("memory", "veh1")}, routes=[], multicast=list(entries)))


def test_partitions_have_topics() -> None:
    assert list(loaded(DOORS).sections(MulticastConfig)) == [
        MulticastConfig(
            provider=UUri("veh1", 0xA8000, 2, 0), broadcast="doorOpened", partitions={"": 0x8001, "Front/left": 0xFFFE}
        )
    ]


def test_the_catalogue_has_every_partition() -> None:
    found = catalogue(loaded(DOORS, DOORS | {"broadcast": "closed", "partitions": {"front": 0x8003}}))
    assert {str(topic): str(found.id_of(topic)) for topic in found.topics} == {
        "//veh1/A8000/2/8001": "//veh1/A8000/2/0/doorOpened",
        "//veh1/A8000/2/FFFE": "//veh1/A8000/2/0/doorOpened/Front/left",
        "//veh1/A8000/2/8003": "//veh1/A8000/2/0/closed/front",
    }


def test_a_broken_file_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    with pytest.raises(ConfigError) as caught:
        load(Path("broken.yaml"), {}, kind=FILE)
    assert f"{caught.value}\n" == Path("broken.expected").read_text()


@pytest.mark.parametrize("entries", [7, [{"provider": 7}, {"provider": "//", "broadcast": "doors"}, None]])
def test_values_that_are_wrong_in_themselves_are_left_to_their_models(entries: Any) -> None:
    assert list(MulticastConfig.mistakes({"multicast": entries})) == []
