"""Prints the test files of the compiled modules, for `make test-compiled`.

Those of ``streamer.journal.codec`` are tests/unit/journal/test_codec.py and test_codec_*.py there.
"""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
WHOLE = "tests/unit/test_compiled.py"


def compiled_modules() -> list[str]:
    """The modules that pyproject.toml names."""
    listed: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ustreamer"]["compiled"]
    return listed


def files_of(module: str) -> list[str]:
    """The test files of a module, as paths from the root."""
    *packages, name = module.split(".")[1:]
    folder = ROOT.joinpath("tests", "unit", *packages)
    found = {*folder.glob(f"test_{name}.py"), *folder.glob(f"test_{name}_*.py")}
    return sorted(str(path.relative_to(ROOT)) for path in found)


if __name__ == "__main__":
    tests = {test for module in compiled_modules() for test in files_of(module)}
    sys.stdout.write(" ".join([WHOLE, *sorted(tests)]) + "\n")
