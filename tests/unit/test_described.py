"""What is written below a key is its description, and nobody reads sources before somebody asks for it."""

import inspect
from typing import Any

import pytest
from pydantic import Field

from streamer.described import Described


class Wheel(Described):
    """A wheel."""

    size: int = 0
    """In inches,
    of the rim."""
    spokes: int = 0
    from_: str = Field(default="", alias="from")
    """Where it was made."""


class Spare(Wheel):
    spokes: int = 0
    """None is bent."""
    wheel: Wheel = Wheel()
    """The one that it replaces."""
    tread: int = Field(default=0, description="Said otherwise.")
    """Not this."""


def described(model: type[Described]) -> dict[str, Any]:
    properties = model.model_json_schema()["properties"]
    return {key: about["description"] for key, about in properties.items() if "description" in about}


def test_keys_are_described_by_what_stands_below_them() -> None:
    assert described(Wheel) == {"size": "In inches,\nof the rim.", "from": "Where it was made."}


def test_keys_of_the_base_are_described_too() -> None:
    own = {"spokes": "None is bent.", "wheel": "The one that it replaces.", "tread": "Said otherwise."}
    assert described(Spare) == described(Wheel) | own


def test_model_without_source_has_no_descriptions() -> None:
    place: dict[str, Any] = {"Described": Described, "__name__": "nowhere"}
    exec('class Lost(Described):\n    level: int = 0\n    """How high."""\n', place)
    assert described(place["Lost"]) == {}


def test_no_source_is_read_until_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def source_of(model: object) -> str:
        asked.append(model)
        return "class Late: pass"

    monkeypatch.setattr(inspect, "getsource", source_of)
    monkeypatch.setattr(inspect, "getsourcelines", source_of)  # what pydantic itself would ask

    class Late(Described):
        level: int = 0
        """How high."""

    Late(level=1)
    assert asked == []
    Late.model_json_schema()
    assert Late in asked
