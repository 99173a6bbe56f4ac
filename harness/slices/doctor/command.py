"""`workbench doctor`"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import util
from typing import Annotated, Any, Literal

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from llama_workbench.commands.shared import MACHINE, AsJson, Failure, Listed, ends, print_json, show

from ...evidence.effect import ALPHA
from ...machine import extras
from ...machine.environment import available_bytes, fingerprint, read_text
from ...measure import py_spy
from ...spec.words import VerbExit
from ...stats.confidence import Interval, running_interval

LISTED = Listed(23, MACHINE, {"doctor": "is it fit to measure?"})

STYLES = {"ok": "green", "warn": "yellow", "bad": "bold red"}


@ends({VerbExit.DONE: "nothing is bad (there may be warnings)", VerbExit.AGAINST: "something is bad"})
def command(
    seconds: Annotated[float, typer.Option(metavar="SECONDS", help="Time for the A/A check, in seconds.")] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Is this machine fit to measure? One line for each thing that spoils measurements, with what to do about it.

    The last line is an A/A check: a small operation is timed against an identical copy of itself.

    \b
    Exit codes:

    \b
    --json prints:
      {"fit": true|false, "checks": [{"name", "state": "ok"|"warn"|"bad", "found", "fix"}]}

    \b
    Examples:
      workbench doctor
      workbench doctor --seconds 20
    """

    if not 0 < seconds < math.inf:
        raise Failure(f"--seconds {seconds:g}: expected a number above 0")
    checks = [*examine(read_facts()), examine_aa(aa_trial(seconds))]
    fit = all(check.state != "bad" for check in checks)
    if as_json:
        print_json({"fit": fit, "checks": [asdict(check) for check in checks]})
    else:
        show(Group(*(part for check in checks for part in _lines(check))))
        show(Text("fit to measure" if fit else "not fit to measure", style="bold"))
    raise typer.Exit(0 if fit else 1)


# read_facts() --examine--> a Check each aa_trial() --examine_aa--> one more
# *bad*: this machine gives wrong numbers or none. *warn*: they will be noisier, or something optional is missing.
# *ok*: otherwise, also where the machine does not say: virtual machines have no governor, other systems no /proc.


SILENT = "this system does not say"

ROUND_SECONDS = 0.05

FIRED_PERCENT = 0.1
"""An A/A interval that leaves out 0 by this much or more is a fault; closer to it no claim would be harmed."""

NARROW_PERCENT, WIDE_PERCENT = 1.0, 5.0
"""Half width of the A/A interval up to which a machine is quiet (most claims ask about 1 %), and above which it is no
use (5 % is what `compare` calls a regression)."""

ENOUGH_BYTES, LEAST_BYTES = 6 << 30, 3 << 30
"""Free memory for all claims (the layer of 7B width: 0.9 GiB of weights, which some variants copy), and for 15M."""


@dataclass(frozen=True)
class Check:
    """One line: a thing that matters, its state, what was found, and what to do where that is not well."""

    name: str
    state: Literal["ok", "warn", "bad"]
    found: str
    fix: str = ""


def _lines(check: Check) -> Iterator[RenderableType]:
    yield Text.assemble((f"{check.state:<4}", STYLES[check.state]), f"  {check.name}: {check.found}")
    if check.fix:
        yield Padding(Text(check.fix, style="dim"), (0, 0, 0, 6))


@dataclass(frozen=True)
class DoctorTrial:
    """An A/A trial: two copies of one operation, `interval` of their log ratio, `sd` of a round, and the share of the
    time in which this process did not have its processor."""

    interval: Interval
    sd: float
    away: float
    seconds: float


def read_facts() -> dict[str, Any]:
    """What this machine says of itself: its fingerprint and a few more, each None where it does not say.

    available_bytes: memory that a new process may take. siblings: whether two hardware threads share a core. py_spy:
    why it cannot look into another process; "" where it can, None without it. Takes about a second.
    """
    return fingerprint(threads=1) | {
        "available_bytes": available_bytes(),
        "siblings": {"1": True, "0": False}.get(read_text("/sys/devices/system/cpu/smt/active") or ""),
        "py_spy": _try_py_spy(),
        "memray": util.find_spec("memray") is not None,
        "valgrind": shutil.which("valgrind") is not None,
    }


