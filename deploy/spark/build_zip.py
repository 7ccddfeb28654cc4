"""Packs `spark_jobs` into a zip for ``spark-submit --py-files``, which does not take wheels. Needs only Python.

The same sources give the same bytes, wherever and whenever the zip is built: entries are sorted, times and modes are fixed,
and nothing is compressed, because compressors differ.

    python deploy/spark/build_zip.py dist/spark_jobs.zip
"""

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "spark_jobs"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time in a zip
UNIX = 3  # wherever it is built, so that the mode applies
MODE = 0o100644 << 16


def sources(root: Path) -> list[Path]:
    """The files of the package, relative to ``root`` and sorted, without caches and hidden files."""
    names = sorted(path.relative_to(root) for path in (root / PACKAGE).rglob("*") if path.is_file())
    return [name for name in names if not any(part == "__pycache__" or part.startswith(".") for part in name.parts)]


def build(root: Path, target: Path) -> None:
    """Write the zip to ``target``. Readers see the old or the new one, never a part."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
        for name in sources(root):
            entry = zipfile.ZipInfo(name.as_posix(), EPOCH)
            entry.create_system, entry.external_attr = UNIX, MODE
            archive.writestr(entry, (root / name).read_bytes())
    partial.replace(target)


if __name__ == "__main__":
    wanted = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist" / f"{PACKAGE}.zip"
    build(ROOT, wanted)
    sys.stdout.write(f"{wanted}\n")
