"""``streamer diff``: every planted change is named, and what changes nothing in meaning gives nothing."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from streamer.features.flow import TYPES, Flow
from streamer.features.judge import command_flows as flows_module
from streamer.features.judge.command_diff import FAIL_ON
from streamer.uprotocol.message import UPriority
from streamer.uprotocol.uri import UUri
from tests.configurations import config_of, endpoint_of
from tests.unit.tools.commands import status_of

SPEED = "//veh1/A8000/2/8A50"

OLD: dict[str, Any] = config_of(
    {
        "vehicle": endpoint_of("zenoh", "veh1", listen=["tcp/127.0.0.1:7447"]),
        "cloud": endpoint_of(
            "mqtt5", "*", broker="mqtts://a.example:8883", username="u", password_file="/etc/one", identity_property="sender"
        ),
        "phone": endpoint_of("memory", "phone1"),
    },
    [
        {"from": "vehicle", "to": "cloud", "publish": ["//veh1/A8000/2/FFFF", "//veh1/B/1/8000"], "publish_to": ["fleet"]},
        {"from": "cloud", "to": "vehicle"},
        {"from": "vehicle", "to": "phone"},
    ],
    authority="gateway.veh1",
    permissions={
        "endpoints": {
            "vehicle": {"rules": [{"deny": {"types": ["request"]}}, {"allow": {"max_priority": "CS4"}}]},
            "cloud": {"identities": {"backend-7f": ["fleet"]}, "rules": [{"allow": {"to": "//veh1/FFFFFFFF/FF/FFFF"}}]},
            "phone": {"rules": [{"allow": {}}]},
        }
    },
    journal={"path": "/var/lib/streamer/journal.db"},
    metrics={"listen": "127.0.0.1:9464"},
)

Change = Callable[[dict[str, Any]], Any]


class Planted(NamedTuple):
    """A change of the file, and what has to be said about it: the kinds, and texts."""

    change: Change
    kinds: set[str]
    said: list[str]


def rules(raw: dict[str, Any], endpoint: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = raw["permissions"]["endpoints"][endpoint]["rules"]
    return found


def renamed(raw: dict[str, Any]) -> None:
    raw["endpoints"]["backend"] = raw["endpoints"].pop("cloud")
    raw["permissions"]["endpoints"]["backend"] = raw["permissions"]["endpoints"].pop("cloud")
    raw["routes"][0]["to"] = raw["routes"][1]["from"] = "backend"


def options(raw: dict[str, Any], endpoint: str) -> dict[str, Any]:
    found: dict[str, Any] = raw["endpoints"][endpoint]["options"]
    return found


PLANTED = {
    "route removed": Planted(
        lambda raw: raw["routes"].pop(1),
        {"denied", "settings"},
        ["no route leads from cloud to 'veh1'", "routes.cloud-vehicle: removed"],
    ),
    "route added": Planted(
        lambda raw: raw["routes"].append({"from": "phone", "to": "vehicle"}),
        {"allowed", "settings"},
        ["routes.phone-vehicle: new"],
    ),
    "pattern removed": Planted(
        lambda raw: raw["routes"][0]["publish"].pop(), {"unrouted", "settings"}, ["no longer //veh1/B/1/8000"]
    ),
    "pattern added": Planted(
        lambda raw: raw["routes"][0]["publish"].append("//veh1/C/1/8000"),
        {"routed", "settings"},
        ["now also //veh1/C/1/8000"],
    ),
    "another receiver": Planted(
        lambda raw: raw["routes"][0].update(publish_to=["backup"]),
        {"moved", "settings"},
        ["addressed to backup instead of to cloud, addressed to fleet"],
    ),
    "authority moved": Planted(
        lambda raw: raw["endpoints"]["phone"].update(authorities=["phone1", "watch1"]),
        {"denied", "moved", "settings"},
        ["to phone instead of to cloud", "endpoints.phone.authorities: now also watch1"],
    ),
    "authority removed": Planted(
        lambda raw: raw["endpoints"]["vehicle"].update(authorities=["veh2"]),
        {"denied", "settings"},
        ["no longer veh1; now also veh2"],
    ),
    "order of rules": Planted(
        lambda raw: rules(raw, "vehicle").reverse(), {"allowed", "settings"}, ["comes before deny request now"]
    ),
    "type denied": Planted(
        lambda raw: rules(raw, "vehicle")[0]["deny"].update(types=["request", "notification"]),
        {"denied", "settings"},
        ["permissions.endpoints.vehicle.rules[0] denies it (PERMISSION_DENIED)"],
    ),
    "rule removed": Planted(lambda raw: rules(raw, "phone").pop(), {"reason", "settings"}, ["no longer allow everything"]),
    "permissions opened": Planted(
        lambda raw: raw.update(permissions=None), {"allowed", "class", "settings"}, ["permissions: null instead of"]
    ),
    "class lowered": Planted(
        lambda raw: rules(raw, "vehicle")[1]["allow"].update(max_priority="CS2"),
        {"class", "settings"},
        ["CS2 instead of CS4"],
    ),
    "rate of a rule": Planted(
        lambda raw: rules(raw, "cloud")[0]["allow"].update(rate={"messages": 5}),
        {"paced", "settings"},
        ["beyond it they are rejected: 5 messages per second"],
    ),
    "rate of a route": Planted(
        lambda raw: raw["routes"][0].update(rate={"messages": 100}),
        {"paced", "settings"},
        ["route vehicle-cloud: 100 messages per second at most, after a burst of 1 s; before: no limit"],
    ),
    "rate of each authority": Planted(
        lambda raw: raw.update(queue_policy={"rate_per_authority": {"bytes": "10kB"}}),
        {"paced", "settings"},
        ["each source authority on route vehicle-cloud: 10000 bytes per second"],
    ),
    "only the latest": Planted(
        lambda raw: raw["routes"][0].update(topics=[{"topic": SPEED, "keep": "latest"}]),
        {"waiting", "settings"},
        ["to cloud only the latest message is kept instead of all messages are kept in order"],
    ),
    "identity": Planted(
        lambda raw: raw["permissions"]["endpoints"]["cloud"].update(identities={"backend-8a": ["fleet"]}),
        {"allowed", "denied", "settings"},
        ["'backend-7f' may not speak for 'fleet' (UNAUTHENTICATED)", "identities.backend-8a: new"],
    ),
    "identity no longer proven": Planted(
        lambda raw: options(raw, "cloud").pop("identity_property"),
        {"denied", "settings"},
        [
            "the network proves no identity of the sender (UNAUTHENTICATED)",
            "options.identity_property: null instead of sender",
        ],
    ),
    "demand of a method": Planted(
        lambda raw: raw["permissions"].update(methods=[{"method": "//veh1/B/1/7", "permission_level": 2}]),
        {"denied", "settings"},
        ["permissions.methods[0] demands permission level 2"],
    ),
    "level believed": Planted(
        lambda raw: raw["permissions"]["endpoints"]["cloud"].update(max_permission_level=3),
        {"level", "settings"},
        ["3 instead of 0"],
    ),
    "ttl clock": Planted(
        lambda raw: raw["endpoints"]["vehicle"].update(ttl_clock="arrival"),
        {"ttl", "settings"},
        ["counts from their arrival here instead of the creation time in their ids"],
    ),
    "topics of the broker": Planted(
        lambda raw: options(raw, "cloud").update(topics="in-vehicle"),
        {"moved", "settings"},
        ["to cloud instead of to cloud, addressed to fleet", "topics: in-vehicle instead of off-vehicle"],
    ),
    "endpoint renamed": Planted(
        renamed, {"settings"}, ["endpoints.cloud is called backend", "routes.vehicle-cloud is called vehicle-backend"]
    ),
    "endpoint removed": Planted(
        lambda raw: (raw["endpoints"].pop("phone"), raw["routes"].pop(2), raw["permissions"]["endpoints"].pop("phone")),
        {"moved", "settings"},
        ["endpoints.phone: removed", "to cloud instead of to phone"],
    ),
    "endpoint added": Planted(
        lambda raw: raw["endpoints"].update(tablet={"transport": "memory", "authorities": ["tablet1"]}),
        {"denied", "settings"},
        ["endpoints.tablet: new"],
    ),
    "multicast": Planted(
        lambda raw: raw.update(multicast=[{"provider": "//veh1/B/1/0", "broadcast": "door", "partitions": {"": 0x8000}}]),
        {"settings"},
        ["door"],
    ),
    "broker": Planted(
        lambda raw: options(raw, "cloud").update(broker="mqtts://b.example:8883"),
        {"settings"},
        ["options.broker: mqtts://b.example:8883 instead of mqtts://a.example:8883"],
    ),
    "password file": Planted(
        lambda raw: options(raw, "cloud").update(password_file="/etc/two"), {"settings"}, ["/etc/two instead of /etc/one"]
    ),
    "user": Planted(
        lambda raw: options(raw, "cloud").update(username="w"), {"settings"}, ["username: another value (withheld)"]
    ),
    "attempts": Planted(
        lambda raw: raw.update(queue_policy={"retry": {"attempts": 3}}),
        {"settings"},
        ["queue_policy.retry.attempts: 3 instead of 10"],
    ),
    "attempts of a route": Planted(
        lambda raw: raw["routes"][1].update(retry={"attempts": 3}),
        {"settings"},
        ["routes.cloud-vehicle.retry.attempts: 3 instead of 10"],
    ),
    "bounds of a queue": Planted(
        lambda raw: raw.update(queue_policy={"queue": {"messages": 50, "on_full": "reject"}}),
        {"settings"},
        ["queue_policy.queue.messages: 50 instead of 10000", "on_full: reject instead of backpressure"],
    ),
    "journal": Planted(
        lambda raw: raw["journal"].update(max_bytes="2GiB"), {"settings"}, ["journal.max_bytes: changed; restart to use it"]
    ),
    "pair": Planted(
        lambda raw: raw.update(pair={"listen": "127.0.0.1:7448", "key_file": "/run/pair.key"}),
        {"settings"},
        ["pair: changed; restart to use it"],
    ),
    "traces": Planted(lambda raw: raw.update(trace={"path": "/var/lib/t"}), {"settings"}, ["trace: path /var/lib/t"]),
    "log": Planted(lambda raw: raw.update(log={"level": "debug"}), {"settings"}, ["log.level: debug instead of info"]),
}
NAMES = [pytest.param(name, marks=pytest.mark.needs(name)) if name in ("pair", "traces") else name for name in PLANTED]


class Files:
    """Two files, and ``streamer diff`` of them."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.old, self.new = folder / "old.yaml", folder / "new.yaml"
        self._capsys = capsys
        self.status = 0
        self.old.write_text(yaml.safe_dump(OLD))
        self.new.write_text(yaml.safe_dump(OLD))

    def change(self, change: Change) -> None:
        raw = yaml.safe_load(self.new.read_text())
        change(raw)
        self.new.write_text(yaml.safe_dump(raw))

    def diff(self, *words: str) -> tuple[int, str, str]:
        self.status = status_of("diff", str(self.old), str(self.new), *words)
        return self.status, *self._capsys.readouterr()

    def document(self, *words: str) -> Any:
        return json.loads(self.diff("--json", *words)[1])


