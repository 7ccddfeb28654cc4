"""The Zenoh transport: one session, its subscriptions and its sender (`up-l1/zenoh.adoc`).

Everything runs on the event loop, except functions named ``blocking``. Three kinds of thread make the calls that can block:

    control   open, declare, undeclare, close                          (`control`)
    watchers  one per filter with much traffic, waiting for samples   (`fifo_subscription`)
    sender    put, while that may block                                (`sender`)

Four kinds of evidence show what became of a message that was put: what the links have acknowledged (`link_sockets`,
`arrival`), whether anybody listens to its key (`presence_watch`, `presence`), which nodes are there (`nodes`), and the
receipt of another streamer (`receipts`, `ledger`).
"""

import asyncio
import contextlib
import logging
import math
import random
import secrets
import threading
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import zenoh

from streamer.backoff import RECONNECT_STEPS, Backoff, wait_s
from streamer.files import Files, in_thread
from streamer.transports.base import UNCONFIRMED, Done, LinkState, Parcel, Report, TransportContext
from streamer.transports.certificates import CertificateFile
from streamer.transports.errors import LinkLostError, Malformed, MalformedPacketError
from streamer.transports.link_error import LinkError, LinkFailure
from streamer.transports.listening import ListeningTransport
from streamer.transports.zenoh.absence import LOOK_S, why_absent
from streamer.transports.zenoh.control import ControlThread
from streamer.transports.zenoh.intake import NO_SUBSCRIPTIONS, Intake
from streamer.transports.zenoh.ledger import ReceiptLedger
from streamer.transports.zenoh.link_sockets import LinkSockets
from streamer.transports.zenoh.nodes import NO_NODES, Nodes
from streamer.transports.zenoh.options import (
    DEFAULT_UNCERTAIN_S,
    ZenohOptions,
    certificates,
    endpoints_of,
    session_config,
    shown_endpoint,
    wait_before_close_s,
    without_settings,
)
from streamer.transports.zenoh.presence import GRACE_S, WatchedFlows
from streamer.transports.zenoh.presence_watch import PresenceWatch
from streamer.transports.zenoh.probe import ZenohTools
from streamer.transports.zenoh.receipt_proofs import ReceiptKey
from streamer.transports.zenoh.receipts import Receipts
from streamer.transports.zenoh.receivers import ZenohReceivers
from streamer.transports.zenoh.sender import Publishers, Sender
from streamer.transports.zenoh.shared import ZenohNetwork
from streamer.transports.zenoh.subscription import Gate
from streamer.transports.zenoh.wire import SampleDecoder
from streamer.uprotocol.uri import UUri

logger = logging.getLogger("ustreamer.zenoh")

_UP = LinkState.UP  # looking up a member of an enumeration is slow

_CLOSE_S = 3.0  # Zenoh itself gives up after 10 s if a receiver does not read
_LOOK_TIMEOUT_S = 5.0
_PATIENCE = 3  # times `uncertain_s`: how long to wait for a receipt
_SLOW = 0.9  # of `wait_before_close`, because clocks differ
_SLOW_MIN_S = 0.02  # any put may take this long


class _Opened(NamedTuple):
    """Everything that uses one open session."""

    sockets: LinkSockets
    sender: Sender
    receipts: Receipts
    ledger: ReceiptLedger
    nodes: Nodes
    intake: Intake
    presence: PresenceWatch


