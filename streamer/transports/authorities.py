"""Completes addresses without authority, which are local to the network that a message came from. Pure."""

from dataclasses import replace

from streamer.transports.errors import Malformed, MalformedPacketError
from streamer.uprotocol.message import Attributes, UMessageType
from streamer.uprotocol.uri import UriError, UUri


def completed(attributes: Attributes, source_authority: str, sink_authority: str) -> Attributes:
    """Return the attributes with the authorities of their topic or key where source or sink have none.

    On another endpoint, an empty authority would mean another network. The sink of a Publish consists of an authority, so
    without one it is left as it is, which is invalid. Raises `MalformedPacketError`.
    """
    source, sink = attributes.source, attributes.sink
    if not source.authority:
        source = _at(source_authority, source)
    if sink is not None and not sink.authority and attributes.type is not UMessageType.PUBLISH:
        sink = _at(sink_authority, sink)
    if source is attributes.source and sink is attributes.sink:
        return attributes
    return replace(attributes, source=source, sink=sink)


def _at(authority: str, uri: UUri) -> UUri:
    try:
        return uri._replace(authority=authority).check()
    except UriError as exc:
        raise MalformedPacketError(Malformed.URI, f"the address is local to {str(exc)[:300]}") from None
