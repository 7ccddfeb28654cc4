"""``streamer completion`` and the man page: both have every command and every option of the parser."""

import argparse
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamer.main import _parser, main
from streamer.tools.completion import SHELLS

ROOT = Path(__file__).parents[3]


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Every command that has no commands of its own."""
    groups = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    for group in groups:
        for command in group.choices.values():
            yield from commands(command)
    if not groups:
        yield parser


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_has_every_command_and_every_option(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    found = list(commands(_parser()))
    assert len(found) > 15
    for command in found:
        for word in command.prog.split():
            assert word in text
        for option in (name for action in command._actions for name in action.option_strings):
            forms = (option, f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}")  # of fish
            assert any(form in text for form in forms), f"{command.prog} {option}"


@pytest.mark.needs("check", "judge", "pause")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("che",), {"check"}),
        (("dead-letters", "re"), {"redrive"}),
        (("completion", ""), set(SHELLS)),
        (("explain", "--so"), {"--source"}),
        (("check", "--config", "strea"), {"streamer.yaml"}),
    ],
)
def test_bash_completes(
    words: tuple[str, ...], expected: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "completion.bash").write_text(script("bash", capsys))
    (tmp_path / "streamer.yaml").touch()
    lines = (
        "source ./completion.bash && complete -p streamer >/dev/null",
        f"COMP_WORDS=(streamer {shlex.join(words)}) COMP_CWORD={len(words)}",
        '"$(complete -p streamer | sed "s/.*-F \\([^ ]*\\).*/\\1/")"',
        'printf "%s\\n" "${COMPREPLY[@]}"',
    )
    done = subprocess.run(["bash", "-euc", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) - {"-h", "--help"} == expected, done.stderr


def test_without_its_library_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    assert "uprotocol-ustreamer[completion]" in capsys.readouterr().err


def test_the_man_page_has_every_command_and_every_option() -> None:
    command = [sys.executable, "deploy/debian/manpage.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT)})
    sections = done.stdout.replace("\\-", "-").split("\n.SS ")[1:]
    by_command = {section.splitlines()[0]: section for section in sections}
    found = list(commands(_parser()))
    assert len(sections) == len(found)
    for each in found:
        (section,) = (text for title, text in by_command.items() if title == each.prog or title.startswith(f"{each.prog} "))
        for action in each._actions:
            if not isinstance(action, argparse._HelpAction):
                assert all(f"\\fB{option}\\fR" in section for option in action.option_strings), f"{each.prog} {action.dest}"
