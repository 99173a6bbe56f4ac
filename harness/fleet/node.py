"""The process that measures on a node of a cluster: `python -m llama_workbench.harness.fleet.node FOLDER`.

It reads orders from its input, one a line, and makes an ordinary run of each, below FOLDER. What happens goes into a
file there, which never keeps it waiting as a full pipe would.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import llama_workbench
from llama_workbench.variants import digests

from ..machine.environment import fingerprint
from ..measure.processes import ALLOCATOR
from ..plan.experiments import Plan
from ..plan.options import PlanError
from ..plan.sources import sources_of
from ..session import doctor, run
from ..spec.sample import Round
from ..store.errors import first_line
from .order import Order, portion
from .station import CODE
from .worker import EVENTS

STEP_SECONDS = 1.0


class Reporter:
    """Progress of a run, as events for another machine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._said = 0.0

    def tell(self, event: str, **facts: Any) -> None:
        """Add one event."""
        line = json.dumps({"event": event, **facts}) + "\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def phase(self, text: str) -> None:
        self.tell("phase", text=text)

    def note(self, text: str) -> None:
        self.tell("note", text=text)

    def step(self, text: str, done: float, seconds_left: float) -> None:
        if time.monotonic() - self._said >= STEP_SECONDS:
            self._said = time.monotonic()
            left = seconds_left if seconds_left < float("inf") else None
            self.tell("step", text=text, done=done, left=left)


def check(threads: int, device: str) -> dict[str, Any]:
    """What this machine says of itself: versions, its fingerprint, and what `workbench doctor` finds.

    niceness: of this process, above 0 where others of the same machine come first.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)  # Ray gives its workers less than others, and only root may change it
    facts = doctor.read_facts()
    return {
        "version": llama_workbench.__version__,
        "code": digests.digest_of_folders(CODE),
        "environment": fingerprint(threads, allocator=ALLOCATOR, device=device) | _device(device),
        "checks": [[each.name, each.state, each.found] for each in doctor.examine(facts)],
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
    }


def _device(device: str) -> dict[str, Any]:
    """Which GPU it is, which the fingerprint of the machine lacks. Raises PlanError where there is none. Afterwards the
    GPU holds memory for this process, in which nothing may be measured."""
    if device == "cpu":
        return {}
    from ..worker.devices import device_of, problem

    if why := problem(device):
        raise PlanError(f"--device {device}: {why}")
    return {"device": device_of(device).facts()}


def measure(order: Order, home: Path, reporter: Reporter) -> str:
    """Measure what is ordered into `home/NAME`; its status then. Raises `run.USER_ERRORS`."""
    given = home / f"given-{order.name}"
    order.files.write(given)
    workloads = given / order.files.workloads if order.files.workloads else None
    request = replace(order.request, added=tuple(order.files.added_in(given)), workloads_file=workloads)
    options = replace(order.options, run_dir=home / order.name, claims_folder=given / "claims")
    run.check(request, options)
    plan = portion(run.plan_run(request, options), order.select, rest=order.rest)
    _check_same(plan, order)
    sys.argv = list(order.command)  # of which a run keeps how it was called
    result = NodeRun(plan, options, reporter).measure()
    return str(result.manifest.status)


class NodeRun(run.Run):
    """A run whose rounds are sent away while it goes on: there is no use for snapshots of them."""

    def _keep(self, finished: Round) -> None:
        self.folder.append_round(finished)
        if time.monotonic() - self.last_snapshot > run.SNAPSHOT_SECONDS:
            self._write_manifest("running")
            self.last_snapshot = time.monotonic()


def _check_same(plan: Plan, order: Order) -> None:
    """Raises PlanError where this machine would measure something else than was meant."""
    entered = {each.workload.name: list(each.entered()) for each in plan.experiments}
    if entered != order.entered:
        odd = sorted(name for name in {*entered, *order.entered} if entered.get(name) != order.entered.get(name))
        raise PlanError(f"would measure something else on {odd[0]}: install the same version of the workbench")
    known = order.sources["variants"]
    sources = sources_of(plan)
    assert sources is not None
    if changed := [name for name, each in sources.variants.items() if known[name]["digest"] != each.digest]:
        raise PlanError(f"the code of {changed[0]} is another one there: install the same version of the workbench")


def main(folder: str) -> NoReturn:
    """Serve until the input ends."""
    # Ray's processes block these, and what they begin inherits it.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    home = Path(folder)
    reporter = Reporter(home / EVENTS)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if "check" in order:
                reporter.tell("done", **check(**order["check"]))
            else:
                reporter.tell("done", status=measure(Order.model_validate(order), home, reporter))
        except run.USER_ERRORS as error:
            reporter.tell("failed", reason=str(error))
        except KeyboardInterrupt:
            break
        except BaseException as error:
            reporter.tell("failed", reason=f"{type(error).__name__}: {first_line(error)}")
            raise
    sys.exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