@pytest.fixture
def two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Files:
    return Files(tmp_path, capsys)


def seen(monkeypatch: pytest.MonkeyPatch, *flows: Flow) -> None:
    """Let these be the flows of the traces, and every flow of ``two``."""
    found = flows_module.Found([*flows], "some flows", is_real=True)
    monkeypatch.setattr("streamer.features.judge.command_diff.find_flows", lambda *_: found)


def flow(kind: str, source: str, sink: str | None = None, ingress: str = "vehicle", **more: Any) -> Flow:
    return Flow(TYPES[kind], UUri.parse(source), None if sink is None else UUri.parse(sink), ingress, **more)


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_change_is_named(two: Files, name: str) -> None:
    planted = PLANTED[name]
    two.change(planted.change)
    document = two.document("--fail-on", ",".join(planted.kinds))
    assert two.status == 1
    texts = [each["text"] for each in (*document["changes"], *document["settings"])]
    said = "\n".join([*texts, *document["restart"]])
    for text in planted.said:
        assert text in said, said
    assert set(document["failed_on"]) - {"unrouted"} == planted.kinds - {"unrouted"}, said
    assert "unrouted" in document["failed_on"] or "unrouted" not in planted.kinds, said


def test_all_that_is_named_is_printed_in_sections(two: Files) -> None:
    for name in ("broker", "type denied", "bounds of a queue"):
        two.change(PLANTED[name].change)
    status, said, complained = two.diff("--fail-on", "none")
    assert (status, complained) == (0, "")
    lines = said.splitlines()
    at = [lines.index(title) for title in ("Settings that change:", "At a reload:")]
    assert at == sorted(at)
    assert lines[at[1] + 1] == "  endpoint cloud disconnects, and connects with its new options"
    two.change(PLANTED["journal"].change)
    lines = two.diff()[1].splitlines()
    assert lines[lines.index("At a reload:") + 1] == "  journal.max_bytes: changed; restart to use it"


