"""Reading the file: every mistake with its position, no secret in any message, and the files that we ship."""

import json
import os
import re
import threading
from pathlib import Path

import pytest

from streamer.config.load import MOST_PROBLEMS, ConfigError, json_schema, load
from streamer.features.every import FILE
from tests.unit.config.files import BROKER, PLAIN, ZENOH, loaded, problems

HERE = Path(__file__).parent
BROKEN = sorted((HERE / "broken").glob("*.yaml"))


@pytest.mark.parametrize("broken", BROKEN, ids=lambda path: path.stem)
def test_a_broken_file_is_explained(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(broken.parent)
    with pytest.raises(ConfigError) as caught:
        load(Path(broken.name), {})
    assert f"{caught.value}\n" == broken.with_suffix(".expected").read_text()


def test_the_broken_files_are_there() -> None:
    assert len(BROKEN) >= 15


def test_variables_are_replaced_inside_values(path: Path) -> None:
    text = (
        PLAIN
        + "metrics:\n  listen: ${HOST:-127.0.0.1}:${PORT}\n"
        + "queue_policy:\n  window: ${WINDOW}\n  queue:\n    bytes: ${BYTES:-1MiB}\n"
    )
    config = loaded(path, text, PORT="1234", WINDOW="17", HOST="")
    assert config.metrics is not None
    assert config.metrics.listen == "127.0.0.1:1234"  # an empty variable counts as none where there is a default
    assert config.queue_policy.window == 17  # a plain scalar has the type that the new text looks like
    assert config.queue_policy.queue.bytes == 1024 * 1024


def test_a_variable_in_quotes_stays_text(path: Path) -> None:
    (problem,) = problems(path, PLAIN + 'queue_policy:\n  window: "${WINDOW}"\n', WINDOW="17")
    assert str(problem) == f"{path}:9:11: queue_policy.window: expected a whole number, found text from WINDOW (withheld)"


def test_a_variable_cannot_change_the_structure(path: Path) -> None:
    text = PLAIN + "log:\n  audit: ${AUDIT_LOG}\n"
    config = loaded(path, text, AUDIT_LOG="/tmp/x\njournal: {path: /evil}\n# ${OTHER}")
    assert config.journal is None
    assert str(config.log.audit) == "/tmp/x\njournal: {path: /evil}\n# ${OTHER}"


def test_variables_in_keys_and_comments_and_behind_two_dollars_are_left_alone(path: Path) -> None:
    config = loaded(path, "# ${COMMENT}\n" + PLAIN + "log:\n  audit: /tmp/$${NAME}/$HOME\n")
    assert str(config.log.audit) == "/tmp/${NAME}/$HOME"
    (problem,) = problems(path, PLAIN + "${KEY}: 1\n", KEY="log")
    assert problem.message.startswith("unknown key")


def test_anchors_and_merge_keys_work(path: Path) -> None:
    text = (
        PLAIN.replace("vehicle: {", "vehicle: &memory {").replace(
            "cloud: {transport: memory, ", "cloud:\n    <<: *memory\n    "
        )
    ).replace('["*"]}', '["*"]')
    config = loaded(path, text)
    assert config.endpoints["cloud"].transport == "memory"
    assert config.endpoints["cloud"].authorities == ["*"]


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("[" * 5000, 1, None, "nested too deeply; expected at most 32 levels"),
        ("a: " + "{a: " * 40 + "1" + "}" * 40, 1, None, "nested too deeply; expected at most 32 levels"),
        ("&a [*a]", 1, 1, "it contains itself, by an alias (*) or a merge key (<<)"),
        (
            "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
            1,
            None,
            "too many values; expected at most 100000, aliases counted",
        ),
        ("m0: &m0 {a: 1}\n" + "".join(
            f"m{n}: &m{n}\n  <<: [{', '.join([f'*m{n - 1}'] * 9)}]\n" for n in range(1, 12)
        ), 1, None, "too many values; expected at most 100000, aliases counted"),
        ("authority: a\nb: \x07", 2, 4, "a control character; expected printable text"),
        (b"authority: a\nb: \xff", 2, 4, "not UTF-8; expected text in UTF-8"),
        ("just text", 1, 1, "expected a mapping with the keys authority, endpoints and routes, found a single value"),
        ("", 1, 1, "the file is empty; expected the keys authority, endpoints and routes"),
    ],
    ids=["deep", "deep-mapping", "recursive", "alias-bomb", "merge-bomb", "control", "utf-8", "scalar", "empty"],
)  # fmt: skip
def test_a_hostile_or_odd_file_is_refused(
    path: Path, text: str | bytes, line: int, column: int | None, message: str
) -> None:
    (problem,) = problems(path, text)
    assert problem.message == message
    assert column is None or (problem.line, problem.column) == (line, column)


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        ("".join(f"key{number}: 1\n" for number in range(500)), 500 + 3),  # three keys are required
        ("".join(f"a{number}: 1\na{number}: 1\n" for number in range(500)), 500 + 3),
        (
            f"authority: gw\nendpoints: {{}}\nroutes: [{', '.join(['{from: a, to: b, c: d}'] * 500)}]\n",
            500 + 1,
        ),  # an endpoint is needed
    ],
    ids=["keys", "doubled keys", "routes"],
)
def test_of_very_many_mistakes_the_first_are_named_and_the_others_counted(path: Path, text: str, mistakes: int) -> None:
    found = problems(path, text)
    assert len(found) == MOST_PROBLEMS + 1
    assert found[:-1] == sorted(found[:-1])
    assert found[-1].message == f"and {mistakes - MOST_PROBLEMS} more mistakes"
    assert sum(len(str(problem)) for problem in found) < 50_000


