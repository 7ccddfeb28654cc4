"""Flows: one object for equal attributes, which says to whom it belongs for as long as it is held."""

from dataclasses import replace

import pytest

from streamer.uprotocol import cache
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import Attributes, UMessageType
from streamer.uprotocol.uri import UUri

TOPIC = UUri("veh1", 0xA, 1, 0x8000)
PUBLISH = Attributes(UMessageType.PUBLISH, TOPIC)


def test_equal_attributes_are_one_flow_the_first_of_them() -> None:
    flows = Flows()
    first, second = replace(PUBLISH), replace(PUBLISH)
    assert flows.of(first) is first
    assert flows.of(second) is first
    assert flows.of(replace(PUBLISH, token="t")) is first
    assert first.flows is flows
    assert len(flows) == 1


def test_each_endpoint_has_an_object_of_its_own() -> None:
    here, there = Flows(), Flows()
    first = here.of(replace(PUBLISH))
    second = there.of(first)
    assert second == first
    assert second is not first
    assert (first.flows, second.flows) == (here, there)
    assert here.of(second) is first


def test_flows_are_bounded_and_dropped_ones_belong_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_ENTRIES", 10)
    flows = Flows()
    made = [flows.of(replace(PUBLISH, ttl=n, source=TOPIC._replace(ue_id=n % 7 + 1))) for n in range(100)]
    held = {id(flow) for flow in (*flows, *flows._old)}
    assert len(held) <= 20
    assert [id(flow) in held for flow in made] == [flow.flows is flows for flow in made]
    assert sum(map(len, flows._keys.values())) == len(held)
    assert flows.of(made[0]) is made[0]
    assert made[0].flows is flows


@pytest.mark.parametrize("changed", [TOPIC, UUri("*", 0xFFFF_FFFF, 0xFF, 0xFFFF)])
def test_a_change_empties_the_slots_of_the_flows_that_it_affects(monkeypatch: pytest.MonkeyPatch, changed: UUri) -> None:
    monkeypatch.setattr(cache, "_ENTRIES", 2)
    flows = Flows()
    other = TOPIC._replace(resource=0x8001)
    made = [flows.of(replace(PUBLISH, ttl=ttl, source=source)) for ttl in (1, 2) for source in (TOPIC, other)]
    for flow in made:
        flow.listeners = ()
    flows.changed(changed)
    assert [flow.listeners for flow in made] == [None, () if changed is TOPIC else None] * 2


def test_a_flow_that_was_dropped_comes_back_with_empty_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_ENTRIES", 1)
    flows = Flows()
    flow = flows.of(replace(PUBLISH))
    flow.listeners = ()
    for ttl in (1, 2):
        flows.of(replace(PUBLISH, ttl=ttl))
    flows.changed(TOPIC)  # it is not held, so it cannot be told
    assert flows.of(flow) is flow
    assert flow.listeners is None
