"""How a verdict stands: supported, refuted and inconclusive by row, and what deciding it would cost.

The stored word is "inconclusive" as soon as one row is. That hides the most: a claim that is wrong on six of nine rows
can never be supported any more, and one whose every interval ends at +1 % is nearly answered. So no reader is shown
that word alone: `outcome` says which kind it is.
"""

from __future__ import annotations

import math
import re
import shlex
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

from ..calls.command import ANY_CODE, CONCLUDE, IGNORE, INPUT, PREPARE
from ..calls.source import is_command
from ..evidence.effect import ON_THE_MACHINE, ToSettle, about, budget, clock_seconds, machine_of, percent
from ..evidence.evidence import checks_text, noise_line
from ..machine.places import as_typed, with_folders
from ..plan.options import ADD, CALL, CHECK, CHECKPOINT, CLAIMS, COMPARE, LONG, SIDE_ENV, Options, every_option
from ..spec.comparison import sides_of
from ..spec.words import ARCHITECTURE, GIVEN, OPERATIONS, SETTLED, UNDERSTATED, Cause, Word, due_to
from ..store.schema import CommandsRecord, Manifest, Noise
from ..store.verdict_schema import Effect, Verdict
from .text import LEAST_TIMES, Bounds, hull, span_text

UNSETTLED = ("inconclusive", "no evidence", "not measurable")


def row_words(verdict: Verdict) -> list[str]:
    """What became of each row: of a workload, or of a value without one. A grid has one row a workload."""
    by_workload = grid_answers(verdict)
    words = by_workload.values() if by_workload else [effect.verdict for effect in verdict.effects]
    asked = {"supported": "yes", "refuted": "no"} if verdict.is_condition else {}
    rows = [word.look.row for word in words if word not in (Word.PASSED, Word.FIRED)]
    return [asked.get(word, word) for word in rows]


def tally(verdict: Verdict) -> dict[str, int]:
    """How many rows there are of each kind."""
    return counted(row_words(verdict))


def counted(rows: Iterable[str]) -> dict[str, int]:
    """The same from words for rows, in the order in which they are told."""
    counts = Counter(rows)
    order = ["yes", "no", *(word.look.row for word in Word)]
    return {word: counts[word] for word in dict.fromkeys([*order, *counts]) if counts[word]}


def tally_text(counts: Mapping[str, int]) -> str:
    """ "supported on 3, refuted on 6", "refuted on all 5"; nothing for a single row."""
    total = sum(counts.values())
    if total < 2:
        return ""
    if len(counts) == 1:
        [word] = counts
        return f"{word} on {'both' if total == 2 else f'all {total}'}"
    return ", ".join(f"{word} on {count}" for word, count in counts.items())


def unmet(*asked: Verdict) -> str:
    """What to say of a condition of --fail-if that is not met, by its verdicts on each two sides: it passes only where
    all are decided."""
    return "passes" if all(verdict.verdict in GIVEN for verdict in asked) else "inconclusive"


@dataclass(frozen=True)
class Standing:
    """How a verdict stands: in a word, or in a clause about its rows; and where no row is settled, how far the
    intervals of the open ones reach."""

    word: str
    bound: str = ""

    def __str__(self) -> str:
        """ "refuted on 6 of 9, rest inconclusive", "inconclusive: at most 14 % faster"."""
        return ": ".join(filter(None, (self.word, self.bound)))


def standing(verdict: Verdict) -> Standing:
    """The verdict's own word; where that is "inconclusive", which kind. Where two variants differ from place to place:
    how many places there are of each kind."""
    if text := over_machines(verdict):
        return Standing(text)
    counts = tally(verdict)
    if verdict.verdict == Word.DEPENDS and verdict.is_comparison:
        return Standing(tally_text(counts) if counts.keys().isdisjoint(UNSETTLED) else settled_text(counts))
    if not verdict.is_open:
        return Standing(verdict.word)
    if text := settled_text(counts):
        return Standing(text.replace(Word.REFUTED, UNDERSTATED) if verdict.is_understated else text)
    by_workload = grid_answers(verdict)  # of a grid both sides of an open workload, whichever of them is open
    open_ = [each for each in verdict.effects if by_workload.get(each.workload, each.verdict) == Word.INCONCLUSIVE]
    bound = bound_text(verdict, open_)
    return Standing("inconclusive", bound or "no interval yet")


def outcome(verdict: Verdict) -> str:
    """The same as text."""
    return str(standing(verdict))


