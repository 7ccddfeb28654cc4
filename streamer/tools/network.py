"""How ``streamer send``, ``listen`` and ``ping`` join a network: as a uEntity like any other, on the streamer's transports.

The network is an endpoint of a configuration, which a running streamer may use at the same time, or named by options. The
command has a session of its own there (`TransportOptions.beside`).
"""

import argparse
import asyncio
import secrets
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from enum import Enum
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import yaml

from streamer.config.load import ConfigError, load, load_text
from streamer.config.models import Config
from streamer.logs.output import set_up
from streamer.tools.text import CONFIG_DEFAULT, EX_CONFIG, complain, milliseconds, number, rate, reason_of
from streamer.transports.base import (
    UNCONFIRMED,
    LinkState,
    MessageParcel,
    Presence,
    SendResult,
    TransportContext,
    TransportEvents,
    TransportOptions,
    UListener,
    UTransport,
)
from streamer.transports.errors import ConfigurationError, LinkLostError, SendError
from streamer.transports.installed import load_transport
from streamer.transports.link_error import LinkError, LinkFailure
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri

_NAME = "client"
_WINDOW = 1000
_LOOK_S = 0.05
_FINAL = (LinkFailure.AUTHENTICATION, LinkFailure.FILES)
"""Failures that go on until somebody changes something."""

Filter = tuple[UUri, UUri | None]


class NetworkError(Exception):
    """The command cannot do its work on the network; ``status`` is its exit status."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


class Confirmation(Enum):
    """How far a message has come that the network has taken."""

    DELIVERED = "delivered"  # the network has confirmed it, or there is evidence that it arrived
    UNCONFIRMED = "unconfirmed"  # somebody listened all the time, and there is no evidence: Zenoh confirms nothing
    LOST = "lost"  # the receiver went away before there was evidence


class Network(NamedTuple):
    """A network that can be joined.

    If it is an endpoint of a configuration, ``authority`` is that of the uEntities on it, unless the configuration names
    none, and ``streamer`` that of the streamer itself. ``timeout_s`` is the longest wait for an answer; for ``wait_s`` a
    connection that fails is tried again.
    """

    named: str
    kind: str
    options: TransportOptions
    authority: str | None
    streamer: str | None
    timeout_s: float
    wait_s: float

    def at_home(self, uri: UUri, option: str) -> UUri:
        """Return a URI with the network's authority if it has none. Raises `NetworkError`."""
        if uri.authority:
            return uri
        if self.authority is None:
            raise NetworkError(f"{option}: {uri}: expected an authority, such as //veh1{uri}: {self.named} names none", 2)
        return uri._replace(authority=self.authority)


class NetworkCommand(Protocol):
    """The work of a command on a network."""

    async def run(self) -> int:
        """Do the work. Return the exit status. Raises `NetworkError`."""

    def status(self) -> int:
        """Return the exit status of a command that was interrupted."""


Make = Callable[[argparse.Namespace, Network], NetworkCommand]
"""Makes the command of its arguments. May raise `NetworkError`."""


def add_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    text: str,
    make: Make,
    count: int | None = None,
) -> argparse.ArgumentParser:
    """Add a command that joins a network, with the options that all of these have. Return its parser.

    ``count``: how often it does its work unless ``--count`` says otherwise; None: until it is interrupted.
    """
    parser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(command=partial(_command, make))
    _add_network(parser)
    text = f"end after N messages; default: {'at Ctrl-C' if count is None else count}"
    parser.add_argument("--count", type=number, default=count, metavar="N", help=text)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    return parser


def add_rate(parser: argparse.ArgumentParser, default: float | None) -> None:
    """Add the option that says how fast a command sends. None: as fast as possible."""
    text = f"at most N messages a second; default: {'as fast as possible' if default is None else f'{default:g}'}"
    parser.add_argument("--rate", type=rate, default=default, metavar="N", help=text)


def _command(make: Make, arguments: argparse.Namespace) -> int:
    """Run a command until it ends, or until Ctrl-C or SIGTERM. Return the exit status."""
    set_up("error", "human")
    try:
        command = make(arguments, network_of(arguments))
        return asyncio.run(_until_interrupted(command))
    except NetworkError as exc:
        return complain(str(exc), exc.status)


