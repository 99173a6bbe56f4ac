"""Is this machine fit to measure? One line for each thing that spoils measurements, with what to do about it.

    read_facts() --examine--> a Check each     aa_trial() --examine_aa--> one more

Reading and judging are apart, so that the rules can be tried on machines that are not at hand. *bad*: numbers from this
machine will be wrong or fail to come; *warn*: they will be noisier, or something optional will be missing; *ok*
otherwise. What a machine does not tell (virtual machines have no governor, other systems no /proc) is no fault of its.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import util
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .machine.environment import fingerprint
from .stats.confidence import Interval, running_interval

State = Literal["ok", "warn", "bad"]

SECONDS = 5.0
"""How long the A/A trial takes."""

ROUND_SECONDS = 0.05
ALPHA = 0.01

FIRED_PERCENT = 0.1
"""An A/A interval that leaves out 0 by this much or more is a fault; closer to it no claim would be harmed."""

NARROW_PERCENT, WIDE_PERCENT = 1.0, 5.0
"""Half width of the A/A interval up to which a machine is quiet (most claims ask about 1 %), and above which it is of
no use: the same 5 % is what `compare` calls a regression."""

ENOUGH_BYTES, LEAST_BYTES = 6 << 30, 3 << 30
"""Free memory for the whole register: the 7B-width layer is 0.9 GiB of weights, which some variants pack anew; and
for the 15M geometry beside torch and the tests of the passes."""


@dataclass(frozen=True)
class Check:
    """One line: what was looked at, how it stands, what was found, and what to do where that is not well."""

    name: str
    state: State
    found: str
    fix: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)


@dataclass(frozen=True)
class Facts:
    """What the machine says of itself. None: it does not say.

    environment: as `environment.fingerprint` gives it. available_bytes: memory that a new process may take.
    siblings: whether two hardware threads share a core. py_spy: what py-spy said when it was to look into another
    process; "" where it could, None where it is not installed. memray: whether it can be imported.
    """

    environment: Mapping[str, Any]
    available_bytes: int | None
    siblings: bool | None
    py_spy: str | None
    memray: bool


@dataclass(frozen=True)
class Trial:
    """An A/A trial: two copies of one operation, `interval` of their log ratio, `sd` of a round, and the share of the
    time in which this process did not have its processor."""

    interval: Interval
    sd: float
    away: float
    seconds: float


def read_facts() -> Facts:
    """Ask this machine. Takes about a second, most of it py-spy's."""
    return Facts(
        environment=fingerprint(threads=1),
        available_bytes=_available_bytes(),
        siblings={"1": True, "0": False}.get(_read("/sys/devices/system/cpu/smt/active") or ""),
        py_spy=_try_py_spy(),
        memray=util.find_spec("memray") is not None,
    )


def examine(facts: Facts) -> tuple[Check, ...]:
    """What the facts mean for measuring."""
    environment = facts.environment
    return (
        _cores(environment.get("cores")),
        _load(environment.get("load_average"), environment.get("cores")),
        _governor(environment.get("governor")),
        _quota(environment.get("cgroup_quota_cores")),
        _threads(facts.siblings),
        _huge_pages(environment.get("transparent_huge_pages")),
        _memory(facts.available_bytes),
        _torch(environment.get("torch")),
        _py_spy(facts.py_spy),
        _memray(facts.memray),
    )


def examine_aa(trial: Trial) -> Check:
    """What an A/A trial means for measuring: no difference may be seen where there is none."""
    low, high = (100 * math.expm1(end) for end in (trial.interval.low, trial.interval.high))
    name = "A/A trial"
    if not math.isfinite(trial.interval.high):
        return Check(
            name,
            "warn",
            f"{trial.interval.n} rounds in {trial.seconds:.3g} s are too few for an interval",
            "Give it more time: workbench doctor --seconds 10",
        )
    half = (high - low) / 2
    found = (
        f"identical code differs by [{low:+.2f}, {high:+.2f}] % ({1 - ALPHA:.0%} interval, {trial.interval.n} rounds, "
        f"one round ±{100 * trial.sd:.2g} %); {trial.away:.0%} of the time without a processor"
    )
    quiet = (
        "Stop other programs, or use a machine of your own; more budget narrows intervals: pytest --benchmark --budget"
    )
    if trial.interval.unstable or low > FIRED_PERCENT or high < -FIRED_PERCENT:
        return Check(name, "bad", f"{found}; the interval leaves out 0", quiet)
    if half > WIDE_PERCENT:
        return Check(name, "bad", found, quiet)
    return Check(name, "warn", found, quiet) if half > NARROW_PERCENT else Check(name, "ok", found)


