"""The remote topics that uEntities here have subscribed to or are leaving, with the time at which each is due. Pure."""

from collections.abc import Iterator

from streamer.due import Due
from streamer.features.usubscription.entries import NEWEST, Command
from streamer.features.usubscription.remote_topic import OpenCommand, RemoteTopic
from streamer.uprotocol.uri import UUri


class RemoteTopics:
    """``by_topic`` has the remote topics in the order in which they were opened."""

    def __init__(self) -> None:
        self.by_topic: dict[UUri, RemoteTopic] = {}
        self.version = NEWEST
        self._commands: dict[bytes, UUri] = {}  # the topic of every open command
        # Commands that were open at the last flush, until somebody subscribes to their topic again.
        self._flushed: dict[UUri, tuple[OpenCommand, ...]] = {}
        self._repeats: Due[UUri] = Due()

    def __len__(self) -> int:
        return len(self.by_topic)

    def use_version(self, version: int) -> None:
        """Send commands in this version of core.usubscription from now on."""
        self.version = version
        for remote in self.by_topic.values():
            remote.version = version

    def get(self, topic: UUri) -> RemoteTopic | None:
        return self.by_topic.get(topic)

    def all(self) -> list[RemoteTopic]:
        """Return all remote topics, as a copy."""
        return list(self.by_topic.values())

    def load(self, remote: RemoteTopic) -> None:
        """Add a remote topic from disk."""
        remote.topics, remote.version = self._commands, self.version
        self._commands.update(dict.fromkeys(remote.open_commands, remote.topic))
        self.by_topic[remote.topic] = remote

    def open(self, now_ms: int, topic: UUri, timeout_ms: int) -> RemoteTopic:
        """Return the remote topic with this name, which is created if there is none."""
        remote = self.by_topic.get(topic)
        if remote is None:
            remote = self.by_topic[topic] = RemoteTopic(topic, timeout_ms, topics=self._commands, version=self.version)
            remote.inherit(now_ms, self._flushed.pop(topic, ()))
        return remote

    def changed(self, remote: RemoteTopic) -> None:
        """Update the due time of a remote topic after a change; forget the remote topic if it is over."""
        if remote.is_over:
            del self.by_topic[remote.topic]
            self._repeats.set(remote.topic, None)
        else:
            self._repeats.set(remote.topic, remote.next_ms())

    def forget(self, topic: UUri) -> None:
        """Forget a remote topic and its commands."""
        for command in self.by_topic.pop(topic).open_commands:
            self._commands.pop(command, None)
        self._repeats.set(topic, None)

    def topic_of(self, command: bytes) -> UUri | None:
        """Return the topic of an open command; None: there is no such command."""
        return self._commands.get(command)

    def due(self, now_ms: int) -> Iterator[RemoteTopic]:
        """Yield the remote topics that are due, and take them off the timers."""
        for topic in list(self._repeats.take(now_ms)):
            remote = self.by_topic.get(topic)
            if remote is not None:
                yield remote

    def clock_set_back(self, now_ms: int) -> None:
        """Bring all deadlines nearer: the clock was set back."""
        for remote in self.by_topic.values():
            remote.clock_set_back(now_ms)
            self._repeats.set(remote.topic, remote.next_ms())

    def flush(self, now_ms: int) -> list[Command]:
        """Forget all remote topics. Return an Unsubscribe for each; these are not repeated."""
        commands = [command for remote in self.by_topic.values() for command in remote.leave_without_retry(now_ms)]
        self._flushed = {
            topic: open_ for topic, open_ in self._flushed.items() if any(each.deadline_ms > now_ms for each in open_)
        }
        self._flushed |= {topic: tuple(remote.open_commands.values()) for topic, remote in self.by_topic.items()}
        self.by_topic.clear()
        self._commands.clear()
        self._repeats.clear()
        return commands
