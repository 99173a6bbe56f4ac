"""What sessions of unchanged functions differ by, and whether saved runs decide. `python -m studies.session_trials 20`
goes on until there are so many sessions of this version of the measuring code and prints three tables; with
`--functions` no models are measured, with `--alone` no session has busy neighbours, with `--write` the tables of
docs/validation.md are written anew.

A session measures six comparisons anew, for `workbench compare`, each with a command of its own as a job in CI would.
In all of them but one a side does 5 % more of the same work. Every second session has a busy neighbour for each core.
Of each, `standings.json` is kept in a file, which the next call continues: sessions should lie hours apart.
"""

from __future__ import annotations

import json
import math
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

import numpy as np
from scipy.special import chdtri

from llama_workbench.harness.baselines.regressions import compare_standings, left_alone, measured_alike
from llama_workbench.harness.machine.environment import comparable
from llama_workbench.harness.plan.experiments import MEASURING
from llama_workbench.harness.report.markdown import update_file
from llama_workbench.harness.slices.calibrate.known import FUNCTIONS, MODELS, PLANTED, KnownComparison
from llama_workbench.harness.slices.calibrate.rates import Rate
from llama_workbench.harness.slices.calibrate.trials import busy_neighbours
from llama_workbench.harness.stats.means import between_variance, root, scatter, variance_of_scatter
from llama_workbench.harness.store.files import STANDINGS
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.schema import STANDINGS as FORM
from llama_workbench.harness.store.schema import Standings
from llama_workbench.variants import REFERENCE_BENCHMARKS, digests

KEPT = Path("results/session-trials.jsonl")
PAGE = Path("docs/validation.md")

PERCENT = 5

CASES = ("words", "sorting", "objects", "patterns")
KINDS = {case: KnownComparison(FUNCTIONS, PLANTED, case, PERCENT, 7) for case in CASES}
KINDS["tiny model"] = KnownComparison(MODELS, PLANTED, "fast", PERCENT, 7)
PRESETS = "presets"
"""The sixth: two of the variants that ship, which are as they are."""

SECONDS = {"tiny model": 60, PRESETS: 60}
"""Of rounds; else USUAL_SECONDS."""
USUAL_SECONDS = 30

LEAST_SESSIONS = 3
TOO_LOW = 0.05
"""Chance that the true standard deviation between sessions is larger than what is called at most."""


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
            begun, busy = datetime.now(UTC).isoformat(timespec="seconds"), bool(number % 2) and "--alone" not in options
            if (standings := measured(kind, busy)) is None:
                continue
            kept = {"number": number, "begun": begun, "busy": busy, "kind": kind, "standings": standings}
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(kept) + "\n")
            known.append(Session.read(json.dumps(kept)))
            sys.stderr.write(f"session {number}: {kind}\n")
    sys.stdout.write("\n".join(in_document(known).values()))
    if "--write" in options:
        update_file(PAGE, in_document(known))


def in_document(known: Sequence[Session]) -> dict[str, str]:
    """The tables of docs/validation.md, by their markers."""
    return {
        "sessions-differ": shift_table(known),
        "sessions-decide": decision_table(known),
        "sessions-against": reference_table(known),
    }


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
    """The sessions of a kind on the machine, and by the measuring code, of the last one, the earliest first. Not
    same_code: by any code, on the machine that has most of them."""
    of_it = [session for session in known if session.kind == kind]

    def like(one: Session) -> list[Session]:
        return [each for each in of_it if not comparable(each.standings.environment, one.standings.environment)]

    if not same_code:
        return max(map(like, of_it), key=len, default=[])
    return [each for each in like(of_it[-1]) if measured_alike((each.standings, of_it[-1].standings))] if of_it else []


ALONE, BESIDE = "left alone", "beside other programs"


def by_condition(sessions: Sequence[Session]) -> dict[str, list[Session]]:
    """The sessions that other programs left alone, and the others."""
    alone = [session for session in sessions if left_alone(session.standings)]
    return {ALONE: alone, BESIDE: [session for session in sessions if session not in alone]}


def with_processes(sessions: Sequence[Session]) -> list[Standings]:
    """Of those that came as far as the reference benchmark."""
    runs = [each.standings for each in sessions]
    return [
        run
        for run in runs
        if run.rows and all(each.reference in REFERENCE_BENCHMARKS for each in run.workloads.values())
    ]


