"""``streamer explain``: where a message would go and why not elsewhere, before it is sent."""

import asyncio
from pathlib import Path

import pytest

from streamer.clock import SystemClock
from streamer.config.load import load
from streamer.features.every import FILE
from streamer.features.judge.command_explain import Remembered
from streamer.main import main
from streamer.transports.base import TransportContext
from streamer.transports.local import LocalTransport
from streamer.uprotocol.message import Options, UPayloadFormat, request
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_to_proto
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import LOCAL_ENDPOINT, USUBSCRIPTION
from tests.hosted import HostOn, served
from tests.unit.tools.commands import GOOD, SPEED

LOCAL_SOURCE = (
    "a source without authority is local to its network, whose topics or keys name it: "
    "it needs one, or an endpoint that lists a single authority as the place where it arrives"
)


@pytest.mark.parametrize(
    ("arguments", "status", "printed"),
    [
        (
            ["--source", SPEED, "--type", "publish"],
            0,
            [
                f"publish {SPEED} from vehicle",
                "  route vehicle-cloud: pattern //veh1/A8000/2/FFFF matches; addressed to fleet, backup",
                f"  route handy: none of its publish patterns matches {SPEED}, nobody there is interested",
                "goes over route vehicle-cloud to endpoint cloud, sink //fleet/FFFFFFFF/FF/FFFF",
                "goes over route vehicle-cloud to endpoint cloud, sink //backup/FFFFFFFF/FF/FFFF",
            ],
        ),
        (
            ["--source", "//veh1/B/1/8000", "--type", "publish"],
            1,
            [
                "publish //veh1/B/1/8000 from vehicle",
                "  route vehicle-cloud: none of its publish patterns matches //veh1/B/1/8000, nobody there is interested",
                "  route handy: none of its publish patterns matches //veh1/B/1/8000, nobody there is interested",
                "  no route forwards //veh1/B/1/8000 from vehicle",
                "goes nowhere: unwanted (OK), no route forwards //veh1/B/1/8000 from vehicle",
            ],
        ),
        (
            ["--source", "up://veh1/A8000/2/8A50", "--sink", "//phone1/1/1/0", "--type", "notification"],
            0,
            [
                f"notification {SPEED} → //phone1/1/1/0 from vehicle",
                "  route vehicle-cloud: 'phone1' does not live behind cloud",
                "  route handy: 'phone1' lives behind phone",
                "goes over route handy to endpoint phone, sink //phone1/1/1/0",
            ],
        ),
        (
            ["--source", "//phone1/1/1/0", "--sink", "//veh1/B/1/7", "--type", "request"],
            1,
            [
                "request //phone1/1/1/0 → //veh1/B/1/7 from phone",
                "  no route leads from phone to 'veh1'",
                "goes nowhere: rejected (PERMISSION_DENIED), no route leads from phone to 'veh1'",
            ],
        ),
        (
            ["--source", "//veh1/A/1/0", "--sink", "//veh1/B/1/7", "--type", "request", "--from", "cloud"],
            1,
            [
                "request //veh1/A/1/0 → //veh1/B/1/7 from cloud",
                "  source authority 'veh1' lives behind vehicle, not behind cloud",
                "goes nowhere: rejected (UNAUTHENTICATED), source authority 'veh1' lives behind vehicle, not behind cloud",
            ],
        ),
        (
            ["--source", "//veh1/A/1/0", "--sink", "//gateway.veh1/B/1/7", "--type", "request"],
            1,
            [
                "request //veh1/A/1/0 → //gateway.veh1/B/1/7 from vehicle",
                "  this streamer has no uEntity //gateway.veh1/B/1/7",
                "goes nowhere: rejected (UNAVAILABLE), this streamer has no uEntity //gateway.veh1/B/1/7",
            ],
        ),
    ],
)
def test_route_of_a_message_is_explained_and_why_not_the_others(
    good: str, arguments: list[str], status: int, printed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--config", good, *arguments]) == status
    assert capsys.readouterr().out.splitlines() == printed


def test_the_rates_of_a_route_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "streamer.yaml"
    rates = "queue_policy: {rate: {messages: 100, bytes: 1MiB}, rate_per_authority: {messages: 2.5}}"
    path.write_text(f"{GOOD}\n{rates}\n")
    assert main(["explain", "--config", str(path), "--source", SPEED, "--type", "publish"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "  the route sends 100 messages and 1048576 bytes per second at most, after a burst of 1 s",
        "  each source authority sends 2.5 messages per second at most, after a burst of 1 s",
    ]


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        (
            ["--source", "//veh1/A8000/2/1", "--type", "publish"],
            ["source: expected a topic (resource 8000 to FFFE), found 1"],
        ),
        (
            ["--source", SPEED, "--sink", "//phone1/1/1/0", "--type", "publish"],
            ["sink: expected none for a Publish, or one with only an authority"],
        ),
        (
            ["--source", SPEED, "--sink", "//phone1/1/1/7", "--type", "notification"],
            ["sink: expected a uEntity (resource 0)"],
        ),
        (["--source", "//veh1/FFFF8000/2/8A50", "--type", "publish"], ["source: //veh1/FFFF8000/2/8A50 has a wildcard"]),
        (["--source", "//*/A8000/2/8A50", "--type", "publish"], ["source: //*/A8000/2/8A50 has a wildcard"]),
        (
            ["--source", SPEED, "--sink", "//phone1/1/1/0", "--type", "request"],
            ["source: expected a uEntity (resource 0)", "sink: expected a method (resource 1 to 7FFF)"],
        ),
        (
            ["--source", "//veh1/A/1/0", "--sink", "//phone1/1/1/0", "--type", "response"],
            ["source: expected a method (resource 1 to 7FFF)"],
        ),
    ],
)
def test_message_that_breaks_the_rules_of_its_type_goes_nowhere(
    good: str, arguments: list[str], problems: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--config", good, "--from", "vehicle", *arguments]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        *(f"  {problem}" for problem in problems),
        f"goes nowhere: rejected (INVALID_ARGUMENT), invalid attributes: {'; '.join(problems)}",
    ]