def over_machines(verdict: Verdict) -> str:
    """Of several machines that measured the same: "supported on these 3 machines", "depends on the machine", "refuted
    on 2 of 3 machines, rest inconclusive". Empty where there are no two, or none of them settles anything."""
    machines: dict[str, set[Word]] = {}
    places: dict[tuple[str, ...], set[str]] = {}
    for effect in verdict.effects:
        if name := effect.machine:
            machines.setdefault(machine_of(name), set()).add(effect.verdict)
            key = effect.workload, effect.variant, effect.baseline, effect.metric
            places.setdefault(key, set()).add(machine_of(name))
    if not any(len(names) > 1 for names in places.values()):
        return ""
    if verdict.cause is Cause.MACHINES_DIFFER:
        return ON_THE_MACHINE
    if verdict.verdict in GIVEN:
        return f"{verdict.verdict} on these {len(machines)} machines"
    settled = Counter(next(iter(words)) for words in machines.values() if len(words) == 1 and words <= {*SETTLED})
    text = ", ".join(f"{each} on {count}" for each, count in settled.items())
    return text and f"{text} of {len(machines)} machines, rest inconclusive"


def settled_text(counts: Mapping[str, int]) -> str:
    """ "refuted on 6 of 9, rest inconclusive"; nothing where no row is settled."""
    settled = {word: count for word, count in counts.items() if word not in UNSETTLED}
    text = ", ".join(f"{word} on {count}" for word, count in settled.items())
    return text and f"{text} of {sum(counts.values())}, rest inconclusive"


def verdict_text(verdict: Verdict) -> str:
    """The same, with a * where it holds together with all that are marked so."""
    return f"{outcome(verdict)}{'*' * verdict.together}"


def leaning(counts: Mapping[str, int]) -> str:
    """Of an inconclusive verdict's rows: "supported" or "refuted" where all others are that, else that word."""
    settled = [word for word in counts if word not in UNSETTLED]
    return settled[0] if len(settled) == 1 and settled[0] in (Word.SUPPORTED, Word.REFUTED) else "inconclusive"


def bound_text(verdict: Verdict, effects: Sequence[Effect]) -> str:
    """What the intervals of these effects leave possible, seen from what is claimed: "at most 14 % faster". Empty where
    an effect has no interval."""
    if sides := sides_text(effects):
        return sides
    span, low, high = hull(effects), verdict.low, verdict.high
    if span is None:
        return ""
    way = "between"
    if not verdict.is_comparison and (low is None) != (high is None):
        # A claim of "more than" fails from above, one of "at most" holds or fails by the same end.
        way = "at least" if low is None and high is not None and not span.unit and high < 1 else "at most"
    return span_text(span, way, as_ratio=bool(low and low >= LEAST_TIMES))


def found_text(verdict: Verdict) -> str:
    """What was measured, in the fewest words that carry the verdict: the end that lies nearest to what is claimed, or
    both. Empty where nothing has an interval."""
    if sides := sides_text(verdict.effects):
        return sides
    span, low, high = hull(verdict.effects), verdict.low, verdict.high
    if span and (text := _within_text(verdict, span)):
        return text
    is_around = span and low is not None and high is not None and span.low < low and span.high > high
    if verdict.verdict == Word.REFUTED and (span is None or is_around):
        return _outside_text(verdict.effects, low, high)
    if span is None:
        return ""
    below, above = low is not None and span.high < low, high is not None and span.low > high
    if verdict.verdict == Word.SUPPORTED:  # of an open range the end that it has is the one to keep
        below, above = low is None and high is not None, high is None and low is not None
    elif verdict.verdict != Word.REFUTED:
        below = above = False
    return span_text(
        span, "at most" if below else "at least" if above else "between", as_ratio=bool(low and low >= LEAST_TIMES)
    )


def _within_text(verdict: Verdict, span: Bounds) -> str:
    """Of a settled verdict whose intervals all lie within the margin that matters: how far they reach. Else empty."""
    most = max(span.high, 1 / span.low) if span.low > 0 and not span.unit else math.inf
    is_within = verdict.margin and not verdict.is_open and most <= 1 + verdict.margin / 100
    return f"no difference beyond {100 * (most - 1):.2g} %" if is_within else ""


