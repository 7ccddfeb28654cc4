"""The browser that the tests of a file share."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.console.browser import chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser
