"""Loads classes of installed packages, found by their entry points, and has the base of their options and of settings."""

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from pydantic import BaseModel, model_validator


def available(group: str) -> list[str]:
    """Return the names of all classes that are installed in an entry point group."""
    return sorted({entry.name for entry in entry_points(group=group)})


def load(group: str, name: str, what: str) -> Any:
    """Return the class of a name. Raises LookupError if it is not installed, ImportError if it cannot be loaded.

    ``what``: the kind of class, for the text of the error.
    """
    for entry in entry_points(group=group, name=name):
        return entry.load()
    raise LookupError(f"no {what} {name!r}; installed: {', '.join(available(group))}")


class Settings(BaseModel):
    """A mapping of the configuration file. Its class variables are earlier keys whose value is a constant now.

    A file that still has such a key is accepted if it gives the constant itself, or the default of a key that was replaced;
    every other value is refused as an unknown key, with a text that names the constant or the key in its place.
    """

    @classmethod
    def replaced(cls) -> Mapping[str, tuple[Any, str]]:
        """Return the earlier keys that another key has replaced, with their default and that key."""
        return {}

    @model_validator(mode="before")
    @classmethod
    def _without_constants(cls, raw: Any) -> Any:
        """Leave out the earlier keys that say what is so anyway."""
        if not isinstance(raw, Mapping) or cls.__class_vars__.isdisjoint(raw):
            return raw
        return {key: value for key, value in raw.items() if not cls.is_constant(key, value)}

    @classmethod
    def is_constant(cls, key: str, value: Any) -> bool:
        """Return whether a key is an earlier one, with the value that is its constant."""
        if key not in cls.__class_vars__ or key in cls.model_fields:
            return False
        constant = cls.replaced().get(key, (getattr(cls, key),))[0]
        if isinstance(constant, BaseModel) and isinstance(value, Mapping):
            return constant.model_dump() | dict(value) == constant.model_dump()
        return bool(value == constant) and isinstance(value, bool) == isinstance(constant, bool)
