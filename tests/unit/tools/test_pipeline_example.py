"""The example of a pipeline: its expectations hold, and it is what the pages say."""

import pytest

from tests.pages import DOCS, README, ROOT
from tests.unit.tools.commands import status_of

EXAMPLE = ROOT / "examples/pipeline"


@pytest.mark.needs("judge")
def test_the_expectations_of_the_example_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("test", "--config", str(EXAMPLE / "streamer.yaml"), str(EXAMPLE / "expect.yaml")) == 0
    assert capsys.readouterr().out == "2 expectations: all hold\n"


@pytest.mark.parametrize("name", ["expect.yaml", "gitlab-ci.yml", "github.yml"])
def test_the_page_shows_the_example(name: str) -> None:
    assert (EXAMPLE / name).read_text() in (DOCS / "how-to/judge-a-change.md").read_text()


def test_the_example_is_about_the_first_configuration() -> None:
    assert (EXAMPLE / "streamer.yaml").read_text() in README.read_text()
