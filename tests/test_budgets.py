"""The end of a run says which layer and which file have used more CPU than their budget."""

from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest.config import create_terminal_writer
from hypothesis import settings

from tests.budgets import BUDGETS, Account, has_budget, layer_of
from tests.compiled import compiled_modules, files_of

CHEAP, DEAR, LONG = "tests/flow/test_a.py", "tests/flow/test_b.py", "tests/e2e/test_c.py"


@pytest.mark.parametrize(
    ("file", "layer"),
    [("tests/unit/journal/test_codec.py", "unit"), (CHEAP, "flow"), ("tests/test_documents.py", "documents")],
)
def test_a_file_belongs_to_the_layer_of_its_folder(file: str, layer: str) -> None:
    assert layer_of(file) == layer


def test_every_layer_is_printed_and_the_files_that_are_over_their_budget(pytestconfig: pytest.Config) -> None:
    printed, account, over_s = StringIO(), Account(), BUDGETS["flow"].file_s + 1
    for file, used_s, keywords in ((CHEAP, 0.5, {}), (DEAR, over_s, {}), (LONG, 100.0, {"long": 1})):
        report: Any = SimpleNamespace(nodeid=f"{file}::test", cpu_s=used_s, keywords=keywords)
        account.pytest_runtest_logreport(report)
    writer = create_terminal_writer(pytestconfig, printed)
    reporter: Any = SimpleNamespace(section=writer.line, line=writer.line)
    account.pytest_terminal_summary(reporter)
    _, layer, file = printed.getvalue().splitlines()
    assert layer.split() == [f"{over_s + 0.5:.1f}", "of", f"{BUDGETS['flow'].layer_s:g}", "flow"]
    assert file.split() == [f"{over_s:.1f}", "of", f"{BUDGETS['flow'].file_s:g}", DEAR, "OVER"]


@pytest.mark.parametrize(("profile", "is_counted"), [("quick", True), ("full", False)])
def test_a_property_test_that_draws_all_of_its_examples_has_no_budget(profile: str, is_counted: bool) -> None:
    before = settings.get_current_profile_name()
    settings.load_profile(profile)
    try:
        assert has_budget({"hypothesis": 1}) is is_counted
        assert has_budget({})
        assert not has_budget({"long": 1})
    finally:
        settings.load_profile(before)


def test_the_files_of_a_compiled_module_are_found_by_its_name() -> None:
    assert "tests/unit/journal/test_codec.py" in files_of("streamer.journal.codec")
    assert len([module for module in compiled_modules() if files_of(module)]) > len(compiled_modules()) / 2
