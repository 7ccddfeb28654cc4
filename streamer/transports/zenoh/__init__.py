"""Zenoh 1.x: the wire mapping, the session's options, and the transport on top of them."""

import os

# A sender that is held back holds one of the threads that Zenoh reads with, whichever session it belongs to. Without this
# there are two, and two such senders silence everybody. Zenoh reads this when the first session of the process opens.
os.environ.setdefault("ZENOH_RUNTIME", "(rx: (worker_threads: 16))")
