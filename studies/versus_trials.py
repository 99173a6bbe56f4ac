"""How often are other tools wrong, and this one? `python -m studies.versus_trials 200` goes on until there are so many
trials and prints the table; `make versus` does the same. With the names of documents (README.md docs/validation.md
docs/results/trials.md) it is also written there, between its markers, and the picture is drawn (results/versus.svg).
`python -m studies.versus_trials ours 200` goes on until this workbench alone, by its code of today, has so many.

A trial is a comparison of two functions whose outcome is known (`slices.calibrate.known`): identical texts, the same
work in other clothes, or a known share more of it in `new`. All tools measure it one after the other, in drawn order,
each for as many seconds, every second trial beside a busy neighbour for each core; a third of the trials measures a
comparison a second time. What each said is kept in a file, a line a trial, which the next call continues. The other
tools stay as they are while this workbench changes: of its own answers, those by its last code count.

Two things are counted: what each tool says as its users ask it, and what its figures could tell at best, with the
threshold that turns out to suit them.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path

from llama_workbench.harness.machine.environment import fingerprint
from llama_workbench.harness.report.markdown import markdown_rows, update_file
from llama_workbench.harness.slices.calibrate import rates as record
from llama_workbench.harness.slices.calibrate.known import CASES, FUNCTIONS, IDENTICAL, PLANTED, TWINS, KnownComparison
from llama_workbench.harness.slices.calibrate.rates import Rate
from llama_workbench.harness.slices.calibrate.trials import busy_neighbours, machine, measured, rule
from studies.versus_picture import Place, picture
from studies.versus_tools import (
    FASTER,
    FIGURES,
    NOTHING,
    SLOWER,
    TOOLS,
    Reading,
    Readings,
    ToolFailed,
    interpreter,
    tool_asked,
)

KEPT = Path("results/versus-trials.jsonl")
PICTURE = Path("results/versus.svg")
ALONE = Path("results/calibration.jsonl")  # of this workbench alone

SECONDS = 10.0  # of each tool in each trial, for both sides, with what it needs to begin
OURS, OUR_START_SECONDS = "this workbench", 2.5  # what it takes beside its budget: to begin, gates, and to judge
ALLOWED = 0.05  # of code that does the same, the share that a threshold chosen in hindsight may call different

PIECES = ((IDENTICAL, 0), (TWINS, 0), (PLANTED, 3), (PLANTED, 5))
"""What is compared, in turns: work, and how much more of it `new` does, in percent."""

LONG_CALLS = ("decode", "spelling")  # kinds of work with calls of some ten milliseconds


@dataclass(frozen=True)
class Trial:
    """What tools said of one comparison. answers: tool → rule → reading; seconds: tool → of its commands; failed: tool
    → why it said nothing; code: of this workbench, in a few letters (not known of the oldest trials)."""

    work: str
    case: str
    percent: int
    number: int
    busy: bool
    begun: str  # ISO 8601, UTC
    asked_seconds: float
    answers: dict[str, dict[str, Reading]]
    seconds: dict[str, float]
    failed: dict[str, str]
    cpu: str  # the processor's name
    code: str = ""

    @classmethod
    def read(cls, line: str) -> Trial:
        """From a line of the file."""
        kept = json.loads(line)
        answers = {
            tool: {name: Reading(**reading) for name, reading in readings.items()}
            for tool, readings in kept["answers"].items()
        }
        return cls(**kept | {"answers": answers})

    @property
    def comparison(self) -> KnownComparison:
        """What was measured."""
        return KnownComparison(FUNCTIONS, self.work, self.case, self.percent, self.number)


def main(
    trials: int, *into: Path, file: Path = KEPT, seconds: float = SECONDS, tools: Sequence[str] = (OURS, *TOOLS)
) -> None:
    """Go on until there are so many by all of these tools, print the table, and write it into documents."""
    known, draw, cpu, code = read(file), random.Random(), fingerprint(1)["cpu_model"], rule()
    made = [trial for trial in known if is_of(trial, tools, code)]
    if len(made) < trials and len(tools) > 1:
        sys.stderr.write(f"the tools are those of {Path(interpreter()).parent.parent}\n")
    while len(made) < trials:
        here = [trial for trial in made if trial.cpu == cpu]
        comparison, busy = following(here, draw), bool(len(here) % 2)
        trial = one(comparison, busy=busy, seconds=seconds, cpu=cpu, code=code, draw=draw, tools=tools)
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(asdict(trial)) + "\n")
        known.append(trial)
        made.append(trial)
        sys.stderr.write(f"trial {len(made)} of {trials}: {trial.work} +{trial.percent} % {trial.failed or ''}\n")
    known = counted(known)
    sys.stdout.write(tables(known))
    for path in into:
        update_file(path, blocks(known, record.read_trials(ALONE)))
    if into:
        PICTURE.write_text(drawing(known), encoding="utf-8")


def is_of(trial: Trial, tools: Sequence[str], code: str) -> bool:
    """Whether these tools were asked; where this workbench alone is, by this code of it."""
    return {*trial.answers, *trial.failed} >= {*tools} and (len(tools) > 1 or trial.code == code)


def counted(known: Sequence[Trial]) -> list[Trial]:
    """The trials without the answers of this workbench by other code than its last."""
    last = next((trial.code for trial in reversed(known) if OURS in trial.answers), "")
    return [
        replace(
            trial,
            answers={tool: told for tool, told in trial.answers.items() if tool != OURS or trial.code == last},
        )
        for trial in known
    ]


def read(file: Path) -> list[Trial]:
    """The trials that there are."""
    return [Trial.read(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def following(known: Sequence[Trial], draw: random.Random) -> KnownComparison:
    """A comparison that was measured once, in a third of the cases, or a new one of what there is least of. known: the
    trials on the same processor."""
    runs = Counter(trial.number for trial in known)
    once = [trial.comparison for trial in known[:-1] if runs[trial.number] == 1]
    if once and draw.random() < 1 / 3:
        return draw.choice(once)
    made = Counter((trial.work, trial.percent) for trial in known)
    work, percent = min(draw.sample(PIECES, len(PIECES)), key=lambda piece: made[piece])
    cases = Counter(trial.case for trial in known)
    case = min(draw.sample(CASES[FUNCTIONS], len(CASES[FUNCTIONS])), key=lambda case: cases[case])
    while True:
        comparison = KnownComparison(FUNCTIONS, work, case, percent, draw.getrandbits(48))
        if not (percent and comparison.turned):  # some tools look at what became slower only
            return comparison


def one(
    comparison: KnownComparison, *, busy: bool, seconds: float, cpu: str, code: str, draw: random.Random,
    tools: Sequence[str] = (OURS, *TOOLS),
) -> Trial:  # fmt: skip
    """Let tools measure a comparison, on the processor of this name."""
    begun = datetime.now(UTC).isoformat(timespec="seconds")
    answers: dict[str, dict[str, Reading]] = {}
    spent: dict[str, float] = {}
    failed: dict[str, str] = {}
    with ExitStack() as stack:
        if busy:
            stack.enter_context(busy_neighbours())
        for tool in draw.sample(tools, len(tools)):
            started = time.monotonic()
            try:
                answers[tool] = dict(asked(tool, comparison, seconds))
            except (ToolFailed, ValueError, LookupError, OSError) as error:
                failed[tool] = f"{type(error).__name__}: {error}"[:500]
            spent[tool] = round(time.monotonic() - started, 1)
    return Trial(
        comparison.work, comparison.case, comparison.percent, comparison.number, busy, begun, seconds,
        answers, spent, failed, cpu, code,
    )  # fmt: skip


def asked(tool: str, comparison: KnownComparison, seconds: float) -> Readings:
    """What a tool says of a comparison. Raises ToolFailed."""
    if tool == OURS:
        found = measured(comparison, budget=max(seconds - OUR_START_SECONDS, 0.5), busy=False, by=rule(), on=machine())
        if found.trouble:
            raise ToolFailed(found.trouble)
        answer = found.answer if found.answer in (SLOWER, FASTER) else NOTHING
        return {"verdict": Reading(answer, found.estimate or 0.0)}
    return tool_asked(tool, comparison, seconds)


# -- what they say -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One rule of one tool. alarms: of code that does the same, how often it is called different; found: percent more
    work → how often it is called slower; differ, opposite: of comparisons measured twice, how often the second run says
    something else, and how often one says slower and the other faster."""

    tool: str
    rule: str
    alarms: Rate
    found: dict[int, Rate]
    differ: Rate
    opposite: Rate
    seconds: float  # of its commands, the median


