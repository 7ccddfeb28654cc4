"""Tests Zenoh endpoints without a session: whether ports to listen on are free, and addresses accept connections."""

import re
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial

from streamer.transports.base import Tools
from streamer.transports.certificates import expiry_probe
from streamer.transports.errors import ConfigurationError
from streamer.transports.probe import (
    CONNECT_S,
    Answer,
    Probe,
    blocking,
    can_connect,
    can_listen,
    cannot_tell,
    ok,
    problem,
    reason,
)
from streamer.transports.zenoh.options import ZenohOptions, certificates, endpoints_of, session_config, shown_endpoint
from streamer.transports.zenoh.wire import key_filter
from streamer.uprotocol.uri import UUri

_TCP = re.compile(r"(?:tcp|tls|ws)/(?P<host>\[[^\]]*\]|[^:?#]*):(?P<port>\d{1,5})")
_UNIX = re.compile(r"unixsock-stream/(?P<path>[^?#]+)")
_ONE_INTERFACE = re.compile(r"[#;](?:iface|bind)=")


class ZenohTools(Tools):
    """The key expressions of filters, and the probes of the endpoints that Zenoh would open."""

    def filter_texts(self, source: UUri, sink: UUri | None, authority: str) -> Mapping[str, str]:
        return {"zenoh": key_filter(source, sink, authority)}

    def probes(self, options: ZenohOptions, held: Collection[str]) -> Iterable[Probe]:
        return probes(options, held)


def probes(options: ZenohOptions, held: Collection[str]) -> Iterator[Probe]:
    """Yield probes of all endpoints that Zenoh would open, with ``config_file``. ``held``: texts in the running options."""
    if options.receipts is not None:
        yield blocking("receipts.key_file", partial(_key, options))
    try:
        config = session_config(options)
    except ConfigurationError as exc:
        yield blocking(exc.key, partial(problem, str(exc)))
        return
    if options.config_file is not None:
        yield blocking("config_file", partial(ok, "Zenoh accepts it"))
    mode = options.effective_mode(config)
    key = "listen, connect" if options.config_file is None else "config_file"
    yield from (expiry_probe(f"{key}: {file.role}", file) for file in certificates(config, mode))
    taken = {shown_endpoint(text) for text in held}
    listen = [] if mode == "client" else endpoints_of(config, "listen", mode)
    yield from _each("listen", listen, options.listen, lambda address: _listen(address, taken))
    yield from _each("connect", endpoints_of(config, "connect", mode), options.connect, _connect)


def _each(option: str, found: list[str], given: list[str], check: Callable[[str], Answer]) -> Iterator[Probe]:
    for index, address in enumerate(found):
        key = f"{option}[{index}]" if found == given else f"config_file: {option}/endpoints[{index}]"
        yield blocking(key, partial(check, address))


def _key(options: ZenohOptions) -> Answer:
    assert options.receipts is not None
    options.receipts.key()
    return ok("it holds a key")


def _listen(address: str, taken: Collection[str]) -> Answer:
    shown = shown_endpoint(address)
    if shown in taken:
        return ok(f"{shown}: the running streamer listens there")
    match = _TCP.match(address)
    if match is None or _ONE_INTERFACE.search(address):
        return cannot_tell(f"{shown}: only TCP ports are tried, on all interfaces")
    return can_listen(match["host"].strip("[]"), int(match["port"]), is_only_v6=False)


def _connect(address: str) -> Answer:
    if match := _TCP.match(address):
        return can_connect(match["host"].strip("[]"), int(match["port"]))
    if match := _UNIX.match(address):
        return _connect_unix(match["path"])
    return cannot_tell(f"{shown_endpoint(address)}: only TCP ports and Unix sockets are tried")


def _connect_unix(path: str) -> Answer:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(CONNECT_S)
        try:
            link.connect(path)
        except OSError as exc:
            return problem(f"{path}: {reason(exc)}")
    return ok(f"{path} accepts connections")
