"""Decides which topics of sent messages have an alias: a number in place of the text (MQTT 5, 3.3.2.3.4). Pure.

The law of this file:
- Aliases end with the connection. So a message that is sent again on the next one has its whole topic.
- There are as many as the broker allows, and not more than the options say.
- A topic gets a free number with its first message, which has both. Until the broker has confirmed that message, the topic
  is written out: a broker that refuses the message may not know the number. After a refusal, the topic has no alias.
- Once no number is free, every `_EVERY`th message whose topic has none looks at the next one in turn. If that was not used
  since it was last looked at, the message's topic gets it. So many topics cost little, and those in use keep their numbers.
"""

from typing import Final

_EVERY: Final = 8


class _Alias:
    """A number and its topic. ``is_known``: the broker has confirmed it. ``is_used``: since it was last looked at."""

    __slots__ = ("is_known", "is_used", "number", "topic")

    def __init__(self, number: int, topic: str) -> None:
        self.number = number
        self.topic = topic
        self.is_known = False
        self.is_used = True


class TopicAliases:
    """The aliases on the present connection, ``wanted`` at most. ``maximum``: how many there may be on it; 0: none."""

    def __init__(self, wanted: int = 0) -> None:
        self._wanted = wanted
        self.maximum = 0
        self._by_topic: dict[str, _Alias] = {}
        self._aliases: list[_Alias] = []
        self._next = 0  # of `_aliases`, to be looked at
        self._without = 0  # messages without an alias, since the last look
        self.unconfirmed: dict[int, _Alias] = {}
        """By packet id: the aliases that were set and are not confirmed."""

    def connected(self, allowed: int) -> None:
        """Begin a connection on which the broker allows so many aliases."""
        self.maximum = min(self._wanted, allowed)
        self._by_topic.clear()
        self._aliases.clear()
        self.unconfirmed.clear()
        self._next = self._without = 0

    def give_up(self) -> None:
        """Use no aliases from the next connection on: the broker does not keep its own rules."""
        self._wanted = 0

    def choose(self, topic: str, packet_id: int) -> int:
        """Return the alias for the next packet: the number to write in place of the topic, or its negative to set it.

        0: neither. If the packet is not sent after all, call `withdraw`.
        """
        alias = self._by_topic.get(topic)
        if alias is not None:
            if not alias.is_known:
                return 0
            alias.is_used = True
            return alias.number
        if len(self._aliases) < self.maximum:
            number = len(self._aliases) + 1
            alias = _Alias(number, topic)
            self._aliases.append(alias)
        else:
            number = self._free()
            if not number:
                return 0
            alias = self._aliases[number - 1] = _Alias(number, topic)
        self._by_topic[topic] = alias
        self.unconfirmed[packet_id] = alias
        return -number

    def _free(self) -> int:
        """Return a number that was taken from its topic; 0 if there is none for this message."""
        self._without += 1
        if self._without < _EVERY:
            return 0
        self._without = 0
        alias = self._aliases[self._next]
        self._next = (self._next + 1) % self.maximum
        if alias.is_used:
            alias.is_used = False
            return 0
        if alias in self.unconfirmed.values():
            return 0
        self._by_topic.pop(alias.topic, None)
        return alias.number

    def withdraw(self, packet_id: int) -> None:
        """Forget the alias, if any, that this packet was to set: it is not sent."""
        alias = self.unconfirmed.pop(packet_id, None)
        if alias is not None:
            del self._by_topic[alias.topic]
            alias.topic, alias.is_used = "", False
            if alias.number == len(self._aliases):
                self._aliases.pop()

    def confirmed(self, packet_id: int, is_refused: bool) -> None:
        """Take the broker's answer to a packet. If it set an alias, that may be used now; not if the packet was refused."""
        alias = self.unconfirmed.pop(packet_id, None)
        if alias is not None:
            alias.is_known = not is_refused
