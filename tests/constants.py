"""Sections of the configuration with other constants than theirs, for tests that need a small bound or a certain chance."""

from typing import Any, TypeVar

from streamer.plugins import Settings

S = TypeVar("S", bound=Settings)


def with_constants(model: type[S], **values: Any) -> S:
    """A section with these keys; those that are constants of the model have these values in this section only."""
    constants = {name: value for name, value in values.items() if name in model.__class_vars__}
    if not constants:
        return model(**values)  # a class takes 15 ms to make
    kind: type[S] = type(model.__name__, (model,), {"__module__": __name__} | constants)
    return kind(**{name: value for name, value in values.items() if name not in constants})
