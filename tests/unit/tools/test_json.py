"""``--json``: one JSON document on standard output, for answers and for errors, with the exit codes of the command."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamer.uprotocol.uuid import format_id
from tests.ports import free_port
from tests.unit.tools.commands import GOOD, SPEED, Run, answering, response, status_of
from tests.unit.tools.letters import IDS, TOKEN

Document = Callable[..., tuple[int, Any]]
EXPLAIN = ("explain", "--type", "publish", "--source", SPEED)


@pytest.fixture
def document(capsys: pytest.CaptureFixture[str]) -> Document:
    """Runs a command with ``--json``; its status and the document, which is all that it has printed."""

    def call(*words: str) -> tuple[int, Any]:
        status = status_of(*words, "--json")
        out, err = capsys.readouterr()
        assert err == ""
        return status, json.loads(out)

    return call


@pytest.mark.needs("check")
def test_a_good_file_is_summed_up(good: str, document: Document) -> None:
    status, found = document("check", "--config", good)
    assert status == 0
    assert isinstance(found.pop("hints"), list)
    assert found == {
        "file": good,
        "uentity": "//gateway.veh1/4/1/0",
        "endpoints": {"vehicle": "memory", "cloud": "memory", "phone": "memory"},
        "routes": 3,
        "notes": ["its bounds add up to 1.02 GB of memory and 0 B of disk"],
        "probes": None,
    }


@pytest.mark.needs("check")
def test_probes_have_key_verdict_and_text(good: str, document: Document, tmp_path: Path) -> None:
    Path(good).write_text(GOOD + f"journal: {{path: {tmp_path}/no/folder/journal.db}}\n")
    status, found = document("check", "--config", good, "--probe")
    assert status == 1
    problems = [each for each in found["probes"] if each["verdict"] == "problem"]
    assert {tuple(each) for each in found["probes"]} == {("key", "verdict", "text")}
    assert "journal.path" in [each["key"] for each in problems]


@pytest.mark.needs("check", "judge", "pause")
@pytest.mark.parametrize("command", [("check",), EXPLAIN, ("config",), ("pause",), ("reload",), ("top",)])
def test_every_mistake_of_a_file_has_its_place(command: tuple[str, ...], tmp_path: Path, document: Document) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(GOOD.replace("to: phone", "to: fone"))
    status, found = document(*command, "--config", str(path))
    assert (status, found["status"], found["error"]) == (78, 78, f"{path}: 1 problem")
    (problem,) = found["problems"]
    assert (problem["file"], problem["line"], problem["key"]) == (str(path), 8, "routes[1].to")
    assert "did you mean 'phone'?" in problem["message"]


def test_a_file_that_is_not_there_has_no_line(tmp_path: Path, document: Document) -> None:
    status, found = document("config", "--config", str(tmp_path / "none.yaml"))
    assert status == 78
    (problem,) = found["problems"]
    assert (problem["file"], problem["line"], problem["column"], problem["key"]) == (
        str(tmp_path / "none.yaml"),
        *[None] * 3,
    )


@pytest.mark.parametrize("words", [("check", "--force"), ("explain",), ("pause", "--topic"), ("fly",)])
def test_wrong_usage_is_a_document_too(words: tuple[str, ...], document: Document) -> None:
    status, found = document(*words)
    assert (status, found["status"], found["problems"]) == (2, 2, [])
    assert "error: " in found["error"]


@pytest.mark.needs("judge", "pause")
@pytest.mark.parametrize("command", [("pause",), ("reload",), ("top",), ("config", "--running"), (*EXPLAIN, "--running")])
def test_a_daemon_that_is_down_is_an_error(command: tuple[str, ...], document: Document, tmp_path: Path) -> None:
    path = tmp_path / "streamer.yaml"
    path.write_text(GOOD.replace("metrics: null", f'metrics: {{listen: "127.0.0.1:{free_port()}"}}'))
    status, found = document(*command, "--config", str(path))
    assert (status, found["status"]) == (1, 1)
    assert "no streamer answers there" in found["error"]


@pytest.mark.needs("judge")
def test_an_explanation_is_that_of_the_api(good: str, document: Document) -> None:
    status, found = document(*EXPLAIN, "--config", good)
    assert (status, found["goes"]) == (0, True)
    assert [hop["endpoint"] for hop in found["hops"]] == ["cloud", "cloud"]
    status, found = document("explain", "--config", good, "--type", "publish", "--source", "//veh1/1/1/8000")
    assert (status, found["goes"], found["failure"]["outcome"]) == (1, False, "unwanted")


def test_the_configuration_is_data(good: str, document: Document) -> None:
    status, found = document("config", "--config", good)
    assert (status, found["config"]["authority"]) == (0, "gateway.veh1")
    assert set(found) == {"fingerprint", "cohort", "config"}


def test_what_a_daemon_refuses_is_listed_without_places(document: Document, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("0123456789abcdef0123")
    refused = response("422 No", '{"error": "no", "problems": ["s.yaml:1:2: a: b", "c"]}')
    with answering(refused) as (port, _):
        status, found = document("reload", "--url", f"http://127.0.0.1:{port}", "--token-file", str(tmp_path / "token"))
    assert (status, found["error"]) == (78, "refused: nothing has changed")
    assert [each["message"] for each in found["problems"]] == ["s.yaml:1:2: a: b", "c"]
    assert {each["line"] for each in found["problems"]} == {None}


@pytest.mark.needs("pause")
def test_a_pause_answers_whether_it_changed_anything(document: Document, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("0123456789abcdef0123")
    with answering(response("200 OK", '{"changed": true}'), response("200 OK", '{"paused": []}')) as (port, _):
        where = ("--url", f"http://127.0.0.1:{port}", "--token-file", str(tmp_path / "token"))
        assert document("resume", *where, "--topic", SPEED) == (0, {"topic": SPEED, "sink": None, "changed": True})
        assert document("pause", *where) == (0, {"paused": []})


def test_dead_letters_are_shown(dead_letters: Run) -> None:
    def call(*words: str) -> tuple[int, Any]:
        status, out, err = dead_letters(*words, "--json")
        assert err == ""
        return status, json.loads(out)

    status, found = call("show", IDS[1])
    assert (status, [each["id"] for each in found["dead_letters"]]) == (0, [IDS[1]])
    assert found["dead_letters"][0]["content"]["payload"]["hex"] == "0001fe" * 10
    assert TOKEN not in json.dumps(found)
    assert call("show", format_id(bytes(16))) == (1, {"dead_letters": []})


def test_dead_letters_are_redriven_and_purged(document: Document, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("0123456789abcdef0123")
    staying = [{"id": IDS[1], "source": "//veh1/A8001/2/8A51", "why": "expired"}]
    redriven = {"redriven": 1, "not_redriven": staying, "not_redriven_total": 1}
    answers = [redriven, {"purged": 2}, {"purged": 0}]
    with answering(*(response("200 OK", json.dumps(each)) for each in answers)) as (port, _):
        where = ("--url", f"http://127.0.0.1:{port}", "--token-file", str(tmp_path / "token"))
        assert document("dead-letters", "redrive", *where, "--route", "up") == (0, redriven)
        assert document("dead-letters", "purge", *where, "--all") == (0, {"purged": 2})
        assert document("dead-letters", "purge", *where, "--all") == (1, {"purged": 0})
        said = "purge: expected a filter, or --all for all of them"
        assert document("dead-letters", "purge", *where) == (2, {"error": said, "status": 2, "problems": []})
