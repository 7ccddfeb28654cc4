"""The black box: a recorder beside the daemon, which keeps the last minutes and writes them to a file after a fault."""
