"""`workbench dashboard`: the results in a browser, from any folder."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from llama_workbench.commands import dashboard
from llama_workbench.commands.shared import Failure
from llama_workbench.harness.store.files import RunError
from tests.runs import write_run

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")


def test_a_run_is_named_as_the_pages_link_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for place in ("results/runs/one", "results/baselines/two", "elsewhere/three"):
        write_run(tmp_path / place, rounds=15)
    assert dashboard._places("", "") == ("results", "")
    assert dashboard._places("one", "") == (str(tmp_path / "results"), "one")
    assert dashboard._places("two", "") == (str(tmp_path / "results"), "baselines/two")
    assert dashboard._places("elsewhere/three", "") == (str(tmp_path / "elsewhere" / "three"), "three")
    assert dashboard._places("s3://bucket/runs/one", "") == ("s3://bucket/runs/one", "")
    with pytest.raises(RunError, match="four"):
        dashboard._places("four", "")


def test_a_host_that_is_not_this_machine_is_refused_and_so_is_measuring_for_others() -> None:
    with pytest.raises(Failure, match=r"cannot listen on --host 203\.0\.113\.7 \("):  # kept for documents
        dashboard.dashboard(host="203.0.113.7")
    with pytest.raises(Failure, match="leave out --host"):
        dashboard.dashboard(host="0.0.0.0", allow_measuring=True)


@pytest.mark.parametrize(("host", "asked"), [("localhost", signal.SIGINT), ("0.0.0.0", signal.SIGTERM)])
def test_it_prints_an_address_that_answers_and_a_signal_ends_it_and_its_server(
    tmp_path: Path, host: str, asked: signal.Signals
) -> None:
    write_run(tmp_path / "results" / "runs" / "one", rounds=15)
    command = [sys.executable, "-m", "llama_workbench.commands.app", "dashboard", "one", "--no-browser"]
    command += ["--host", host]
    heeds = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731, also where these tests do not
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, preexec_fn=heeds) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            name = re.escape(socket.gethostname() if host == "0.0.0.0" else host)
            found = re.match(rf"(http://{name}:\d+/\S*)  \(Ctrl-C ends it\)", line)
            assert found, line
            address = urlsplit(found[1])
            assert parse_qs(address.query) == {"run": ["one"]}
            end = time.monotonic() + 60
            while True:
                try:
                    urllib.request.urlopen(f"http://{address.netloc}/_stcore/health", timeout=5).close()
                    break
                except OSError:
                    assert time.monotonic() < end and process.poll() is None, "the server does not answer"
                    time.sleep(0.2)
            process.send_signal(asked)
            assert process.wait(30) == 0
            assert "xternal" not in process.stdout.read(), "Streamlit asked the internet for this machine's address"
            with pytest.raises(OSError):
                urllib.request.urlopen(f"http://{address.netloc}/_stcore/health", timeout=5)
        finally:
            process.kill()