def _outside_text(effects: Sequence[Effect], low: float | None, high: float | None) -> str:
    """Of intervals that lie outside of a range: how near they come to it from below, from above, or from both, as "at
    most 1.02x or at least 4.10x". Empty where one of them is not known to lie outside."""
    highs = [each.upper for each in effects if each.upper is not None]
    lows = [each.lower for each in effects if each.lower is not None]
    below = [each for each in highs if low is not None and each < low]
    above = [each for each in lows if high is not None and each > high]
    if not effects or len(below) + len(above) < len(effects):
        return ""
    unit, as_ratio = effects[0].unit, bool(low and low >= LEAST_TIMES)
    texts = []
    if below:
        texts.append(span_text(Bounds(min([*lows, *below]), max(below), unit), "at most", as_ratio=as_ratio))
    if above:
        texts.append(span_text(Bounds(min(above), max([*highs, *above]), unit), "at least", as_ratio=as_ratio))
    return " or ".join(texts)


def grid_answers(verdict: Verdict) -> dict[str, Word]:
    """The verdict on each workload where the effects are a grid's: it is that of its two sides. Else empty."""
    sides = grid_sides(verdict.effects)
    claimed = verdict.due_to
    answers = {}
    for workload, (architecture, operations) in sides.items() if claimed else ():
        named = {ARCHITECTURE: architecture.verdict, OPERATIONS: operations.verdict}
        open_ = [word for word in (Word.NOT_EVIDENCE, Word.INCONCLUSIVE) if word in named.values()]
        due = due_to(name for name, word in named.items() if word == Word.FASTER)
        answers[workload] = open_[0] if open_ else Word.SUPPORTED if claimed == due else Word.REFUTED
    return answers


def grid_sides(effects: Iterable[Effect]) -> dict[str, tuple[Effect, Effect]]:
    """Of a grid's effects those of architecture and of operations by workload; empty where they are of no grid."""
    by_side: dict[str, dict[str, Effect]] = {ARCHITECTURE: {}, OPERATIONS: {}}
    for effect in effects:
        if effect.factor in by_side:
            by_side[effect.factor][effect.workload] = effect
    ours, theirs = by_side.values()
    return {workload: (ours[workload], theirs[workload]) for workload in ours if workload in theirs}


def by_side(effects: Iterable[Effect]) -> dict[str, list[Effect]]:
    """The same by side, in the order in which they are told; empty where they are of no grid."""
    pairs = grid_sides(effects).values()
    return {OPERATIONS: [pair[1] for pair in pairs], ARCHITECTURE: [pair[0] for pair in pairs]} if pairs else {}


def sides_text(effects: Sequence[Effect]) -> str:
    """Of a grid: what either side gains. Empty where the effects are of no grid, or a side has no interval."""
    spans = {name: span for name, some in by_side(effects).items() if (span := hull(some)) is not None}
    return ", ".join(f"{name} {span_text(span, 'between')}" for name, span in spans.items()) if len(spans) == 2 else ""


# -- what it would take ------------------------------------------------------------------------------------------------


def cost_text(verdict: Verdict) -> str:
    """How much more measuring would settle the open rows: "about 4 min more, enough in 9 of 10 cases". Empty where
    nothing can be said, or nothing is open."""
    rows = [side for pair in grid_sides(verdict.effects).values() for side in pair] or verdict.effects
    open_ = [effect for effect in rows if effect.verdict == Word.INCONCLUSIVE]
    needs, texts = ToSettle.of(open_), []
    for effects, why in ((needs.settles, "enough in 9 of 10 cases"), (needs.begins, "for a first interval")):
        if effects:
            some = f" for {len(effects)} of {len(open_)} inconclusive rows" if len(effects) < len(open_) else ""
            texts.append(f"{about(clock_seconds(effects))} more{some}, {why}")
    if needs.never:
        texts.append(f"{'the rest: ' if texts else ''}{needs.never}")
    return "; ".join(texts)


def to_settle(verdict: Verdict, command: str) -> str:
    """What an open verdict would cost, and the `command` for it; empty where nothing is open. Where no time is known to
    settle it, the command is said to measure it again."""
    if not verdict.is_open:
        return ""
    needs, cost = ToSettle.of(verdict.effects), cost_text(verdict)
    does = "to decide it" if needs.settles or needs.begins else "to measure it again"
    return f"{does}{f' ({cost})' if cost else ''}: {command}"


# How far a run can be trusted: one answer from its A/A checks, the same on every page and in every export.


