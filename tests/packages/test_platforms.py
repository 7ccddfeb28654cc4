"""What is locked exists for every platform of the image, as a wheel: nothing is compiled for one of them only."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.packages

ROOT = Path(__file__).parents[2]
OTHERS = sorted({"aarch64", "x86_64"} - {platform.machine()})
"""This one's is shown by whatever is installed here."""


@pytest.mark.parametrize("machine", OTHERS)
@pytest.mark.parametrize("lock", ["compile", "trace"])  # both contain what is in run.lock
def test_everything_in_a_lock_has_a_wheel(lock: str, machine: str, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--dry-run",
        "--ignore-installed",
        "--target",
        str(tmp_path),
    ]
    # Those of the image: Debian 12 has glibc 2.36.
    command += [f"--platform=manylinux{form}_{machine}" for form in ("2014", "_2_28", "_2_36")]
    command += ["--python-version=3.11", "--implementation=cp", "--only-binary=:all:", "--no-deps", "--require-hashes"]
    done = subprocess.run(
        [*command, "--requirement", f"requirements/{lock}.lock"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_nothing_in_the_recipe_of_the_image_names_a_platform() -> None:
    text = "\n".join(line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#"))
    assert not [name for name in ("amd64", "x86_64", "arm64", "aarch64", "--platform") if name in text]
