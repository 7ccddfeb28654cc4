"""Features: each folder is one thing that an operator can name and do without, which the kernel does not know."""
