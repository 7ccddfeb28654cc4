"""The build backend: setuptools, which compiles the hot path with mypyc if ``USTREAMER_COMPILE=1`` says so (`setup.py`).

Compiling takes mypy and the packages that the streamer imports, for their types; anything else takes setuptools alone.

It also knows the version, for the wheel and for everything made of it (`version`): ``python build_backend.py`` prints it,
with ``image`` or ``chart`` in the form that tags of images or charts allow.
"""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (  # noqa: F401  # what a frontend calls
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

HERE = Path(__file__).parent
_SHALLOW = (
    "a shallow clone does not know its version: git fetch --unshallow --tags, or give the version in USTREAMER_VERSION"
)
COMPILES = os.environ.get("USTREAMER_COMPILE") == "1"


def compiled_modules() -> list[str]:
    """The modules of the hot path: paths below the project."""
    return ["/".join(name.split(".")) + ".py" for name in _project()["tool"]["ustreamer"]["compiled"]]


def get_requires_for_build_wheel(config_settings: Mapping[str, Any] | None = None) -> list[str]:
    """What has to be installed before a wheel can be built."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_compiler()]


def get_requires_for_build_editable(config_settings: Mapping[str, Any] | None = None) -> list[str]:
    """The same for an editable installation."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *_compiler()]


def version() -> str:
    """The version of what is built (PEP 440), from the first of these that there is.

    - ``USTREAMER_VERSION``, for builds without the repository, as in a container;
    - PKG-INFO, in a source distribution;
    - the last tag ``vX.Y.Z``: X.Y.Z itself, and for commits after it X.Y.Z.postN+gCOMMIT;
    - the commit, without a tag: NEXT.devN+gCOMMIT, where NEXT is `[tool.ustreamer] version`. N grows with each commit, so
      that a later build counts as newer, and any release as newer than those before it;
    - NEXT.dev0+unknown.

    Raises RuntimeError in a shallow clone without the tag: the commits that it has do not say how many there are.
    """
    if given := os.environ.get("USTREAMER_VERSION"):
        return given
    with_info = HERE / "PKG-INFO"
    if with_info.exists() and (found := re.search(r"^Version: (\S+)$", with_info.read_text(), re.MULTILINE)):
        return found[1]
    coming = str(_project()["tool"]["ustreamer"]["version"])
    commit = _git("rev-parse", "--short=8", "HEAD") if (HERE / ".git").exists() else None
    if commit is None:
        return f"{coming}.dev0+unknown"
    changed = "" if _git("status", "--porcelain", "--untracked-files=no") == "" else ".changed"
    tag = _git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*")
    if tag is None and _git("rev-parse", "--is-shallow-repository") == "true":
        raise RuntimeError(_SHALLOW)
    if tag is None:
        return f"{coming}.dev{_git('rev-list', '--count', 'HEAD')}+g{commit}{changed}"
    after = _git("rev-list", "--count", f"{tag}..HEAD")
    released = tag.removeprefix("v")
    return released if after == "0" and not changed else f"{released}.post{after}+g{commit}{changed}"


def _git(*words: str) -> str | None:
    """The output of git, None if it fails or is not there."""
    try:
        done = subprocess.run(["git", "-C", str(HERE), *words], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def in_form(version: str, form: str) -> str:
    """A version as the tag of an image, or of a chart (SemVer 2)."""
    numbers, rest = re.fullmatch(r"([\d.]*\d)(.*)", version).groups()  # type: ignore[union-attr]  # versions begin so
    if form == "image":
        return f"{numbers}{rest.replace('+', '-')}"
    if form == "chart":  # what is after a release has no place in SemVer but behind the plus
        stage, _, local = rest.lstrip(".").replace("dev", "dev.").partition("+")
        kept = [each for each in (stage if stage.startswith("post") else "", local) if each]
        return f"{numbers}{f'-{stage}' if stage.startswith('dev') else ''}{'+' if kept else ''}{'.'.join(kept)}"
    return version


def _compiler() -> list[str]:
    if not COMPILES:
        return []
    project = _project()
    return [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["compile"]]


def _project() -> dict[str, Any]:
    return tomllib.loads((HERE / "pyproject.toml").read_text())


if __name__ == "__main__":
    try:
        sys.stdout.write(in_form(version(), (sys.argv[1:] or ["wheel"])[0]) + "\n")
    except RuntimeError as exc:
        sys.exit(str(exc))
