"""The released version, in a virtual environment of its own.

0.1 is the last commit before names changed (`docs/adr/code.md`): the first one with the section
``## [0.1.0]`` in the changelog had no journal, no services and no traces, so it left nothing behind.
"""

import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMIT = "501b46bdcb0561fde50bb3a84bcfb424e9bc71c8"
BUILD = ROOT / "build" / "upgrade"


def program(python: str = sys.executable) -> list[str]:
    """The command of the released version; it is installed if it is not yet there. Raises CalledProcessError."""
    source, venv = BUILD / "source", BUILD / "venv"
    if not (source / "pyproject.toml").exists():
        _run("git", "-C", str(ROOT), "worktree", "prune")
        _run("git", "-C", str(ROOT), "worktree", "add", "--force", "--detach", str(source), COMMIT)
    if not (venv / ".done").exists():
        _run(python, "-m", "venv", "--clear", str(venv))
        # Its dependencies had no upper bounds: it gets the versions that this environment has.
        constraints = BUILD / "constraints.txt"
        here = {each.name: each.version for each in distributions() if each.name != "ustreamer"}
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in sorted(here.items())))
        pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--constraint", str(constraints)]
        _run(*pip, str(source))
        (venv / ".done").touch()
    return [str(venv / "bin" / "streamer")]


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
