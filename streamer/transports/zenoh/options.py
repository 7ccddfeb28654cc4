"""What an operator may say about a ``zenoh`` endpoint, and the Zenoh configuration that comes of it."""

import json
import re
from pathlib import Path
from typing import Any, Literal

import zenoh
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from streamer.transports.base import ListenerOptions
from streamer.transports.errors import ConfigurationError

_ENDPOINT = re.compile(r"[a-z][a-z_\-]*/\S+")

# Zenoh's own defaults are 1 s and 4 s; the specification wants the first attempt after half a second.
_CONNECT_RETRY = {"period_init_ms": 500, "period_max_ms": 4000, "period_increase_factor": 2}


class ZenohOptions(BaseModel):
    """Options of a ``zenoh`` endpoint.

    ``listen`` and ``connect`` hold Zenoh endpoints (``tcp/192.168.0.2:7447``); an empty ``listen`` listens on nothing.
    ``scouting`` is Zenoh's search by multicast. ``config_file`` is a configuration file of Zenoh itself (JSON5); of the
    keys here only those that are given override it. ``receive_buffer`` is the number of samples that may wait per
    subscription before Zenoh is held back, ``window`` the number of unconfirmed sends.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["peer", "client", "router"] = "peer"
    listen: list[str] = []
    connect: list[str] = []
    scouting: bool = False
    config_file: Path | None = None
    receive_buffer: int = Field(default=1000, ge=1)
    window: int = Field(default=1000, ge=1)
    listeners: ListenerOptions = ListenerOptions()

    @field_validator("listen", "connect")
    @classmethod
    def _endpoints(cls, endpoints: list[str]) -> list[str]:
        for endpoint in endpoints:
            if not _ENDPOINT.fullmatch(endpoint):
                raise ValueError(f"{endpoint!r}: expected protocol/address, for instance tcp/192.168.0.2:7447")
        return endpoints

    @model_validator(mode="after")
    def _client_needs_a_router(self) -> "ZenohOptions":
        if self.mode == "client" and not (self.connect or self.scouting or self.config_file):
            raise ValueError("mode client: expected connect, scouting or config_file, to find a router with")
        return self

    def effective_mode(self, config: zenoh.Config) -> str:
        """The mode after ``config_file`` was read."""
        try:
            return str(json.loads(config.get_json("mode")) or self.mode)
        except (zenoh.ZError, ValueError):
            return self.mode


def session_config(options: ZenohOptions) -> zenoh.Config:
    """Zenoh's configuration. Raises `ConfigurationError` naming the option that Zenoh does not accept."""
    if options.config_file is None:
        config = zenoh.Config()
        given = {"mode", "listen", "connect", "scouting"}
        _insert(config, "connect", "connect/retry", _CONNECT_RETRY)
    else:
        try:
            config = zenoh.Config.from_file(options.config_file)
        except zenoh.ZError as exc:
            raise ConfigurationError("config_file", f"{options.config_file}: {exc}") from exc
        given = options.model_fields_set
    for option, key, value in (
        ("mode", "mode", options.mode),
        ("listen", "listen/endpoints", options.listen),
        ("connect", "connect/endpoints", options.connect),
        ("scouting", "scouting/multicast/enabled", options.scouting),
    ):
        if option in given:
            _insert(config, option, key, value)
    return config


def _insert(config: zenoh.Config, option: str, key: str, value: Any) -> None:
    try:
        config.insert_json5(key, json.dumps(value))
    except zenoh.ZError as exc:
        raise ConfigurationError(option, f"Zenoh does not accept {value!r}: {exc}") from exc
