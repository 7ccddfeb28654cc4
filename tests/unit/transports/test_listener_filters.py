"""The table of resource ids (uP-L1): for which filters a listener may be registered."""

from typing import Any

import pytest

from streamer.transports.listeners import check_filter
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri

TOPIC = UUri("veh1", 0xA, 1, 0x8000)

ENTITY, FIRST_METHOD, LAST_METHOD, FIRST_TOPIC, LAST_TOPIC, ANY = 0, 1, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF

LEGAL_PAIRS = {
    (FIRST_TOPIC, None),
    (LAST_TOPIC, None),
    (ANY, None),
    (FIRST_TOPIC, ENTITY),
    (LAST_TOPIC, ENTITY),
    (ENTITY, FIRST_METHOD),
    (ENTITY, LAST_METHOD),
    (FIRST_METHOD, ENTITY),
    (LAST_METHOD, ENTITY),
    (ANY, ENTITY),
    (ANY, ANY),
}
RESOURCES = (ENTITY, FIRST_METHOD, LAST_METHOD, FIRST_TOPIC, LAST_TOPIC, ANY)
ALL_PAIRS = [(source, sink) for source in RESOURCES for sink in (None, *RESOURCES)]


@pytest.mark.parametrize(("source", "sink"), ALL_PAIRS)
def test_filters_are_those_of_the_table_and_no_others(source: int, sink: int | None) -> None:
    pair = UUri("veh1", 1, 1, source), None if sink is None else UUri("cloud", 1, 1, sink)
    if (source, sink) in LEGAL_PAIRS:
        check_filter(*pair)
    else:
        with pytest.raises(UStatusError) as caught:
            check_filter(*pair)
        assert caught.value.code is UCode.INVALID_ARGUMENT


@pytest.mark.parametrize("bad", [{"ue_id": 1 << 32}, {"version": 256}, {"resource": 1 << 16}, {"authority": "A"}])
def test_filter_out_of_range_is_an_invalid_argument(bad: dict[str, Any]) -> None:
    for pair in ((TOPIC._replace(**bad), None), (TOPIC, UUri("a", 1, 1, 0)._replace(**bad))):
        with pytest.raises(UStatusError) as caught:
            check_filter(*pair)
        assert caught.value.code is UCode.INVALID_ARGUMENT
