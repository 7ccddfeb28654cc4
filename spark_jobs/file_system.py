"""A file system by Arrow, for where PySpark has no Java process beside it (Spark Connect). `Storage` says what it does.

There, a path means the same to the jobs and to Spark's server: a folder that both see (a mounted volume), or a URL.
"""

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

import pyarrow.fs as pafs

_ARROWS = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's schemes for what Arrow calls otherwise."""


class StorageError(OSError):
    """A file or folder cannot be used; the text says which and why."""


class ArrowFileSystem:
    """Local paths, and what `pyarrow.fs` knows: s3, gs, abfs. Its methods raise StorageError."""

    def local(self, path: str) -> str | None:
        url = urlsplit(path)
        if not url.scheme:
            return os.path.abspath(path)
        return unquote(url.path) if url.scheme == "file" else None

    def _at(self, path: str) -> tuple[pafs.FileSystem, str]:
        if (here := self.local(path)) is not None:
            return pafs.LocalFileSystem(), here
        scheme = urlsplit(path).scheme
        try:
            system, at = pafs.FileSystem.from_uri(_ARROWS.get(scheme, scheme) + path[len(scheme) :])
        except (ValueError, OSError, NotImplementedError) as error:
            raise StorageError(f"{path}: cannot be reached: {_line(error)}") from error
        return system, str(at)

    def exists(self, path: str) -> bool:
        return bool(self._info(path).type != pafs.FileType.NotFound)

    def _info(self, path: str) -> pafs.FileInfo:
        system, at = self._at(path)
        try:
            return system.get_file_info(at)
        except OSError as error:
            raise StorageError(f"{path}: cannot be looked at: {_line(error)}") from error

    def size_bytes(self, path: str) -> int:
        info = self._info(path)
        if info.type == pafs.FileType.NotFound:
            raise StorageError(f"cannot look at {path}: it does not exist")
        if info.type == pafs.FileType.File:
            return int(info.size)
        return sum(int(each.size or 0) for each in self._listed(path, recursive=True))

    def _listed(self, folder: str, *, recursive: bool = False) -> list[pafs.FileInfo]:
        system, at = self._at(folder)
        try:
            return list(system.get_file_info(pafs.FileSelector(at, allow_not_found=True, recursive=recursive)))
        except NotADirectoryError:
            return []
        except OSError as error:
            raise StorageError(f"{folder}: cannot be listed: {_line(error)}") from error

    def names(self, pattern: str) -> list[str]:
        folder, _, wanted = pattern.rpartition("/")
        found = (PurePosixPath(each.path).name for each in self._listed(folder or "/"))
        # As a shell and as Hadoop's, but for braces, which nobody here uses.
        return sorted(name for name in found if fnmatchcase(name, wanted))

    def delete(self, path: str) -> None:
        system, at = self._at(path)
        kind = self._info(path).type
        try:
            if kind == pafs.FileType.Directory:
                system.delete_dir(at)
            elif kind != pafs.FileType.NotFound:
                system.delete_file(at)
        except OSError as error:
            raise StorageError(f"{path}: cannot be deleted: {_line(error)}") from error

    def move(self, source: str, target: str) -> None:
        system, at = self._at(source)
        into = self._at(target)[1]
        kind = self._info(source).type
        if kind == pafs.FileType.NotFound or self.exists(target):
            raise StorageError(f"cannot move {source} to {target}: the one is not there, or the other is")
        try:
            system.create_dir(os.path.dirname(into), recursive=True)
            if kind == pafs.FileType.File or isinstance(system, pafs.LocalFileSystem):
                system.move(at, into)
            else:  # an object store has no folders to move
                pafs.copy_files(at, into, source_filesystem=system, destination_filesystem=system)
                system.delete_dir(at)
        except OSError as error:
            raise StorageError(f"cannot move {source} to {target}: {_line(error)}") from error

    def files(self, folder: str) -> Iterator[tuple[str, int, int]]:
        for each in self._listed(folder, recursive=True):
            if each.type == pafs.FileType.File:
                yield each.path, int(each.size or 0), int((each.mtime_ns or 0) // 1_000_000)

    def read(self, path: str, start: int = 0, size_bytes: int | None = None) -> bytes:  # Arrow asks for it
        system, at = self._at(path)
        try:
            with system.open_input_file(at) as stream:
                stream.seek(start)
                return bytes(stream.read())
        except OSError as error:
            raise StorageError(f"{path}: cannot be read: {_line(error)}") from error

    def write(self, path: str, content: bytes) -> None:
        system, at = self._at(path)
        try:
            system.create_dir(os.path.dirname(at), recursive=True)
            with system.open_output_stream(at) as stream:
                stream.write(content)
        except OSError as error:
            raise StorageError(f"{path}: cannot be written: {_line(error)}") from error


def _line(error: BaseException) -> str:
    return re.sub(r"\s+", " ", str(error)) or type(error).__name__
