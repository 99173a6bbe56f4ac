"""A Streamlit server on this machine alone, and what a headless Chromium is started with and waits for."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from llama_workbench import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Page

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


WAIT_MS = 30_000
"""How long a test waits for what should come."""


def installed_chromium() -> str | None:
    """Path of the system's Chromium, by whatever name; None where there is none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def serving(results: Path, script: Path = ROOT / "dashboard" / "app.py") -> Iterator[str]:
    """A dashboard of `results` on a free port, started as people start it; gives its address.

    script: of another Streamlit app. Raises RuntimeError with what it printed if it stops while starting.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "--server.headless=true", "--server.address=127.0.0.1"]
    command += [f"--server.port={port}", str(script), "--", "--results", str(results)]
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "WORKBENCH_RESULTS"}}
    log = (results / "server.log").open("w+")
    process = subprocess.Popen(command, cwd=results, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=1).close()
                break
            except (urllib.error.URLError, OSError):
                if process.poll() is not None:
                    break
                time.sleep(0.1)
        if process.poll() is not None:
            log.seek(0)
            raise RuntimeError(f"the server stopped: {log.read()}")
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait(timeout=10)
        log.close()


def drawn(page: Page, selector: str, count: int) -> None:
    """Wait until there are so many of them."""
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_have_count(count, timeout=WAIT_MS)


def settled(page: Page) -> None:
    """Wait until the script has run and the claims or the forest plot are drawn."""
    page.wait_for_selector(".strips .claim, .st-key-forest svg")
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')
