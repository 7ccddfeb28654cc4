"""The simulated cloud of the demonstration: what it makes of the dead letters that it gets."""

from types import SimpleNamespace
from typing import Any

from demo import scenario
from demo.cloud import Cloud
from demo.ledger import Ledger
from streamer.uprotocol.message import UMessage, request, response
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.protobuf import message_to_proto, status_to_proto
from streamer.uprotocol.status import UCode

NOW_MS = 1_700_000_000_000


def letter_about(failed: UMessage) -> Any:
    """A dead letter, as aiomqtt hands it over."""
    status = status_to_proto(UCode.DEADLINE_EXCEEDED, "its TTL has passed")
    letter = pb.DeadLetter(message=message_to_proto(failed), status=status)
    fields = [("1", "0" * 32), ("2", "up-pub.v1"), ("3", f"//{scenario.GATEWAY}/4/1/8001")]
    return SimpleNamespace(properties=SimpleNamespace(UserProperty=fields), payload=letter.SerializeToString())


async def test_a_dead_letter_about_an_answer_ends_the_call() -> None:
    ledger = Ledger(scenario.FLOWS, answered=[scenario.CLIMATE_FLOW])
    cloud, calls = Cloud(1, ledger), ledger.calls[scenario.CLIMATE_FLOW]
    asked = request(NOW_MS, scenario.CLOUD_APP, scenario.CLIMATE, scenario.TTL_MS)
    answer = response(NOW_MS, asked)
    calls.ask(asked.id)
    ledger.flows[scenario.ANSWER_FLOW].send(answer.id, 0.0)
    cloud._take(letter_about(answer))
    assert (calls.results, ledger.open, ledger.problems()) == ({"DEADLINE_EXCEEDED": 1}, 0, [])


async def test_a_dead_letter_about_a_request_does_not_end_the_call() -> None:
    """The streamer owes an answer as well."""
    ledger = Ledger(scenario.FLOWS, answered=[scenario.LATE_FLOW])
    cloud, calls = Cloud(1, ledger), ledger.calls[scenario.LATE_FLOW]
    asked = request(NOW_MS, scenario.CLOUD_APP, scenario.CLIMATE, scenario.TTL_MS)
    calls.ask(asked.id)
    ledger.flows[scenario.LATE_FLOW].send(asked.id, 0.0)
    cloud._take(letter_about(asked))
    assert (calls.waiting, ledger.flows[scenario.LATE_FLOW].dead) == (1, {"DEADLINE_EXCEEDED": 1})
