"""``make spark-zip``: what ``spark-submit --py-files`` gets works by itself, and is the same whenever it is built."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
BUILDER = "deploy/spark/build_zip.py"


def package_files() -> list[Path]:
    """Code and what the report is made from."""
    return [path for path in (ROOT / "spark_jobs").rglob("*.*") if path.is_file() and "__pycache__" not in path.parts]


def build(root: Path, target: Path) -> bytes:
    subprocess.run([sys.executable, str(root / BUILDER), str(target)], check=True, capture_output=True, timeout=60)
    return target.read_bytes()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The sources in another place, written in another order and at another time."""
    root = tmp_path / "copy"
    files = [ROOT / BUILDER, *package_files()]
    for age_s, path in enumerate(reversed(files), start=1_000_000_000):
        target = root / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        os.utime(target, (age_s, age_s))
        target.chmod(0o600)
    return root


def test_the_same_sources_give_the_same_bytes(copy: Path, tmp_path: Path) -> None:
    first = build(copy, tmp_path / "first.zip")
    for path in (path for path in copy.rglob("*") if path.is_file()):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    assert build(copy, tmp_path / "second.zip") == first


def test_only_the_package_is_inside(copy: Path, tmp_path: Path) -> None:
    (copy / "spark_jobs/__pycache__").mkdir(exist_ok=True)
    (copy / "spark_jobs/__pycache__/schema.cpython-311.pyc").write_bytes(b"\0")
    (copy / "spark_jobs/.schema.py.swp").write_bytes(b"\0")
    build(copy, tmp_path / "jobs.zip")
    inside = zipfile.ZipFile(tmp_path / "jobs.zip").namelist()
    assert sorted(inside) == inside
    assert set(inside) == {path.relative_to(ROOT).as_posix() for path in package_files()}
    assert "spark_jobs/report/page.html" in inside


def test_every_module_can_be_imported_from_the_zip_alone(tmp_path: Path) -> None:
    build(ROOT, tmp_path / "jobs.zip")
    modules = [
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in zipfile.ZipFile(tmp_path / "jobs.zip").namelist()
        if name.endswith(".py") and not name.endswith("__main__.py")
    ]
    assert "spark_jobs.schema" in modules
    # -P and the empty folder: nothing of the source tree is on the path, but for the zip
    program = f"""
import sys
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
sys.path.insert(0, {str(tmp_path / "jobs.zip")!r})
import importlib
for name in {modules!r}:
    print(importlib.import_module(name).__file__)
"""
    empty = tmp_path / "empty"
    empty.mkdir()
    done = subprocess.run([sys.executable, "-P", "-c", program], cwd=empty, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == len(modules)
    assert all(Path(line).is_relative_to(tmp_path / "jobs.zip") for line in done.stdout.splitlines())
