"""What `tests.figures` measures, that a bound only falls, and that the map of CONTRIBUTING names every package."""

import ast
import re
from pathlib import Path

import pytest

from tests import figures

ROOT = Path(__file__).parents[1]


def test_a_figure_above_its_bound_and_a_bound_of_nothing_are_faults() -> None:
    faults = figures.beyond({"arrows": 88, "floors": 9}, {"arrows": [90, 87], "floors": [10], "gone": [1]})
    assert faults == ["arrows: 88, at most 87", "gone: measured by nobody"]


def test_no_bound_was_raised_without_a_page_or_written_over() -> None:
    values = figures.bounds(figures.BOUNDS.read_text())
    assert figures.raised(values, (path.read_text() for path in figures.CHAPTERS.glob("*.md"))) == []
    assert figures.rewritten(values, figures.committed()) == []


def test_a_raise_needs_a_page_that_names_both_values() -> None:
    values = {"arrows": [87, 80, 83], "words": [9, 8]}
    assert len(figures.raised(values, ["Raises arrows from 80 to 84"])) == 1
    assert figures.raised(values, ["# 12.\n\nRaises arrows from 80 to 83: the price is one import."]) == []


def test_a_feature_with_a_bound_of_its_own_is_held_to_it() -> None:
    values = figures.bounds("[values]\nlines = [9, 7]\n[features]\nbudget = [300]\n")
    assert values == {"lines": [9, 7], "features/budget": [300]}
    assert figures.beyond({"lines": 7, "features/budget": 301}, values) == ["features/budget: 301, at most 300"]


def test_whoever_imports_a_feature_is_found_but_for_itself_and_the_list() -> None:
    tap = "streamer.features.tap.tap"
    woven = ["streamer.daemon", "streamer.features.api.port", "streamer.features.pause.page", "streamer.features.record"]
    fine = ["streamer.features.every", "streamer.features.tap", "streamer.features.tap.page"]
    assert figures.feature_imports({key: {tap} for key in [*woven, *fine]}) == [f"{importer} -> {tap}" for importer in woven]
    assert figures.feature_imports({"streamer.features.tap.page": {"streamer.features.api.streams"}}) == []


def test_what_stands_on_two_pages_is_found_but_for_code_and_links() -> None:
    twelve = "One two three four five six seven eight nine [ten](a.md) eleven twelve"
    pages = {
        "a.md": f"{twelve}.",
        "b.md": f"So: {twelve.replace('a.md', 'b.md')}",
        "c.md": f"    {twelve}\n```\n{twelve}\n```\n",
    }
    assert figures.repeats(pages) == ["one two three four five six seven eight nine ten eleven twelve: a.md, b.md"]


@pytest.mark.parametrize("now", [[88], [88, 80], [90, 87, 85], []])
def test_a_list_that_was_written_over_is_found(now: list[int]) -> None:
    assert len(figures.rewritten({"arrows": now}, [{"arrows": [90, 87, 86]}])) == 1


def test_a_list_that_goes_on_is_none() -> None:
    assert figures.rewritten({"arrows": [90, 87, 86], "new": [1]}, [{"arrows": [90, 87]}, {"arrows": [90]}]) == []


@pytest.mark.parametrize(
    ("line", "is_riddle"),
    [
        ("It is told when the other side has gone.", True),
        ("Wait for the other one.", True),
        ("What waits on disk.", True),
        ("Settle the expired messages of a lane.", False),
        ("Iterate over what a lane holds.", False),
        ("Whether the link is up.", False),
    ],
)
def test_a_first_line_without_a_subject_is_a_riddle(tmp_path: Path, line: str, is_riddle: bool) -> None:
    assert bool(figures.RIDDLE.search(line)) is is_riddle


def test_first_lines_are_those_of_modules_classes_functions_and_attributes(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(
        '"""M."""\n\nX = 1\n"""A."""\n\nclass C:\n    """C.\n\n    More."""\n    x: int\n    """F."""\n'
        '    def f(self):\n        """D."""\n'
    )
    assert sorted(figures.first_lines(path)) == ["A.", "C.", "D.", "F.", "M."]


def test_a_slot_that_another_file_fills_in_is_found_and_a_value_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(
        "class A:\n    def __init__(self) -> None:\n        self.step: Callable[[], None] | None = None\n"
        "        self.count: int | None = None\n        self._own: Thing | None = None\n"
    )
    assert [name for name, _ in figures._slots(path)] == ["step"]
    assert [each.attr for each in figures._assigned(ast.parse("a.step = f\nself.b = a.c"))] == ["step", "b"]


def test_empty_containers_of_constructors_are_found() -> None:
    text = (
        "class A:\n    def __init__(self, x) -> None:\n        self.a: dict[str, int] = {}\n        self.b = deque()\n"
        "        self.c = dict(x=1)\n        self.d = [1]\n        self.e = x\n"
    )
    assert list(figures._containers(ast.parse(text))) == ["a", "b", "c"]


def test_the_map_of_the_contribution_guide_names_what_stands_in_the_package() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("## Where things go")[2].partition("\nPackages import")[0]
    named = set(re.findall(r"(?:^ {4}|, )streamer/(\w+)", text, re.MULTILINE))
    there = {path.stem for path in (ROOT / "streamer").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert named == there - {"__init__", "__main__"}