def aa_trial(seconds: float = SECONDS, *, seed: int | None = None) -> Trial:
    """Time two copies of one small operation against each other for `seconds`, as a run does with its variants.

    Rounds rebuild both copies behind random padding and sample them in random order by thread CPU time; a round's
    number is the median of its log ratios. The operation (numpy, 64 KiB, one thread) is no Llama: it shows the
    machine, and the controls of a run show the run.

    Raises ValueError for a time that is not above 0.
    """
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ValueError(f"the A/A trial needs a number of seconds above 0, not {seconds:g}")
    rng = np.random.default_rng(seed)
    source = rng.standard_normal(8192)
    rounds: list[float] = []
    cpu_start, start = time.thread_time_ns(), time.perf_counter_ns()
    while (time.perf_counter_ns() - start) / 1e9 < seconds:
        padding = np.empty(int(rng.integers(1, 1 << 16)), dtype=np.uint8)
        sides = (_Operation(source), _Operation(source))
        for side in sides:
            side.sample_ns()
        ratios: list[float] = []
        round_start = time.perf_counter_ns()
        while not ratios or (time.perf_counter_ns() - round_start) / 1e9 < ROUND_SECONDS:
            first = int(rng.integers(2))
            times = {side: sides[side].sample_ns() for side in (first, 1 - first)}
            ratios.append(math.log(times[0] / times[1]))
        rounds.append(float(np.median(ratios)))
        del padding
    elapsed = time.perf_counter_ns() - start
    return Trial(
        interval=running_interval(rounds, ALPHA),
        sd=float(np.std(rounds, ddof=1)) if len(rounds) > 1 else math.nan,
        away=max(0.0, 1 - (time.thread_time_ns() - cpu_start) / elapsed),
        seconds=seconds,
    )


class _Operation:
    """An elementwise op with its own operands; a sample is 20 calls of it: some tenths of a millisecond."""

    def __init__(self, source: np.ndarray[Any, np.dtype[np.float64]]) -> None:
        self.left, self.right, self.out = source.copy(), source[::-1].copy(), np.empty_like(source)

    def sample_ns(self) -> int:
        start = time.thread_time_ns()
        for _ in range(20):
            np.multiply(self.left, self.right, out=self.out)
            np.exp(self.out, out=self.out)
            self.out.sum()
        return max(time.thread_time_ns() - start, 1)


# -- the rules ---------------------------------------------------------------------------------------------------------


def _cores(cores: Any) -> Check:
    if not isinstance(cores, int):
        return Check("cores", "warn", "unknown")
    if cores < 2:
        return Check(
            "cores", "warn", "1 core: whatever else runs takes it from the measurement", "Use a machine with 2 or more."
        )
    return Check("cores", "ok", f"{cores} cores for this process")


def _load(load: Any, cores: Any) -> Check:
    if not load or not isinstance(cores, int):
        return Check("load", "ok", "this system does not tell its load")
    found = f"load average {load[0]:.2f} over the last minute, {cores} cores"
    fix = "Stop what else runs (top shows it) and wait a minute."
    if load[0] >= cores:
        return Check("load", "bad", found, fix)
    return Check("load", "warn", found, fix) if load[0] > cores / 2 else Check("load", "ok", found)


def _governor(governor: str | None) -> Check:
    if governor is None:
        return Check("governor", "ok", "not visible here (a virtual machine, or no frequency scaling)")
    if governor == "performance":
        return Check("governor", "ok", governor)
    return Check(
        "governor",
        "warn",
        f"{governor}: the clock frequency follows the load",
        "sudo cpupower frequency-set --governor performance",
    )


