"""The build backend: setuptools, which compiles the hot path with mypyc if ``USTREAMER_COMPILE=1`` says so (`setup.py`).

Compiling takes mypy and the packages that the streamer imports, for their types; anything else takes setuptools alone.
"""

import os
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


def _compiler() -> list[str]:
    if not COMPILES:
        return []
    project = _project()
    return [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["compile"]]


def _project() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "pyproject.toml").read_text())
