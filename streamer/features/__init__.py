"""What an operator can name and do without: each folder is one feature, which the kernel does not know."""
