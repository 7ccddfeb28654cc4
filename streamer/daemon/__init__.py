"""The program that runs: `assembly` builds everything, `daemon` starts and stops it, `reload` changes it meanwhile."""

from streamer.daemon.daemon import CLOSING_S, Daemon

__all__ = ("CLOSING_S", "Daemon")