@pytest.mark.parametrize("source", ["/A8000/2/8A50", "up:/A8000/2/8A50"])
def test_source_without_authority_is_that_of_the_endpoint(
    good: str, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--config", good, "--type", "publish", "--source", source, "--from", "vehicle"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"publish {SPEED} from vehicle"


@pytest.mark.parametrize(
    ("kind", "source", "sink"),
    [
        ("publish", SPEED, "//phone1/FFFFFFFF/FF/FFFF"),
        ("notification", SPEED, "//phone1/1/1/0"),
        ("request", "//veh1/A/1/0", "//phone1/1/1/7"),
        ("response", "//veh1/A/1/7", "//phone1/1/1/0"),
    ],
)
def test_addresses_that_fit_the_type_are_all_that_a_message_needs(
    good: str, kind: str, source: str, sink: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--config", good, "--type", kind, "--source", source, "--sink", sink]) == 0
    assert "goes over route handy to endpoint phone" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--source", SPEED, "--type", "notification"], "a notification needs --sink"),
        (["--source", SPEED, "--type", "publish", "--from", "moon"], "no endpoint 'moon'; there are vehicle, cloud, phone"),
        (["--source", "/A8000/2/8A50", "--type", "publish"], LOCAL_SOURCE),
        (["--source", "/A8000/2/8A50", "--type", "publish", "--from", "cloud"], LOCAL_SOURCE),
    ],
)
def test_question_that_makes_no_sense_is_wrong_usage(
    good: str, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--config", good, *arguments]) == 2
    assert capsys.readouterr().err.strip() == told


GUARDED = """
permissions:
  endpoints:
    cloud:
      max_permission_level: 3
      identities: {backend-7f: [fleet]}
      rules: [deny: {to: //veh1/A/1/8}, allow: {to: //veh1/FFFFFFFF/FF/FFFF}]
  methods: [{method: //veh1/A/1/9, permission_level: 2}]
"""


@pytest.mark.parametrize(
    ("method", "more", "printed"),
    [
        (
            7,
            ["--identity", "backend-7f"],
            [
                "  permissions.endpoints.cloud.rules[1] allows it",
                "  route cloud-vehicle: 'veh1' lives behind vehicle",
                "goes over route cloud-vehicle to endpoint vehicle, sink //veh1/A/1/7",
            ],
        ),
        (
            8,
            ["--identity", "backend-7f"],
            [
                "  permissions.endpoints.cloud.rules[0] denies it",
                "goes nowhere: rejected (PERMISSION_DENIED), permissions.endpoints.cloud.rules[0] denies it",
            ],
        ),
        (
            7,
            [],
            [
                "  permissions.endpoints.cloud.identities: the network proves no identity of the sender",
                "goes nowhere: rejected (UNAUTHENTICATED), permissions.endpoints.cloud.identities: the network proves no "
                "identity of the sender",
            ],
        ),
        (
            9,
            ["--identity", "backend-7f", "--permission-level", "1"],
            [
                "  permissions.endpoints.cloud.rules[1] allows it",
                "  route cloud-vehicle: 'veh1' lives behind vehicle",
                "  permissions.methods[0] demands permission level 2: it claims 1, and its endpoint may claim 3",
                "goes nowhere: rejected (PERMISSION_DENIED), permissions.methods[0] demands permission level 2: it claims "
                "1, and its endpoint may claim 3",
            ],
        ),
        (
            9,
            ["--identity", "backend-7f", "--permission-level", "2"],
            [
                "  permissions.endpoints.cloud.rules[1] allows it",
                "  route cloud-vehicle: 'veh1' lives behind vehicle",
                "  permissions.methods[0] demands permission level 2",
                "goes over route cloud-vehicle to endpoint vehicle, sink //veh1/A/1/9",
            ],
        ),
    ],
    ids=["allowed", "denied", "nobody", "low", "high"],
)
def test_the_rule_that_allows_or_denies_is_named(
    good: str, method: int, more: list[str], printed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with Path(good).open("a") as file:
        file.write(GUARDED)
    asked = ["--source", "//fleet/C/1/0", "--sink", f"//veh1/A/1/{method}", "--type", "request"]
    main(["explain", "--config", good, *asked, *more])
    assert capsys.readouterr().out.splitlines()[1:] == printed


@pytest.mark.parametrize(
    ("arguments", "status", "printed"),
    [
        (["--source", SPEED, "--why-not", "vehicle-cloud"], 0, []),
        (
            ["--source", "//veh1/B/1/8000", "--why-not", "vehicle-cloud"],
            1,
            [
                "does not go over route vehicle-cloud:",
                "  route vehicle-cloud: none of its publish patterns matches //veh1/B/1/8000, nobody there is interested",
                "  its nearest pattern, //veh1/A8000/2/FFFF, has another ue_id and another version",
            ],
        ),
        (
            ["--source", SPEED, "--why-not", "cloud-vehicle"],
            1,
            [
                "does not go over route cloud-vehicle:",
                "  route cloud-vehicle begins at cloud, and the message comes in through vehicle",
            ],
        ),
    ],
)
def test_every_reason_against_a_route_is_printed(
    good: str, arguments: list[str], status: int, printed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--config", good, "--type", "publish", *arguments]) == status
    lines = capsys.readouterr().out.splitlines()
    assert lines[len(lines) - len(printed) :] == printed
    assert any(line.startswith("does not") for line in lines) == bool(printed)


def test_a_route_that_does_not_exist_is_wrong_usage(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["explain", "--config", good, "--type", "publish", "--source", SPEED, "--why-not", "hand"]
    assert main(asked) == 2
    told = "no route 'hand'; there are vehicle-cloud, handy, cloud-vehicle; did you mean 'handy'?"
    assert capsys.readouterr().err.strip() == told


def test_explaining_connects_nothing(good: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.transports.memory.MemoryTransport.start", None)
    assert main(["explain", "--config", good, "--source", SPEED, "--type", "publish"]) == 0


def test_malformed_uri_is_shown_with_what_was_expected(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["explain", "--config", good, "--type", "publish", "--source", "//veh1/1"])
    assert "expected exactly three path segments" in capsys.readouterr().err


REMEMBERS = """
authority: gateway.veh1
endpoints:
  vehicle: {transport: memory, authorities: [veh1]}
  cloud: {transport: memory, authorities: ["*"]}
routes: [{from: vehicle, to: cloud}, {from: cloud, to: vehicle}]
journal: {path: journal.db}
usubscription: {local: [veh1], subscribe: [{from: //phone7/100/1/0, topics: [//veh1/A8000/2/FFFF]}]}
"""


@pytest.mark.needs("pause", "usubscription")
def test_explain_knows_who_has_subscribed_and_what_is_paused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A daemon has run in this folder: a phone asked for a topic, every 200 ms, and it was paused."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "streamer.yaml"
    file.write_text(REMEMBERS)
    asked = ["explain", "--config", str(file), "--type", "publish", "--source", "//veh1/A8000/2/8A50"]
    assert main(asked) == 1
    assert "goes nowhere: unwanted" in capsys.readouterr().out

    async def live() -> None:
        config = load(file, kind=FILE)
        core = LocalTransport(TransportContext(LOCAL_ENDPOINT, config.authority), served(config))
        service_host = HostOn(tmp_path / "journal.db", config, core, Remembered(), SystemClock())
        service_host.start()
        wish = pb.SubscriptionRequest(topic=uri_to_proto(UUri.parse("//veh1/A8000/2/8A50")))
        wish.attributes.sample_period_ms = 200
        answered = asyncio.Event()
        phone, method = UUri("phone7", 0x100, 1, 0), UUri("veh1", 0, 3, 1)
        options = Options(payload_format=UPayloadFormat.PROTOBUF)
        message = request(SystemClock().wall_ms(), phone, method, 5000, wish.SerializeToString(), options)
        core._handlers[USUBSCRIPTION](message, answered.set)
        serving = asyncio.create_task(service_host.run())
        await asyncio.wait_for(answered.wait(), 10)
        rule = "INSERT INTO dispatch_stops (source, sink) VALUES ('//veh1/FFFFFFFF/FF/FFFF', '')"
        await service_host.state.write([(rule, ())])
        serving.cancel()
        service_host.close()

    asyncio.run(live())
    assert main(asked) == 0
    told = capsys.readouterr().out
    assert "phone7 is interested" in told
    assert "goes over route vehicle-cloud to endpoint cloud, at most one in 200 ms" in told
    assert "it is paused (streamer pause) by //veh1/FFFFFFFF/FF/FFFF" in told


def test_explain_goes_on_without_a_file_that_it_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "streamer.yaml").write_text(REMEMBERS)
    (tmp_path / "journal.db").write_text("this is no database, and long enough for a header of one" * 20)
    asked = ["explain", "--config", "streamer.yaml", "--type", "publish", "--source", "//veh1/A8000/2/8A50"]
    assert main(asked) == 1
    told = capsys.readouterr()
    assert "subscriptions and pause rules are unknown" in told.err
    assert "goes nowhere: unwanted" in told.out


COPY = """
authority: gw
endpoints:
  a: {transport: memory, authorities: [veh1]}
  b: {transport: memory, authorities: [backend]}
  c: {transport: memory, authorities: [phone]}
routes: [{from: a, to: b}, {from: b, to: a}, {from: c, to: b}]
"""


@pytest.mark.parametrize(
    ("sink", "printed"),
    [
        ("//backend/C0/1/1", "goes nowhere: local (OK), another streamer has carried it to where its sink lives"),
        ("//phone/C0/1/1", "  it is a duplicate if the original arrives through a"),
    ],
)
def test_a_message_on_the_wrong_side_may_be_a_copy_that_another_streamer_has_carried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sink: str, printed: str
) -> None:
    path = tmp_path / "streamer.yaml"
    path.write_text(COPY)
    command = ["explain", "--config", str(path), "--type", "request", "--source", "//veh1/B/1/0", "--sink", sink]
    assert main([*command, "--from", "b"]) == 1
    assert printed in capsys.readouterr().out.splitlines()
