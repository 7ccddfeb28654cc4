"""What a fault of the disk, or a hand, has made of a row is left out; it does not stop the service."""

import json
import sqlite3
from pathlib import Path

import pytest

from streamer.uprotocol.uri import UUri
from tests.unit.features.usubscription.follower_harness import FollowerHarness
from tests.unit.features.usubscription.harness import (
    APP,
    APP2,
    CLOUD,
    LOCAL,
    REMOTE,
    SUBSCRIBED,
    TIMEOUT_MS,
    UsubscriptionHarness,
)

OTHER = UUri.parse("//dev1/B0/1/8002")
HIGHEST = (1 << 63) - 1

DAMAGE = [
    ("subscriptions", "number", HIGHEST),
    ("subscriptions", "topic", "//*/FFFF/FF/FFFF"),
    ("subscriptions", "topic", "//dev1/B0/1/0"),
    ("subscriptions", "subscriber", "//*/A2/1/0"),
    ("subscriptions", "subscriber", "/A2/1/0"),
    ("subscriptions", "subscriber", "//dev1/A2/1/8001"),
    ("subscriptions", "via", ""),
    ("subscriptions", "via", "\N{LATIN SMALL LETTER E WITH ACUTE}"),
    ("subscriptions", "via", "*"),
    ("subscriptions", "standing", 7),
    ("subscriptions", "expire_ms", HIGHEST),
    ("subscriptions", "sample_period_ms", -1),
    ("subscriptions", "sample_period_ms", 1 << 32),
    ("subscriptions", "details", b"\xff"),
    ("observers", "number", HIGHEST),
    ("observers", "uri", "//dev1/EE/1/8001"),
    ("observers", "topic", "//*/B0/1/8001"),
    ("observers", "via", "?"),
    ("remotes", "topic", "//*/B0/1/8001"),
    ("remotes", "epoch", HIGHEST),
    ("remotes", "period_ms", -1),
    ("remotes", "answered_ms", HIGHEST),
    ("remotes", "commands", "[" * 100_000),
    ("remotes", "commands", json.dumps([["00", True, 1, 1]])),
    ("remotes", "commands", json.dumps([["01a217a7ce9a70008000000000000000", True, "1", 1]])),
    ("remotes", "commands", json.dumps([["01a217a7ce9a70008000000000000000", True, 1, None]])),
    ("outbox", "number", HIGHEST),
    ("outbox", "message", b""),
    ("outbox", "message", b"\xff"),
]


async def fill(harness: UsubscriptionHarness) -> None:
    """Two subscriptions, of which the second one is damaged later, a remote one, an observer, and Updates not yet safe."""
    for topic, source in ((LOCAL, APP), (OTHER, APP2), (REMOTE, APP2)):
        await harness.subscribe(topic, source)
    await harness.register(OTHER)
    await harness.unsubscribe(REMOTE, APP2)


def damage(harness: UsubscriptionHarness, table: str, column: str, value: object) -> None:
    """One row of the table: of several, the second."""
    connection = sqlite3.connect(harness.path)
    name = f"usubscription_{table}"
    numbers = [number for (number,) in connection.execute(f"SELECT rowid FROM {name} ORDER BY rowid")]
    connection.execute(f"UPDATE {name} SET {column} = ? WHERE rowid = ?", (value, numbers[:2][-1]))
    connection.commit()
    connection.close()


@pytest.mark.parametrize(("table", "column", "value"), DAMAGE, ids=lambda value: str(value)[:20])
async def test_a_damaged_row_is_left_out_and_the_service_goes_on(
    harness: UsubscriptionHarness, caplog: pytest.LogCaptureFixture, table: str, column: str, value: object
) -> None:
    await fill(harness)
    harness.state.close()
    damage(harness, table, column, value)
    harness.open()
    await harness.service.begin()
    assert caplog.text.count("state_row_unreadable") == 1
    assert await harness.subscribers(LOCAL) == {APP: SUBSCRIBED}
    await harness.subscribe(LOCAL, APP2)
    await harness.unsubscribe(OTHER, APP2)
    await harness.subscribe(REMOTE)
    await harness.pass_ms(TIMEOUT_MS)
    await harness.restart()
    assert await harness.subscribers(LOCAL) == {APP: SUBSCRIBED, APP2: SUBSCRIBED}


@pytest.mark.parametrize(
    "row",
    [
        ("//*/B0/1/8001", str(CLOUD), 0),
        ("//dev1/B0/1/0", str(CLOUD), 0),
        (str(OTHER), "//*/C1/1/0", 0),
        (str(OTHER), str(CLOUD), -1),
    ],
)
async def test_a_damaged_row_about_a_service_elsewhere_is_left_out(tmp_path: Path, row: tuple[str, str, int]) -> None:
    harness = FollowerHarness(tmp_path / "state.db")
    good = (str(LOCAL), str(CLOUD), 5)
    await harness.state.write([("INSERT INTO usubscription_followed VALUES (?, ?, ?)", each) for each in (row, good)])
    harness.state.close()
    harness.open()
    assert harness.router.interest == {LOCAL: {CLOUD.authority: 5}}
    harness.state.close()
