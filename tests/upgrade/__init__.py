"""From the released version to this one: the files that it wrote, and both side by side."""
