"""What a number was measured on: enough to tell whether two runs may be compared, and nothing about who ran them.

No host name, no user name and no path goes in: a run folder is meant to be published.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from llama_workbench import ROOT

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy", "pandas", "pyarrow", "pytest")
"""Packages whose version a run records, besides those of the engines that are installed."""

ENGINES = ("candle-nn", "llama-cpp-python")


def fingerprint(
    threads: int, *, allocator: Mapping[str, str] | None = None, device: str = "cpu", results: Path | None = None
) -> dict[str, Any]:
    """Describe this machine and its software, in plain JSON types.

    `threads` is the least number of threads that a worker computes in; `allocator` the allocator settings of its
    environment (`MALLOC_...` variables), empty for "as shipped"; `device` the kind of device that models compute on, of
    which the worker knows more (`devices`); `results` the folder that the run writes. Imports neither torch nor
    transformers."""
    model, flags = _cpu()
    # The word in brackets of such as "always [madvise] never".
    huge_pages = re.search(r"\[(\w+)\]", read_text("/sys/kernel/mm/transparent_hugepage/enabled") or "")
    libc = " ".join(part for part in platform.libc_ver() if part)
    return {
        "cpu_model": model,
        "cpu_flags": flags,
        "cores": usable_cores(),
        "cgroup_quota_cores": _cgroup_quota_cores(),
        "governor": read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "memory_bytes": psutil.virtual_memory().total,
        "transparent_huge_pages": huge_pages[1] if huge_pages else None,
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "libc": libc or None,
        "python": platform.python_version(),
        "python_implementation": platform.python_implementation(),
        "torch": _version("torch"),
        "packages": {name: version for name in (*PACKAGES, *ENGINES) if (version := _version(name))},
        "threads": threads,
        "malloc": dict(sorted((allocator or {}).items())),
        "device": {"kind": device},
        "load_average": [round(value, 2) for value in psutil.getloadavg()],
        "commit": _commit(results),
    }


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def granted_cores() -> int:
    """Cores' worth of time that this process gets: its `usable_cores`, or fewer where its container has a quota."""
    quota = _cgroup_quota_cores()
    return usable_cores() if quota is None else max(1, min(usable_cores(), int(quota)))


def device_kind(environment: Mapping[str, Any]) -> str:
    """What a run's models computed on: "cpu" or "cuda". Runs from before there was a choice were on the CPU."""
    device = environment.get("device")
    return str(device.get("kind", "cpu")) if isinstance(device, Mapping) else "cpu"


