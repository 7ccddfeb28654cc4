"""The command line but for what has a file of its own: what it prints and how it exits."""

import json
from pathlib import Path

import pytest

from streamer import __version__
from streamer.main import FORM, main
from tests.unit.tools.commands import GOOD, SPEED, status_of

# check


@pytest.mark.needs("check")
def test_good_file_is_called_good_and_summed_up(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--config", good]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == (
        f"{good}: good. //gateway.veh1/4/1/0, endpoints vehicle (memory), cloud (memory), phone (memory), 3 routes"
    )


@pytest.mark.needs("check")
def test_every_mistake_is_printed_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(GOOD.replace("to: phone", "to: fone").replace("authority: gateway.veh1", "authority: Gateway"))
    assert main(["check", "--config", str(path)]) == 78
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0].startswith(f"{path}:1:")
    assert any(line.startswith(f"{path}:8:") and "fone" in line and "did you mean 'phone'?" in line for line in lines)
    assert lines[-1] == f"{path}: 2 problems"


@pytest.mark.needs("check")
def test_one_mistake_is_one_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(GOOD.replace("transport: memory, authorities: [veh1]", "transport: memmory, authorities: [veh1]"))
    assert main(["check", "--config", str(path)]) == 78
    err = capsys.readouterr().err
    assert "did you mean 'memory'?" in err
    assert err.endswith(": 1 problem\n")


@pytest.mark.needs("check", "judge")
@pytest.mark.parametrize("command", ["check", "run", "explain"])
def test_file_that_is_not_there_is_a_configuration_error(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nothing.yaml"
    more = ["--source", SPEED, "--type", "publish"] if command == "explain" else []
    assert main([command, "--config", str(path), *more]) == 78
    assert str(path) in capsys.readouterr().err


# the file without --config


def test_the_file_is_that_of_the_option_then_of_the_variable_then_of_the_machine(
    default_config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    default_config.parent.mkdir()
    files = {"machine": default_config, "variable": tmp_path / "variable.yaml", "option": tmp_path / "option.yaml"}
    for name, path in files.items():
        path.write_text(GOOD.replace("gateway.veh1", name))

    def authority(*words: str) -> str:
        assert main(["config", *words, "--json"]) == 0
        return str(json.loads(capsys.readouterr().out)["config"]["authority"])

    assert authority() == "machine"
    monkeypatch.setenv("USTREAMER_CONFIG", str(files["variable"]))
    assert authority() == "variable"
    assert authority("--config", str(files["option"])) == "option"
    monkeypatch.setenv("USTREAMER_CONFIG", "")
    assert authority() == "machine"


@pytest.mark.needs("check", "tap", "traces")
@pytest.mark.parametrize("words", [("run",), ("check",), ("dead-letters", "list"), ("traces", "tail"), ("tap",), ("top",)])
def test_without_any_file_the_error_says_what_was_looked_for(
    words: tuple[str, ...], default_config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(*words) == 2
    looked = f"--config is not given, USTREAMER_CONFIG is not set, and {default_config} does not exist"
    assert f"streamer: error: no configuration file: {looked}" in capsys.readouterr().err


@pytest.mark.needs("check")
def test_a_variable_that_names_no_file_is_named_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USTREAMER_CONFIG", str(tmp_path / "none.yaml"))
    assert status_of("check") == 78
    assert capsys.readouterr().err.endswith(f"{tmp_path}/none.yaml (USTREAMER_CONFIG): 1 problem\n")


@pytest.mark.needs("check")
def test_a_file_that_may_not_be_read_is_no_missing_one(default_config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    default_config.parent.mkdir()
    default_config.symlink_to(default_config)
    assert status_of("check") == 78
    assert f"{default_config}: cannot be read: Too many levels of symbolic links" in capsys.readouterr().err


@pytest.mark.needs("pause", "traces")
def test_with_an_address_or_a_folder_the_file_of_the_machine_does_not_count(
    default_config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    default_config.parent.mkdir()
    default_config.write_text("not: a configuration")
    assert status_of("pause", "--url", "http://127.0.0.1:1") == 1
    assert status_of("traces", "tail", "--path", str(tmp_path)) == 1
    assert "streamer.yaml" not in capsys.readouterr().err


# the rest


def test_schema_is_json_that_knows_the_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert {"authority", "endpoints", "routes", "queue_policy", "dead_letter", "metrics", "log"} <= schema[
        "properties"
    ].keys()
    assert set(schema["required"]) >= {"authority", "endpoints", "routes"}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["check", "--config"],
        ["check", "--config", "x", "--force"],
        ["explain", "--config", "x"],
        ["explain", "--config", "x", "--type", "publish"],
        ["explain", "--config", "x", "--type", "rumour", "--source", SPEED],
        ["explain", "--config", "x", "--type", "publish", "--source", "veh1"],
    ],
)
def test_wrong_usage_exits_with_2_and_shows_the_right_one(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: streamer" in capsys.readouterr().err


@pytest.mark.needs("check", "judge")
@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_help_and_version_exit_with_0(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([flag])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert out == f"streamer {__version__} ({FORM})\n" if flag == "--version" else "explain" in out
