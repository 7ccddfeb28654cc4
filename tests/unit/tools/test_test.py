"""``streamer test``: expectations hold or the difference is shown; ``--record`` writes those that hold today."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from streamer.features.flow import TYPES, Flow
from streamer.features.judge import command_test as command
from streamer.features.judge.command_flows import Found
from streamer.uprotocol.message import UPriority
from streamer.uprotocol.uri import UUri
from tests.unit.tools.commands import GOOD, SPEED, status_of

GUARDED = (
    GOOD
    + """
permissions:
  endpoints:
    vehicle: {rules: [{allow: {max_priority: CS4}}]}
    phone: {rules: []}
    cloud: {identities: {backend-7f: [fleet]}, rules: [{deny: {to: //veh1/A/1/8}}, {allow: {}}]}
"""
)

HOLDS = f"""\
expect:
  - name: the speed
    message: {{type: publish, source: {SPEED}, priority: CS6}}
    routes: vehicle-cloud
    endpoints: cloud
    sinks: [//fleet/FFFFFFFF/FF/FFFF, //backup/FFFFFFFF/FF/FFFF]
    priority: CS4
  - message: {{type: publish, source: //veh1/B/1/8000, subscribed: phone1}}
    routes: [handy]
    endpoints: [phone]
    sinks: none
  - message: {{type: publish, source: //veh1/B/1/8000}}
    dropped: no route forwards
  - message: {{type: request, source: //fleet/C/1/0, sink: //veh1/A/1/7, from: cloud, identity: backend-7f}}
    routes: cloud-vehicle
    identity: backend-7f
  - message: {{type: request, source: //fleet/C/1/0, sink: //veh1/A/1/8, identity: backend-7f}}
    denied: permissions.endpoints.cloud.rules[0] denies it
  - message: {{type: request, source: //fleet/C/1/0, sink: //veh1/A/1/7}}
    denied: the network proves no identity
"""


class Harness:
    """A configuration and a file of expectations, and ``streamer test`` of them."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.config, self.file = folder / "streamer.yaml", folder / "expect.yaml"
        self.config.write_text(GUARDED)
        self.file.write_text(HOLDS)
        self._capsys = capsys

    def run(self, *words: str) -> tuple[int, str, str]:
        status = status_of("test", "--config", str(self.config), *words)
        return status, *self._capsys.readouterr()

    def test(self, *words: str) -> tuple[int, str, str]:
        return self.run(str(self.file), *words)


@pytest.fixture
def tested(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Harness:
    return Harness(tmp_path, capsys)


def test_expectations_hold(tested: Harness) -> None:
    assert tested.test() == (0, "6 expectations: all hold\n", "")
    assert json.loads(tested.test("--json")[1])["failed"] == 0


@pytest.mark.parametrize(
    ("message", "outcome", "differs"),
    [
        (f"type: publish, source: {SPEED}", "routes: [handy]", ["routes: expected handy", "found    vehicle-cloud"]),
        (
            f"type: publish, source: {SPEED}",
            "routes: vehicle-clod",
            ["found    vehicle-cloud", "there is no route 'vehicle-clod'; did you mean 'vehicle-cloud'?"],
        ),
        (f"type: publish, source: {SPEED}", "endpoints: [phone]", ["endpoints: expected phone", "found    cloud"]),
        (f"type: publish, source: {SPEED}, priority: CS6", "priority: CS6", ["priority: expected CS6", "found    CS4"]),
        (
            f"type: publish, source: {SPEED}",
            "denied: nobody",
            ["denied: expected nobody", "found    it goes over vehicle-cloud to cloud"],
        ),
        (
            "type: publish, source: //veh1/B/1/8000",
            "routes: vehicle-cloud",
            ["found    dropped: no route forwards //veh1/B/1/8000 from vehicle"],
        ),
        (
            "type: request, source: //fleet/C/1/0, sink: //veh1/A/1/8, identity: backend-7f",
            "denied: rules[1]",
            ["denied: expected rules[1]", "found    permissions.endpoints.cloud.rules[0] denies it (PERMISSION_DENIED)"],
        ),
        (f"type: publish, source: {SPEED}", "identity: me", ["identity: expected me", "found    identities do not matter"]),
        (
            f"type: publish, source: {SPEED}, from: moon",
            "routes: x",
            ["found    no endpoint 'moon'; there are vehicle, cloud, phone"],
        ),
    ],
)
def test_what_does_not_hold_is_shown_with_its_place(tested: Harness, message: str, outcome: str, differs: list[str]) -> None:
    tested.file.write_text(f"expect:\n  - name: one\n    message: {{{message}}}\n    {outcome}\n")
    status, said, complained = tested.test()
    assert (status, complained) == (1, "")
    lines = said.splitlines()
    assert lines[0] == f"{tested.file}:2:5: one"
    assert lines[-1] == "1 expectation: 1 failed"
    stripped = [line.strip() for line in lines]
    for text in differs:
        assert text in stripped, said
    (result,) = json.loads(tested.test("--json")[1])["results"]
    assert (result["line"], result["column"], result["holds"]) == (2, 5, False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("expect:\n  - mesage: {}\n", "2:5: expect[0].mesage: unknown key"),
        ("expect:\n  - mesage: {}\n", "did you mean 'message'?"),
        ("expect:\n  - {message: {type: publich, source: //a/1/1/8000}}\n", "did you mean 'publish'?"),
        ("expect:\n  - {message: {type: publish, source: //a/1/8000}}\n", "expect[0].message.source: expected an address"),
        ("expect:\n  - {message: {type: publish, source: 7}}\n", "expected an address such as //veh1/A8000/2/8A50"),
        (
            "expect:\n  - {message: {type: publish, source: //a/1/1/8000}}\n",
            "2:5: expect[0]: nothing is expected; expected one of routes",
        ),
        (
            "expect:\n  - {message: {type: publish, source: //a/1/1/8000}, routes: [x], denied: nobody}\n",
            "expected only one outcome, found routes and denied",
        ),
        ("expect:\n  - {message: {type: publish, source: //a/1/1/8000}, routes: []}\n", "expected at least 1 in the list"),
        ("expect: [\n", "not valid YAML"),
        ("expect: []\n", "expect: expected at least 1 in the list"),
        ("expect:\n  - {message: {type: publish, source: //a/1/1/8000}, denied: '.'}\n", "a word of at least four letters"),
        (
            "expect:\n  - {message: {type: publish, source: //a/1/1/8000}, dropped: ' to '}\n",
            "a word of at least four letters",
        ),
        ("- a\n", "expected a mapping with the keys expect"),
        ("", "the file is empty; expected the keys expect"),
    ],
)
def test_a_file_that_cannot_be_used_is_reported_with_line_and_column(tested: Harness, text: str, told: str) -> None:
    tested.file.write_text(text)
    status, said, complained = tested.test()
    assert (status, said) == (78, "")
    assert complained.startswith(f"{tested.file}:")
    assert told in complained
    document = json.loads(tested.test("--json")[1])
    assert document["status"] == 78


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "expected a FILE of expectations, or --record"),
        (["a.yaml", "--traces", "x"], "belong to --record"),
        (["a.yaml", "--record", "--traces", "x"], "either FILE, or --traces"),
        (["--record", "--json"], "--record prints YAML"),
    ],
)
def test_wrong_usage_is_2(tested: Harness, words: list[str], told: str) -> None:
    status, said, complained = tested.run(*words)
    if "--json" in words:
        complained = json.loads(said)["error"]
    assert (status, told in complained) == (2, True)


def test_a_configuration_that_is_wrong_is_78(tested: Harness) -> None:
    tested.config.write_text(GOOD.replace("to: cloud", "to: clod"))
    status, _, complained = tested.test()
    assert (status, "did you mean 'cloud'?" in complained) == (78, True)


HOSTILE = "x\x1b[31m\n- message: {} # : ]]> & <failure> \u202e"


def test_junit_is_xml_whatever_the_names(tested: Harness, tmp_path: Path) -> None:
    raw = yaml.safe_load(HOLDS)
    raw["expect"][0]["name"] = HOSTILE
    raw["expect"][0]["routes"] = [HOSTILE]
    tested.file.write_text(yaml.safe_dump(raw))
    status, said, _ = tested.test("--junit", str(tmp_path / "out.xml"))
    assert status == 1
    assert "\x1b" not in said
    root = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert (root.tag, root.get("tests"), root.get("failures")) == ("testsuites", "6", "1")
    (suite,) = root
    assert (suite.get("tests"), suite.get("failures")) == ("6", "1")
    assert [len(case) for case in suite] == [1, 0, 0, 0, 0, 0]
    assert "routes: expected" in str(suite[0][0].get("message"))


def test_junit_that_cannot_be_written_is_an_error_of_writing(tested: Harness, tmp_path: Path) -> None:
    assert tested.test("--junit", str(tmp_path / "none" / "out.xml"))[0] == 74


# recording


def test_what_is_recorded_of_messages_holds(tested: Harness) -> None:
    raw = yaml.safe_load(HOLDS)
    tested.file.write_text(yaml.safe_dump({"expect": [{"message": each["message"]} for each in raw["expect"]]}))
    status, recorded, complained = tested.test("--record")
    assert (status, complained) == (0, "")
    outcomes = [set(each) - {"message"} for each in yaml.safe_load(recorded)["expect"]]
    goes = {"routes", "endpoints", "priority"}
    assert outcomes == [goes | {"sinks"}, goes | {"sinks"}, {"dropped"}, goes | {"identity"}, {"denied"}, {"denied"}]
    tested.file.write_text(recorded)
    assert tested.test()[:2] == (0, "6 expectations: all hold\n")
    assert tested.test("--record")[1] == recorded


def flows(monkeypatch: pytest.MonkeyPatch, *found: Flow) -> None:
    monkeypatch.setattr(command, "find_flows", lambda *_: Found([*found], "", is_real=True))


def flow(kind: str, source: str, sink: str | None = None, ingress: str = "vehicle", **more: Any) -> Flow:
    return Flow(TYPES[kind], UUri.parse(source), None if sink is None else UUri.parse(sink), ingress, **more)


def test_what_is_recorded_of_flows_holds_in_a_fixed_order(tested: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        flow("publish", SPEED, priority=UPriority.CS5, messages_per_day=7),
        flow("publish", "//veh1/B/1/8000", went_to=("phone",), messages_per_day=5),
        flow("request", "//fleet/C/1/0", "//veh1/A/1/7", "cloud", messages_per_day=3),
        flow("request", "//fleet/C/1/0", "//veh1/A/1/8", "cloud", identity=HOSTILE, permission_level=2),
        flow("notification", SPEED, "//phone1/1/1/0"),
    ]
    said = set()
    for order in (found, found[::-1]):
        flows(monkeypatch, *order)
        status, recorded, complained = tested.run("--record")
        assert (status, complained) == (0, "")
        said.add(recorded)
    (recorded,) = said
    assert recorded.isascii()
    assert "\x1b" not in recorded
    assert len(yaml.safe_load(recorded)["expect"]) == 5
    subscribed = [each["message"].get("subscribed") for each in yaml.safe_load(recorded)["expect"]]
    assert subscribed.count(["phone1"]) == 1
    tested.file.write_text(recorded)
    assert tested.test()[:2] == (0, "5 expectations: all hold\n")
    changed = GUARDED.replace("max_priority: CS4", "max_priority: CS3")
    tested.config.write_text(changed)
    status, said_then, _ = tested.test()
    assert status == 1
    assert "found    CS3" in said_then


def test_what_is_recorded_holds_when_a_rule_is_put_before_the_others(tested: Harness) -> None:
    recorded = tested.test("--record")[1]
    assert "rules[" not in recorded
    tested.file.write_text(recorded)
    tested.config.write_text(GUARDED.replace("rules: [{deny:", "rules: [{deny: {from: //nobody/1/1/0}}, {deny:"))
    assert tested.test()[:2] == (0, "6 expectations: all hold\n")


def test_what_is_recorded_may_be_longer_than_a_configuration(tested: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of ten devices was two megabytes, and a configuration may have one."""
    monkeypatch.setattr("streamer.config.load.MAX_BYTES", 4000)
    found = [flow("publish", f"//veh1/{number + 1:X}/1/8000") for number in range(200)]
    flows(monkeypatch, *found)
    recorded = tested.run("--record")[1]
    assert len(recorded) > 4000
    tested.file.write_text(recorded)
    assert tested.test()[:2] == (0, f"{len(found)} expectations: all hold\n")


def test_of_no_flows_nothing_is_recorded_that_would_always_hold(tested: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    flows(monkeypatch)
    assert tested.run("--record") == (1, "", "no expectations: there are no flows that a file can name\n")


@pytest.mark.parametrize("reason", ["PERMISSION_DENIED", "permissions.endpoints.cloud.rules", "denies it", "rules[0]"])
def test_a_reason_holds_by_whole_words_or_its_code(tested: Harness, reason: str) -> None:
    message = "{type: request, source: //fleet/C/1/0, sink: //veh1/A/1/8, identity: backend-7f}"
    tested.file.write_text(f"expect:\n  - {{message: {message}, denied: '{reason}'}}\n")
    assert tested.test()[0] == 0
    for other in (f"{reason}x", f"x{reason}", "enies", "PERMISSION"):
        tested.file.write_text(f"expect:\n  - {{message: {message}, denied: '{other}'}}\n")
        assert tested.test()[0] == 1


def test_a_flow_that_no_file_can_name_is_left_out_and_counted(tested: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = Flow(TYPES["publish"], UUri("veh1\n- evil", 1, 1, 0x8000), None, "vehicle")
    flows(monkeypatch, odd, flow("publish", SPEED), flow("publish", SPEED, ingress="gone"))
    status, recorded, complained = tested.run("--record")
    assert (status, len(yaml.safe_load(recorded)["expect"])) == (0, 1)
    assert complained == "2 flows left out: no such message is possible, or comes in here\n"


@pytest.mark.long
def test_without_messages_and_flows_what_the_patterns_tell_apart_is_recorded(tested: Harness) -> None:
    status, recorded, _ = tested.run("--record")
    assert status == 0
    tested.file.write_text(recorded)
    status, said, _ = tested.test()
    assert (status, said.endswith("all hold\n")) == (0, True)
    assert {key for each in yaml.safe_load(recorded)["expect"] for key in each} >= {"routes", "denied", "dropped"}