async def _until_interrupted(command: NetworkCommand) -> int:
    task = asyncio.create_task(command.run(), name="command")
    for each in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(each) is not signal.SIG_IGN:  # as in the background of a script
            asyncio.get_running_loop().add_signal_handler(each, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return command.status()


def _add_network(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which network to join, and how long to wait for it."""
    group = parser.add_argument_group("the network", "An endpoint of a configuration, or a network that is named here.")
    where = group.add_mutually_exclusive_group(required=True)
    where.add_argument("--endpoint", metavar="NAME", help="this endpoint of --config, beside the streamer that uses it")
    where.add_argument("--broker", metavar="URL", help="an MQTT 5 broker: mqtt://HOST:PORT, mqtts://…, ws://… or wss://…")
    where.add_argument("--zenoh", metavar="LOCATOR", help="a Zenoh node, such as tcp/127.0.0.1:7447")
    group.add_argument("--config", type=Path, metavar="FILE", help=f"the file with the endpoint; {CONFIG_DEFAULT}")
    text = "an option of the endpoint, as in a configuration: topics=in-vehicle, username=joe, tls.ca_file=FILE, ..."
    group.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help=text)
    text = "the MQTT client id, for brokers that allow only some; never the one of a streamer; default: a random one"
    group.add_argument("--client-id", metavar="ID", help=text)
    text = "the longest wait for an answer of the network, and for the confirmation of a message; default: 10s"
    group.add_argument("--timeout", type=milliseconds, default=10_000, metavar="DURATION", help=text)
    text = "try again for so long while there is no connection; default: not at all"
    group.add_argument("--wait", type=milliseconds, default=0, metavar="DURATION", help=text)


def network_of(arguments: argparse.Namespace) -> Network:
    """Return the network that the options name. Raises `ConfigError`, and `NetworkError` for options that cannot work."""
    # every broker has to accept up to 23 letters and digits (MQTT 5, 3.1.3.1)
    name = arguments.client_id or f"client{secrets.token_hex(8)}"
    authority = streamer = None
    if arguments.endpoint is None:
        kind, given = (
            ("mqtt5", {"broker": arguments.broker}) if arguments.broker else ("zenoh", {"connect": [arguments.zenoh]})
        )
        named, options = arguments.broker or arguments.zenoh, _read(kind, given)
    else:
        config = load(arguments.config, kind=arguments.kind)
        streamer, endpoints = config.authority, config.endpoints
        if arguments.endpoint not in endpoints:
            raise NetworkError(f"--endpoint: {arguments.endpoint}: expected one of {', '.join(endpoints)}", 2)
        endpoint = endpoints[arguments.endpoint]
        named, kind, options = f"{arguments.endpoint} ({endpoint.transport})", endpoint.transport, endpoint.options
        authority = next((each for each in endpoint.authorities if each != ANY_AUTHORITY), None)
    if arguments.option:
        options = _read(kind, _changed(options.model_dump(mode="json", exclude_unset=True), arguments.option))
    try:
        options = options.beside(name)
    except ConfigurationError as exc:
        raise NetworkError(f"{named}: {exc.key}: {exc}", EX_CONFIG) from exc
    return Network(named, kind, options, authority, streamer, arguments.timeout / 1000, arguments.wait / 1000)


def _read(kind: str, given: dict[str, Any]) -> TransportOptions:
    """Check options as those of an endpoint in a configuration file."""
    endpoint = {"transport": kind, "authorities": [ANY_AUTHORITY], "options": given}
    text = yaml.safe_dump({"authority": _NAME, "endpoints": {_NAME: endpoint}, "routes": []})
    try:
        config: Config = load_text(text, Path("options"), {})
    except ConfigError as exc:
        key = f"endpoints.{_NAME}.options."
        raise NetworkError("; ".join(f"{each.key.removeprefix(key)}: {each.message}" for each in exc.problems), 2) from exc
    read: TransportOptions = config.endpoints[_NAME].options
    return read


def _changed(options: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """Return options with changes of the form KEY=VALUE, where a key may be inside another: tls.ca_file."""
    for change in changes:
        key, equals, text = change.partition("=")
        *outer, last = key.split(".")
        inside = options
        for name in outer:
            inside = inside.setdefault(name, {})
            if not isinstance(inside, dict):
                raise NetworkError(f"--option {key}: there is nothing inside {name}", 2)
        try:
            inside[last] = yaml.safe_load(text)
        except yaml.YAMLError:
            equals = ""
        if not equals:
            raise NetworkError(f"--option {key}: expected KEY=VALUE, with a value as in the configuration file", 2)
    return options


async def paced(last: int | None, rate_s: float | None) -> AsyncIterator[int]:
    """Yield 1, 2, ... ``last`` (None: without end), ``rate_s`` times a second (None: at once)."""
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    for each in count(1) if last is None else range(1, last + 1):
        if rate_s is not None:
            await asyncio.sleep(begin_s + (each - 1) / rate_s - loop.time())
        yield each


class _Parcel(MessageParcel):
    """A message, and the future that gets its result."""

    __slots__ = ("result",)

    def __init__(self, message: UMessage) -> None:
        super().__init__(message)
        self.result: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()


def _complete(parcels: Sequence[_Parcel], result: SendResult) -> None:
    for parcel in parcels:
        if not parcel.result.done():  # the caller gave up waiting
            parcel.result.set_result(result)


class _Events(TransportEvents):
    """Wakes up the client when something has changed."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.link_reason = ""
        self.lost_nodes = 0

    def state_changed(self, state: LinkState, reason: str = "") -> None:
        self.link_reason = reason
        self.changed.set()

    def node_changed(self, is_there: bool) -> None:
        self.lost_nodes += not is_there
        self.changed.set()


class Client:
    """A uEntity on a network that was joined. Its methods raise `NetworkError`, and `SendError` for single messages."""

    def __init__(self, network: Network, transport: UTransport, events: _Events) -> None:
        self._network = network
        self._transport = transport
        self._events = events
        self._timeout_s = network.timeout_s
        self._taken: deque[tuple[float, asyncio.Future[Confirmation]]] = deque()  # without evidence, in order
        self._presences: dict[Filter, Presence] = {}
        self._lost_nodes = 0

    @property
    def window(self) -> int:
        """How many messages may be sent without a confirmation."""
        return max(1, min(_WINDOW, self._transport.capacity))

    @property
    def is_up(self) -> bool:
        return self._transport.state is LinkState.UP

    @property
    def link_reason(self) -> str:
        """Why the link was lost."""
        return self._events.link_reason or "unknown"

    def problems(self) -> Sequence[str]:
        """Return what does not work although the link is up, such as a subscription that the broker has refused."""
        return self._transport.report().problems

    async def until_up(self) -> None:
        """Wait for the network, and for the broker's answers to subscriptions.

        The first failure ends this at once, or after ``wait_s`` if that may help.
        """
        now_s = asyncio.get_running_loop().time
        wait_s, begin_s = self._network.wait_s, now_s()
        longest_s = max(self._timeout_s, wait_s)
        while not self.is_up:
            error = self._failure()
            if error is not None and (error.reason in _FINAL or not wait_s):
                raise NetworkError(self._named(error))
            if error is not None and now_s() >= begin_s + wait_s:
                raise NetworkError(f"{self._named(error)} (waited {wait_s:g} s)")
            if now_s() >= begin_s + longest_s:
                raise NetworkError(f"{self._network.named}: no connection within {longest_s:g} s: {self._why_down()}")
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self.until_changed()

    async def until_changed(self) -> None:
        """Wait until the state of the link may have changed."""
        self._events.changed.clear()
        await self._events.changed.wait()

    async def until_heard(self, source: UUri, sink: UUri | None) -> None:
        """Wait until somebody listens to a flow, as far as the network tells. From now on its loss is noticed."""
        flow = source, sink

        def on_presence(presence: Presence) -> None:
            self._presences[flow] = presence
            if presence in (Presence.ABSENT, Presence.INTERRUPTED):
                self._lose_taken()
            self._events.changed.set()

        self._presences[flow] = self._transport.receivers.watch(source, sink, on_presence)
        if not await self._until(lambda: self._presences[flow] is Presence.PRESENT):
            where = source if sink is None else f"{source} → {sink}"
            raise NetworkError(f"{self._network.named}: nobody listens to {where} (waited {self._timeout_s:g} s)")

    async def send(self, message: UMessage, when_taken: Callable[[], None] = lambda: None) -> Confirmation:
        """Send a message. Return what is known of it in the end; ``when_taken`` is called once the network has answered."""
        parcel = _Parcel(message)
        try:
            if not await self._until(lambda: self.is_up):
                raise LinkLostError(f"no connection within {self._timeout_s:g} s")
            self._transport.submit((parcel,), _complete)
            result = await self._in_time(parcel.result)
        finally:
            when_taken()
        if isinstance(result, SendError):
            raise result
        if result is not UNCONFIRMED:
            return Confirmation.DELIVERED
        delivery: asyncio.Future[Confirmation] = asyncio.get_running_loop().create_future()
        self._taken.append((asyncio.get_running_loop().time(), delivery))
        with suppress(TimeoutError):
            async with asyncio.timeout(min(self._timeout_s, self._transport.unconfirmed_s)):
                return await delivery
        return Confirmation.UNCONFIRMED

    async def watch(self) -> None:
        """Look for evidence that messages have arrived, and for signs that they have not, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK_S)
            if self._events.lost_nodes > self._lost_nodes:
                self._lost_nodes = self._events.lost_nodes
                self._lose_taken()
            arrived_s = self._transport.arrived_until_s(loop.time())
            while self._taken and self._taken[0][0] < arrived_s:
                _settle(self._taken.popleft()[1], Confirmation.DELIVERED)

    def _lose_taken(self) -> None:
        while self._taken:
            _settle(self._taken.popleft()[1], Confirmation.LOST)

    async def _in_time(self, result: "asyncio.Future[SendResult]") -> SendResult:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await result
        except TimeoutError:
            raise LinkLostError(f"not confirmed within {self._timeout_s:g} s") from None

    async def _until(self, condition: Callable[[], bool]) -> bool:
        """Wait for a condition that an event may make true. Return whether it came true in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                while not condition():
                    await self.until_changed()
        return condition()

    def _failure(self) -> LinkError | None:
        """Return why the network cannot be joined; None: nothing has failed, or another address is still to be tried."""
        transport = self._transport
        is_alone = transport.state is LinkState.ALONE and len(transport.report().addresses) == 1
        return transport.last_error if is_alone or transport.next_attempt_ms is not None else None

    def _named(self, error: LinkError) -> str:
        """Return an error with the network. An address that an option names is not said twice."""
        return f"{self._network.named}: {error.text if self._network.streamer is None else error}"

    def _why_down(self) -> str:
        found = list(self.problems())
        if not found and self._transport.last_error is not None:
            found = [self._transport.last_error.text]
        if not found and self._transport.state is LinkState.ALONE:
            found = ["no other node is there"]
        return "; ".join(found) or "the reason is unknown"


def _settle(future: "asyncio.Future[Confirmation]", delivery: Confirmation) -> None:
    if not future.done():
        future.set_result(delivery)


@asynccontextmanager
async def joined(
    network: Network, authority: str, filters: Sequence[Filter] = (), listener: UListener | None = None
) -> AsyncIterator[Client]:
    """Join a network as a uEntity at ``authority``, and leave it again. ``listener`` gets what matches the filters.

    Raises `NetworkError`.
    """
    events = _Events()
    transport = load_transport(network.kind)(TransportContext(_NAME, authority, events=events), network.options)
    client = Client(network, transport, events)
    await transport.authenticate(UUri(authority, 0, 0, 0))
    if listener is not None:
        for source, sink in filters:
            await transport.register_listener(source, sink, listener)
    watching = asyncio.create_task(client.watch(), name="watch")
    try:
        await _start(network, transport)
        await client.until_up()
        for problem in client.problems():
            raise NetworkError(f"{network.named}: {problem}")
        yield client
    finally:
        watching.cancel()
        await asyncio.wait((watching,))
        await transport.stop()


async def _start(network: Network, transport: UTransport) -> None:
    try:
        await transport.start()
    except ConfigurationError as exc:
        raise NetworkError(f"{network.named}: {exc.key}: {exc}", EX_CONFIG) from exc
    except OSError as exc:
        raise NetworkError(f"{network.named}: {reason_of(exc)}") from exc
