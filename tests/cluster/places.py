"""Where nights run: on this machine, on a cluster of Spark's own, from and to an object store. All of their processes are on
this machine, and ended with what they are needed for."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow.fs as pafs
import pyspark

from spark_jobs import java
from tests.ports import HOST, free_port
from tests.waiting import POLL_S

ROOT = Path(__file__).parents[2]
BUCKET = "fleet"
_REQUEST = re.compile(r'"([A-Z]+) (\S+) HTTP/1\.1"')
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_START_S = 120
_NIGHT_S = 1500
_END_S = 30
_KEY = "test"
_HOME = Path(pyspark.__file__).parent
_SUBMITTED = {
    "spark.driver.bindAddress": HOST,
    "spark.driver.host": HOST,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
}


def made(name: str) -> Path:
    """What `make test-cluster` has got: the object store's program, archives of Hadoop's, the zip of the jobs."""
    return Path(os.environ["CLUSTER"], name)


def _environment() -> dict[str, str]:
    """What Spark's own scripts need to find."""
    own = {"JAVA_HOME": str(java.home()), "SPARK_HOME": str(_HOME), "SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": sys.executable}
    return os.environ | own


class Ended(NamedTuple):
    """A night that has ended, with all that it printed."""

    exit_code: int
    said: str

    def left_out(self) -> set[str]:
        """The files that it has left out, by their date and path below, with the reason."""
        return set(re.findall(r"left out: \S+/(date=.*)", self.said))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a night runs, and where its traces and tables are."""

    traces: str
    tables: str
    command: Sequence[str] = (sys.executable, "-m", "spark_jobs.nightly")
    environment: Mapping[str, str] = field(default_factory=_environment)

    @contextmanager
    def begun(self, folder: Path) -> Iterator["Night"]:
        """Begin a night of all dates, in a process of its own. `folder`: one that does not exist, for its log."""
        where = ["--input", self.traces, "--output", self.tables, "--lookback-days", "36500"]
        folder.mkdir()
        with running([*self.command, *where], self.environment, folder / "log", folder) as process:
            yield Night(process, folder / "log")

    def night(self, folder: Path) -> Ended:
        """Run a night to its end."""
        with self.begun(folder) as night:
            return night.ended()


class Night:
    """One that runs."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process, self._log = process, log

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def ended(self) -> Ended:
        """Wait for its end."""
        return Ended(self._process.wait(_NIGHT_S), self._log.read_text())


def on_this_machine(traces: Path, tables: Path) -> Place:
    """As ``make nightly`` runs it."""
    settings = {"spark.master": "local[2]", "spark.driver.bindAddress": HOST, "spark.driver.host": HOST}
    given = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    return Place(str(traces), str(tables), environment=os.environ | {"PYSPARK_SUBMIT_ARGS": f"{given} pyspark-shell"})


def submitted(traces: str, tables: str, settings: Mapping[str, str]) -> Place:
    """By spark-submit, with the jobs in a zip."""
    words = [word for name, value in {**_SUBMITTED, **settings}.items() for word in ("--conf", f"{name}={value}")]
    jobs = ["--py-files", str(made("spark_jobs.zip")), str(ROOT / "deploy/spark/nightly_main.py")]
    return Place(traces, tables, [str(_HOME / "bin" / "spark-submit"), *words, *jobs])


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str], log: Path, folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a folder, which ends here with all that it has started."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            every = _of_session(process.pid)
            for each in every:
                with suppress(psutil.NoSuchProcess):
                    each.send_signal(number)
            psutil.wait_procs([each for each in every if each.pid != process.pid], _END_S)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
        assert _of_session(process.pid) == [], log.read_text()


def _of_session(leader: int) -> list[psutil.Process]:
    """A process and all that it has started, whether it still runs or not."""
    found = []
    for each in psutil.process_iter():
        with suppress(ProcessLookupError):
            if os.getsid(each.pid) == leader:
                found.append(each)
    return found


@contextmanager
def _serving(command: Sequence[str], port: int, folder: Path, name: str) -> Iterator[None]:
    """A server, once it listens on its port."""
    log = folder / f"{name}.log"
    with running(command, _environment(), log, folder) as process:
        deadline_s = time.monotonic() + _START_S
        while not _listens(port):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(POLL_S)
        yield


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """A master and one worker. Gives the settings with which jobs run there."""
    port, of_worker = free_port(), free_port()

    def server(kind: str, port: int) -> list[str]:
        name = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
        place = ["--host", HOST, "--port", str(port), "--webui-port", str(free_port())]
        return [str(_HOME / "bin" / "spark-class"), name, *place]

    url = f"spark://{HOST}:{port}"
    worker = [*server("Worker", of_worker), "--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work"), url]
    with ExitStack() as ends:
        ends.enter_context(_serving(server("Master", port), port, folder, "master"))
        ends.enter_context(_serving(worker, of_worker, folder, "worker"))
        yield {"spark.master": url, "spark.executor.memory": "1g"}


class Store:
    """An object store with one bucket."""

    def __init__(self, port: int, log: Path) -> None:
        self._endpoint, self._log = f"{HOST}:{port}", log
        self._seen_bytes = 0
        self.files = pafs.S3FileSystem(
            access_key=_KEY,
            secret_key=_KEY,
            region="us-east-1",
            endpoint_override=self._endpoint,
            scheme="http",
            allow_bucket_creation=True,
        )
        self.files.create_dir(BUCKET)

    @property
    def settings(self) -> dict[str, str]:
        """The settings with which jobs reach it, with Hadoop's connector in an image."""
        of_store = {
            "endpoint": f"http://{self._endpoint}",
            "endpoint.region": "us-east-1",
            "access.key": _KEY,
            "secret.key": _KEY,
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
            "input.stream.type": "classic",
        }
        archives = str(made("jars") / "*")
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in of_store.items()} | {
            "spark.master": "local[2]",
            "spark.driver.extraClassPath": archives,
            "spark.executor.extraClassPath": archives,
        }

    def put(self, folder: Path, name: str) -> None:
        """Upload the files of a folder, and no objects that stand for folders."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda path: self.write(path, f"{name}/{path.relative_to(folder)}"), folder.rglob("*.parquet")))

    def write(self, path: Path, name: str) -> None:
        """Upload a file."""
        with self.files.open_output_stream(f"{BUCKET}/{name}") as stream:
            stream.write(path.read_bytes())

    def get(self, name: str, folder: Path) -> Path:
        """Download a folder to one that does not exist."""
        folder.mkdir()
        pafs.copy_files(f"{BUCKET}/{name}", str(folder), self.files, pafs.LocalFileSystem())
        return folder

    def requests(self) -> list[tuple[str, str]]:
        """Method and path of every request since it was last asked."""
        with self._log.open("rb") as log:
            log.seek(self._seen_bytes)
            told = log.read()
        self._seen_bytes += len(told)
        return _REQUEST.findall(_COLOUR.sub("", told.decode()))


def kinds(requests: list[tuple[str, str]]) -> Counter[str]:
    """How many requests of each kind: the method, or LIST."""
    return Counter("LIST" if "list-type=" in path else method for method, path in requests)


@contextmanager
def store(folder: Path) -> Iterator[Store]:
    """An empty object store (moto), which is in memory."""
    port = free_port()
    with _serving([str(made("bin") / "moto_server"), "--host", HOST, "--port", str(port)], port, folder, "store"):
        yield Store(port, folder / "store.log")
