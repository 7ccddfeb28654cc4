"""The record of ``check``: a command that reports every problem of a configuration file, and of its machine."""

from streamer.features.record import Feature


class CheckFeature(Feature):
    """The command ``check``."""

    COMMANDS = ("streamer.features.check.command",)