def _quota(quota: float | None) -> Check:
    if quota is None:
        return Check("cgroup quota", "ok", "no limit on CPU time")
    fix = "Start the container with more, or without a limit (docker run --cpus)."
    found = f"{quota:g} cores' worth of CPU time"
    if quota < 1:
        return Check("cgroup quota", "bad", f"{found}: one thread is stopped in every period", fix)
    return Check("cgroup quota", "warn", found, fix) if quota < 2 else Check("cgroup quota", "ok", found)


def _threads(siblings: bool | None) -> Check:
    if siblings:
        return Check(
            "threads",
            "warn",
            "two hardware threads share a core: a program on the other one slows the measured one down",
            "Leave the machine to the measurement, or switch them off: echo off | sudo tee "
            "/sys/devices/system/cpu/smt/control",
        )
    return Check("threads", "ok", "no core is shared by two hardware threads" if siblings is False else "not told")


def _huge_pages(setting: str | None) -> Check:
    if setting == "always":
        return Check(
            "transparent huge pages",
            "warn",
            "always: clearing 2 MiB at a page fault can make an effect of 0.3 ms",
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        )
    return Check("transparent huge pages", "ok", setting or "not told")


def _memory(available: int | None) -> Check:
    if available is None:
        return Check("free memory", "ok", "this system does not tell")
    found = f"{available / 2**30:.1f} GiB"
    if available < LEAST_BYTES:
        fix = f"Free some: {LEAST_BYTES >> 30} GiB for the small geometry, {ENOUGH_BYTES >> 30} GiB for all."
        return Check("free memory", "bad", found, fix)
    if available < ENOUGH_BYTES:
        return Check(
            "free memory",
            "warn",
            f"{found}: the 7B width may not fit",
            "Free some, or leave those workloads out (pytest --benchmark --workloads).",
        )
    return Check("free memory", "ok", found)


def _torch(version: str | None) -> Check:
    if version is None:
        return Check("torch", "bad", "not installed: nothing can be measured", "make bench, or pip install torch")
    return Check("torch", "ok", version)


def _py_spy(said: str | None) -> Check:
    if said is None:
        return Check("py-spy", "warn", "not installed: no flamegraphs", "pip install py-spy")
    if said:
        return Check(
            "py-spy",
            "warn",
            f"may not look into other processes: {said}",
            "In a container: --cap-add SYS_PTRACE. Elsewhere: echo 1 | sudo tee /proc/sys/kernel/yama/ptrace_scope",
        )
    return Check("py-spy", "ok", "may look into other processes")


def _memray(importable: bool) -> Check:
    if importable:
        return Check("memray", "ok", "installed")
    return Check("memray", "warn", "not installed: no memory peaks", "pip install memray")


# -- asking the machine ------------------------------------------------------------------------------------------------

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
    """Why py-spy cannot look into another process; "" where it can, None where it is not installed."""
    tool = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if tool is None:
        return None
    with subprocess.Popen([sys.executable, "-c", _WATCHED], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            done = subprocess.run(
                [tool, "dump", "--pid", str(child.pid)], capture_output=True, text=True, timeout=20, check=False
            )
        except subprocess.TimeoutExpired:
            return "no answer within 20 s"
        except OSError as error:
            return f"cannot be started ({error.strerror})"
        finally:
            child.kill()
    said = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", done.stderr).split())[:200]
    return "" if done.returncode == 0 else said or f"exit code {done.returncode}"


def _available_bytes() -> int | None:
    """Memory that a new process may take: what the kernel says is available, and what the cgroup has left."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _read("/proc/meminfo") or "", re.MULTILINE)
    left = [int(found[1]) * 1024] if found else []
    limit, used = (_read(f"/sys/fs/cgroup/memory.{name}") or "" for name in ("max", "current"))
    if limit.isdecimal() and used.isdecimal():
        left.append(max(int(limit) - int(used), 0))
    return min(left, default=None)


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None
