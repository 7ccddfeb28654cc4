"""Compiles the modules of the hot path, if that is asked for (`build_backend`). All else is in pyproject.toml.

``MYPYC_OPT_LEVEL`` is the C compiler's level, 3 if it is not set: 0 compiles in half the time, for tests.
"""

import os
import sys

from setuptools import Extension, setup

from build_backend import COMPILES, compiled_modules

_BUILDS = {"bdist_wheel", "build_ext", "editable_wheel"}


def extensions() -> list[Extension]:
    if not COMPILES or _BUILDS.isdisjoint(sys.argv):
        return []
    from mypyc.build import mypycify  # noqa: PLC0415  # installed only for this

    return mypycify(
        compiled_modules(), opt_level=os.environ.get("MYPYC_OPT_LEVEL", "3"), debug_level="0", group_name="streamer"
    )


setup(ext_modules=extensions())