def test_a_file_that_cannot_be_read_has_no_line(tmp_path: Path, path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert str(caught.value) == f"{path}: cannot be read: No such file or directory"
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path, {})
    path.write_bytes(b"#" * (1 << 21))
    with pytest.raises(ConfigError, match="2097152 bytes long; expected at most 1048576"):
        load(path, {})


def test_a_pipe_is_read_by_commands_and_refused_to_who_may_not_wait(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="cannot be read: not a regular file"):
        load(path, {}, may_wait=False)
    writing = threading.Thread(target=path.write_text, args=(PLAIN,))
    writing.start()
    assert load(path, {}).authority == "gateway.veh1"
    writing.join()


def test_what_nobody_has_foreseen_is_a_problem_that_repeats_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str, *_: object) -> None:
        raise RecursionError(SECRET)

    monkeypatch.setattr("streamer.config.load.read", fail)
    (problem,) = problems(path, PLAIN)
    assert problem.message.startswith("cannot be checked: RecursionError at test_load.py:")
    assert SECRET not in str(problem)


def test_a_byte_order_mark_is_accepted(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbf" + PLAIN.encode())
    assert load(path, {}).authority == "gateway.veh1"


SECRET = "hunter2-Zq9"


@pytest.mark.parametrize(
    "text",
    [
        BROKER.replace("127.0.0.1", f"me:{SECRET}@127.0.0.1"),
        BROKER.replace("127.0.0.1", f"me:a/{SECRET}@b@127.0.0.1:1883"),
        BROKER.replace("127.0.0.1", f"{SECRET}@127.0.0.1"),
        BROKER.replace("127.0.0.1", "me:${MQTT_PASSWORD}@127.0.0.1"),
        BROKER.replace("broker:", f"password: {SECRET}\n      broker:"),
        BROKER.replace("broker:", f"password: [{SECRET}]\n      broker:"),
        BROKER.replace("broker:", f"password: {{{SECRET}: 1, {SECRET}: 2}}\n      broker:"),
        BROKER.replace("broker:", f"password: !{SECRET} x\n      broker:"),
        BROKER.replace("broker:", f"password: *{SECRET}\n      broker:"),
        BROKER.replace("broker:", f'password: "{SECRET}\n      broker:'),
        BROKER.replace("broker:", f"password: @{SECRET}\n      broker:"),
        BROKER.replace("broker:", f"password: a: {SECRET}\n      broker:"),
        BROKER.replace("broker:", f"password: {SECRET}\n      topics: {SECRET}\n      broker:"),
        BROKER.replace("broker:", "token: ${TOKEN}\n      topics: ${TOKEN}\n      broker:"),
        BROKER.replace("broker:", f"password_file: [{SECRET}]\n      broker:"),
        BROKER.replace("broker:", f"tls: {{key_secret: {SECRET}}}\n      broker:"),
        BROKER.replace("broker:", "keep_alive_s: ${THE_SECRET}\n      broker:"),
        BROKER.replace("transport: mqtt5", f"transport: mqtt6\n    passwd: {SECRET}"),
        BROKER + f"api_key: {SECRET}\n",
        BROKER + f"metrics: {{secret: {SECRET}, listen: {SECRET}}}\n",
        BROKER + f"trace: {{path: 'http://x:{SECRET}@y', token: 5}}\n",
        # not behind the name of a secret
        BROKER.replace("mqtt://127.0.0.1", f"me:{SECRET}@127.0.0.1:1883"),
        BROKER.replace("mqtt://127.0.0.1", f"mqtt://127.0.0.1?password={SECRET}"),
        BROKER.replace("mqtt://127.0.0.1", f"mqtt://127.0.0.1/?x={SECRET}"),
        BROKER.replace("mqtt://127.0.0.1", f"mqtt://127.0.0.1#{SECRET}"),
        BROKER.replace("mqtt://127.0.0.1", f"mqqt://127.0.0.1;jwt={SECRET}"),
        *(
            BROKER.replace("broker:", f"{key}: {SECRET}\n      topics: {SECRET}\n      broker:")
            for key in ("connect_private_key_base64", "private_key_pem", "pwd", "psk", "jwt_token", "authToken", "secrets")
        ),
        *(
            ZENOH.replace("CONNECT", text)
            for text in (
                f"tls/h:7447#connect_private_key_base64={SECRET}",
                f"['tls/h:7447#connect_private_key_base64={SECRET}', 5]",
                f"['tls/h:7447#root_ca_certificate=/ca.pem;listen_private_key_base64={SECRET}']",
                f"['h:7447#password={SECRET}']",
            )
        ),
        # variables of whatever name
        BROKER.replace("broker:", "keep_alive_s: ${X}\n      broker:"),
        BROKER.replace("broker:", "topics: ${X}\n      broker:"),
        BROKER.replace("broker:", "tls: ${X}\n      broker:"),
        BROKER.replace("mqtt://127.0.0.1", "${X}"),
        BROKER.replace("to: cloud}", "to: '${X}'}"),
        BROKER.replace('["*"]', "['${X}', '${X}']"),
        BROKER.replace("authority: gateway.veh1", "authority: ${X}"),
        BROKER.replace("mqtt5", "${X}"),
        BROKER + "log: {level: '${X}'}\n",
        BROKER + "dead_letter: {endpoints: ['${X}']}\n",
        BROKER + "multicast: [{provider: //veh1/A8000/2/0, broadcast: b, partitions: {'': '${X}'}}]\n",
    ],
)  # fmt: skip
def test_no_secret_is_ever_printed(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path, {"MQTT_PASSWORD": SECRET, "TOKEN": SECRET, "THE_SECRET": SECRET, "X": SECRET})
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)
    assert not any(SECRET in str(part) for problem in caught.value.problems for part in problem)