def test_there_are_at_least_twenty_kinds_of_changes() -> None:
    assert len(PLANTED) >= 20


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_way_back_is_named_too(two: Files, name: str) -> None:
    two.change(PLANTED[name].change)
    two.old, two.new = two.new, two.old
    document = two.document()
    assert document["settings"]
    assert bool(document["changes"]) == bool(PLANTED[name].kinds - {"settings"})


def test_an_unchanged_file_gives_nothing(two: Files) -> None:
    status, said, complained = two.diff("--fail-on", ",".join(FAIL_ON))
    assert (status, complained) == (0, "")
    assert said.splitlines()[1:] == ["nothing differs in meaning"]
    document = two.document()
    assert {key: document[key] for key in ("changes", "settings", "restart", "rebuilt", "failed_on")} == {
        key: [] for key in ("changes", "settings", "restart", "rebuilt", "failed_on")
    }


def reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reversed_keys(each) for key, each in reversed(value.items())}
    return [*map(reversed_keys, value)] if isinstance(value, list) else value


TEXT_ONLY: dict[str, Callable[[str], str]] = {
    "comments": lambda text: "# a comment\n" + text.replace("\n", "  # another\n", 1),
    "flow style": lambda text: yaml.safe_dump(yaml.safe_load(text), default_flow_style=True),
    "order of keys": lambda text: yaml.safe_dump(
        reversed_keys({**yaml.safe_load(text), "endpoints": None}) | {"endpoints": yaml.safe_load(text)["endpoints"]},
        sort_keys=False,
    ),
    "defaults written out": lambda text: text + "dead_letter: {resource: 0x8001}\nqueue_policy: {retry: {attempts: 10}}\n",
    "names written out": lambda text: text.replace("to: cloud\n", "to: cloud\n  name: vehicle-cloud\n", 1),
    "units": lambda text: text + "queue_policy: {queue: {bytes: 65536KiB}}\n",
    "hexadecimal digits": lambda text: text.replace("//veh1/A8000/2/FFFF", "up://veh1/a8000/02/ffff"),
    "order of patterns": lambda text: text.replace(
        "- //veh1/A8000/2/FFFF\n  - //veh1/B/1/8000\n", "- //veh1/B/1/8000\n  - //veh1/A8000/2/FFFF\n"
    ),
    "a variable": lambda text: text.replace("authority: gateway.veh1", "authority: ${NOT_SET:-gateway.veh1}"),
    "a route's own key as the file's": lambda text: text.replace("to: cloud\n", "to: cloud\n  window: 1000\n", 1),
}