@dataclass(frozen=True)
class Trust:
    """`finding`: what the checks found, in the words of the terminal. `means`: what follows for the verdicts. `short`:
    why, in a few words."""

    word: str
    finding: str
    means: str = ""
    short: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether nothing speaks against its numbers."""
        return self.word == TRUSTED

    @property
    def sentence(self) -> str:
        """All of it."""
        return " ".join(filter(None, (f"{self.word}.", f"{self.finding}." if self.finding else "", self.means)))


TRUSTED, IN_PART, NOT_KNOWN, NOT_CHECKED = "Trusted", "Trusted in part", "Trust not known", "Not checked"


def trust_of(noise: Noise) -> Trust:
    """By the checks that timed the same code as two sides."""
    controls = noise.controls
    if not controls:
        return Trust(NOT_CHECKED, "", "No code was timed against itself.")
    line = noise.line or noise_line(controls, noise.typical)
    fired = [control for control in controls if control.fired]
    if fired:
        places = len({control.workload for control in fired})
        where = f"{places} workload{'s' * (places != 1)}"
        means = f"On {where} a verdict counts only if it survives twice that difference."
        return Trust(IN_PART, line, means, f"identical code differed on {where}")
    if noise.typical:
        size = percent(math.expm1(noise.typical))
        means = "A verdict counts only if it survives twice that difference."
        return Trust(IN_PART, line, means, f"identical code differed by {size}")
    able = sum(math.isfinite(control.shift) for control in controls)
    if not able:
        return Trust(NOT_KNOWN, line, f"{checks_text(len(controls)).capitalize()} had too few rounds.")
    return Trust(TRUSTED, line)


# The command that measures a claim's part again, as the run did.


REPEATED = frozenset(f"--{each.name}" for each in every_option() if each.repeated)
"""Options of a run without which the same claim would be another measurement."""

SECOND_NAMES = {second: first for first, *more in (each.names() for each in every_option()) for second in more}
"""Second name of an option → its first."""


def command_of(verdict: Verdict, manifest: Manifest) -> str:
    """The command for this verdict alone, with what its run chose."""
    command, words = as_typed(manifest.command), ["pytest", "--benchmark"]
    if command[:1] == ["workbench"]:  # such as compare-revisions, which made the sides itself
        return shlex.join(command)
    effects = verdict.effects
    measured = list(dict.fromkeys(effect.workload for effect in effects))
    if (verdict.is_comparison or verdict.is_condition) and effects:
        functions = _functions(command, max(len(manifest.ad_hoc) + 1, 2))
        words += ["--compare", *(functions or (effects[0].baseline, effects[0].variant))]
        words += [] if functions else ["--workloads", ",".join(measured)]
        words += ["--fail-if", verdict.part] if verdict.is_condition else []
    else:
        words += ["--claims", verdict.claim]
        # Of a claim with several parts only what this one needs; what spans several workloads needs them all.
        if verdict.part and measured and {*measured} <= {each.workload.name for each in manifest.experiments}:
            words += ["--workloads", ",".join(measured)]
    words += words_of(command, REPEATED)
    return shlex.join(words)


def _functions(command: Sequence[str], count: int) -> tuple[str, ...]:
    """So many sides as they were typed where they are functions or commands, whose names lead nowhere; else empty."""
    names = [_short(word.partition("=")[0]) for word in command]
    if COMPARE not in names:
        return ()
    place = names.index(COMPARE) + 1
    sides = tuple(takewhile(lambda word: not word.startswith("-"), command[place : place + count]))
    return sides if CALL in names or any(map(is_command, sides)) else ()


def _short(name: str) -> str:
    short = f"--{name.removeprefix(LONG)}" if name.startswith(LONG) else name
    return SECOND_NAMES.get(short, short)


def words_of(command: Sequence[str], options: Collection[str]) -> Iterator[str]:
    """These options, by their short names, as a command has them: with something behind, or flags."""
    flags = {f"--{each.name}" for each in every_option() if each.typed is bool}
    bare = {f"--{each.name}": each.bare for each in every_option() if each.bare is not None}
    for word, after in zip(command, [*command[1:], ""], strict=False):
        name, separate, value = word.partition("=")
        short = _short(name)
        if short not in options:
            continue
        if short in flags:
            yield short
        elif short in bare:
            yield f"{short}={value or ('' if after.startswith('-') else after) or bare[short]}"
        elif value if separate else after:
            yield from (short, value if separate else after)


# The command that goes on with a run until what is open is settled, as far as time can settle it.


LEAST_SECONDS = 5
"""Of the command's budget."""

