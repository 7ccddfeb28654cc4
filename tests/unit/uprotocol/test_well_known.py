"""The addresses of the streamer's own uEntities (uP-L1, LocalUriProvider)."""

from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USTREAMER, USUBSCRIPTION


def test_the_source_address_of_an_entity_has_resource_0() -> None:
    assert USTREAMER.at("gw") == UUri("gw", 4, 1, 0)
    assert USUBSCRIPTION.at("gw") == UUri("gw", 0, 3, 0)


def test_the_address_of_a_resource_differs_in_nothing_else() -> None:
    assert USTREAMER.at("gw", 0x8001) == USTREAMER.at("gw")._replace(resource=0x8001)
