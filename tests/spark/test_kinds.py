"""Flows of gateways that are alike are judged once, and each gets the verdicts that it would get alone. Without Spark."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from spark_jobs import kinds
from spark_jobs.clocks import ClockEstimate
from spark_jobs.kinds import judged
from spark_jobs.verdict import Signature, Verdict, judge, leads, rank
from spark_jobs.wide import Shown
from tests.spark.traces import DATE

CLOUD, OTHER = "gateway.cloud", "gateway.other"


def shown(flow: int, key: int, streamer: str, at_us: int = 0, messages: int = 9, **given: Any) -> Shown:
    about: dict[str, Any] = {
        "date": DATE,
        "flow": flow,
        "id": key,
        "signature": key,
        "messages": messages,
        "streamer": streamer,
    }
    about |= {"route": "up", "egress": "uplink", "address": None, "outcome": "delivered", "ucode": "OK", "times": 1}
    about |= {
        "ingress_transport": "zenoh",
        "egress_transport": "mqtt5",
        "src_authority": f"v{flow}",
        "sink_authority": "cloud",
    }
    return Shown(**about | {"msg_type": "request", "at_us": at_us} | given)


def fleet(gateways: int) -> list[Shown]:
    """Of each gateway, thousands of messages that arrive, some that are lost, and one that expires."""
    rows = []
    for flow in range(gateways):
        name = f"gateway.v{flow}"
        arrives = {"ingress_transport": "mqtt5", "egress_transport": "zenoh", "route": "in", "egress": "cloud"}
        rows += [
            shown(flow, 10 * flow, name, flow, 5000 + flow),
            shown(flow, 10 * flow, CLOUD, flow + 1, 5000 + flow, **arrives),
            shown(flow, 10 * flow + 1, name, flow, 3 + flow % 5),
            shown(flow, 10 * flow + 2, name, flow, 1, outcome="expired", egress=None),
        ]
    return rows


def test_flows_that_differ_in_names_and_numbers_only_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[Signature]] = []

    def counted(signatures: Sequence[Signature], *given: Any) -> list[Verdict]:
        asked.append(signatures)
        return judge(signatures, *given)

    monkeypatch.setattr(kinds, "judge", counted)
    found = list(judged(fleet(2000), {DATE: {}}))
    assert (len(asked), len(found)) == (1, 6000)
    lost = {each.verdict.findings[0] for each in found if each.verdict.status == "lost"}
    assert {(each.streamers, each.last_streamer, each.missing_at) for each in lost} == {
        (f"gateway.v{flow}", f"gateway.v{flow}", CLOUD) for flow in range(2000)
    }
    assert {each.verdict.missing_at for each in found if each.verdict.status == "lost"} == {((CLOUD,),)}


def one_by_one(rows: Sequence[Shown], clock: Mapping[str, ClockEstimate]) -> dict[int, tuple[object, ...]]:
    """The verdicts of `verdict` on each flow, with its names and numbers as they are."""

    def trust(x: str, y: str) -> bool:
        return x in clock and y in clock and clock[x].group == clock[y].group

    flows: dict[int, dict[int, list[Shown]]] = {}
    for row in rows:
        flows.setdefault(row.flow, {}).setdefault(row.id, []).append(row)
    of_flow = {
        flow: [Signature(key, seen[0].messages, kinds._sightings(seen)) for key, seen in of.items()]
        for flow, of in flows.items()
    }
    orders = {flow: rank(signatures, f"v{flow}", trust) for flow, signatures in of_flow.items()}
    proven = {way for flow, signatures in of_flow.items() for way in leads(signatures, orders[flow])}
    is_publish = {row.flow: row.sink_authority is None for row in rows}
    return {
        each.key: (each.status, set(each.findings), each.missing_at)
        for flow, signatures in of_flow.items()
        for each in judge(signatures, orders[flow], is_publish[flow], proven)
    }


@pytest.mark.parametrize("seed", range(60))
def test_the_verdicts_are_those_of_each_flow_on_its_own(seed: int) -> None:
    """Chance chooses streamers, ways, outcomes, times and numbers: also several egresses at once, and copies."""
    rng = random.Random(seed)
    clock = {name: ClockEstimate(0.0, None, 1, rng.choice("ab")) for name in (CLOUD, OTHER, "v3") if rng.random() < 0.8}
    rows = []
    for flow in range(30):
        names, sink = [f"gateway.v{flow}", CLOUD, OTHER, f"v{flow}"], rng.choice([None, "cloud"])
        for key in range(10 * flow, 10 * flow + rng.randint(1, 4)):
            messages = rng.choice([1, 1, 2, 3, 50, 900])
            for name in rng.sample(names, rng.randint(1, 3)):
                for egress in rng.sample(["uplink", "side"], rng.randint(1, 2)):
                    ways: dict[str, Any] = {"egress": egress, "egress_transport": rng.choice(["mqtt5", "zenoh", None])}
                    ways |= {
                        "outcome": rng.choice(["delivered", "delivered", "expired", "duplicate"]),
                        "sink_authority": sink,
                    }
                    ways |= {"ingress_transport": rng.choice(["mqtt5", "zenoh"]), "times": rng.choice([1, 1, 2])}
                    rows.append(shown(flow, key, name, rng.randint(0, 3), messages, **ways))
    found = {
        each.verdict.key: (each.verdict.status, set(each.verdict.findings), each.verdict.missing_at)
        for each in judged(rows, {DATE: clock})
    }
    assert found == one_by_one(rows, clock)
