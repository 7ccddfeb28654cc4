"""What is installed is what was locked: hashes, upper bounds, images by digest, a bill of materials."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from streamer.features.traces.config import TRACE_MODULES
from tests import vulnerabilities

ROOT = Path(__file__).parents[1]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNNING = PROJECT["project"]["dependencies"]
EXTRAS = PROJECT["project"]["optional-dependencies"]
BUILDING = PROJECT["build-system"]["requires"]
EVERYTHING = [*RUNNING, *BUILDING, *(each for extra in EXTRAS.values() for each in extra)]

_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")


def entries(lock: Path) -> Iterator[tuple[Requirement, int]]:
    """Every requirement of a lock, and how many hashes it has."""
    text = re.sub(r"\\\n", " ", re.sub(r"^ *#.*\n", "", lock.read_text(), flags=re.MULTILINE))
    for line in filter(None, map(str.strip, text.splitlines())):
        yield Requirement(_HASH.sub("", line).strip()), len(_HASH.findall(line))


def versions(lock: Path) -> dict[str, set[Version]]:
    """What a lock names. There can be one version for each range of Pythons."""
    found: dict[str, set[Version]] = {}
    for requirement, _ in entries(lock):
        (pin,) = requirement.specifier
        found.setdefault(canonicalize_name(requirement.name), set()).add(Version(pin.version))
    return found


def unmet(required: list[str], lock: Path) -> list[str]:
    """The requirements that a lock does not satisfy."""
    there = versions(lock)
    wanted = [Requirement(each) for each in required]
    return [
        str(each)
        for each in wanted
        if each.name != PROJECT["project"]["name"]
        and not all(map(each.specifier.contains, there.get(canonicalize_name(each.name), {Version("0")})))
    ]


def test_there_is_a_lock_for_both_images_for_building_them_and_for_developers() -> None:
    assert [lock.name for lock in LOCKS] == ["build.lock", "compile.lock", "dev.lock", "run.lock", "trace.lock"]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_file_that_may_be_installed_is_known_by_its_hash(lock: Path) -> None:
    found = list(entries(lock))
    assert found
    for requirement, hashes in found:
        assert [pin.operator for pin in requirement.specifier] == ["=="], requirement
        assert requirement.url is None
        assert hashes >= 1, requirement
    assert "://" not in lock.read_text()
    assert not re.search(r"^-", lock.read_text(), re.MULTILINE)  # no options: no index, no other file


def test_binary_packages_are_locked_for_both_platforms() -> None:
    """The files of a release are many: Pythons, platforms, the source. One or two would be those of this machine."""
    binary = {"aiohttp", "eclipse-zenoh", "mqtt5", "numpy", "protobuf", "pyarrow", "pydantic-core", "pyyaml", "uvloop"}
    hashes: dict[str, int] = {
        canonicalize_name(requirement.name): count for requirement, count in entries(ROOT / "requirements/trace.lock")
    }
    assert {name: hashes[name] for name in binary if hashes[name] < 3} == {}


def test_the_locks_satisfy_the_project() -> None:
    shipped = [*RUNNING, *EXTRAS["otel"]]
    assert unmet(shipped, ROOT / "requirements/run.lock") == []
    assert unmet([*shipped, *EXTRAS["trace"]], ROOT / "requirements/trace.lock") == []
    assert (
        unmet([*RUNNING, *BUILDING, *(each for extra in EXTRAS.values() for each in extra)], ROOT / "requirements/dev.lock")
        == []
    )
    assert unmet(BUILDING, ROOT / "requirements/build.lock") == []
    assert unmet([*RUNNING, *BUILDING, *EXTRAS["compile"]], ROOT / "requirements/compile.lock") == []
    assert unmet((ROOT / "requirements/build.in").read_text().splitlines()[1:], ROOT / "requirements/build.lock") == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_all_locks_name_the_same_versions(lock: Path) -> None:
    everything = versions(ROOT / "requirements/dev.lock")
    assert {name: found for name, found in versions(lock).items() if found != everything[name]} == {}


def test_the_image_without_traces_has_nothing_of_what_they_need() -> None:
    needed = versions(ROOT / "requirements/trace.lock").keys() - versions(ROOT / "requirements/run.lock").keys()
    assert needed == {canonicalize_name(Requirement(each).name) for each in EXTRAS["trace"]} == set(TRACE_MODULES)


@pytest.mark.parametrize("text", EVERYTHING)
def test_every_dependency_has_an_upper_bound(text: str) -> None:
    requirement = Requirement(text)
    assert requirement.name == "uprotocol-ustreamer" or any(each.operator in ("<", "==") for each in requirement.specifier)


def test_the_image_installs_from_the_locks_only() -> None:
    text = (ROOT / "Dockerfile").read_text()
    installs = re.findall(r"pip (?:install|wheel) [^&\n]*", re.sub(r"\\\n", " ", text))
    assert len(installs) == 4
    for install in installs:
        assert ("--require-hashes" in install and ".lock" in install) or ("--no-deps" in install and "--no-index" in install)


def test_ci_installs_from_the_locks_only() -> None:
    assert "export LOCKED=1" in (ROOT / ".ci/run").read_text().splitlines()
    command = ["make", "--dry-run", "--always-make", "LOCKED=1", ".venv/.dev"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    installs = [part for part in re.split(r"&&|\|\||\n", done.stdout) if " pip " in part]
    assert len(installs) == 5
    assert all("--require-hashes" in line or ("--no-deps" in line and "--no-index" in line) for line in installs)


def test_images_are_named_by_digest() -> None:
    bases = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    bases += re.findall(r"image: (\S+)", (ROOT / "deploy/container/compose.yaml").read_text())
    assert len(bases) >= 4
    assert [base for base in bases if not _DIGEST.search(base) and not base.startswith("ustreamer:")] == []


def test_the_bill_of_materials_is_valid_and_names_what_is_locked(tmp_path: Path) -> None:
    file = tmp_path / "sbom.json"
    venv = Path(sys.prefix)
    command = ["make", f"--old-file={venv}/.dev", "sbom", f"SBOM={file}", f"VENV={venv}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert " --validate " in done.stdout  # it fails if the bill breaks the schema
    bill = json.loads(file.read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    named: dict[str, set[Version]] = {}
    for component in bill["components"]:
        named.setdefault(canonicalize_name(component["name"]), set()).add(Version(component["version"]))
    assert named == versions(ROOT / "requirements/run.lock")
    assert bill["metadata"]["component"]["name"] == "uprotocol-ustreamer"


# known vulnerabilities


def test_a_known_vulnerability_fails() -> None:
    vulnerable = {"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}
    assert vulnerabilities.verdict({"dependencies": [vulnerable, {"name": "b", "version": "1", "vulns": []}]}) == (
        1,
        "a 1: CVE-1, mended in 2",
    )


@pytest.mark.parametrize(
    ("dependencies", "text"),
    [
        ([{"name": "a", "skip_reason": "not found"}], "vulnerabilities: skipped, the database is not reachable"),
        (
            [{"name": "a", "skip_reason": "not found"}, {"name": "b", "version": "1", "vulns": []}],
            "vulnerabilities: none known in 1 packages, not known there: a",
        ),
        ([{"name": "b", "version": "1", "vulns": []}], "vulnerabilities: none known in 1 packages"),
    ],
)
def test_what_could_not_be_asked_is_told_and_does_not_fail(dependencies: list[dict[str, object]], text: str) -> None:
    assert vulnerabilities.verdict({"dependencies": dependencies}) == (0, text)


def test_without_an_answer_the_check_is_skipped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def late(*arguments: object, **options: object) -> None:
        raise subprocess.TimeoutExpired("pip-audit", vulnerabilities.LIMIT_S)

    monkeypatch.setattr(subprocess, "run", late)
    assert vulnerabilities.main() == 0
    assert "skipped" in capsys.readouterr().out


def test_a_source_distribution_has_what_the_readme_links_to() -> None:
    """Configuration and documents were not in it."""
    lines = [line.split() for line in (ROOT / "MANIFEST.in").read_text().splitlines()]
    files = {name for words in lines if words[0] == "include" for name in words[1:]} | {
        "README.md",
        "LICENSE",
        "pyproject.toml",
    }
    folders = {words[1] for words in lines if words[0] == "graft"} | {"streamer", "spark_jobs"}
    linked = set(re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / "README.md").read_text()))
    assert len(linked) > 20
    missing = [each for each in linked if each.split("/")[0] not in folders and each not in files]
    assert missing == []
    assert [each for each in (*files, *folders) if not (ROOT / each).exists()] == []


def test_the_lowest_versions_are_tested() -> None:
    """`pydantic>=2.10` did not start below 2.10.4. What has a lower bound below the lock is in the target."""
    assert "--resolution lowest-direct" in (ROOT / "Makefile").read_text()
    assert "test-lowest" in (ROOT / "Makefile").read_text().split("test-all: test\n")[1].split("\n")[0]
    assert {"pydantic>=2.10.4,<3", "uvloop>=0.22.1,<0.24", "aiohttp>=3.12.15,<4"} <= set(RUNNING)


def test_what_the_push_imports_is_named_by_its_extra() -> None:
    """An exporter of OpenTelemetry brought requests, and its newer versions do not."""
    assert "import requests" in (ROOT / "streamer/features/otel/session.py").read_text()
    assert "requests>=2.32,<3" in EXTRAS["otel"]
