"""Whether this installation is compiled or pure Python."""

from streamer.uprotocol import message

IS_COMPILED = not message.__file__.endswith(".py")
"""Whether the modules that a message passes through are compiled: `setup.py` compiles all of them, or none."""

FORM = "compiled" if IS_COMPILED else "pure"
"""The same as a word."""
