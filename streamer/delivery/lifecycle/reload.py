"""Applies a reload to a router: adds, changes and removes endpoints while the others go on.

The law of this file:
- Every step that can fail comes first, so a refused reload changes nothing.
- Removed and changed endpoints are disconnected (`departure`) under the old routing table. Then the new one is used.
- Changed and new transports start at once, because a network such as Zenoh loses messages meanwhile; unless one needs the
  port or the session of an endpoint that is still being removed.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from streamer.config.models import Config
from streamer.delivery.lifecycle.departure import TRANSPORT_CALL_S, Leaving, attempt, may_exclude
from streamer.delivery.router import Router
from streamer.routing.table import RoutingTable
from streamer.transports.base import UTransport
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.well_known import LOCAL_ENDPOINT, USTREAMER

logger = logging.getLogger("ustreamer.router")


class Reload:
    """One reload."""

    def __init__(
        self,
        router: Router,
        config: Config,
        transports: Mapping[str, UTransport] | None = None,
        on_accepted: Callable[[], None] = lambda: None,
    ) -> None:
        """``transports``: those of new or changed endpoints, not started. Calls ``on_accepted`` once nothing can fail."""
        self._router = router
        self._config = config
        self._transports = transports = transports or {}
        self._on_accepted = on_accepted
        self._gone = [name for name in router.transports if name != LOCAL_ENDPOINT and name not in config.endpoints]
        self._changed = [name for name in transports if name in router.transports]
        self._added = [name for name in transports if name not in router.transports]

    async def run(self) -> None:
        """Use the endpoints, routes, authorities and bounds of the configuration from now on. Queued messages stay queued.

        Removed routes deliver their queues and accept nothing new. An endpoint that is removed or changed is left first, for
        at most ``shutdown.drain_s``; messages left for a removed one then become dead letters. Raises `UStatusError` if a
        transport cannot listen as the routes need; nothing has changed then.
        """
        router, config = self._router, self._config
        await router.prepare(config)
        table = router.table_of(config, {**router.transports, **self._transports})
        await self._prepare(table)
        self._on_accepted()  # permissions and bounds change before endpoints are left, which takes time
        leaving = {name: Leaving(name, router, config.shutdown.drain_s) for name in (*self._gone, *self._changed)}
        stopping = (leaving[name].stop_receiving() for name in self._gone)
        await asyncio.gather(*stopping, *(leaving[name].pause() for name in self._changed))
        await asyncio.gather(*(leaving[name].leave() for name in self._changed))  # they receive nothing until they start
        for name in self._changed:
            router.replace_transport(name, self._transports[name])
            router.listening.replaced(name, table)
        for name in self._gone:
            router.listening.remove(name)
        router.use(config, table)
        await router.listening.leave(table)
        for ingress in router.ingresses.values():
            ingress.admit_backlog()
        router.pump.run()
        going = [router.transports[name] for name in self._gone]
        later = [name for name, transport in self._transports.items() if may_exclude(transport, going)]
        await asyncio.gather(*(self._start(name) for name in self._transports if name not in later))
        await asyncio.gather(*(leaving[name].deliver() for name in self._gone))
        for name in self._gone:
            left = await leaving[name].give_up()
            router.remove_endpoint(name)
            state = (f"{name} in use", "no")
            logger.info("endpoint_removed endpoint=%s dead_letters=%d", name, left, extra={"state": state})
        for name in later:
            await self._start(name)
        await asyncio.gather(*(leaving[name].end_session(self._transports[name]) for name in self._changed))

    async def _prepare(self, table: RoutingTable) -> None:
        """Register the listeners that a table needs. Raises `UStatusError`; nothing has changed then."""
        router = self._router
        for name in self._added:
            router.add_endpoint(name, self._transports[name], self._config)
            router.listening.add(name)
        try:
            async with asyncio.timeout(TRANSPORT_CALL_S):
                for transport in self._transports.values():
                    await transport.authenticate(USTREAMER.at(table.authority))
                await router.listening.use(table, {name: self._transports[name] for name in self._changed})
        except Exception as exc:
            for name in self._added:
                router.listening.remove(name)
                router.remove_endpoint(name)
            if isinstance(exc, UStatusError):
                raise
            logger.exception("registering_failed")  # a bug in a plugin
            raise UStatusError(UCode.UNKNOWN, f"a transport failed: {type(exc).__name__}") from exc

    async def _start(self, name: str) -> None:
        transport = self._transports[name]
        event = "endpoint_changed" if name in self._changed else "endpoint_added"
        state = (f"{name} in use", event)
        logger.info(event + " endpoint=%s transport=%s", name, transport.kind, extra={"state": state})
        await attempt(transport.start, "start", name)