SLACK = 1.5
"""For a first interval the command gives so much more than was estimated: the machine may be busier then."""


def goes_on(manifest: Manifest) -> bool:
    """Whether run.json says what a run that goes on must know, and no side was in an environment of its own."""
    own = any(side.python is not None for side in manifest.environments.values())
    return manifest.sources is not None and bool(manifest.sittings) and not own


def further(run: Path, verdicts: Iterable[Verdict], manifest: Manifest, options: Options | None = None) -> str:
    """The command; empty where more time would settle nothing, or the run cannot go on. options: of the session that
    measured, which knows where things lie. A run keeps no paths: without them a comment in the command says what is to
    be put in."""
    if manifest.sources is None or not goes_on(manifest):
        return ""
    if not (seconds := seconds_to_settle(verdicts)):
        return ""
    words = ["pytest", "--benchmark", "--continue", _from_here(run.resolve())]
    words += ["--budget", str(budget(max(seconds, LEAST_SECONDS)))]
    given = [word for text in brought_models(manifest).values() for word in (ADD, text)] + compared_again(manifest)
    words += (given := with_folders(given, sys.argv[1:]))
    files = dict.fromkeys(re.findall(r"(?m)(?:^|=)([^=:\n]+\.py):[^@\n]*$", "\n".join(given)))
    places = _named_places(manifest) if options is None else options.places
    words += [word for option, path in places.items() for word in (option, _from_here(path))]
    unknown = [f"{path}: its place today" for path in (*files, *places.values()) if not Path(path).exists()]
    return shlex.join(words) + f"  # {'; '.join(unknown)}" * bool(unknown)


def _named_places(manifest: Manifest) -> dict[str, Path]:
    """The options of a run that say where something lies, as far as it keeps that: a name without folders, or a word
    in its place."""
    own = any(facts.synthetic is False for facts in (manifest.checkpoints or {}).values())
    places = {CHECKPOINT: Path("PATH")} if own else {}
    for word in words_of(manifest.command, [CLAIMS]):
        places[CLAIMS] = Path(word)  # of its name and what stands behind it, the last
    return places


def seconds_to_settle(verdicts: Iterable[Verdict]) -> float:
    """Seconds of the clock with which what is open is settled, or gets its first interval; 0 where none would do."""
    needs = ToSettle.of(effect for verdict in verdicts if verdict.is_open for effect in verdict.effects)
    begins = [replace(effect, seconds_more=SLACK * effect.seconds_more) for effect in needs.begins]
    return clock_seconds((*needs.settles, *begins))


def _from_here(path: Path) -> str:
    """A path as it is typed in the current folder."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def brought_models(manifest: Manifest) -> dict[str, str]:
    """Name of a variant that the user brought → how it is given again."""
    called = {name for each in manifest.experiments if each.workload.kind == "call" for name in each.variants}
    sources = manifest.sources.variants if manifest.sources is not None else {}
    return {
        name: source.given or f"{source.file}:{name}"
        for name, source in sources.items()
        if (source.given or source.file) and name not in called
    }


def compared_again(manifest: Manifest) -> list[str]:
    """The options that give the functions of a comparison again; none where the run compares none, or claims do."""
    if manifest.sources is None or not manifest.sources.calls or manifest.mode != "compare" or not manifest.ad_hoc:
        return []
    known = manifest.sources.variants
    sides = [known[name].given or name for name in sides_of(manifest.ad_hoc) if name in known]
    payloads = dict.fromkeys(each.payload.given for each in manifest.sources.calls.values())  # of several sizes one
    calls = [word for given in payloads if given for word in (CALL, given)]
    checks = dict.fromkeys(each.check.given or "" for each in manifest.sources.calls.values() if each.check)
    commands = next(iter(manifest.sources.calls.values())).commands
    own = words_of(as_typed(manifest.command), [SIDE_ENV])
    given = [*sides, *calls, *(word for each in checks for word in (CHECK, each))]
    return [COMPARE, *given, *_run_again(commands), *own]


def _run_again(commands: CommandsRecord | None) -> list[str]:
    """The options that say how commands are run."""
    if commands is None:
        return []
    codes = ",".join(map(str, commands.ignore_failure)) if commands.ignore_failure != ANY_CODE else ANY_CODE
    words = {PREPARE: commands.prepare, CONCLUDE: commands.conclude, INPUT: commands.input}
    return [f"{IGNORE}={codes}"] * bool(codes) + [word for pair in words.items() if pair[1] for word in pair]
