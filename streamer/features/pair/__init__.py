"""A pair of streamers, one active and one on standby."""
