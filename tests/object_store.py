"""A real object store for tests: moto's S3 server in a process of its own, on a free port of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import fsspec

SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=int(sys.argv[1]), verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class Store:
    """A server with one bucket. `stop` kills it, `start` makes a new and empty one at the same address."""

    BUCKET = "s3://bucket"

    def __init__(self) -> None:
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-c", SERVER, str(self.port)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload]
        assert self._process is not None and self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.communicate()
            self._process = None

    def make_bucket(self) -> None:
        fsspec.filesystem("s3", use_listings_cache=False).mkdir("bucket")

    def environment(self) -> Mapping[str, str]:
        """What S3's own library needs to know, as a user would say it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "nothing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }


@contextmanager
def running_store() -> Iterator[Store]:
    """A store, with the environment of this process set so that S3 means this one."""
    store = Store()
    store.start()
    before = {name: os.environ.get(name) for name in store.environment()}
    os.environ.update(store.environment())
    fsspec.filesystem("s3").clear_instance_cache()
    try:
        store.make_bucket()
        yield store
    finally:
        store.stop()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        fsspec.filesystem("s3").clear_instance_cache()
