"""uStreamer: routes uProtocol messages between MQTT 5 and Zenoh."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("ustreamer")
except PackageNotFoundError:  # running from a source tree that was not installed
    __version__ = "0.0.0"