def examine_aa(trial: DoctorTrial) -> Check:
    """What an A/A trial means for measuring: identical code must show no difference."""
    low, high = (100 * math.expm1(end) for end in (trial.interval.low, trial.interval.high))
    if not math.isfinite(trial.interval.high):
        text = f"{trial.interval.n} rounds in {trial.seconds:.3g} s are too few for an interval"
        return Check("A/A trial", "warn", text, "Give it more time: workbench doctor --seconds 10")
    text = (
        f"identical code differs by [{low:+.2f}, {high:+.2f}] % ({1 - ALPHA:.0%} interval, {trial.interval.n} rounds, "
        f"one round ±{100 * trial.sd:.2g} %); {trial.away:.0%} of the time without a processor"
    )
    fired = trial.interval.unstable or low > FIRED_PERCENT or high < -FIRED_PERCENT
    text += "; the interval leaves out 0" * fired
    fix = "Stop other programs, or use a machine of your own; more time narrows intervals: pytest --benchmark --budget"
    bad = fired or high - low > 2 * WIDE_PERCENT
    return _check("A/A trial", text, fix, bad=bad, warn=high - low > 2 * NARROW_PERCENT)


def aa_trial(seconds: float) -> DoctorTrial:
    """Time two copies of one small operation against each other for `seconds`, as a run does with its variants.

    Rounds rebuild both copies behind random padding and sample them in random order by thread CPU time; a round's
    number is the median of its log ratios. The operation is numpy on 64 KiB in one thread: it shows the machine; the
    controls of a run show the run.
    """
    rng = np.random.default_rng()
    source = rng.standard_normal(8192)
    rounds: list[float] = []
    cpu_start, start = time.thread_time_ns(), time.perf_counter_ns()
    while (time.perf_counter_ns() - start) / 1e9 < seconds:
        padding = np.empty(int(rng.integers(1, 1 << 16)), dtype=np.uint8)
        sides = (_operation(source), _operation(source))
        for sample_ns in sides:
            sample_ns()
        ratios: list[float] = []
        round_start = time.perf_counter_ns()
        while not ratios or (time.perf_counter_ns() - round_start) / 1e9 < ROUND_SECONDS:
            first = int(rng.integers(2))
            times = {side: sides[side]() for side in (first, 1 - first)}
            ratios.append(math.log(times[0] / times[1]))
        rounds.append(float(np.median(ratios)))
        del padding
    elapsed = time.perf_counter_ns() - start
    return DoctorTrial(
        interval=running_interval(rounds, ALPHA),
        sd=float(np.std(rounds, ddof=1)) if len(rounds) > 1 else math.nan,
        away=max(0.0, 1 - (time.thread_time_ns() - cpu_start) / elapsed),
        seconds=seconds,
    )


def _operation(source: NDArray[np.float64]) -> Callable[[], int]:
    """Nanoseconds of an elementwise op with its own operands: of 20 calls of it, some tenths of a millisecond."""
    left, right, out = source.copy(), source[::-1].copy(), np.empty_like(source)

    def sample_ns() -> int:
        start = time.thread_time_ns()
        for _ in range(20):
            np.multiply(left, right, out=out)
            np.exp(out, out=out)
            out.sum()
        return max(time.thread_time_ns() - start, 1)

    return sample_ns


