"""Log lines: their form, where they go, how often the same one appears; and the audit log."""