def test_a_secret_has_to_come_from_a_file(path: Path) -> None:
    (problem,) = problems(path, BROKER.replace("broker:", f"password: {SECRET}\n      broker:"))
    assert (problem.line, problem.key) == (8, "endpoints.cloud.options.password")
    assert problem.message == "a secret does not belong here; expected password_file, the path of a file that holds it"


@pytest.mark.parametrize("credentials", ["user:password", "user:file", "username:a URL", "user"])
def test_a_secret_that_is_a_word_of_ours_spoils_no_message(path: Path, credentials: str) -> None:
    text = BROKER.replace("mqtt://", f"mqtt://{credentials}@").replace("broker:", "unknown: 1\n      broker:")
    found = {problem.key: problem.message for problem in problems(path, text)}
    key = "endpoints.cloud.options.broker"
    assert found[key] == "expected a URL without user and password: these go to username and password_file"


def test_the_user_of_an_address_spoils_no_other_message(path: Path) -> None:
    text = BROKER.replace("mqtt://", "mqtt://user:hunter2@").replace("broker:", "user: 1\n      broker:")
    found = {problem.key: problem.message for problem in problems(path, text)}
    assert "username" in found["endpoints.cloud.options.user"]


def test_an_endpoint_may_be_called_token(path: Path) -> None:
    assert "token" in loaded(path, PLAIN.replace("vehicle", "token")).endpoints


def test_options_that_do_not_fit_together_are_named(path: Path) -> None:
    (problem,) = problems(path, BROKER.replace("broker:", "tls: {ca_file: /etc/ca.pem}\n      broker:"))
    assert (problem.line, problem.key) == (8, "endpoints.cloud.options.tls")
    assert problem.message == "expected a broker with mqtts:// or wss://"


def test_problems_are_sorted_by_line(path: Path) -> None:
    found = problems(path, "routes: 5\nlog: 5\nendpoints: 5\nauthority: 5\nzzz: 5\naaa: 5\n")
    assert [problem.line for problem in found] == [1, 2, 3, 4, 5, 6]


def test_the_schema_knows_the_keys_as_the_file_has_them() -> None:
    schema = json_schema(FILE)
    json.dumps(schema)
    definitions = schema["$defs"]
    assert set(schema["required"]) == {"authority", "endpoints", "routes"}
    route = definitions["RouteConfig"]["properties"]
    assert {"from", "to", "publish", "queue", "window", "flow_window", "retry"} <= set(route)
    assert "queue_policy" not in route
    assert "broker" in definitions["mqtt5.options"]["properties"]
    references = re.findall(r'"\$ref": "([^"]*)"', json.dumps(schema))
    assert {reference.removeprefix("#/$defs/") for reference in references} <= set(definitions)
