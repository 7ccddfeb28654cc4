"""What ``streamer check`` says of a file that is good, and may not be what was meant."""

from pathlib import Path

import pytest

from streamer.config.load import warnings
from tests.unit.config.files import BROKER, PERMISSIONS, PLAIN, loaded


def test_a_hint_says_what_memory_only_means(path: Path) -> None:
    assert warnings(loaded(path, PLAIN + PERMISSIONS)) == [
        "journal: null: memory only; queued messages are lost if the process is killed"
    ]
    assert warnings(loaded(path, PLAIN + PERMISSIONS + "journal: {path: /tmp/j.db}\n")) == []


@pytest.mark.parametrize(
    ("section", "where", "beyond"),
    [
        ("journal: {path: j.db}", "journal.path: j.db", ""),
        ("journal: {path: ~/j.db}", "journal.path: ~/j.db", "; ~ is no more than a name here"),
        ("journal: {path: /j.db}\nlog: {audit: ./audit.log}", "log.audit: audit.log", ""),
        ("journal: {path: j.db}\nlog: {audit: ./audit.log}", "journal.path: j.db, log.audit: audit.log", ""),
    ],
)
def test_a_hint_names_a_path_that_depends_on_where_the_streamer_is_started(
    path: Path, section: str, where: str, beyond: str
) -> None:
    told = f"{where}: relative to the folder in which the streamer is started{beyond}"
    assert warnings(loaded(path, f"{PLAIN}{PERMISSIONS}{section}\n")) == [told]


def test_a_hint_names_a_publish_without_receivers(path: Path) -> None:
    text = BROKER + PERMISSIONS + "journal: {path: /tmp/j.db}\n"
    published = text.replace("to: cloud}", 'to: cloud, publish: ["//veh1/FFFFFFFF/FF/FFFF"]}')
    (warning,) = warnings(loaded(path, published))
    assert warning.startswith("route vehicle-cloud: nothing says who a Publish to 'cloud' is for")
    for addressed in (
        text,
        published.replace("publish:", "publish_to: [backend], publish:"),
        published.replace('["*"]', '["*", backend]'),
        published.replace("broker:", "topics: in-vehicle\n      broker:"),
    ):
        assert warnings(loaded(path, addressed)) == []


def test_a_hint_names_receivers_that_live_elsewhere(path: Path) -> None:
    text = (
        PLAIN.replace("from: cloud,", "publish_to: [veh2], from: cloud,")
        + PERMISSIONS
        + "journal: {path: /tmp/j.db}\nroutes: []\n"
    )
    (warning,) = warnings(loaded(path, text.replace("routes: []\n", "")))
    assert warning == "route cloud-vehicle: publish_to names veh2, not reached through 'vehicle'"


@pytest.mark.parametrize(("publish_to", "elsewhere"), [("[veh1]", "veh1"), ("[backend, veh1]", "veh1"), ("[backend]", "")])
def test_a_hint_names_receivers_that_another_endpoint_lists_where_the_far_one_takes_everybody(
    path: Path, publish_to: str, elsewhere: str
) -> None:
    text = BROKER + PERMISSIONS + "journal: {path: /tmp/j.db}\n"
    published = text.replace("to: cloud}", f'to: cloud, publish_to: {publish_to}, publish: ["//veh1/FFFFFFFF/FF/FFFF"]}}')
    told = [f"route vehicle-cloud: publish_to names {elsewhere}, not reached through 'cloud'"] if elsewhere else []
    assert warnings(loaded(path, published)) == told


def test_a_hint_says_that_there_are_no_routes(path: Path) -> None:
    text = PLAIN.partition("routes:")[0] + PERMISSIONS + "routes: []\njournal: {path: /tmp/j.db}\n"
    assert warnings(loaded(path, text)) == ["routes: empty; nothing is forwarded"]


def test_a_hint_says_that_a_file_without_permissions_is_open(path: Path) -> None:
    (hint,) = warnings(loaded(path, PLAIN + "journal: {path: /tmp/j.db}\n"))
    assert hint.startswith("permissions: null: open; ")


def beside(tmp_path: Path, vehicle: str, more: str = "") -> list[str]:
    """What is said of a Zenoh endpoint that takes ``vehicle``."""
    path, key = tmp_path / "streamer.yaml", tmp_path / "key"
    key.write_text("k" * 40)
    text = f"""
authority: gw
endpoints:
  vehicle: {{transport: zenoh, authorities: {vehicle}}}
  cloud: {{transport: memory, authorities: [cloud]}}
{more}
journal: {{path: {tmp_path}/j.db}}
{PERMISSIONS}"""
    return [each for each in warnings(loaded(path, text)) if each.startswith("endpoints.vehicle.authorities")]


def test_endpoints_that_would_be_taken_for_each_others_receivers_are_named(tmp_path: Path) -> None:
    other = "  trailer: {transport: zenoh, authorities: [trailer]}\nroutes: []"
    (told,) = beside(tmp_path, '["*"]', other)
    assert "what trailer sends" in told
    assert beside(tmp_path, "[veh1]", other) == []
