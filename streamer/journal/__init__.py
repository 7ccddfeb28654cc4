"""The journal: keeps undelivered messages and dead letters in one SQLite file, so that they survive the process."""
