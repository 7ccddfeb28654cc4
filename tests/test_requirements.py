"""No clause of the specifications is without a test, and docs/requirements.md says so truthfully."""

import re
from collections import Counter

import pytest

from tests.requirements import LEVELS, PAGE, Clause, Document, exists, page, read

DOCUMENTS = read()
CLAUSES = [clause for document in DOCUMENTS for clause in document.clauses]


def test_all_documents_are_there() -> None:
    assert [document.id for document in DOCUMENTS] == [
        "dispatching",
        "multicast",
        "permissions",
        "uri",
        "uattributes",
        "transport",
        "mqtt5",
        "zenoh",
        "usubscription",
        "usubscription4",
        "utwin",
        "l3",
        "errors",
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.id)
def test_every_normative_sentence_is_a_clause(document: Document) -> None:
    """The counts were taken by hand from the documents, which are not part of the project."""
    counted = Counter(clause.level for clause in document.clauses)
    assert {level: counted[level] for level in LEVELS} == document.counts


def test_ids_are_unique_and_tell_document_and_section() -> None:
    ids = [clause.id for clause in CLAUSES]
    assert len(set(ids)) == len(ids)
    for document in DOCUMENTS:
        for clause in document.clauses:
            assert re.fullmatch(rf"{document.id}-[0-9.]+-[0-9]+", clause.id)
            number = clause.id.split("-")[1]
            assert clause.section.split(" ")[0].rstrip(".") == number, clause.id


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.id)
def test_clause_is_covered(clause: Clause) -> None:
    assert clause.level in LEVELS
    assert clause.text
    assert re.fullmatch(r"((aou|dsn|req)~[a-z0-9_-]+~[0-9]+)?", clause.spec)
    assert clause.tests or (clause.level == "STATED" and clause.note), "a clause without a test"
    assert len(set(clause.tests)) == len(clause.tests)
    assert [test for test in clause.tests if not exists(test)] == []


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(DOCUMENTS), "run python -m tests.requirements"


def test_no_clause_is_copied_at_length() -> None:
    """The file holds our own words, a line or two each."""
    assert [clause.id for clause in CLAUSES if len(clause.text) > 200] == []


@pytest.mark.parametrize(
    ("node", "is_there"),
    [
        ("tests/test_requirements.py::test_the_page_is_up_to_date", True),
        ("tests/test_requirements.py::test_that_nobody_wrote", False),
        ("tests/test_requirements.py", False),
        ("tests/requirements.py::page", False),
        ("tests/no_such_file.py::test_the_page_is_up_to_date", False),
    ],
)
def test_only_tests_that_are_there_count(node: str, is_there: bool) -> None:
    assert exists(node) is is_there
