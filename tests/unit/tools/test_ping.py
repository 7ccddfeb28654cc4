"""``streamer ping``: round trips, and what counts as one."""

import json
from collections.abc import Sequence

import pytest

from streamer.tools.network import NetworkError
from streamer.tools.ping import PingCommand
from streamer.uprotocol.message import UMessage, UMessageType, response
from streamer.uprotocol.protobuf import status_to_proto
from streamer.uprotocol.status import UCode
from tests.unit.tools.client import given, peer


def command(file: str, *words: str, endpoint: str = "vehicle") -> PingCommand:
    return PingCommand(*given(file, "ping", "--endpoint", endpoint, "--rate", "1000", *words))


async def pinged(file: str, codes: Sequence[UCode | None], *words: str) -> tuple[int, list[UMessage]]:
    """Ping a streamer that answers with these codes, one after the other; -1: not at all."""
    left = list(codes)
    async with peer("cli-vehicle") as far:

        def answer(message: UMessage) -> None:
            code = left.pop(0)
            if code is None or code >= 0:
                text = status_to_proto(code or UCode.OK, "not \x1b allowed").SerializeToString()
                far.send(response(0, message, text, code))

        far.on_message = answer
        return await command(file, "--count", str(len(codes)), *words).run(), far.arrived


async def test_it_asks_core_ustreamer_and_prints_how_long_each_answer_took(
    good: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, asked = await pinged(good, [None, UCode.OK, UCode.UNIMPLEMENTED])
    assert status == 0
    assert {(a.type, str(a.source), str(a.sink)) for a in (each.attributes for each in asked)} == {
        (UMessageType.REQUEST, "//veh1/7E57/1/0", "//gateway.veh1/4/1/4")
    }
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "PING //gateway.veh1/4/1/4 from //veh1/7E57/1/0 through vehicle (memory)"
    assert [line.partition(":")[0] for line in lines[1:4]] == ["1", "2", "3"]
    assert all(line.endswith(" ms") for line in lines[1:4])
    assert lines[4] == "gateway.veh1: 3 sent, 3 answered, 0 % lost"
    low, middle, high = map(float, lines[5].removeprefix("round trip min/avg/max = ").removesuffix(" ms").split("/"))
    assert low <= middle <= high


async def test_what_is_refused_or_not_answered_is_lost(
    good: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.tools.send._GRACE_S", 0.0)
    silent = -1
    status, _ = await pinged(good, [UCode.PERMISSION_DENIED, silent, None], "--timeout", "50ms")  # type: ignore[list-item]
    assert status == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "1: PERMISSION_DENIED: not \N{REPLACEMENT CHARACTER} allowed"
    assert lines[2] == "2: DEADLINE_EXCEEDED: no answer within its TTL, 0.05 s"
    assert lines[4] == "gateway.veh1: 3 sent, 1 answered, 67 % lost"


async def test_a_streamer_that_never_answers_is_a_failure(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _ = await pinged(good, [UCode.PERMISSION_DENIED] * 2)
    assert status == 1
    assert capsys.readouterr().out.splitlines()[-1] == "gateway.veh1: 2 sent, 0 answered, 100 % lost"


async def test_json_has_a_line_for_each_and_one_for_all(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    await pinged(good, [None, UCode.PERMISSION_DENIED], "--json")
    first, second, last = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (first["number"], first["problem"]) == (1, None)
    assert (second["ms"], second["problem"]) == (None, "PERMISSION_DENIED: not \x1b allowed")
    assert (last["sent"], last["answered"], last["lost_percent"]) == (2, 1, 50.0)
    assert last["min_ms"] == last["avg_ms"] == last["max_ms"] == first["ms"]


def test_another_streamer_may_be_named_as_authority_or_address(good: str) -> None:
    for name in ("far.veh2", "//far.veh2", "//far.veh2/4/1/0"):
        assert str(command(good, name)._attributes.sink) == "//far.veh2/4/1/4"


@pytest.mark.parametrize(
    ("words", "endpoint", "complaint"),
    [
        (("Gateway",), "vehicle", "Gateway: sink: authority 'Gateway': expected"),
        (("*",), "vehicle", "has a wildcard"),
        (("gw",), "cloud", "expected --source, who asks, such as //veh1/7E57/1/0: cloud (memory) names no authority"),
        (("gw", "--source", "/A1/1/0"), "cloud", "--source: /A1/1/0: expected an authority, such as //veh1/A1/1/0"),
        (("gw", "--source", "//veh1/A8000/2/8A50"), "vehicle", "source: expected a uEntity"),
    ],
)
def test_what_cannot_be_asked_is_told_before_anything_is_tried(
    good: str, words: tuple[str, ...], endpoint: str, complaint: str
) -> None:
    with pytest.raises(NetworkError) as refused:
        command(good, *words, endpoint=endpoint)
    assert complaint in str(refused.value)
    assert refused.value.status == 2
