"""Builds the programs of other languages into build/interop, each with that language's own tools.

A program that cannot be built leaves the reason behind (`reason_file`), and its tests are skipped with it. The tools
download what the lock files name, from the registry that they are set up with.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop.programs import BUILD, ROOT, reason_file
from tests.pages import DOCS, block

SOURCES = ROOT / "tests" / "interop"
TIME_OUT_S = 3600


RUST_EXAMPLE = BUILD / "first_message.rs"
"""The example for Rust in docs/first-message.md, which is built with the SDK's peer (`tests/interop/rust/Cargo.toml`)."""


def rust_example() -> str:
    """The code of the page, but for the address of the broker, which is in the environment."""
    code = block(DOCS / "first-message.md", "### The SDK for Rust", "rust")
    address = '"mqtt://127.0.0.1:1883".to_string()'
    assert code.count(address) == 1
    return code.replace(address, 'std::env::var("BROKER")?')


@dataclass(frozen=True)
class Program:
    """What it is, the tools that have to be on PATH, and the commands that build it, each with its folder."""

    name: str
    what: str
    tools: tuple[str, ...]
    commands: tuple[tuple[Path, tuple[str, ...]], ...]


_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def _java(name: str, what: str, main: str) -> Program:
    """A main class, and what its pom.xml names."""
    folder, built = SOURCES / "java" / name, BUILD / name
    return Program(
        name,
        what,
        ("java", "javac", "mvn"),
        (
            (folder, ("mvn", "--quiet", "--batch-mode", _COPY, f"-DoutputDirectory={built / 'lib'}")),
            (folder, ("javac", "-cp", f"{built / 'lib'}/*", "-d", str(built / "classes"), f"{main}.java")),
        ),
    )


_PYTHON = BUILD / "python"

PROGRAMS = (
    Program(
        "python",
        "SDK for Python, over MQTT 5",
        ("python3",),
        (
            (ROOT, ("python3", "-m", "venv", "--clear", str(_PYTHON))),
            (
                SOURCES / "python",
                (str(_PYTHON / "bin" / "pip"), "install", "--quiet", "--no-deps", "-r", "requirements.txt"),
            ),
        ),
    ),
    Program(
        "rust",
        "SDK for Rust, over MQTT 5 and Zenoh",
        ("cargo", "cmake", "cc", "perl"),
        ((SOURCES / "rust", ("cargo", "build", "--quiet", "--locked", "--target-dir", str(BUILD / "rust"))),),
    ),
    Program(
        "js",
        "MQTT.js, for the first message",
        ("node", "npm"),
        (
            (ROOT, ("cp", "-r", str(SOURCES / "js"), str(BUILD))),
            (BUILD / "js", ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")),
        ),
    ),
    Program(
        "mochi",
        "the broker Mochi, in Go",
        ("go",),
        ((SOURCES / "go", ("go", "build", "-mod=readonly", "-o", str(BUILD / "mochi" / "broker"), ".")),),
    ),
    _java("hivemq", "the broker HiveMQ Community Edition, in Java", "HiveMq"),
    _java("artemis", "the broker Apache ActiveMQ Artemis, in Java", "Artemis"),
)


def build(program: Program) -> str:
    """Build it. Returns why that was not possible, or nothing."""
    missing = [tool for tool in program.tools if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not on PATH"
    for folder, command in program.commands:
        if failure := _run(folder, command):
            return failure
    return ""


def _run(folder: Path, command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=TIME_OUT_S, preexec_fn=lambda: os.nice(10)
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} took longer than {TIME_OUT_S} s"
    if done.returncode == 0:
        return ""
    last = (done.stderr or done.stdout).strip().splitlines() or [""]
    errors = [line for line in last if "error" in line.lower()] or last[-1:]
    return f"{command[0]} failed: {errors[0][:200]}"


def main() -> None:
    """Build everything, and say what could not be."""
    BUILD.mkdir(parents=True, exist_ok=True)
    RUST_EXAMPLE.write_text(rust_example())
    for program in PROGRAMS:
        print(f"{program.name}: {program.what} ...", flush=True)
        reason = build(program)
        reason_file(program.name).unlink(missing_ok=True)
        if reason:
            reason_file(program.name).write_text(reason + "\n")
            print(f"{program.name}: left out: {reason}", flush=True)


if __name__ == "__main__":
    main()