def shift_table(known: Sequence[Session]) -> str:
    """In Markdown: what sessions differ by beyond their processes, a line for each kind and variant. Of one version the
    sessions that were left alone stand apart, and what they differ by is pooled over the kinds below."""
    lines = ["| measured | by | variant | sessions | processes | within (s.e.) | between (s.d.) | at most (95 %) |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    samples = []
    for kind in dict.fromkeys(each.kind for each in known):
        parts = {f"one version, {name}": part for name, part in by_condition(of_kind(known, kind)).items()}
        for code, sessions in (*parts.items(), ("several", of_kind(known, kind, same_code=False))):
            if len(runs := with_processes(sessions)) < LEAST_SESSIONS:
                continue
            for variant in sorted({row.variant for run in runs for row in run.rows}):
                rows = [row for run in runs for row in run.rows if row.variant == variant and row.over_processes]
                means = [row.over_processes for row in rows if row.over_processes]
                if len(means) < LEAST_SESSIONS:
                    continue
                centres, errors = [mean.centre for mean in means], [mean.error for mean in means]
                if kind in CASES and code.endswith(ALONE):
                    samples.append((centres, errors))
                between, most = between_variance(centres, errors), _most_between_variance(centres, errors)
                between, most = (round(100 * math.expm1(math.sqrt(each)), 3) for each in (between, max(between, most)))
                processes = sorted(row.rounds for row in rows)
                lines.append(
                    f"| {kind} | {code} | {variant} | {len(means)} | {processes[len(processes) // 2]} "
                    f"| {100 * sorted(errors)[len(errors) // 2]:.2f} % | {between:.2f} % | {most:.2f} % |"
                )
    if samples:
        between, most = (100 * math.expm1(each) for each in pooled_between(samples))
        lines.append(f"| all functions | one version, {ALONE} | | | | | {between:.2f} % | {most:.2f} % |")
    return "\n".join(lines) + "\n"


def _most_between_variance(centres: Sequence[float], errors: Sequence[float]) -> float:
    """Upper bound of the variance between means, too low with probability TOO_LOW (Viechtbauer 2007)."""
    return variance_of_scatter(np.asarray(centres), np.square(errors), float(chdtri(len(centres) - 1, 1 - TOO_LOW)))


def pooled_between(samples: Sequence[tuple[Sequence[float], Sequence[float]]]) -> tuple[float, float]:
    """Standard deviation between means beyond their errors, one for all samples of (means, errors), and its upper
    bound (95 %). The two sides of a kind stand in the same sessions: half of the degrees of freedom count for it."""
    freedom = sum(len(centres) - 1 for centres, _ in samples)

    def scattered(variance: float) -> float:
        return sum(scatter(np.asarray(centres), 1 / (np.square(errors) + variance)) for centres, errors in samples)

    def at(expected: float) -> float:
        wide = max(float(np.var(centres)) for centres, _ in samples) * freedom
        is_more = scattered(0.0) > expected
        return math.sqrt(root(lambda variance: scattered(variance) - expected, 0.0, wide)) if is_more else 0.0

    return at(freedom), at(2 * float(chdtri(freedom // 2, 1 - TOO_LOW)))


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


def renamed(standings: Standings, variant: str, name: str) -> Standings:
    """With this variant alone, under another name."""
    rows = tuple(replace(row, variant=name) for row in standings.rows if row.variant == variant)
    return replace(standings, rows=rows, subjects=tuple((row.workload, name) for row in rows), dropped=())


def decisions(known: Sequence[Session]) -> dict[tuple[str, str, str], list[str]]:
    """(kind, condition, "unchanged" or "5 % more") → what `workbench compare` says of each session of one version
    against the one before it under the same condition."""
    answers: dict[tuple[str, str, str], list[str]] = {}
    for kind, comparison in KINDS.items():
        less, more = ("new", "old") if comparison.turned else ("old", "new")
        for condition, sessions in by_condition(of_kind(known, kind)).items():
            for before, after in pairwise(sessions):
                base = renamed(before.standings, less, "mine")
                for what, variant in (("unchanged", less), (f"{PERCENT} % more", more)):
                    rows = compare_standings(base, renamed(after.standings, variant, "mine")).rows
                    answer = rows[0].verdict if rows else "inconclusive"
                    answers.setdefault((kind, condition, what), []).append(answer)
    return answers


def decision_table(known: Sequence[Session]) -> str:
    """In Markdown: how often the time alone of a saved run decides rightly."""
    lines = ["| measured | machine | code | passes | fails | inconclusive | right |", "|---|---|---|---|---|---|---|"]
    told = decisions(known)
    for condition, what in product((ALONE, BESIDE), ("unchanged", f"{PERCENT} % more")):
        of_functions = [answer for kind in CASES for answer in told.get((kind, condition, what), ())]
        told[("all functions", condition, what)] = of_functions
    for (kind, condition, what), verdicts in told.items():
        if not verdicts:
            continue
        passes = sum(verdict in ("no regression", "improvement") for verdict in verdicts)
        fails = verdicts.count("regression")
        right = Rate(passes if what == "unchanged" else fails, len(verdicts))
        counts = f"{passes} | {fails} | {len(verdicts) - passes - fails}"
        lines.append(f"| {kind} | {condition} | {what} | {counts} | {right.count} of {right.of}: {right} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