@pytest.mark.parametrize("name", TEXT_ONLY)
def test_a_change_of_the_text_alone_gives_nothing(two: Files, name: str) -> None:
    before = two.new.read_text()
    two.new.write_text(TEXT_ONLY[name](before))
    assert two.new.read_text() != before
    status, said, complained = two.diff("--fail-on", ",".join(FAIL_ON))
    assert (status, complained) == (0, "")
    assert said.splitlines()[1:] == ["nothing differs in meaning"]


def test_rules_whose_order_means_nothing_may_change_places(two: Files) -> None:
    def apart(raw: dict[str, Any]) -> None:
        rules(raw, "vehicle")[1]["allow"]["types"] = ["publish", "notification", "response"]

    two.change(apart)
    two.old.write_text(two.new.read_text())
    two.change(lambda raw: rules(raw, "vehicle").reverse())
    assert "nothing differs in meaning" in two.diff()[1]


# weights


def test_flows_are_weighted_and_gathered(two: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    seen(
        monkeypatch,
        flow("notification", SPEED, "//fleet/C/1/0", messages_per_day=700_000),
        flow("notification", SPEED, "//fleet/D/1/0", messages_per_day=500_000),
        flow("notification", SPEED, "//phone1/D/1/0", messages_per_day=0.4),
        flow("publish", SPEED, messages_per_day=9),
    )
    two.change(PLANTED["type denied"].change)
    status, said, _ = two.diff("--fail-on", "denied,moved")
    assert status == 1
    lines = said.splitlines()
    assert lines[0].endswith("over some flows, 1.2 million messages a day")
    reason = "permissions.endpoints.vehicle.rules[0] denies it (PERMISSION_DENIED)"
    assert lines[2:6] == [
        f"3 flows, 1.2 million messages a day, would be denied: {reason}",
        f"  notification {SPEED} → //fleet/C/1/0 from vehicle, CS1  700 000 messages a day",
        f"  notification {SPEED} → //fleet/D/1/0 from vehicle, CS1  500 000 messages a day",
        f"  notification {SPEED} → //phone1/D/1/0 from vehicle, CS1  0.4 messages a day",
    ]
    assert two.diff("--fail-on", "moved,class")[0] == 0


def test_what_would_be_dropped_without_a_word_is_denied_too(two: Files) -> None:
    two.change(PLANTED["pattern removed"].change)
    assert two.diff("--fail-on", "denied,moved")[0] == 1
    assert two.diff("--fail-on", "moved,paced")[0] == 0


def test_the_order_of_the_flows_changes_nothing(two: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    flows = [flow("notification", SPEED, f"//fleet/{number:X}/1/0", messages_per_day=number % 3) for number in range(1, 20)]
    two.change(PLANTED["type denied"].change)
    said = set()
    for order in (flows, flows[::-1], flows[7:] + flows[:7]):
        seen(monkeypatch, *order)
        said.add(two.diff()[1])
    assert len(said) == 1
    assert "  and 14 more" in said.pop()


def test_what_somebody_must_have_subscribed_to_goes_on(two: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """No pattern forwards this topic, and it went to the phone: so it goes there as long as a route leads there."""
    seen(monkeypatch, flow("publish", "//veh1/D/1/8000", went_to=("phone",), messages_per_day=1))
    two.change(PLANTED["attempts"].change)
    assert two.document()["changes"] == []
    two.change(lambda raw: raw["routes"].pop(2))
    (change,) = two.document()["changes"]
    assert (change["kind"], change["text"]) == ("unrouted", "no route forwards it from vehicle")


def test_a_class_is_lost_by_those_who_claim_it(two: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    seen(
        monkeypatch,
        flow("publish", SPEED, priority=UPriority.CS4, messages_per_day=2),
        flow("publish", SPEED, priority=UPriority.CS1, messages_per_day=3),
    )
    two.change(PLANTED["class lowered"].change)
    (change,) = two.document()["changes"]
    assert (change["kind"], change["flows"], change["messages_per_day"]) == ("class", 1, 2)
    assert Flow.from_json(change["examples"][0]).priority is UPriority.CS4


def test_an_identity_that_no_trace_knows_is_assumed_and_it_is_said(two: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = flow("request", "//fleet/C/1/0", "//veh1/B/1/7", "cloud", messages_per_day=5)
    seen(monkeypatch, asked)
    two.change(PLANTED["attempts"].change)
    assert "1 flow without a known identity: judged with one that may speak for the source" in two.diff()[1]
    assert two.document()["guessed_identities"] == 1
    two.change(PLANTED["identity"].change)
    (change,) = two.document()["changes"]
    assert change["kind"] == "denied"
    seen(monkeypatch, asked._replace(identity="backend-8a"))
    assert [change["kind"] for change in two.document()["changes"]] == ["allowed"]


def test_flows_of_endpoints_that_neither_file_has_are_counted(two: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    seen(monkeypatch, flow("publish", SPEED, ingress="earlier", messages_per_day=5))
    said = two.diff()[1].splitlines()
    assert said[-2:] == [
        "1 flow not judged: neither file has the endpoint that they came in through",
        "nothing differs in meaning",
    ]
    assert two.document()["unjudged"] == 1


# words and errors


HOSTILE = "x\x1b[31m\n3 flows, would be denied: all # : \u202e"


def test_hostile_names_are_text(two: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    seen(monkeypatch, flow("request", "//fleet/C/1/0", "//veh1/B/1/7", "cloud", identity=HOSTILE, messages_per_day=1))
    identities = {HOSTILE: ["fleet"]}
    two.change(lambda raw: raw["permissions"]["endpoints"]["cloud"].update(identities=identities))
    two.change(lambda raw: options(raw, "cloud").update(password_file=f"/{HOSTILE}"))
    status, said, _ = two.diff("--fail-on", "none")
    assert status == 0
    assert not any(line.startswith("3 flows") for line in said.splitlines())
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", said) is None
    assert "identities" in said
    assert {change["kind"] for change in two.document()["changes"]} == {"allowed"}


def test_no_secret_is_shown(two: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOP", "hunter2secret")
    two.change(lambda raw: options(raw, "cloud").update(username="${TOP}"))
    two.change(lambda raw: options(raw, "vehicle").update(listen=["tcp/127.0.0.1:7447#password=${TOP}"]))
    for words in ((), ("--json",)):
        _, said, complained = two.diff(*words)
        assert "hunter2secret" not in said + complained


def test_both_files_are_reported_if_they_are_wrong(two: Files) -> None:
    two.old.write_text("authority: 7\n")
    two.change(lambda raw: raw["routes"][0].update(to="clod"))
    status, said, complained = two.diff()
    assert (status, said) == (78, "")
    assert "old.yaml:1" in complained
    assert "did you mean 'cloud'?" in complained
    assert complained.splitlines()[-1] == "both files cannot be used"
    assert json.loads(two.diff("--json")[1])["status"] == 78


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--fail-on", "denyed"], "did you mean 'denied'?"),
        (["--last", "7d"], "--last belongs to --traces"),
        (["--traces", "x", "--running"], "either --traces, or --running or --url"),
        (["--traces", "x", "--last", "0s"], "expected a duration above 0"),
    ],
)
def test_wrong_usage_is_2(two: Files, words: list[str], told: str) -> None:
    status, _, complained = two.diff(*words)
    assert (status, told in complained) == (2, True)


def test_a_folder_of_traces_that_is_not_there_is_an_error_of_reading(two: Files, tmp_path: Path) -> None:
    status, _, complained = two.diff("--traces", str(tmp_path / "none"))
    assert (status, "No such file" in complained) == (74, True)


def test_a_file_of_traces_that_cannot_be_read_is_said_and_the_rest_is_compared(two: Files, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    folder = tmp_path / "traces" / f"date={now:%Y-%m-%d}" / f"hour={now.hour}" / "streamer=gateway.veh1"
    folder.mkdir(parents=True)
    (folder / "part-1.parquet").write_text("no parquet")
    status, said, complained = two.diff("--traces", str(tmp_path / "traces"), "--json")
    assert (status, complained) == (74, "")
    document = json.loads(said)
    assert ("part-1.parquet" in document["unread"][0], document["changes"]) == (True, [])
    status, said, complained = two.diff("--traces", str(tmp_path / "traces"))
    assert (status, "part-1.parquet" in complained, "nothing differs" in said) == (74, True, True)


def test_without_a_daemon_the_command_says_so(two: Files) -> None:
    two.change(lambda raw: raw)
    two.old.write_text(two.old.read_text().replace("127.0.0.1:9464", "127.0.0.1:1"))
    status, _, complained = two.diff("--running")
    assert (status, "no streamer answers there" in complained) == (1, True)


# the gate


def without_permissions(raw: dict[str, Any]) -> None:
    raw["permissions"] = None


@pytest.mark.parametrize("name", [*NAMES[:-2], "nothing is checked any more"])
def test_without_a_gate_of_its_own_everything_that_can_lose_or_expose_fails(two: Files, name: str) -> None:
    two.change(without_permissions if name not in PLANTED else PLANTED[name].change)
    only_names = not two.document("--fail-on", "none")["changes"] and name == "endpoint renamed"
    assert two.status == 0
    status, _, complained = two.diff()
    assert (status, complained.startswith("fails on ")) == ((0, False) if only_names else (1, True))


@pytest.mark.parametrize(
    "change", [PLANTED["log"].change, PLANTED["traces"].change, renamed, lambda raw: raw["routes"][1].update(name="down")]
)
def test_a_gate_passes_logs_traces_and_names(two: Files, change: Change) -> None:
    two.change(change)
    assert two.document()["settings"] != []
    assert two.diff()[::2] == (0, "")


@pytest.mark.parametrize("gate", [(), ("--fail-on", "allowed")])
def test_flows_that_run_show_no_opening_so_others_are_made_up(
    two: Files, monkeypatch: pytest.MonkeyPatch, gate: tuple[str, ...]
) -> None:
    seen(monkeypatch, flow("publish", SPEED, messages_per_day=9))
    two.change(without_permissions)
    status, said, _ = two.diff(*gate)
    assert (status, "made-up flows would now be allowed" in said) == (1, True)
    document = two.document(*gate)
    assert {each["kind"] for each in document["openings"]} == {"allowed"}
    assert document["changes"] == []
    assert "allowed" in document["failed_on"]


def test_an_opening_for_strangers_alone_is_one(two: Files) -> None:
    two.change(lambda raw: raw["permissions"]["endpoints"]["cloud"].update(identities={"*": ["fleet"]}))
    assert "allowed" in two.document()["failed_on"]


def test_a_token_that_is_no_longer_needed_is_an_opening(two: Files) -> None:
    tap = {"verifier": "jwt", "options": {"issuer": "a", "audience": "b", "jwks_file": "/k"}}
    methods = [{"method": "//veh1/A8000/2/7", "tap": True}]
    two.change(lambda raw: raw["permissions"].update(tap=tap, methods=methods))
    two.old.write_text(two.new.read_text())
    two.change(lambda raw: raw["permissions"]["methods"][0].update(tap=False))
    document = two.document("--fail-on", "allowed")
    assert (document.get("failed_on"), two.status) == (["allowed"], 1), document
    assert "without a token" in [each["text"] for each in document["changes"]]


# a sample is not the whole


def fleet(devices: int) -> dict[str, Any]:
    """Many devices behind an endpoint, each with patterns of its own: more flows than are made up."""
    names = [f"veh{number:03}" for number in range(devices)]
    numbers = [f"{entity:X}/1/{method:X}" for entity in (0xA, 0xB, 0xC) for method in (1, 2, 0x8000)]
    return config_of(
        {"devices": endpoint_of("memory", *names), "cloud": endpoint_of("memory", "*")},
        [
            {"from": "devices", "to": "cloud", "publish": [f"//{name}/{each}" for name in names for each in numbers[2::3]]},
            {"from": "cloud", "to": "devices"},
        ],
        authority="gateway",
        permissions={
            "endpoints": {
                "devices": {"rules": [{"allow": {}}]},
                "cloud": {
                    "rules": [
                        {"allow": {"to": f"//{name}/{each}", "types": ["request"]}}
                        for name in names
                        for each in numbers
                        if "8000" not in each
                    ]
                },
            }
        },
        metrics=None,
    )


def deny_the_last(raw: dict[str, Any]) -> None:
    """What worked for the last device by the alphabet, and for no other one."""
    del rules(raw, "cloud")[-6:]


@pytest.mark.parametrize("devices", [3, *(pytest.param(each, marks=pytest.mark.long) for each in (20, 25))])
def test_a_device_that_is_denied_is_found_however_many_there_are(two: Files, devices: int) -> None:
    two.old.write_text(yaml.safe_dump(fleet(devices)))
    two.new.write_text(two.old.read_text())
    two.change(deny_the_last)
    document = two.document("--fail-on", "denied")
    assert (two.status, document["failed_on"], document["is_cut"]) == (1, ["denied"], False)
    two.new.write_text(two.old.read_text())
    two.change(lambda raw: rules(raw, "devices").insert(0, {"deny": {"from": f"//veh{devices - 1:03}/C/1/0"}}))
    assert two.document("--fail-on", "denied")["failed_on"] == ["denied"]
    two.new.write_text(two.old.read_text())
    about = {"from": f"//veh{devices - 1:03}/FFFFFFFF/FF/FFFF", "to": "//zone/D/1/5"}  # the last by the alphabet, twice
    two.change(lambda raw: rules(raw, "devices").insert(0, {"deny": about}))
    assert two.document("--fail-on", "denied")["failed_on"] == ["denied"]


def test_flows_that_nothing_tells_apart_may_be_left_out(two: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.features.judge.representative.MOST", 1000)
    two.old.write_text(yaml.safe_dump(fleet(6)))
    two.new.write_text(two.old.read_text())
    two.change(PLANTED["log"].change)
    assert two.document()["is_cut"] is False
    assert two.diff()[0] == 0


def test_a_sample_that_lacks_flows_of_what_differs_is_no_success(two: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.features.judge.representative.MOST", 1000)
    two.old.write_text(yaml.safe_dump(fleet(6)))
    two.new.write_text(two.old.read_text())
    two.change(lambda raw: rules(raw, "devices").append({"deny": {}}))  # behind what allows everything: nothing changes
    status, _, complained = two.diff("--fail-on", "denied")
    assert (status, complained.startswith("not all was judged: ")) == (1, True)
    assert two.document("--fail-on", "denied")["is_cut"] is True
    assert two.diff("--fail-on", "none")[0] == 0


def test_the_busiest_flows_of_traces_are_a_sample_too(two: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    found = flows_module.Found([], "some flows", is_real=True, cut="the traces have at least 7 flows more")
    monkeypatch.setattr("streamer.features.judge.command_diff.find_flows", lambda *_: found)
    assert two.diff()[0] == 1


# Markdown


def test_markdown_is_for_a_pull_request(two: Files) -> None:
    two.change(PLANTED["type denied"].change)
    status, said, _ = two.diff("--format", "markdown")
    assert status == 1
    lines = said.splitlines()
    assert lines[0] == f"### `{two.old}` → `{two.new}`"
    (row,) = (line for line in lines if "would be denied" in line)
    assert row.startswith("| **would be denied:** permissions.endpoints.vehicle.rules\\[0\\] denies it")
    assert "**Settings that change:**" in lines
    assert two.diff("--format", "markdown", "--fail-on", "none")[0] == 0


def test_markdown_of_hostile_names_is_text(two: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "x`|@everyone <img src=a>\n# [click](http://a)"
    seen(monkeypatch, flow("request", "//fleet/C/1/0", "//veh1/B/1/7", "cloud", identity=hostile, messages_per_day=1))
    two.change(lambda raw: raw["permissions"]["endpoints"]["cloud"].update(identities={hostile: ["fleet"]}))
    said = two.diff("--format", "markdown")[1]
    assert not [line for line in said.splitlines() if line.startswith(("# ", "[click"))]
    outside = re.sub(r"(`+) .*? \1|`[^`]*`", "", said)
    assert re.search(r"(?<!\\)[@<\[]", outside) is None, outside


# who lowers what


@pytest.mark.parametrize(
    ("change", "by"),
    [
        (
            lambda raw: raw["permissions"]["endpoints"]["vehicle"].update(max_priority="CS2"),
            "CS2 instead of CS4, lowered by permissions.endpoints.vehicle.max_priority",
        ),
        (
            lambda raw: rules(raw, "vehicle")[1]["allow"].update(max_priority="CS2"),
            "CS2 instead of CS4, lowered by permissions.endpoints.vehicle.rules[1].allow.max_priority",
        ),
        (
            lambda raw: rules(raw, "vehicle")[1]["allow"].update(max_priority="CS6"),
            "CS6 instead of CS4, no longer lowered by permissions.endpoints.vehicle.rules[1].allow.max_priority",
        ),
    ],
)
def test_a_change_of_class_names_the_key(two: Files, change: Change, by: str) -> None:
    two.change(change)
    assert {each["text"] for each in two.document()["changes"] if each["kind"] == "class"} == {by}


def test_a_change_of_level_names_the_key(two: Files) -> None:
    two.change(lambda raw: raw["permissions"]["endpoints"]["cloud"].update(max_permission_level=3))
    texts = {each["text"] for each in two.document()["changes"] if each["kind"] == "level"}
    assert texts == {"3 instead of 0, no longer lowered by permissions.endpoints.cloud.max_permission_level"}
