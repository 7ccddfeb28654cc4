"""What survives the process: unsettled messages and dead letters, in one SQLite file."""
