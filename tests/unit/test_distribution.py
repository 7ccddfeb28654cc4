"""What the package is called, and that no text has anybody install something else of that name."""

import re
import subprocess
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from setuptools import find_namespace_packages  # type: ignore[import-untyped]  # it has no types

from streamer import plugins
from tests.unit.deployed import ROOT, coming_version, project

NAME = "uprotocol-ustreamer"
SUFFIXES = {".py", ".md", ".yaml", ".yml", ".toml", ".sh", ".service", ".conf", ".txt", ""}


def texts() -> dict[str, str]:
    """The tracked texts, without the records, which say what was, and without this file."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    names = [name for name in listed if name and Path(name).suffix in SUFFIXES and not name.startswith("docs/adr/")]
    return {
        name: (ROOT / name).read_text()
        for name in names
        if name != "tests/unit/test_distribution.py" and (ROOT / name).is_file()
    }


def commands() -> list[tuple[str, str]]:
    """Every `pip install …` and `pip install` in a pipeline, with its file."""
    return [(name, found[1]) for name, text in texts().items() for found in re.finditer(r"pip install ([^\n`)#]*)", text)]


def test_the_distribution_has_the_name_of_the_debian_package() -> None:
    control = (ROOT / "deploy/debian/control").read_text()
    assert project()["name"] == NAME
    assert f"Package: {NAME}\n" in control


def test_neither_the_demonstration_nor_the_tests_are_installed() -> None:
    """The Debian package and the image are made from the wheel."""
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    # A checkout that was older keeps folders without sources.
    found = [name for name in find_namespace_packages(str(ROOT), include=included) if _has_sources(name)]
    assert {name.partition(".")[0] for name in found} == {"streamer", "spark_jobs"}
    assert [name for name in found if "demo" in name.split(".")] == []


def _has_sources(package: str) -> bool:
    return any(ROOT.joinpath(*package.split(".")).glob("*.py"))


def test_nobody_is_told_to_install_the_other_program_of_that_name() -> None:
    bare = [(file, what) for file, what in commands() if re.search(r"(?<![-/\w])ustreamer(?![-.\w/]*git)", what)]
    assert bare == []


def test_the_name_is_used_only_where_it_is_installed_already() -> None:
    """For an extra: pip then asks no index for ourselves. With --upgrade it would."""
    named = [(file, what) for file, what in commands() if NAME in what]
    assert named != []
    assert [each for each in named if f"{NAME}[" not in each[1] or "--upgrade" in each[1]] == []


def test_the_example_of_a_transport_depends_on_us_and_on_nobody_of_that_name() -> None:
    example = tomllib.loads((ROOT / "examples/udp_transport/pyproject.toml").read_text())
    assert example["project"]["dependencies"] == [NAME]


def test_every_extra_that_a_text_names_exists() -> None:
    named = {
        (file, extra)
        for file, text in texts().items()
        for found in re.finditer(rf"(?:{NAME}|')\.?\[([a-z,]+)\]'", text)
        for extra in found[1].split(",")
    }
    assert len(named) > 10
    assert [each for each in named if each[1] not in project()["optional-dependencies"]] == []


@pytest.mark.parametrize("name", ["gitlab-ci.yml", "github.yml"])
def test_a_pipeline_installs_a_tag_of_the_coming_release(name: str) -> None:
    text = (ROOT / "examples/pipeline" / name).read_text()
    assert re.findall(r"pip install (\S+)", text) == [f'"git+https://git.example.com/ustreamer.git@v{coming_version()}"']


def test_two_distributions_of_one_class_are_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an upgrade without `pip uninstall`, the distribution of the old name is still there."""
    twice = [*entry_points(group="ustreamer.transports")] * 2
    monkeypatch.setattr("streamer.plugins.entry_points", lambda **_: twice)
    assert plugins.available("ustreamer.transports") == ["memory", "mqtt5", "zenoh"]