def comparable(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Why two fingerprints are not one machine configuration; an empty list if they are.

    Compared are the CPU (model and flags), torch, libc, threads, allocator settings and the device with its driver,
    libraries and settings: each of them shifts the *ratio* of two variants. The load average, the kernel and the Python
    version are not compared. What one side alone does not say counts as a difference, because it cannot be ruled out.
    What neither has, such as torch where functions are compared, is none."""
    reasons = [
        f"{name}: {_said(a, key)} against {_said(b, key)}"
        for name, key in (("CPU", "cpu_model"), ("torch", "torch"), ("libc", "libc"), ("threads", "threads"))
        if a.get(key) != b.get(key)
    ]
    flags_a, flags_b = set(a.get("cpu_flags") or ()), set(b.get("cpu_flags") or ())
    if bool(flags_a) != bool(flags_b):
        reasons.append("CPU flags: unknown of one of them")
    elif flags_a != flags_b:
        alone = {"first": flags_a - flags_b, "second": flags_b - flags_a}
        reasons.append(
            f"CPU flags: {'; '.join(f'only the {one} has {_some(has)}' for one, has in alone.items() if has)}"
        )
    if a.get("malloc") != b.get("malloc"):
        reasons.append(f"malloc: {_settings(a.get('malloc'))} against {_settings(b.get('malloc'))}")
    own_a, own_b = a.get("sides") or {}, b.get("sides") or {}
    reasons += [
        f"{side}: {own_a.get(side, 'nothing of its own')} against {own_b.get(side, 'nothing of its own')}"
        for side in dict.fromkeys((*own_a, *own_b))
        if own_a.get(side) != own_b.get(side)
    ]
    return reasons + device_differences(a, b)


def changed_since(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Why a run cannot go on here: all that `comparable` names, and what shifts the ratios within one run as well."""
    changes = [
        f"{name}: {_said(earlier, key)} against {_said(now, key)}"
        for name, key in (
            ("cores", "cores"),
            ("cores by the container's quota", "cgroup_quota_cores"),
            ("transparent huge pages", "transparent_huge_pages"),
            ("Python", "python"),
        )
        if earlier.get(key) != now.get(key)
    ]
    before, after = ({**(each.get("packages") or {}), "torch": ""} for each in (earlier, now))
    changes += [
        f"{name}: {before.get(name) or 'not installed'} against {after.get(name) or 'not installed'}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
    return comparable(earlier, now) + changes


def device_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Why the devices of two fingerprints, with what their workers know of them, are not the same."""
    if (kind_a := device_kind(a)) != (kind_b := device_kind(b)):
        return [f"device: {kind_a} against {kind_b}"]
    if kind_a == "cpu":
        return []
    ours, theirs = a["device"], b["device"]
    return [
        f"{kind_a} {key.replace('_', ' ')}: {_said(ours, key)} against {_said(theirs, key)}"
        for key in dict.fromkeys((*ours, *theirs))
        if ours.get(key) != theirs.get(key)
    ]


def one_line(environment: Mapping[str, Any]) -> str:
    """The machine in one line, as shown under a table: device, CPU, cores, threads, torch, libc, Python. Behind the CPU
    stand its widest vectors: virtual machines call processors of several generations by one name."""
    threads, flags = environment.get("threads"), environment.get("cpu_flags") or ()
    vectors = next((f" ({name})" for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags), "")
    parts = [
        f"{environment.get('cpu_model') or 'unknown CPU'}{vectors}",
        f"{environment.get('cores', '?')} cores",
        f"{threads} thread{'' if threads == 1 else 's'}",
        *([f"torch {environment['torch']}"] if environment.get("torch") else []),
        str(environment.get("libc") or "unknown libc"),
        f"Python {environment.get('python', '?')}",
    ]
    if device_kind(environment) != "cpu":
        device = environment["device"]
        named = f"{device.get('name') or 'unknown device'} (CUDA {device.get('cuda') or '?'}"
        parts[0] = f"{named}, driver {device.get('driver') or 'unknown'}) beside {parts[0]}"
    return ", ".join(parts)


def _said(environment: Mapping[str, Any], key: str) -> str:
    value = environment.get(key)
    return "unknown" if value is None else str(value)


def _some(flags: set[str]) -> str:
    names = sorted(flags)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _settings(malloc: Mapping[str, Any] | None) -> str:
    if malloc is None:
        return "unknown"
    return ", ".join(f"{key}={value}" for key, value in sorted(malloc.items())) or "as shipped"


def _cpu() -> tuple[str, list[str]]:
    """Model name and sorted flags. Linux says both in /proc/cpuinfo; elsewhere py-cpuinfo asks (about a second)."""
    fields: dict[str, str] = {}
    for line in (read_text("/proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    model = fields.get("model name", "")
    flags = fields.get("flags") or fields.get("Features", "")  # "Features" is what ARM kernels call them
    if model and flags:
        return model, sorted(set(flags.split()))
    try:
        import cpuinfo

        info = cpuinfo.get_cpu_info()
    except Exception:  # it runs other programs and parses what they print; no answer is an answer
        info = {}
    model = model or str(info.get("brand_raw") or platform.processor() or platform.machine())
    return model, sorted(set(flags.split()) or set(info.get("flags") or ()))


def last_level_cache_bytes() -> int | None:
    """Size of the largest cache that the first processor has a share in; None where the system does not say."""
    sizes = []
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        if size := re.fullmatch(r"(\d+)([KMG]?)", read_text(str(index / "size")) or ""):
            sizes.append(int(size[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[size[2]])
    return max(sizes, default=None)


def _cgroup_quota_cores() -> float | None:
    """CPU time that the container may use, in cores; None where there is no limit."""
    quota, period = [*(read_text("/sys/fs/cgroup/cpu.max") or "max").split(), "100000"][:2]  # version 2
    if quota == "max":
        quota = read_text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") or "-1"  # version 1
        period = read_text("/sys/fs/cgroup/cpu/cpu.cfs_period_us") or "100000"
    try:
        cores = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return None
    return round(cores, 2) if cores > 0 else None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit(results: Path | None) -> dict[str, Any] | None:
    """Commit of the workbench's own checkout; of an installed wheel, whose folder may lie in someone else's, that of
    the repository where the command was given."""
    folders = (folder for folder in (ROOT, Path.cwd(), *Path.cwd().parents) if (folder / ".git").exists())
    if (root := next(folders, None)) is None:
        return None

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    if not commit:
        return None
    # Results are what a run writes, with earlier runs that were kept beside it: they do not change what it measures.
    written = []
    if results and root in (here := results.resolve()).parents:
        kept = [path for path in here.parent.iterdir() if path.name.startswith(f"{here.name}.earlier-")]
        written = [f":(exclude,literal){path.relative_to(root)}" for path in (here, *kept)]
    changes = git("status", "--porcelain", "--", ".", ":(exclude)results", *written)
    return {"id": commit, "dirty": None if changes is None else bool(changes)}


def read_text(path: str) -> str | None:
    """The text of a file of the kernel; None where it has none, or may not be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def available_bytes() -> int:
    """Memory that a new process may take: what the kernel says is available, and what the cgroup has left."""
    available: int = psutil.virtual_memory().available
    limit, used = (read_text(f"/sys/fs/cgroup/memory.{name}") or "" for name in ("max", "current"))
    is_limited = limit.isdecimal() and used.isdecimal()
    return min(available, max(int(limit) - int(used), 0)) if is_limited else available


TRACERS = ("COV_CORE_", "COVERAGE_PROCESS_")
"""How variables begin by which a new Python would trace what it runs, for the coverage of whoever runs this one."""


def untraced_environment() -> dict[str, str]:
    """This process's environment without what would trace a new Python."""
    return {name: value for name, value in os.environ.items() if not name.startswith(TRACERS)}


def child_environment() -> dict[str, str]:
    """This process's environment, in which a new Python finds this very `llama_workbench`, also under -P."""
    environment = untraced_environment()
    if ROOT.joinpath("pyproject.toml").is_file():
        paths = [str(ROOT), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return environment


# How busy other programs keep this machine.


IDLE = ("idle", "iowait", "guest", "guest_nice")
"""Kinds of time in which nobody computes, or which are counted among others."""


@dataclass(frozen=True)
class Since:
    """A moment: seconds by the clock, and processor seconds of all programs but ours until then."""

    clock: float
    others: float

    @classmethod
    def now(cls) -> Since:
        """This moment."""
        times = psutil.cpu_times()._asdict().items()
        return cls(time.monotonic(), sum(seconds for kind, seconds in times if kind not in IDLE) - _of_ours())

    def busy(self) -> float:
        """Which share of the machine others have used since, from 0 to 1."""
        now = Since.now()
        spent = (now.clock - self.clock) * (psutil.cpu_count() or 1)
        return min(1.0, max(0.0, (now.others - self.others) / spent)) if spent > 0 else 0.0


def _of_ours() -> float:
    """Processor seconds of this process and of all that it began, whether they have ended or not."""
    ended = os.times()
    seconds = ended.user + ended.system + ended.children_user + ended.children_system
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            times = process.cpu_times()
            seconds += times.user + times.system + times.children_user + times.children_system
    return seconds