def examine(facts: Mapping[str, Any]) -> Iterator[Check]:
    """What the facts mean for measuring: who else may use the measured core and how fast it runs, memory, tools."""
    cores, load, governor = facts["cores"], facts.get("load_average"), facts.get("governor")
    text = "1 core: other programs take it from the measurement" if cores < 2 else f"{cores} cores for this process"
    yield _check("cores", text, "Use 2 cores or more.", warn=cores < 2)
    busy = load[0] if load else 0.0
    text = f"load average {busy:.2f} over the last minute, {cores} cores" if load else SILENT
    fix = "Stop what else runs (top shows it) and wait a minute."
    yield _check("load", text, fix, bad=busy >= cores, warn=busy > cores / 2)
    slow = governor not in (None, "performance")
    text = governor or "not visible here (a virtual machine, or no frequency scaling)"
    text += ": the clock frequency follows the load" * slow
    yield _check("governor", text, "sudo cpupower frequency-set --governor performance", warn=slow)
    quota = facts.get("cgroup_quota_cores") or math.inf
    text = "no limit on CPU time" if quota == math.inf else f"{quota:g} cores' worth of CPU time"
    text += ": one thread is stopped in every period" * (quota < 1)
    fix = "Start the container with more, or without a limit (docker run --cpus)."
    yield _check("cgroup quota", text, fix, bad=quota < 1, warn=quota < 2)
    shared = "two hardware threads share a core: a program on the other one slows the measured one down"
    texts = {True: shared, False: "no core is shared by two hardware threads", None: SILENT}
    fix = "Leave the machine to the measurement, or: echo off | sudo tee /sys/devices/system/cpu/smt/control"
    yield _check("threads", texts[facts.get("siblings")], fix, warn=bool(facts.get("siblings")))
    pages, available = facts.get("transparent_huge_pages"), facts.get("available_bytes")
    always = "always: clearing 2 MiB at a page fault can make an effect of 0.3 ms"
    text = always if pages == "always" else pages or SILENT
    fix = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
    yield _check("transparent huge pages", text, fix, warn=pages == "always")
    text = SILENT if available is None else f"{available / 2**30:.1f} GiB"
    free = math.inf if available is None else available
    text += ": the 7B width may not fit" * (LEAST_BYTES <= free < ENOUGH_BYTES)
    fix = f"Free some ({LEAST_BYTES >> 30} GiB for the small geometry, {ENOUGH_BYTES >> 30} GiB for all), or leave "
    fix += "large workloads out (pytest --benchmark --workloads)."
    yield _check("free memory", text, fix, bad=free < LEAST_BYTES, warn=free < ENOUGH_BYTES)
    refusal = facts.get("py_spy")
    text = f"may not look into other processes: {refusal}" if refusal else "may look into other processes"
    fix = "In a container: --cap-add SYS_PTRACE. Elsewhere: echo 1 | sudo tee /proc/sys/kernel/yama/ptrace_scope"
    if refusal is None:
        text, fix = "not installed: no flamegraphs", extras.install("profile")
    yield _check("py-spy", text, fix, warn=refusal != "")
    for name, without, fix in (
        ("torch", "functions can be measured, models cannot", extras.install("models")),
        ("memray", "no memory peaks", extras.install("profile")),
        ("valgrind", "no counts of instructions", "apt-get install valgrind"),
    ):
        there = facts.get(name)
        text = f"not installed: {without}" if not there else "installed" if there is True else str(there)
        yield _check(name, text, fix, warn=not there)


def _check(name: str, text: str, fix: str, *, bad: bool = False, warn: bool = False) -> Check:
    """A check; the fix is for a state that is not ok."""
    return Check(name, "bad" if bad else "warn" if warn else "ok", text, fix if bad or warn else "")


_WATCHED = """
import ctypes, sys, time
try:
    ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
except (AttributeError, OSError):
    pass
print("ready", flush=True)
time.sleep(30)
"""
"""A process that lets py-spy in as a measuring process does (PR_SET_PTRACER)."""


def _try_py_spy() -> str | None:
    """As `py_spy` of `read_facts`."""
    tool = py_spy.installed()
    if tool is None:
        return None
    with subprocess.Popen([sys.executable, "-c", _WATCHED], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            done = subprocess.run(
                [tool, "dump", "--pid", str(child.pid)], capture_output=True, text=True, timeout=20, check=False
            )
        except (subprocess.TimeoutExpired, OSError) as error:
            return f"cannot be started ({error.strerror})" if isinstance(error, OSError) else "no answer within 20 s"
        finally:
            child.kill()
    said = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", done.stderr).split())[:200]
    return "" if done.returncode == 0 else said or f"exit code {done.returncode}"
