"""Overhearing on standby: each ingress of a shared network gives its messages to the shadows, until the take-over."""

import logging
from collections.abc import Sequence

from streamer.delivery.inbound.step import InboundStep, Inlet
from streamer.delivery.router import Router
from streamer.features.pair.shadows import Shadows
from streamer.transports.base import Received, Refused
from streamer.transports.errors import Unwanted

logger = logging.getLogger("ustreamer.pair")


class Overhearing:
    """The standby takes messages while ``is_on``. ``shadows`` has what was taken."""

    def __init__(self, shadows: Shadows) -> None:
        self.is_on = False
        self.shadows = shadows

    async def begin(self, router: Router) -> None:
        """Connect a router to the networks that the active streamer hears as well, and take what arrives there."""
        self.is_on = True
        await router.listen_in()

    def end(self, router: Router) -> None:
        """Have a router that has started deliver the messages that were taken and that the active streamer has not settled.

        They count as redelivered: the active streamer may have delivered them.
        """
        heard = self.shadows.take()
        logger.info("pair_overheard messages=%d forgotten=%d", sum(map(len, heard.values())), self.shadows.forgotten)
        self.is_on = False
        router.seen.remember(self.shadows.settled())
        for name in router.ingresses.keys() & heard.keys():
            router.transports[name].context.events.packets_received(len(heard[name]))  # these count once more
            for received in heard[name]:
                received.redelivered = True
            router.ingresses[name].on_receive_batch(heard[name])


class OverhearingStep(InboundStep):
    """The step of one ingress."""

    def __init__(self, overhearing: Overhearing, inlet: Inlet) -> None:
        self._overhearing = overhearing
        self._inlet = inlet

    def take(self, batch: Sequence[Received]) -> Sequence[Received]:
        if not self._overhearing.is_on:
            return batch
        self._inlet.stats.count_unwanted(Unwanted.OVERHEARD, len(batch))
        self._overhearing.shadows.hear(self._inlet.endpoint, batch)
        return ()

    def refuse(self, batch: Sequence[Refused]) -> Sequence[Refused]:
        if not self._overhearing.is_on:
            return batch
        self._inlet.stats.count_unwanted(Unwanted.OVERHEARD, len(batch))  # the active streamer refuses them as well
        return ()
