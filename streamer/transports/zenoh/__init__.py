"""Zenoh 1.x: the wire mapping, the session's options, and the transport on top of them."""

import os

# A sender that is held back holds one of the threads that Zenoh reads with, whichever session it belongs to. Zenoh's own default
# is two, so two such senders would silence everybody. Zenoh reads this when the first session of the process opens.
os.environ.setdefault("ZENOH_RUNTIME", "(rx: (worker_threads: 16))")
