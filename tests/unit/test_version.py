"""Which version a build says it is: from a tag, a commit, a source distribution, or what it is given."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version

from tests.unit.deployed import ROOT, coming_version

COMING = coming_version()


class Tree:
    """A source tree with the build backend, and a repository if a test makes one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("build_backend.py", "pyproject.toml"):
            shutil.copy(ROOT / name, folder)

    def git(self, *words: str) -> str:
        settings = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(self.folder), *settings, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def commit(self) -> str:
        self.git("add", "-A")
        self.git("commit", "--quiet", "--allow-empty", "--message", "x")
        return self.git("rev-parse", "--short=8", "HEAD")

    def version(self, form: str = "wheel", **environment: str) -> str:
        inherited = {name: value for name, value in os.environ.items() if name != "USTREAMER_VERSION"}
        command = [sys.executable, str(self.folder / "build_backend.py"), form]
        found = subprocess.run(command, capture_output=True, text=True, check=True, env=inherited | environment, cwd="/")
        return found.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    (tmp_path / "tree").mkdir()
    return Tree(tmp_path / "tree")


def test_a_tag_is_the_version_and_later_commits_come_after_it(tree: Tree) -> None:
    tree.git("init", "--quiet")
    first = tree.commit()
    assert tree.version() == f"{COMING}.dev1+g{first}"
    tree.git("tag", f"v{COMING}")
    assert tree.version() == tree.version("image") == tree.version("chart") == COMING
    second = tree.commit()
    assert tree.version() == f"{COMING}.post1+g{second}"
    assert Version(f"{COMING}.dev1") < Version(COMING) < Version(tree.version())


@pytest.mark.long
def test_each_commit_counts_as_newer_before_the_first_tag_too(tree: Tree) -> None:
    tree.git("init", "--quiet")
    found = []
    for _ in range(11):
        tree.commit()
        found.append(Version(tree.version()))
    assert found == sorted(set(found))


def test_what_is_not_committed_shows(tree: Tree) -> None:
    tree.git("init", "--quiet")
    commit = tree.commit()
    tree.git("tag", "v2.0.0")
    (tree.folder / "pyproject.toml").write_text((tree.folder / "pyproject.toml").read_text() + "\n")
    assert tree.version() == f"2.0.0.post0+g{commit}.changed"


def test_a_source_distribution_keeps_its_version_also_inside_another_repository(tree: Tree, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    assert tree.version() == f"{COMING}.dev0+unknown"
    (tree.folder / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: ustreamer\nVersion: 1.2.3\n\nVersion: 9\n")
    assert tree.version() == "1.2.3"


def test_a_build_that_is_given_a_version_has_it(tree: Tree) -> None:
    tree.git("init", "--quiet")
    tree.commit()
    assert tree.version(USTREAMER_VERSION="3.2.1.post4+gabc") == "3.2.1.post4+gabc"
    assert tree.version(USTREAMER_VERSION="") != ""


def test_a_version_has_forms_for_images_and_charts(tree: Tree) -> None:
    versions = {
        "1.2.0.dev12+gab12": ("1.2.0.dev12-gab12", "1.2.0-dev.12+gab12"),
        "1.2.0.post3+gab": ("1.2.0.post3-gab", "1.2.0+post3.gab"),
    }
    for version, forms in versions.items():
        assert tuple(tree.version(form, USTREAMER_VERSION=version) for form in ("image", "chart")) == forms


def test_the_wheel_has_the_version(tree: Tree) -> None:
    for name in ("setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree.folder)
    (tree.folder / "streamer").mkdir()
    (tree.folder / "streamer/__init__.py").touch()
    command = [sys.executable, "setup.py", "--quiet", "dist_info", "--output-dir", "out"]
    environment = os.environ | {"USTREAMER_VERSION": "4.5.6"}
    (tree.folder / "out").mkdir()
    subprocess.run(command, cwd=tree.folder, env=environment, check=True, capture_output=True)
    (found,) = (tree.folder / "out").glob("*.dist-info/METADATA")
    assert "\nVersion: 4.5.6\n" in found.read_text()


def test_a_shallow_clone_does_not_guess(tree: Tree, tmp_path: Path) -> None:
    """It has one commit of many, and so was older than every other build."""
    tree.git("init", "--quiet")
    for _ in range(3):
        tree.commit()
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{tree.folder}", str(clone)], check=True)
    environment = {name: value for name, value in os.environ.items() if name != "USTREAMER_VERSION"}
    command = [sys.executable, str(clone / "build_backend.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/", check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "git fetch --unshallow --tags" in done.stderr
    given = subprocess.run(
        command, capture_output=True, text=True, env=environment | {"USTREAMER_VERSION": "1.2.3"}, check=True
    )
    assert given.stdout == "1.2.3\n"


def test_a_shallow_clone_with_the_tag_knows_its_version(tree: Tree, tmp_path: Path) -> None:
    tree.git("init", "--quiet")
    tree.commit()
    tree.commit()
    tree.git("tag", f"v{COMING}")
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{tree.folder}", str(clone)], check=True)
    assert _at(clone).version() == COMING


def _at(folder: Path) -> Tree:
    tree = Tree.__new__(Tree)
    tree.folder = folder
    return tree
