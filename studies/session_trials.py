"""What sessions of unchanged functions differ by, and whether saved runs decide. `python -m studies.session_trials 20`
goes on until there are so many sessions of this version of the measuring code and prints three tables;
`python -m studies.session_trials 20 --toml` the shifts; with `--functions` no models are measured.

A session measures six comparisons anew, for `workbench compare`, each with a command of its own as a job in CI would.
In all of them but one a side does 5 % more of the same work. Every second session has a busy neighbour for each core.
Of each, `standings.json` is kept in a file, which the next call continues: sessions should lie hours apart.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise, product
from pathlib import Path

from llama_workbench.harness.baselines.regressions import LEAST_REPEATS, compare_standings, measured_alike, variation
from llama_workbench.harness.baselines.text import variation_toml
from llama_workbench.harness.machine.environment import comparable
from llama_workbench.harness.plan.sources import MEASURING
from llama_workbench.harness.slices.calibrate.known import FUNCTIONS, MODELS, PLANTED, KnownComparison
from llama_workbench.harness.slices.calibrate.rates import Rate
from llama_workbench.harness.slices.calibrate.trials import busy_neighbours
from llama_workbench.harness.store.files import STANDINGS
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.schema import STANDINGS as FORM
from llama_workbench.harness.store.schema import Standings
from llama_workbench.variants import YARDSTICKS, digests

KEPT = Path("results/session-trials.jsonl")

PERCENT = 5

CASES = ("words", "sorting", "objects", "patterns")
KINDS = {case: KnownComparison(FUNCTIONS, PLANTED, case, PERCENT, 7) for case in CASES}
KINDS["tiny model"] = KnownComparison(MODELS, PLANTED, "fast", PERCENT, 7)
PRESETS = "presets"
"""The sixth: two of the variants that ship, which are as they are."""

SECONDS = {"tiny model": 60, PRESETS: 60}
"""Of rounds; else USUAL_SECONDS."""
USUAL_SECONDS = 30


@dataclass(frozen=True)
class Session:
    """What one command of a session found. begun: ISO 8601, UTC."""

    number: int
    begun: str
    busy: bool
    kind: str
    standings: Standings

    @classmethod
    def read(cls, line: str) -> Session:
        """From a line of the file."""
        kept = json.loads(line)
        return cls(**kept | {"standings": FORM.validate_python(kept["standings"])})


def main(sessions: int, *options: str, file: Path = KEPT) -> None:
    """Go on until there are so many sessions, and print what they say."""
    known = [Session.read(line) for line in file.read_text().splitlines()] if file.exists() else []
    now = digests.digest_of_folders(MEASURING)
    had = {each.number for each in known if each.standings.measured_by == now}
    begin = 1 + max((each.number for each in known), default=-1)
    for number in range(begin, begin + sessions - len(had)):
        for kind in CASES if "--functions" in options else (*KINDS, PRESETS):
            begun, busy = datetime.now(UTC).isoformat(timespec="seconds"), bool(number % 2)
            if (standings := measured(kind, busy)) is None:
                continue
            kept = {"number": number, "begun": begun, "busy": busy, "kind": kind, "standings": standings}
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(kept) + "\n")
            known.append(Session.read(json.dumps(kept)))
            sys.stderr.write(f"session {number}: {kind}\n")
    sys.stdout.write(
        toml(known)
        if "--toml" in options
        else f"{shift_table(known)}\n{decision_table(known)}\n{reference_table(known)}"
    )


def measured(kind: str, busy: bool) -> object:
    """standings.json of a run of this kind; None where it failed."""
    with tempfile.TemporaryDirectory(prefix="session-trials-") as name, ExitStack() as stack:
        folder = Path(name)
        words = ["--variants", "fast,gpt_fast", "--workloads", "prefill-15m-t8"]
        if kind in KINDS:
            KINDS[kind].write(folder)
            words = KINDS[kind].command
        if busy:
            stack.enter_context(busy_neighbours())
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--benchmark", "--no-causes", *words]
        command += ["--to-compare", "--budget", str(SECONDS.get(kind, USUAL_SECONDS)), "--run-dir", "run"]
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.stderr.write(f"{kind} failed: {done.stdout[-2000:]}{done.stderr[-500:]}\n")
            return None
        return RunFolder(folder / "run").read_json(STANDINGS)


def of_kind(known: Sequence[Session], kind: str, *, same_code: bool = True) -> list[Session]:
    """The sessions of a kind on the machine, and by the measuring code, that have most of them, the earliest first. Not
    same_code: by any."""
    machines: list[list[Session]] = []
    for session in known:
        if session.kind != kind:
            continue
        now = session.standings

        def is_like(one: Session, now: Standings = now) -> bool:
            alike = not same_code or measured_alike((one.standings, now))
            return alike and not comparable(one.standings.environment, now.environment)

        there = next((one for one in machines if is_like(one[0])), None)
        if there is None:
            machines.append([session])
        else:
            there.append(session)
    return max(machines, key=len, default=[])


def with_lives(sessions: Sequence[Session]) -> list[Standings]:
    """Of those that came as far as the yardstick."""
    runs = [each.standings for each in sessions]
    return [run for run in runs if run.rows and all(each.reference in YARDSTICKS for each in run.workloads.values())]


def shift_table(known: Sequence[Session]) -> str:
    """In Markdown: what sessions differ by beyond their lives, a line for each kind and variant."""
    lines = ["| measured | by | variant | sessions | processes | within (s.e.) | between (s.d.) | at most (95 %) |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for kind, same in product(dict.fromkeys(each.kind for each in known), (True, False)):
        runs = with_lives(of_kind(known, kind, same_code=same))
        if len(runs) < LEAST_REPEATS:
            continue
        code = "one version" if same else "several"
        for shift in variation(runs):
            rows = [row for run in runs for row in run.rows if row.variant == shift.variant]
            errors = sorted(row.over_lives.error for row in rows if row.over_lives)
            lives = sorted(row.rounds for row in rows)
            lines.append(
                f"| {kind} | {code} | {shift.variant} | {shift.sessions} | {lives[len(lives) // 2]} "
                f"| {100 * errors[len(errors) // 2]:.2f} % | {shift.between:.2f} % | {shift.at_most:.2f} % |"
            )
    return "\n".join(lines) + "\n"


def reference_table(known: Sequence[Session]) -> str:
    """In Markdown: would another reference benchmark serve better? By what a kind differs between sessions of one
    version (standard deviation), against the reference benchmark as it is and against each other kind in its stead."""
    times: dict[str, dict[int, float]] = {}
    for kind in CASES:
        for session in of_kind(known, kind):
            times.setdefault(kind, {})[session.number] = session.standings.rows[0].log_ratio
    lines = [f"| measured | against the reference benchmark | {' | '.join(f'against {kind}' for kind in times)} |"]
    lines.append("|---" * (len(times) + 2) + "|")
    for kind, own in times.items():
        against = [dict.fromkeys(own, 0.0), *(times[other] if other != kind else {} for other in times)]
        spreads = [[own[number] - other[number] for number in own if number in other] for other in against]
        cells = [f"{100 * statistics.stdev(each):.2f} %" if len(each) > 1 else "" for each in spreads]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def toml(known: Sequence[Session]) -> str:
    """Of each kind of workload, the widest of what was measured, as a pyproject.toml has it."""
    kinds = dict.fromkeys(each.kind for each in known)
    every = [with_lives(of_kind(known, kind, same_code=same)) for same in (True, False) for kind in kinds]
    found = [shift for runs in every if len(runs) >= LEAST_REPEATS for shift in variation(runs)]
    widest = {(shift.kind, shift.code): shift for shift in sorted(found, key=lambda shift: shift.at_most)}
    everything = [shift.model_copy(update={"variant": "*"}) for shift in widest.values()]
    return variation_toml(everything, [each.standings for each in known])


def renamed(standings: Standings, variant: str, name: str) -> Standings:
    """With this variant alone, under another name."""
    rows = tuple(replace(row, variant=name) for row in standings.rows if row.variant == variant)
    return replace(standings, rows=rows, subjects=tuple((row.workload, name) for row in rows), dropped=())


def decisions(known: Sequence[Session]) -> dict[tuple[str, str], list[str]]:
    """(kind, "unchanged" or "5 % more") → what `workbench compare` says of each session against the one before it."""
    answers: dict[tuple[str, str], list[str]] = {}
    for kind, comparison in KINDS.items():
        less, more = ("new", "old") if comparison.turned else ("old", "new")
        sessions = of_kind(known, kind)
        for before, after in pairwise(sessions):
            base = renamed(before.standings, less, "mine")
            for what, variant in (("unchanged", less), (f"{PERCENT} % more", more)):
                rows = compare_standings(base, renamed(after.standings, variant, "mine")).rows
                answers.setdefault((kind, what), []).append(rows[0].verdict if rows else "inconclusive")
    return answers


def decision_table(known: Sequence[Session]) -> str:
    """In Markdown: how often the time alone of a saved run decides rightly."""
    lines = ["| measured | code | passes | fails | inconclusive | right |", "|---|---|---|---|---|---|"]
    for (kind, what), verdicts in decisions(known).items():
        passes = sum(verdict in ("no regression", "improvement") for verdict in verdicts)
        fails = verdicts.count("regression")
        right = Rate(passes if what == "unchanged" else fails, len(verdicts))
        told = f"{passes} | {fails} | {len(verdicts) - passes - fails}"
        lines.append(f"| {kind} | {what} | {told} | {right.count} of {right.of}: {right} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
