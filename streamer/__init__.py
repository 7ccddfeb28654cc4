"""uStreamer: routes uProtocol messages between MQTT 5 and Zenoh."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("uprotocol-ustreamer")
except PackageNotFoundError:  # running from a source tree that was not installed
    __version__ = "0.0.0"


def newer_format(version: int, known: int, written_by: str | None) -> str:
    """Return the error text for a file that a newer version has written, with what to do."""
    writer, install = (f"ustreamer {written_by}", written_by) if written_by else ("a newer ustreamer", "that version")
    return (
        f"format {version} was written by {writer}; this is ustreamer {__version__}, which knows formats up to {known}: "
        f"install {install} or newer, or move the file away"
    )
