"""Tests of the packages: what `make test-packages` runs, as root, on a machine that may be changed."""
