"""Zenoh 1.x: the wire mapping, the session's options, and the transport on top of them."""
