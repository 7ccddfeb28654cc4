"""Patterns as permissions have them. No tests."""

from streamer.uprotocol.uri import ANY_UE_ID, ANY_VERSION, UUri


def entities_at(authority: str) -> UUri:
    """The pattern of every uEntity at an authority."""
    return UUri(authority, ANY_UE_ID, ANY_VERSION, 0)
