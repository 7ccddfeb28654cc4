"""Says the version, and compiles the modules of the hot path, if that is asked for (`build_backend`).

All else is in pyproject.toml.

``MYPYC_OPT_LEVEL`` is the C compiler's level, 2 if it is not set: 0 compiles in half the time, for tests.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

from build_backend import COMPILES, compiled_modules, version

_BUILDS = {"bdist_wheel", "build_ext", "editable_wheel"}

# Most of what mypyc writes is what happens when something fails. Where it says so, the C compiler keeps that apart from what
# runs: what one message needs then has room in the processor's caches.
_COLD = """struct _object;
#define COLD __attribute__((cold))
void CPy_AddTraceback(const char *, const char *, int, struct _object *) COLD;
void CPy_AttributeError(const char *, const char *, const char *, const char *, int, struct _object *) COLD;
void CPy_TypeError(const char *, struct _object *) COLD;
void CPy_TypeErrorTraceback(const char *, const char *, int, struct _object *, const char *, struct _object *) COLD;
"""


def extensions() -> list[Extension]:
    if not COMPILES or _BUILDS.isdisjoint(sys.argv):
        return []
    from mypyc.build import mypycify  # noqa: PLC0415  # installed only for this

    level = os.environ.get("MYPYC_OPT_LEVEL", "2")
    made = mypycify(compiled_modules(), opt_level=level, debug_level="0", group_name="streamer")
    if os.name == "posix":  # GCC or Clang
        header = Path("build/cold.h").absolute()
        header.parent.mkdir(exist_ok=True)
        header.write_text(_COLD)
        # Hidden: functions of one library call each other without a look into its table of symbols.
        flags = ["-include", str(header), "-fvisibility=hidden", "-fno-plt"]
        for extension in made:
            extension.extra_compile_args = [*extension.extra_compile_args, *flags]
    return made


setup(version=version(), ext_modules=extensions())
