"""Tests of the console in Chromium: what `make test-console` runs."""