class ZenohTransport(ListeningTransport):
    """uTransport over Zenoh, which acknowledges nothing; only streamers acknowledge messages to each other (`receipts`)."""

    kind = "zenoh"
    Options = ZenohOptions
    capacity = 0  # set from the options; an attribute because the router reads it for every message

    def __init__(self, context: TransportContext, options: ZenohOptions) -> None:
        super().__init__(context, options)
        self.options: ZenohOptions = options
        self.shared: ZenohNetwork = ZenohNetwork(context.own_nodes.new_id(), context.authority)
        self.capacity = options.window
        self._mode: str = options.mode
        self._is_calling = True  # a client, or with addresses to connect to: not having a link is a failure
        self._loop: asyncio.AbstractEventLoop | None = None
        self._control: ControlThread | None = None
        self._opening: asyncio.Task[None] | None = None
        self._session: zenoh.Session | None = None  # set on the control thread
        self._opened: _Opened | None = None
        self._flows = WatchedFlows()
        self.receivers = ZenohReceivers(context.authority, bool(options.uncertain_s), self._flows)
        self._gate = Gate()
        self._session_config: zenoh.Config
        self._receipt_key = ReceiptKey(secrets.token_bytes(32))  # without receipts it proves nothing to anybody
        self._files = Files()
        self._was_up = False
        self._is_leaving = False
        self._stopped = False
        self._certificates: Sequence[CertificateFile] = ()
        self._wait_before_close_s = 0.0
        self._problem = "Zenoh is opening the session"
        self._looking: asyncio.Task[None] | None = None  # why no other node is there

    @property
    def unconfirmed_s(self) -> float:
        return self.options.uncertain_s

    @property
    def stall_s(self) -> float:
        """Longer than everything that a put or a receipt may wait for: a receiver that does not read, or is lost."""
        patience_s = _PATIENCE * (self.options.uncertain_s or DEFAULT_UNCERTAIN_S)
        return 2 * max(patience_s, self._wait_before_close_s)

    def arrived_until_s(self, now_s: float) -> float:
        if self._opened is None or not self.options.link_evidence:
            return -math.inf
        return self._opened.sockets.arrived_until_s(now_s)

    tools = ZenohTools()
    receivers: ZenohReceivers

    def report(self) -> Report:
        opened = self._opened
        return Report(
            [self._problem] if self._problem else [],
            tuple(map(shown_endpoint, self.options.connect)),
            () if opened is None else opened.sockets.others,  # of at most `MAX_ENDS` links
            {**NO_SUBSCRIPTIONS, **NO_NODES} if opened is None else {**opened.intake.figures(), **opened.nodes.figures()},
            None if opened is None else opened.sockets.wire_bytes(),  # by TCP links, with TLS
            self._certificates,
        )

    # -- life

    def prepare(self) -> None:
        """Read Zenoh's own configuration file and the key of receipts. Raises `ConfigurationError`."""
        self._session_config = session_config(self.options, self.shared.own)
        if self.options.receipts is not None:
            self._receipt_key = self.options.receipts.key()
        self._mode = self.options.effective_mode(self._session_config)
        self._is_calling = self._mode == "client" or bool(endpoints_of(self._session_config, "connect", self._mode))
        self._certificates = certificates(self._session_config, self._mode)
        self._wait_before_close_s = wait_before_close_s(self._session_config)

    def set_served(self, authorities: Sequence[str]) -> None:
        super().set_served(authorities)
        if self._opened is not None:
            self._opened.receipts.serve(authorities)

    async def start(self) -> None:
        """Begin to open the session, and repeat that until it succeeds. Raises `ConfigurationError` as `prepare` does."""
        await self._files.run(self.prepare)
        config = self._session_config
        self._loop = asyncio.get_running_loop()
        zenoh.try_init_log_from_env()  # type: ignore[no-untyped-call]  # incomplete stubs; silent unless RUST_LOG is set
        self._control = ControlThread(self._loop, self.context.name)
        self._opening = self._loop.create_task(self._open(config), name=f"{self.context.name}-open")

    async def _open(self, config: zenoh.Config) -> None:
        """Open the session and everything on it. The top of a task: any error becomes a problem of the endpoint."""
        try:
            await self._use(await self._open_session(config), config)
        except Exception as exc:
            self._problem = f"the session cannot be used: {type(exc).__name__}; the log says more"
            self.link_failed(LinkFailure.OTHER, self._problem)
            state = (f"session {self.context.name}", "unusable")
            text = "zenoh_session_failed endpoint=%s address=%s reason=%s text=%s"
            logger.exception(text, self.context.name, "", LinkFailure.OTHER, self._problem, extra={"state": state})

    async def _open_session(self, config: zenoh.Config) -> zenoh.Session:
        """Open the session, and repeat that until it succeeds."""
        assert self._control is not None
        failures = 0
        while True:
            try:
                session = await self._control.ask(lambda: self._open_blocking(config))
                break
            except zenoh.ZError as exc:
                failures += 1
                reason = without_settings(exc)
                self._problem = f"Zenoh opens no session: {reason}"
                error = await self._look(config, reason)
                retry_s = wait_s(Backoff(), failures, random.random(), RECONNECT_STEPS)
                self.retry_in(retry_s)
                logger.warning(
                    "zenoh_open_failed endpoint=%s address=%s reason=%s text=%s retry_in_s=%.1f attempt=%d zenoh_says=%s",
                    self.context.name,
                    error.address,
                    error.reason,
                    error.text,
                    retry_s,
                    failures,
                    reason,
                    extra={"state": (f"session {self.context.name}", f"failed: {error.reason}")},
                )
                await asyncio.sleep(retry_s)
        self._problem = ""
        return session

    async def _look(self, config: zenoh.Config, text: str) -> LinkError:
        """Record and return why no session can be opened; ``text`` is what Zenoh says, if the addresses tell nothing."""
        found = None
        with contextlib.suppress(TimeoutError):  # a name is being looked up
            async with asyncio.timeout(_LOOK_TIMEOUT_S):
                found = await in_thread(partial(why_absent, config, self._mode))
        return self.link_failed(*(found[:3] if found is not None else (LinkFailure.OTHER, text)))

    async def _look_for_nodes(self) -> None:
        """Record why no other node is there, every `LOOK_S` until cancelled. The top of a task."""
        accepted = ""
        while True:
            try:
                found = await in_thread(partial(why_absent, self._session_config, self._mode))
            except Exception:
                logger.exception("zenoh_look_failed endpoint=%s", self.context.name)
                return
            if found is None:
                return
            if not found.is_accepted or accepted == found.address:  # at the first look, the session may be about to begin
                self._link_down(*found[:3])
            accepted = found.address if found.is_accepted else ""
            await asyncio.sleep(LOOK_S)

    async def _use(self, session: zenoh.Session, config: zenoh.Config) -> None:
        """Begin to send and receive through the session, and to track other nodes."""
        loop, control, context, options = self._loop, self._control, self.context, self.options
        assert control is not None
        assert loop is not None
        on = (loop, control, session)
        state = (f"session {context.name}", "open")
        text = "zenoh_session_open endpoint=%s zid=%s mode=%s"
        logger.info(text, context.name, session.zid(), self._mode, extra={"state": state})
        is_own = context.own_nodes.has
        sockets = LinkSockets(*on, options.uncertain_s, is_own)
        undeclaring = threading.Lock()
        publishers = Publishers(session, context.authority, undeclaring)
        sender = Sender(
            loop,
            publishers.put,
            context.name,
            success=UNCONFIRMED if options.uncertain_s else None,
            slow_s=max(_SLOW * wait_before_close_s(config), _SLOW_MIN_S),
            was_slow=self._was_slow,
            has_room=sockets.has_room,
            now_ms=context.now_ms,
        )
        trusted = () if options.receipts is None else options.receipts.streamers
        patience_s = _PATIENCE * (options.uncertain_s or DEFAULT_UNCERTAIN_S)
        own = (context.name, context.authority, context.serves)
        receipts = Receipts(*on, self._receipt_key, *own, trusted, patience_s, self._receipts_refused, self._flows.set_away)
        nodes = Nodes(
            *on,
            context.name,
            is_own,
            self._node_changed,
            self._node_settled,
            lost_now=sender.break_off,
            heard=self._node_heard,
        )
        decoder = SampleDecoder(context.authority, options.max_header_bytes, options.max_token_bytes, context.flows)
        filters = () if self._is_leaving else self.registry.filters()
        intake = Intake(*on, context, self.registry, receipts, self._gate, options.receive_buffer, decoder, filters)
        presence = PresenceWatch(*on, publishers.declared, undeclaring, self._flows)
        self.receivers.use(presence)
        self._opened = _Opened(sockets, sender, receipts, receipts.ledger, nodes, intake, presence)
        # All this after the subscriptions: the link must not be reported as up before we listen.
        await control.ask(nodes.watch)
        await control.ask(sockets.watch)
        await self.shared.open(*on, nodes)
        if options.receipts is not None:
            receipts.announce()
        self._update_link()

    def _open_blocking(self, config: zenoh.Config) -> zenoh.Session:
        """Open the session on the control thread. It is stored even if nobody waits any more, so that it gets closed."""
        self._session = zenoh.open(config)
        return self._session

    async def stop_receiving(self) -> None:
        """Unsubscribe, and deliver the messages that have arrived. Takes a few seconds at most."""
        self._is_leaving = True
        self._gate.open()
        if self._opened is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._opened.sockets.until_read(_CLOSE_S / 3)
                await self._opened.intake.end()
        except TimeoutError:
            logger.warning("zenoh_unsubscribe_timeout endpoint=%s after_s=%.0f", self.context.name, _CLOSE_S)

    async def stop(self) -> None:
        """Deliver arrived messages, close the session, and report unsent parcels as lost. Takes a few seconds at most."""
        if self._stopped or self._control is None:
            self._stopped = True
            return
        self._stopped = True
        self.set_state(LinkState.DOWN, "stopped")  # before anything is awaited: what is submitted now is refused
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        self._stop_looking()
        self.shared.close()
        opened = self._opened
        if opened is not None:
            opened.nodes.close()
            opened.presence.close()
            opened.sockets.close()
            opened.sender.stop()
            opened.receipts.lose_all()
        try:
            async with asyncio.timeout(_CLOSE_S):
                if opened is not None:
                    await opened.intake.close()
                    opened.receipts.close()
                await self._control.ask(self._close_blocking)
        except TimeoutError:
            logger.warning("zenoh_close_timeout endpoint=%s after_s=%.0f", self.context.name, _CLOSE_S)
        except zenoh.ZError as exc:
            logger.warning("zenoh_close_failed endpoint=%s error=%s", self.context.name, exc)
        finally:
            if opened is not None:
                opened.intake.abandon()  # waiting samples would block Zenoh's own close
            self._control.post(self._close_quietly)
            self._control.end()

    def _close_blocking(self) -> None:
        """Close the session on the control thread."""
        if self._session is not None:
            self._session.close()  # type: ignore[no-untyped-call]  # incomplete stubs

    def _close_quietly(self) -> None:
        """Try once more to close a session that was not closed in time."""
        if self._session is not None and not self._session.is_closed():
            try:
                self._close_blocking()
            except zenoh.ZError as exc:
                logger.info("zenoh_close_failed endpoint=%s error=%s", self.context.name, exc)

    def _receipts_refused(self, number: int) -> None:
        """Count tokens and receipts with a wrong proof, or replayed ones, as malformed packets."""
        error = MalformedPacketError(Malformed.RECEIPT, "it does not prove that it comes from a streamer under receipts")
        self.context.events.packets_received(number)
        for _ in range(number):
            self.context.events.packet_malformed(error)

    # -- link

    def _node_changed(self, is_there: bool, node: str) -> None:
        """Handle that another node has come, or was lost."""
        opened = self._opened
        if self._stopped or opened is None:
            return
        if is_there:
            opened.presence.node_came(node)
        else:
            opened.sender.report_through()  # these may be lost, so the router has to know them before `node_changed`
            opened.sender.break_off()  # later parcels must not overtake them if the node is back
            opened.presence.node_lost(node)
        if not opened.nodes.present:
            opened.receipts.lose_all()
        self._flows.set_nodes_present(bool(opened.nodes.present))
        self._update_link()
        if not is_there:
            if self.options.uncertain_s:
                self.context.events.node_changed(False)
            # Until Zenoh has noticed the loss, too, messages that only that node receives are lost.
            opened.sockets.suspend_evidence(self.options.uncertain_s)

    def _node_heard(self, is_there: bool, is_news: bool, zid: str) -> None:
        """Handle Zenoh's own event about a node. Only with its DELETE does Zenoh stop counting the node as a receiver."""
        self._update_link()
        if not is_there and self._opened is not None:
            self._opened.sockets.forget_lost(zid)
            if is_news:
                self._opened.sockets.suspend_evidence(GRACE_S)

    def _node_settled(self) -> None:
        if self._opened is not None:
            self._opened.presence.node_settled()
        if self.options.uncertain_s:
            self.context.events.node_changed(True)

    def _was_slow(self) -> None:
        """Look for broken links after a put that took as long as Zenoh waits for a receiver. Runs where puts are made."""
        assert self._opened is not None
        if not self._opened.nodes.find_broken():
            self._opened.sender.break_off()

    def _update_link(self) -> None:
        """Set the link's state. Without other nodes a client is down, and a peer is alone."""
        opened = self._opened
        if self._stopped or opened is None:
            return
        without_nodes = LinkState.DOWN if self._mode == "client" else LinkState.ALONE
        state = LinkState.UP if opened.nodes.present else without_nodes
        came_up = state is LinkState.UP and self.state is not LinkState.UP
        if state is LinkState.UP:
            opened.sender.resume()
            self._stop_looking()
        else:
            opened.sender.break_off()
            if self.state is LinkState.UP and self._is_calling:  # others may come and go
                self._link_down(LinkFailure.RESET, "the link to the last other node has ended")
            if self._looking is None:
                self._looking = asyncio.create_task(self._look_for_nodes(), name=f"{self.context.name}-look")
        self.set_state(state, "" if state is LinkState.UP else "no other node")
        if came_up:
            if self._was_up and self._is_calling:
                self.context.events.reconnected()
            self._was_up = True

    def _link_down(self, reason: LinkFailure, text: str, address: str = "") -> None:
        """Record and log why no other node is there."""
        self.link_failed(reason, text, address)
        line = "link_down endpoint=%s address=%s reason=%s text=%s"
        state = (f"link {self.context.name}", f"down: {reason}")
        logger.warning(line, self.context.name, address, reason, text, extra={"state": state})

    def _stop_looking(self) -> None:
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()

    # -- receiving

    def open_filter(self, source: UUri, sink: UUri | None) -> None:
        if self._opened is not None and not self._is_leaving:  # once the session is open, all filters are opened
            self._opened.intake.open_filter(source, sink)

    def close_filter(self, source: UUri, sink: UUri | None) -> None:
        if self._opened is not None:
            self._opened.intake.close_filter(source, sink)

    def set_receiving(self, is_receiving: bool) -> None:
        """Take samples from Zenoh, or none: each subscription then buffers `receive_buffer` of them, and senders wait.

        Only for moments. With Zenoh's defaults, a sender that is blocked for 5 s (`wait_before_close`, 1 s in another
        streamer), or hears nothing for 10 s (`lease`), closes the link, and its messages of that time are lost.
        """
        if is_receiving:
            self._gate.open()
        elif not self._is_leaving:  # the messages that have arrived are delivered then
            self._gate.close()

    # -- sending

    def submit(self, parcels: Sequence[Parcel], done: Done) -> None:
        opened = self._opened
        if opened is None or self._stopped:
            done(parcels, LinkLostError())
        elif self.state is not _UP and opened.sender.is_empty:
            done(parcels, LinkLostError("no other Zenoh node is there"))
        elif opened.ledger.is_needed and opened.ledger.expect(parcels, done):
            opened.sender.submit(parcels, partial(opened.receipts.put, done))
        else:  # behind earlier parcels even without a link, because results keep their order
            opened.sender.submit(parcels, done)
