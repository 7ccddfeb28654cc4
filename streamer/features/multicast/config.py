"""The section `multicast` of the configuration: a list of broadcasts."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

from streamer.config.checks import Finding, items, part
from streamer.config.models import Config, FeatureSection
from streamer.config.types import Entity, expected
from streamer.features.multicast.ids import Catalogue, MulticastId, check_broadcast, check_partition, split_partition
from streamer.uprotocol.uri import FIRST_TOPIC, LAST_TOPIC, UriError, UUri


def _broadcast(text: str) -> str:
    try:
        return check_broadcast(text)
    except ValueError as exc:
        raise expected("the name of a broadcast: letters, digits and _, no digit first") from exc


def _partition(text: str) -> str:
    try:
        check_partition(split_partition(text), wildcards=False)
    except ValueError as exc:
        raise expected(
            'a partition: segments of letters and digits, joined by /, such as front/left, or "" for none; no wildcards'
        ) from exc
    if len(text) > 512:
        raise expected("a partition of at most 512 characters")
    return text


def _at_least_one(partitions: dict[str, int]) -> dict[str, int]:
    if not partitions:
        raise expected('at least one partition; "" is the broadcast without one')
    return partitions


def _topic_resource(value: int) -> int:
    if not FIRST_TOPIC <= value <= LAST_TOPIC:
        raise expected(f"the resource of a topic, {FIRST_TOPIC:#X} to {LAST_TOPIC:#X}".replace("0X", "0x"))
    return value


TopicResource = Annotated[
    int, AfterValidator(_topic_resource), WithJsonSchema({"type": "integer", "minimum": FIRST_TOPIC, "maximum": LAST_TOPIC})
]
BroadcastName = Annotated[str, Field(max_length=128), AfterValidator(_broadcast)]
PartitionName = Annotated[str, AfterValidator(_partition)]


class MulticastConfig(FeatureSection):
    """A broadcast of a provider, and the topic of each of its partitions."""

    provider: Entity
    """The uEntity that publishes the broadcast."""
    broadcast: BroadcastName
    """The broadcast's name in the provider's interface."""
    partitions: Annotated[dict[PartitionName, TopicResource], AfterValidator(_at_least_one)]
    """Maps each partition (empty: none) to the resource of its topic at the provider."""

    @classmethod
    def field(cls) -> tuple[Any, Any]:
        return list[MulticastConfig], []

    @property
    def multicast_topics(self) -> list[UUri]:
        return [self.provider._replace(resource=resource) for resource in self.partitions.values()]

    @classmethod
    def mistakes(cls, raw: Any) -> Iterator[Finding]:
        broadcasts_seen: dict[tuple[UUri, Any], int] = {}
        topics_seen: dict[UUri, str] = {}
        for position, entry in enumerate(items(part(raw, "multicast"))):
            provider, name, partitions = (part(entry, key) for key in ("provider", "broadcast", "partitions"))
            try:
                provider = UUri.parse(provider) if isinstance(provider, str) else provider
            except UriError:
                continue
            if not isinstance(provider, UUri) or not isinstance(name, str):
                continue
            if (first := broadcasts_seen.setdefault((provider, name), position)) != position:
                text = f"multicast[{first}] describes {name!r} of {provider} already; expected each broadcast once"
                yield Finding(("multicast", position, "broadcast"), text)
            for partition, resource in partitions.items() if isinstance(partitions, Mapping) else ():
                if not isinstance(partition, str) or not isinstance(resource, int):
                    continue
                topic, meaning = provider._replace(resource=resource), f"{name}/{partition}".rstrip("/")
                if (other := topics_seen.setdefault(topic, meaning)) != meaning:
                    text = f"{topic} is the topic of {other} already; expected one of its own"
                    yield Finding(("multicast", position, "partitions", partition), text)


def catalogue(config: Config) -> Catalogue:
    """Return the multicast ids of a configuration and their topics."""
    return Catalogue(
        {
            MulticastId(entry.provider, entry.broadcast, split_partition(partition)): resource
            for entry in config.sections(MulticastConfig)
            for partition, resource in entry.partitions.items()
        }
    )
