"""Zenoh 1.x: the wire mapping, the session's options, and the transport on top of them."""

import os

# A sender under back-pressure blocks one of the threads with which Zenoh reads, whichever session it belongs to. By default
# there are two, so two such senders block all others. Zenoh reads this variable when the process opens its first session.
os.environ.setdefault("ZENOH_RUNTIME", "(rx: (worker_threads: 16))")
