"""The interface of a network on which two streamers of one authority hear the same messages: what a pair needs of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection


class SharedNetwork(ABC):
    """A network on which a second streamer, connected with the same options, gets every message as well.

    It has a *side channel*, on which the streamers of one authority talk beside all messages. Anybody on the network may say
    something there. ``own`` is the id of the streamer's own node (`OwnNodes`), which it has from before it is connected.
    """

    own: str

    @abstractmethod
    def others(self) -> Collection[str]:
        """Return the ids of the connected nodes that belong to neither this streamer nor its pair."""

    @abstractmethod
    def listen(self, take: Callable[[bytes], None]) -> None:
        """Have ``take`` called with what is said on the side channel. To be called before the transport starts."""

    @abstractmethod
    def say(self, payload: bytes) -> None:
        """Say something on the side channel, if that is possible now; it may be lost.

        For a few hundred bytes, some times in a second.
        """
