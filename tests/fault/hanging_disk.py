"""A disk that hangs: while a file exists, no fsync of a process returns. It takes a C compiler."""

import shutil
import subprocess
from pathlib import Path

WHILE = "HANGS_WHILE"
"""The variable of a process that names the file."""

_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static int hang_and(const char *call, int file)
{
    const char *while_there = getenv("HANGS_WHILE");
    while (while_there && access(while_there, F_OK) == 0)
        usleep(10000);
    return ((int (*)(int)) dlsym(RTLD_NEXT, call))(file);
}

int fsync(int file) { return hang_and("fsync", file); }
int fdatasync(int file) { return hang_and("fdatasync", file); }
"""


def is_possible() -> bool:
    return shutil.which("cc") is not None


def preloaded(directory: Path) -> dict[str, str]:
    """Return the environment of processes whose disk can hang."""
    source, library = directory / "hanging_disk.c", directory / "hanging_disk.so"
    source.write_text(_SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return {"LD_PRELOAD": str(library)}