def rows(known: Sequence[Trial]) -> Iterator[Row]:
    """All rules of all tools, ours first."""
    for tool in (OURS, *TOOLS):
        spent = sorted(trial.seconds[tool] for trial in known if tool in trial.answers)
        for name in dict.fromkeys(name for trial in known for name in trial.answers.get(tool, ())):
            told = [(trial, trial.answers[tool][name].answer) for trial in known if name in trial.answers.get(tool, ())]
            yield Row(
                tool,
                name,
                Rate.among(answer != NOTHING for trial, answer in told if not trial.percent),
                {
                    percent: Rate.among(answer == SLOWER for trial, answer in told if trial.percent == percent)
                    for _, percent in PIECES
                    if percent
                },
                Rate.among(first != second for first, second in _pairs(told)),
                Rate.among({first, second} == {SLOWER, FASTER} for first, second in _pairs(told)),
                spent[len(spent) // 2],
            )


def _pairs(told: Iterable[tuple[Trial, str]]) -> Iterator[tuple[str, str]]:
    """The answers of two runs of one comparison."""
    runs: dict[int, list[str]] = {}
    for trial, answer in told:
        runs.setdefault(trial.number, []).append(answer)
    for answers in runs.values():
        yield from combinations(answers, 2)


@dataclass(frozen=True)
class Hindsight:
    """What a tool's figure tells at best. threshold: the least log ratio at which at most `ALLOWED` of the code that
    does the same is called different, in the very trials that it is used on; found: as in `Row`, with it."""

    tool: str
    figure: str
    threshold: float
    found: dict[int, Rate]


def in_hindsight(known: Sequence[Trial]) -> Iterator[Hindsight]:
    """All figures of all tools, ours first."""
    for tool in (OURS, *TOOLS):
        figures: dict[str, list[tuple[int, float]]] = {}
        for trial in known:
            given = {FIGURES[rule]: reading.log_ratio for rule, reading in trial.answers.get(tool, {}).items()}
            for figure, log_ratio in given.items():
                figures.setdefault(figure, []).append((trial.percent, log_ratio))
        for figure, ratios in figures.items():
            same = sorted((abs(log_ratio) for percent, log_ratio in ratios if not percent), reverse=True)
            threshold = same[int(ALLOWED * len(same))] if same else 0.0
            found = {
                more: Rate.among(log_ratio < -threshold for percent, log_ratio in ratios if percent == more)
                for _, more in PIECES
                if more
            }
            yield Hindsight(tool, figure, threshold, found)


def tables(known: Sequence[Trial]) -> str:
    """That of all trials, and that of each processor."""
    parts = [("all processors", known), *by_cpu(known)]
    return "\n".join(f"On {name} ({len(there)} trials):\n\n{table(there)}" for name, there in parts)


def table(known: Sequence[Trial]) -> str:
    """In Markdown, a line for each rule."""
    more = [percent for _, percent in PIECES if percent]
    found = (f"+{each} % found" for each in more)
    head = ("tool", "what decides", "false alarms", *found, "other answer in a second run", "opposite", "seconds")
    lines = (
        (
            row.tool, row.rule, row.alarms.counted, *(row.found[each].counted for each in more),
            row.differ.counted, row.opposite.counted, f"{row.seconds:.0f}",
        )
        for row in rows(known)
    )  # fmt: skip
    return markdown_rows(head, lines) + "\n"


def alone(trials: Sequence[record.Trial]) -> Rate:
    """How often the same functions are called different in trials of this workbench alone with no more seconds."""
    same = (each for each in trials if (each.kind, each.percent) == (FUNCTIONS, 0) and each.budget < SECONDS)
    return Rate.among(each.answer in record.DIFFERENT for each in same)


def with_alone(known: Sequence[Trial], trials: Sequence[record.Trial]) -> str:
    """The trials of this workbench alone, and together with those of all tools."""
    ours, more = next(rows(known)).alarms, alone(trials)
    both = Rate(ours.count + more.count, ours.of + more.of)
    states = [each.rule for each in trials if (each.kind, each.percent) == (FUNCTIONS, 0)]
    return (
        f"By itself this workbench was asked more often (`{ALONE.name}`): of functions that do the same it called "
        f"{more.counted} different; by the last of {len({*states})} states of its code "
        f"{alone([each for each in trials if each.rule == states[-1]]).counted}. With those above: {both.counted}.\n"
    )


def in_two_lines(known: Sequence[Trial], trials: Sequence[record.Trial]) -> str:
    """The same code, and more work."""
    (ours, *others), own = rows(known), alone(trials)
    return (
        f"- The same code: this workbench calls it different in {ours.alarms.count} of {ours.alarms.of} trials (and in "
        f"{own.count:,} of {own.of:,} trials of its own), the others in {_between(row.alarms for row in others)}.\n"
        f"- More work: {_found(ours, *others)}."
    )


def in_short(known: Sequence[Trial], trials: Sequence[record.Trial]) -> str:
    """In a few lines: the same code, more work, and thresholds chosen afterwards."""
    of_long = [each for each in known if each.case in LONG_CALLS]
    lines = (
        in_two_lines(known, trials),
        f"- Of these, calls of some ten milliseconds: {_found(*rows(of_long))}.",
        f"- With the threshold that suits each best, chosen afterwards so that at most {100 * ALLOWED:.0f} % of the "
        "same code is called different:",
        *(
            f"  - {best_in_hindsight(there)}"
            for _, there in by_cpu(known)
            if any(OURS in each.answers for each in there)
        ),
    )
    return "\n".join(lines)


def _found(ours: Row, *others: Row) -> str:
    found = " and ".join(f"{more} % in {rate.count} of {rate.of}" for more, rate in ours.found.items())
    theirs = " and ".join(_between(row.found[more] for row in others) for more in ours.found)
    return f"this workbench finds {found} trials, the others in {theirs}"


def halves(known: Sequence[Trial]) -> str:
    """Does the table come out again? For each processor the later half of its trials against the earlier one."""
    lines = []
    for cpu, there in by_cpu(known):
        early, late = (_rates(half) for half in (there[: len(there) // 2], there[len(there) // 2 :]))
        both = {name: (rate, late[name]) for name, rate in early.items() if name in late}
        apart = [
            f"{tool}, {rule}, {more} % more work: {one.counted} and then {other.counted}"
            for (tool, rule, more), (one, other) in both.items()
            if max(one.ends[0], other.ends[0]) > min(one.ends[1], other.ends[1])
        ]
        named = f" ({'; '.join(apart)})" if apart else ""
        lines.append(f"- {cpu}: of {len(both)} shares, {len(apart)} with intervals that do not overlap{named}.")
    return "\n".join(lines) + "\n"


def _rates(known: Sequence[Trial]) -> dict[tuple[str, str, int], Rate]:
    """Every share of the table that has trials, by tool, rule and percent more work."""
    rates = {
        (row.tool, row.rule, more): rate for row in rows(known) for more, rate in {0: row.alarms, **row.found}.items()
    }
    return {name: rate for name, rate in rates.items() if rate.of}


def by_cpu(known: Sequence[Trial]) -> list[tuple[str, list[Trial]]]:
    """The trials of each processor."""
    names = sorted({trial.cpu for trial in known})
    return [(name, [trial for trial in known if trial.cpu == name]) for name in names]


def _between(rates: Iterable[Rate]) -> str:
    shares = sorted(100 * rate.count / rate.of for rate in rates if rate.of)
    return f"{shares[0]:.0f} to {shares[-1]:.0f} %" if shares else "none yet"


def drawing(known: Sequence[Trial]) -> str:
    """The picture of them, as SVG."""
    places = []
    for row in rows(known):
        columns = {"called different, though it is the same": row.alarms}
        columns |= {f"+{more} % found": rate for more, rate in row.found.items()}
        name = f"{row.tool}, {row.rule}"
        places += [Place(column, name, rate, row.tool == OURS) for column, rate in columns.items()]
    return picture(places)


def hindsight_table(known: Sequence[Trial]) -> str:
    """What figures tell at best, by processor."""
    found = (f"+{each} % found" for _, each in PIECES if each)
    head = ("processor", "tool", "its figure", "threshold", *found)
    lines = [
        (cpu, row.tool, row.figure, percent(row.threshold), *(rate.counted for rate in row.found.values()))
        for cpu, there in by_cpu(known)
        for row in in_hindsight(there)
    ]
    return markdown_rows(head, lines) + "\n"


def percent(log_ratio: float) -> str:
    """How much more time that is: "4.1 %"."""
    return f"{100 * math.expm1(log_ratio):.2g} %"


def best_in_hindsight(known: Sequence[Trial]) -> str:
    """The same in a sentence for a processor: ours, and the other tool that then finds most of the least more work."""
    ours, *others = in_hindsight(known)
    best = max(others, key=lambda row: [rate.count / max(rate.of, 1) for rate in row.found.values()])

    def finds(row: Hindsight) -> str:
        found = (f"{more} % in {rate.count} of {rate.of}" for more, rate in row.found.items())
        return f"{' and '.join(found)} trials at a threshold of {percent(row.threshold)}"

    return (
        f"{known[0].cpu}: this workbench finds {finds(ours)}; the best of the others, {best.tool} by its "
        f"{best.figure}, {finds(best)}."
    )


def blocks(known: Sequence[Trial], trials: Sequence[record.Trial]) -> dict[str, str]:
    """What stands between the markers of documents, by the name of the block. trials: of this workbench alone."""
    return {
        "versus-short": in_two_lines(known, trials),
        "versus": in_short(known, trials),
        "versus-table": tables(known),
        "versus-alone": with_alone(known, trials),
        "versus-halves": halves(known),
        "versus-hindsight": hindsight_table(known),
    }


if __name__ == "__main__":
    given = sys.argv[1:]
    alone_asked = given[:1] == ["ours"]
    number, *documents = given[1:] if alone_asked else given or ["200"]
    main(int(number), *map(Path, documents), tools=(OURS,) if alone_asked else (OURS, *TOOLS))
