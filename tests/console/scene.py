"""What the tests of the console send, and where they look for it."""

import json
from typing import Any

from playwright.sync_api import Page

from tests.e2e.topology import Topology
from tests.independent.message import Plain

TOKEN = "0123456789abcdef0123"
SPEED = ("alpha", 0x10, 1, 0x8001)
SPEED_TEXT = "//alpha/10/1/8001"
ROUTE = "first-second"


def publishes(*numbers: int, **options: Any) -> list[Plain]:
    return [Plain(1, SPEED, payload=b'{"speed": %d}' % number, payload_format=5, **options) for number in numbers]


def asked(topology: Topology, page: str) -> Any:
    status, body = topology.daemon.get(f"/api/v1{page}")
    assert status == 200, body
    return json.loads(body)


def rows(page: Page) -> Any:
    """The rows of a section's tables, but for the one that counts dead letters by reason."""
    return page.locator("main tbody tr:not(.reasons tr)")
