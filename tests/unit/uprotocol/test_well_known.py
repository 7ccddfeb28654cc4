"""The addresses of the streamer's own uEntities (uP-L1, LocalUriProvider), and their names and numbers (uP-L3)."""

import re
from pathlib import Path

import pytest

from streamer.uprotocol import proto
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USTREAMER, USUBSCRIPTION, USUBSCRIPTION_4, UTWIN, EntityId


def test_the_source_address_of_an_entity_has_resource_0() -> None:
    assert USTREAMER.at("gw") == UUri("gw", 4, 1, 0)
    assert USUBSCRIPTION.at("gw") == UUri("gw", 0, 3, 0)


def test_the_address_of_a_resource_differs_in_nothing_else() -> None:
    assert USTREAMER.at("gw", 0x8001) == USTREAMER.at("gw")._replace(resource=0x8001)


@pytest.mark.parametrize(
    ("file", "name", "entity"),
    [
        ("usubscription_v3", "core.usubscription", USUBSCRIPTION),
        ("usubscription_v4", "core.usubscription", USUBSCRIPTION_4),
        ("utwin_v2", "core.utwin", UTWIN),
        ("ustreamer_v1", "core.ustreamer", USTREAMER),
    ],
)
def test_an_entity_has_the_name_and_the_numbers_that_its_proto_declares(file: str, name: str, entity: EntityId) -> None:
    text = Path(str(proto.__file__)).with_name(f"{file}.proto").read_text()
    assert re.match(rf"// Messages of {name} \(service id {entity.ue_id}, version {entity.version}\)", text)
    assert f"\npackage uprotocol.{name}.v{entity.version};\n" in text
    assert 0 <= entity.ue_id <= 0xFF
