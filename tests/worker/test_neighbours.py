"""How busy other programs keep this machine, and what a verdict on a share says of it."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from llama_workbench.harness.machine.environment import Since
from llama_workbench.harness.metrics.share.metric import ANOTHER_SESSION, METRIC, SHORT, TimedPhases
from tests.dashboard.test_dashboard import an_effect
from tests.metrics.test_phases import table
from tests.tables import table_of

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


@pytest.mark.parametrize(("busy", "told"), [(0.0, False), (0.09, False), (0.31, True)])
def test_a_share_says_that_others_kept_the_machine_busy(busy: float, told: bool) -> None:
    timed = table_of(table({"qkv": 1, "mlp": 3}, {"qkv": 1, "mlp": 3}))
    evidence = SimpleNamespace(passes={"share": TimedPhases(timed, {("w", "a"): busy})})
    asked = SimpleNamespace(variant="a", phases=("qkv",), of="forward")
    effect = METRIC.measured(an_effect(workload="w", variant="a"), cast(Any, asked), cast(Any, evidence), 0.01)
    assert effect.ratio == pytest.approx(25), "too large to differ much between sessions"
    assert [*effect.notes] == [
        "other programs used 31 % of this machine meanwhile, which makes short phases longer"
    ] * told


def test_a_small_share_says_that_another_session_may_have_another() -> None:
    timed = table_of(table({"qkv": 1, "mlp": 5}, {"qkv": 1, "mlp": 9}))
    evidence = SimpleNamespace(passes={"share": TimedPhases(timed, {})})
    asked = SimpleNamespace(variant="a", phases=("qkv",), of="forward")
    effect = METRIC.measured(an_effect(workload="w", variant="a"), cast(Any, asked), cast(Any, evidence), 0.01)
    assert effect.ratio < 100 * SHORT and effect.notes == (ANOTHER_SESSION,)
