"""A cluster of Spark's own and an object store, both on this machine: started, and ended with what they are needed for."""

import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow.fs as pafs
import pyspark

from spark_jobs import java
from tests.ports import HOST, free_port
from tests.waiting import POLL_S

_LOCAL = {"spark.driver.bindAddress": HOST, "spark.driver.host": HOST}
_REQUEST = re.compile(r'"([A-Z]+) (\S+) HTTP/1\.1"')
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
BUCKET = "fleet"
_START_S = 120
_KEY = "test"


def made() -> Path:
    """What `make test-cluster` has got: the object store's program, and archives of Hadoop's."""
    return Path(os.environ["CLUSTER"])


def submitted(settings: Mapping[str, str], *more: str) -> dict[str, str]:
    """The environment of a process whose Spark has these settings."""
    given = [f"--conf {name}={value}" for name, value in {**_LOCAL, **settings}.items()]
    return {**os.environ, "PYSPARK_SUBMIT_ARGS": " ".join([*given, *more, "pyspark-shell"])}


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@contextmanager
def _running(command: list[str], port: int, log: Path, environment: Mapping[str, str]) -> Iterator[None]:
    with log.open("w") as output:
        process = subprocess.Popen(command, env=dict(environment), stdout=output, stderr=subprocess.STDOUT)
        try:
            deadline_s = time.monotonic() + _START_S
            while not _listens(port):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline_s, log.read_text()
                time.sleep(POLL_S)
            yield
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """A master and one worker. Gives the settings with which jobs run there."""
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "JAVA_HOME": str(java.home()),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
    }
    port, of_worker = free_port(), free_port()
    program = [str(home / "bin" / "spark-class"), "org.apache.spark.deploy"]
    place = ["--host", HOST, "--webui-port", str(free_port())]
    master = [program[0], f"{program[1]}.master.Master", "--port", str(port), *place]
    own = ["--port", str(of_worker), "--host", HOST, "--webui-port", str(free_port()), "--work-dir", str(folder / "work")]
    worker = [program[0], f"{program[1]}.worker.Worker", "--cores", "2", "--memory", "1g", *own, f"spark://{HOST}:{port}"]
    with ExitStack() as ends:
        ends.enter_context(_running(master, port, folder / "master.log", environment))
        ends.enter_context(_running(worker, of_worker, folder / "worker.log", environment))
        yield {"spark.master": f"spark://{HOST}:{port}", "spark.executor.memory": "1g"}


class Store:
    """An object store with one bucket."""

    def __init__(self, port: int, log: Path) -> None:
        self._endpoint, self._log = f"{HOST}:{port}", log
        self._bytes = 0
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
        """The settings with which jobs reach it."""
        of_store = {
            "endpoint": f"http://{self._endpoint}",
            "endpoint.region": "us-east-1",
            "access.key": _KEY,
            "secret.key": _KEY,
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
        }
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in of_store.items()} | {"spark.master": "local[2]"}

    def put(self, folder: Path, name: str) -> None:
        """Upload the files of a folder, and no objects that stand for folders."""

        def upload(path: Path) -> None:
            with self.files.open_output_stream(f"{BUCKET}/{name}/{path.relative_to(folder)}") as stream:
                stream.write(path.read_bytes())

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(upload, (path for path in folder.rglob("*.parquet"))))

    def get(self, name: str, folder: Path) -> None:
        folder.mkdir()
        pafs.copy_files(f"{BUCKET}/{name}", str(folder), self.files, pafs.LocalFileSystem())

    def requests(self) -> list[tuple[str, str]]:
        """Method and path of every request since it was last asked."""
        with self._log.open("rb") as log:
            log.seek(self._bytes)
            told = log.read()
        self._bytes += len(told)
        return _REQUEST.findall(_COLOUR.sub("", told.decode()))


def kinds(requests: list[tuple[str, str]]) -> Counter[str]:
    """How many requests of each kind: the method, or LIST."""
    return Counter("LIST" if "list-type=" in path else method for method, path in requests)


@contextmanager
def store(folder: Path) -> Iterator[Store]:
    """An empty object store (moto), which is in memory."""
    port, log = free_port(), folder / "store.log"
    program = [str(made() / "bin" / "moto_server"), "--host", HOST, "--port", str(port)]
    with _running(program, port, log, os.environ):
        yield Store(port, log)


def archives() -> str:
    """Hadoop's connector, as Spark takes it."""
    return ",".join(str(path) for path in sorted((made() / "jars").glob("*.jar")))
