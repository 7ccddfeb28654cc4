"""The uProtocol vocabulary: URIs, ids, attributes, status codes and the wire messages.

All of it is pure: no event loop, no clock, no logger. Time is passed in.
"""
