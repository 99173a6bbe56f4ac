"""How busy other programs keep this machine."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil

from llama_workbench.harness.machine.environment import Since

SPIN = "import time\nbegun = time.process_time()\nwhile time.process_time() - begun < 1.0: pass\ntime.sleep(60)\n"
DETACH = (
    f"import subprocess, sys\nprint(subprocess.Popen([sys.executable, '-c', {SPIN!r}], stdout=-3, stderr=-3).pid)\n"
)


def spun(process: psutil.Process) -> None:
    """Wait until it has computed for a second."""
    while process.cpu_times().user + process.cpu_times().system < 1.0:
        time.sleep(0.05)


def test_what_we_began_is_ours_and_what_has_no_parent_here_is_another_s() -> None:
    first = Since.now()
    ours = subprocess.Popen([sys.executable, "-c", SPIN])
    spun(psutil.Process(ours.pid))
    second = Since.now()
    made = subprocess.run([sys.executable, "-c", DETACH], capture_output=True, text=True, check=True)
    theirs = psutil.Process(int(made.stdout))
    spun(theirs)
    third = Since.now()
    ours.kill()
    ours.wait()
    theirs.kill()
    assert third.others - second.others > 0.8, "a second of a program that nobody here began"
    idle = (psutil.cpu_count() or 1) * (second.clock - first.clock) - (second.others - first.others)
    assert idle > 0.8, "the second of ours is none of theirs"
    assert 0 < first.busy() <= 1
