"""The section `trace`: defaults, and what is refused."""

from typing import Any

import pytest
from pydantic import ValidationError

from streamer.features.every import FILE
from streamer.features.traces.config import TraceConfig
from tests.configurations import config_of, endpoint_of

MIB = 1 << 20


def test_a_folder_is_enough(tmp_path: Any) -> None:
    options = TraceConfig.model_validate({"path": f"{tmp_path}/"})
    assert (options.rotate_s, options.max_bytes, options.path) == (300, 4096 * MIB, tmp_path)
    assert [(each.max_bytes, each.open_bytes) for each in options.folders()] == [(4096 * MIB, 64 * MIB)]


@pytest.mark.parametrize(("key", "value"), [("rotate_s", 1e308), ("rotate_bytes", 1)])
def test_a_value_that_cannot_be_used_is_refused(key: str, value: float) -> None:
    with pytest.raises(ValidationError):
        TraceConfig.model_validate({"path": "traces", key: value})


def test_the_folder_belongs_to_the_traces() -> None:
    raw = config_of({"e": endpoint_of("memory", "veh1")}, routes=[], trace={"path": "/t"}, journal={"path": "/j.db"})
    assert FILE.model_validate(raw).section(TraceConfig) is not None
    with pytest.raises(ValidationError, match=r"the path /t is taken by trace\.path already"):
        FILE.model_validate(raw | {"log": {"audit": "/t"}})
