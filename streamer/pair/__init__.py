"""A pair of streamers, one at work and one on guard."""
