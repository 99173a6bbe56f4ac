"""`workbench dashboard`, and `speedscope`, which installs a viewer for it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import webbrowser
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from .shared import MACHINE, MOST_USED, Failure, Listed, write

LOCAL = ("localhost", "127.0.0.1")

WAIT_SECONDS = 60.0
"""For the server, before the browser is opened."""


def dashboard(
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="Run to show. [default: the newest]")] = "",
    results: Annotated[
        str, typer.Option(metavar="PATH", help="Folder or URL of the runs. [default: ./results, or the folder of RUN]")
    ] = "",
    host: Annotated[
        str,
        typer.Option(metavar="HOST", help="Address to listen on; 0.0.0.0 lets others on the network in."),
    ] = "localhost",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, help="Port on this machine; 0: a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open a browser, if there is one.")] = True,
    allow_measuring: Annotated[
        bool,
        typer.Option("--allow-measuring", help="Let the pages start runs, each by a button below its command."),
    ] = False,
) -> None:
    """Show runs in a browser: verdicts, samples, flame graphs and history. Ctrl-C ends it.

    \b
    Examples:
      workbench dashboard                        the newest run in ./results
      workbench dashboard results/runs/ID        that run
      workbench dashboard --no-browser           print the address and open nothing
      workbench dashboard --results s3://bucket/runs
      workbench dashboard --allow-measuring      measure again, or go on with a run, by a click
      workbench dashboard --host 0.0.0.0         others on this network can open it too
    """
    from llama_workbench.dashboard import __file__ as package
    from llama_workbench.harness.machine.extras import lacking

    if missing := lacking("dashboard"):
        raise Failure(f"the dashboard cannot be shown: {missing}")
    if allow_measuring and host not in LOCAL:
        raise Failure(f"--allow-measuring would let everyone who reaches {host} start programs here: leave out --host")
    folder, name = _places(run, results)
    if not port:
        try:
            with socket.socket() as probe:
                probe.bind((host, 0))
                port = probe.getsockname()[1]
        except OSError as error:
            raise Failure(f"cannot listen on --host {host} ({error.strerror})") from error
    shown = socket.gethostname() if host == "0.0.0.0" else host
    address = f"http://{shown}:{port}/" + (f"?run={quote(name, safe='')}" if name else "")
    app = Path(package).with_name("app.py")
    words = ["--server.headless=true", f"--server.address={host}", "--server.showEmailPrompt=false"]
    words += [f"--browser.serverAddress={shown}"]  # else Streamlit asks the internet for this machine's address
    words += [f"--server.port={port}", "--browser.gatherUsageStats=false", str(app), "--", "--results", folder]
    words += ["--allow-measuring"] if allow_measuring else []
    write(f"{address}  (Ctrl-C ends it)\n")
    if browser:
        threading.Thread(target=_open_browser, args=(address,), daemon=True).start()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` ends it as Ctrl-C does, and the server with it
    with subprocess.Popen([sys.executable, "-m", "streamlit", "run", *words], env=dict(os.environ)) as server:
        try:
            code = server.wait()
        except KeyboardInterrupt:
            server.terminate()
            code = 0
    raise typer.Exit(2 if code else 0)


def _places(run: str, results: str) -> tuple[str, str]:
    """The folder of all results, and the run's name in it."""
    from llama_workbench.harness.store.remote import is_url
    from llama_workbench.results import BASELINES, RUNS, find_run

    if not run or is_url(run):
        return results or run or "results", ""
    folder = find_run(run)
    folder.manifest()  # or say at once that it is no run
    path = folder.path.resolve()
    home = path.parent
    if home.name not in (RUNS.name, BASELINES.name):
        return results or str(path), path.name
    prefix = f"{home.name}/" if home.name == BASELINES.name else ""
    return results or str(home.parent), prefix + path.name


def _open_browser(address: str) -> None:
    """Once the server answers."""
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(f"{address.partition('?')[0]}_stcore/health", timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            webbrowser.open(address)
            return


def speedscope(
    archive: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Install from this file, which `npm pack` wrote elsewhere. [default: npm downloads it]"
        ),
    ] = None,
) -> None:
    """Install speedscope, the viewer in which the dashboard opens raw profiles. npm fetches one version, and its hash
    is checked.

    \b
    Examples:
      workbench speedscope
    """
    from llama_workbench.dashboard.export.viewer import VERSION, install

    write(f"speedscope {VERSION} is installed in {install(archive)}\n")


COMMANDS = {
    "dashboard": (dashboard, Listed(2, MOST_USED, {"dashboard": "the newest run in a browser, with all details"})),
    "speedscope": (speedscope, Listed(26, MACHINE, {"speedscope": "install the viewer for raw profiles"})),
}
