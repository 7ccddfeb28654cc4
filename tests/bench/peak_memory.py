"""The peak memory of a process and of its children, sampled by a thread of its own."""

import threading

import psutil


class PeakMemory:
    """Samples the resident memory of this process and of its children, Java's machine among them, until it is left."""

    def __init__(self) -> None:
        self.python_bytes = self.java_bytes = self.peak_bytes = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory")

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ends.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._ends.wait(0.2):
            own = total = me.memory_info().rss
            java = 0
            for process in me.children(recursive=True):
                try:
                    taken = process.memory_info().rss
                    java += taken if process.name() == "java" else 0
                except psutil.NoSuchProcess:
                    continue
                total += taken
            self.python_bytes = max(self.python_bytes, own)
            self.java_bytes = max(self.java_bytes, java)
            self.peak_bytes = max(self.peak_bytes, total)
