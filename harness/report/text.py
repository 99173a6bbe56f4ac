"""What a terminal, a README and a page say alike: numbers, names and notes of a run as text. Pure functions."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..calls.environments import in_words
from ..evidence.effect import short_time
from ..machine.environment import one_line
from ..spec.comparison import EnteredName
from ..spec.words import COUNTED, GIVEN, Word
from ..store.schema import Manifest, SideEnvironment, SideFacts
from ..store.verdict_schema import Effect, Verdict

# How the sides of a comparison of functions ran, in words: what a reader must know beside the number.


LONG_FIRST_CALL, LONG_FIRST_CALL_NS = 5, 50_000_000
"""A first call that takes so many times as long as the others, and so long, is told: code was compiled or loaded."""

LEAST_WAITING = 0.05
"""A wait is told from this part of a call on."""

LEAVES_FILES = 0.05
"""An answer may hold one, which is kept until the next."""

LITTLE = 0.01


LEAST_SHARE = 0.05
"""Collections and page faults are told where they take this share of a call."""

CALM = (
    "Measured calm: freed memory was kept for reuse and no garbage was collected in samples, which is not how Python "
    "and the system have it."
)


def side_facts_text(facts: Mapping[str, SideFacts], sides: Iterable[str]) -> str:
    """What is worth saying of these sides; empty where nothing is. facts: of all sides, by name."""
    seen = {side: facts[side] for side in sides if side in facts}
    lines = [line for side, each in seen.items() for line in _lines(side, each)]
    if inputs := [each.inputs for each in seen.values() if each.inputs]:
        lines.append(f"Each process generated {min(inputs):,} inputs and gave each of them to several calls.")
    return " ".join(lines)


def faults_text(facts: Mapping[str, SideFacts], call_ns: Mapping[str, float], faults: Mapping[str, float]) -> str:
    """Of which sides page faults are a part that matters; empty where of none. call_ns: of each side; faults: how many
    a call has."""
    shares = {
        name: min(faults[name] * (facts[name].fault_ns or 0.0) / whole_ns, 1.0)
        for name, whole_ns in call_ns.items()
        if name in facts
    }
    return " ".join(
        f"Getting memory from the system takes about {100 * share:.0f} % of a call of {name} ({faults[name]:,.0f} "
        "page faults a call)."
        for name, share in shares.items()
        if share >= LEAST_SHARE
    )


def import_text(facts: Iterable[SideFacts]) -> str:
    """What the time of an import, or of a part of a call, is; empty where whole calls are timed."""
    seen = [*facts]
    lines = ["Only the import is timed: its Python was started before."] * any(each.is_import for each in seen)
    lines += ["Only a part of each call is timed."] * any(each.is_apart for each in seen)
    return " ".join(lines)


def _lines(name: str, seen: SideFacts) -> Iterator[str]:
    if (share := seen.collection_share or 0.0) >= LEAST_SHARE:
        times = f"{seen.collections_per_call or 0.0:.3g}"
        yield f"Collecting garbage takes about {100 * share:.0f} % of a call of {name} ({times} collections a call)."
    first_ns, waited_ns, wall_ns = seen.first_call_ns or 0.0, seen.waited_ns or 0.0, seen.wall_ns or 0.0
    if wall_ns and first_ns >= max(LONG_FIRST_CALL * wall_ns, LONG_FIRST_CALL_NS):
        yield f"The first call of {name} took {short_time(first_ns / 1e9)}; it is not included."
    if waited_ns and waited_ns >= LEAST_WAITING * wall_ns:
        waited, wall, rest = (short_time(ns / 1e9) for ns in (waited_ns, wall_ns, wall_ns - waited_ns))
        what = f"{100 * waited_ns / wall_ns:.0f} % of a call of {name} is waiting ({waited} of {wall})"
        if seen.children_share is not None or seen.threads_share is not None:
            yield f"{what}, for what it starts or for something else."
        else:
            yield (
                f"{what}, such as for a timer, a lock, a socket or another process. If you cannot shorten the wait, "
                f"only the other {rest} can change: compare that part alone."
            )
    if seen.copies_inputs:
        yield (
            f"A call of {name} changes its input, and the input generator returns the same object each time. So every "
            "call was given a copy of its own."
        )

    if seen.gains_again:
        share = 100 * (1 - math.exp(-abs(seen.gains_again)))
        who = f"{name} gains {share:.0f} % more than the baseline" if seen.gains_again > 0 else ""
        who = who or f"The baseline gains {share:.0f} % more than {name}"
        yield f"{who} when an input is repeated, as code with a cache does. So each call was given a new input."
    if seen.children_share is not None:
        yield f"{name} starts child processes: its time is wall time, {_share(seen.children_share)} theirs."
    if seen.threads_share is not None:
        yield f"{name} computes in threads of its own: its time is wall time, {_share(seen.threads_share)} theirs."
    if seen.sets_collector:
        yield f"{name} sets the garbage collector of its whole process: other functions do not run with that setting."
    if (seen.files_left or 0) > LEAVES_FILES:
        yield f"{name} leaves files open: {seen.files_left:.2g} a call."
    for felt in (False, True):
        if changed := [each.what for each in seen.changes if each.felt is felt]:
            then = "this affects the other functions" if felt else "this is undone after each of its turns"
            yield f"{name} changes {', '.join(changed)} for its whole process: {then}."


def _share(share: float) -> str:
    if share > 1:
        return f"and {share:.1f} times as much CPU time is"
    return f"of which {100 * share:.0f} % is" if share >= LITTLE else "of which less than 1 % is"


LEAST_TIMES = 1.5
"""A claim of so many times as fast and more is told in times, and no longer in percent."""

RISE, FALL = "% rise", "% fall"
"""The unit of a growth, and what it is called where all of it lies below nothing."""

MOST_PACKAGES = 5
"""Packages that differ between environments, in one line."""

UNITS = ((1e9, 1e9, "s"), (1e5, 1e6, "ms"), (1e2, 1e3, "µs"), (0.0, 1.0, "ns"))
"""From how many nanoseconds on a unit is used, how many one of it has, and the unit."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]|\x1b\[[0-9;?]*[A-Za-z]")


def interval_text(low: float | None, high: float | None, unit: str = "") -> str:
    """Ends of an interval, by default of ratios: "[1.009, 1.018]"; a missing end is open."""
    if unit:
        return f"[{'open' if low is None else short(low)}, {'open' if high is None else short(high)}]"
    if not low and high is None:
        return "[no interval yet]"
    return f"[{digits(low or 0.0)}, {'open' if high is None else digits(high)}]"


def call_time(ns: float) -> str:
    """A time with its unit, three significant digits: "7.85 ms"."""
    unit_ns, unit = unit_of(ns)
    return f"{three_digits(ns / unit_ns)} {unit}"


def call_times(both: tuple[float, float]) -> tuple[str, str]:
    """Two times that stand beside each other, in one unit."""
    if any(map(math.isnan, both)):
        return "not measured", "not measured"
    unit_ns, unit = unit_of(max(both))
    before, after = (f"{three_digits(ns / unit_ns)} {unit}" for ns in both)
    return before, after


def unit_of(ns: float) -> tuple[float, str]:
    """The unit in which a time is told: how many nanoseconds it has, and its name."""
    return next((one, unit) for least, one, unit in UNITS if abs(ns) >= least)


def byte_unit(largest: float) -> tuple[float, str]:
    """Divisor and name of the binary unit in which `largest` is below a thousand."""
    power = next((power for power in range(4) if abs(largest) < 1000 * 1024**power), 4)
    return 1024.0**power, ("B", "KiB", "MiB", "GiB", "TiB")[power]


def size_text(count: float) -> str:
    """A number of bytes in binary units, three significant digits."""
    divisor, unit = byte_unit(count)
    return f"{count:.0f} B" if unit == "B" else f"{count / divisor:.3g} {unit}"


def effect_text(effect: Effect) -> str:
    """An effect with its interval (see `measured_text`)."""
    return measured_text(effect.value, effect.lower, effect.upper, effect.unit)


def measured_text(value: float | None, low: float | None, high: float | None, unit: str = "") -> str:
    """A ratio with its interval: "1.013× [1.009, 1.018]"; a value with its unit: "61.2 % [60.1, 62.3]"; an exact one
    without an interval: "76 lines"; a bound alone: "at least 12 times"."""
    if not unit:
        return "no rounds" if value is None else f"{digits(value)}× {interval_text(low, high)}"
    if value is None and low is None and high is None:
        return "no value"
    if value is not None and low == high == value:
        return f"{short(value)} {unit}"
    if value is None and low is not None and high is None:
        return f"at least {short(low)} {unit}"
    return f"{'?' if value is None else short(value)} {unit} {interval_text(low, high, unit)}"


@dataclass(frozen=True)
class Bounds:
    """The least and the largest that some intervals leave possible: ratios, or values in `unit`."""

    low: float
    high: float
    unit: str = ""


def hull(effects: Sequence[Effect]) -> Bounds | None:
    """From the lowest to the highest end of the intervals; None where one of them is open, or there is none."""
    if not effects or any(effect.lower is None or effect.upper is None for effect in effects):
        return None
    return Bounds(min(effect.low for effect in effects), max(effect.high for effect in effects), effects[0].unit)


def span_text(span: Bounds, way: str, *, as_ratio: bool = False) -> str:
    """A span in words, seen from one end or from both: "at most 14 % faster", "at least 2.10x", "1.2 to 3.1 % faster".

    way: "at most", "at least" or "between". Ratios are told as times where they are far from 1, or `as_ratio`.
    """
    if span.unit == RISE and span.high < 0:
        turned = {"at most": "at least", "at least": "at most"}.get(way, way)
        return span_text(Bounds(-span.high, -span.low, FALL), turned)
    if span.unit:
        low, high = (f"{value:.2g}" if 0 < abs(value) < 9.95 else short(value) for value in (span.low, span.high))
        if span.low == span.high:  # counted or tried: exact
            return f"{low} {span.unit}"
        both = f"{low} to {high}"
        return {"at most": f"at most {high}", "at least": f"at least {low}"}.get(way, both) + f" {span.unit}"
    end = {"at most": span.high, "at least": span.low}.get(way)
    if end is None and (as_ratio or span.high >= 2 or span.low <= 0.5):
        return f"{span.low:.2f}x to {span.high:.2f}x"
    if end is not None and (as_ratio or not 0.5 < end < 2):
        return f"{way} {end:.2f}x{'' if as_ratio else ' as fast'}"
    if end is not None and way == "at most":
        return f"at most {_gain(end)} % faster" if end > 1 else f"at least {_gain(1 / end)} % slower"
    if end is not None:
        return f"at least {_gain(end)} % faster" if end >= 1 else f"at most {_gain(1 / end)} % slower"
    return gain_text(span.low, span.high)


def gain_text(low: float, high: float) -> str:
    """An interval of ratios in words: "1.2 to 3.1 % faster", "2.1 to 2.4 times as fast", "3 to 4 times the time"."""
    if low >= 2:
        return f"{short(low)} to {short(high)} times as fast"
    if high <= 0.5:
        return f"{short(1 / high)} to {short(1 / low)} times the time"
    if low >= 1:
        return f"{_gain(low)} to {_gain(high)} % faster"
    if high <= 1:
        return f"{_gain(1 / high)} to {_gain(1 / low)} % slower"
    return f"between {_gain(1 / low)} % slower and {_gain(high)} % faster"


def _gain(ratio: float) -> str:
    return f"{100 * (ratio - 1):.2g}" if ratio < 2 else f"{100 * (ratio - 1):,.0f}"


def short(value: float) -> str:
    """Three digits that count, and all of a whole number."""
    if abs(value) >= 100 or value == round(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def three_digits(value: float) -> str:
    """The same with the zeros at its end: "1.00", "2.20", "0.0310", "1,281"."""
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"


def duration_text(seconds: float) -> str:
    """Seconds as people say them: "0.4 s", "42 s", "8 min 30 s", "2 h 5 min"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    sizes = ((minutes, "min"), (left, "s")) if minutes < 60 else ((minutes // 60, "h"), (minutes % 60, "min"))
    return " ".join(f"{size} {unit}" for size, unit in sizes if size)


def claim_text(verdict: Verdict) -> str:
    """A claim's id, with the label of the part in brackets where it has one."""
    return f"{verdict.claim} ({verdict.part})" if verdict.part else verdict.claim


def one_text_line(text: object, limit: int = 300) -> str:
    """`text` on one line, without control characters: what a variant raised may hold anything."""
    line = " ".join(_CONTROL.sub(" ", str(text)).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def digits(ratio: float) -> str:
    """Three decimals or so; of a ratio below 0.01 two figures that count, so that none is 0.000."""
    if 0 < ratio < 0.01:
        return f"{ratio:.{1 - math.floor(math.log10(ratio))}f}"
    if ratio < 10:
        return f"{ratio:.3f}"
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"


def by_name(verdicts: Sequence[Verdict], manifest: Manifest) -> list[Verdict]:
    """The same verdicts, which name the sides that were left out and leave the reasons to `excluded_lines`."""
    left_out = {
        (experiment.workload.name, item.variant)
        for experiment in manifest.experiments
        for item in (*manifest.excluded, *experiment.excluded)
    }
    named = []
    for verdict in verdicts:
        reason, effects = verdict.reason, []
        for effect in verdict.effects:
            out = [side for side in (effect.baseline, effect.variant) if (effect.workload, side) in left_out]
            if out and effect.cause.leaves_out and effect.reason:
                short_reason = f"{' and '.join(out)} {'is' if len(out) == 1 else 'are'} left out"
                reason = reason.replace(effect.reason, short_reason)
                effect = replace(effect, reason=short_reason)
            effects.append(effect)
        named.append(replace(verdict, reason=reason, effects=tuple(effects)))
    return named


def excluded_lines(manifest: Manifest) -> list[str]:
    """One line for each reason and what was left out for it: of the whole run, of one workload, or all of that. Sides
    that are functions are always named: their workload is called as what makes their inputs."""
    everywhere = {item.variant for item in manifest.excluded}
    names: dict[tuple[str, str], list[str]] = {}
    for item in manifest.excluded:
        names.setdefault(("", item.reason), []).append(item.variant)
    for experiment in manifest.experiments:
        for item in experiment.excluded:
            side = EnteredName(item.variant).original  # a control is its side once more
            if side not in everywhere:
                names.setdefault((experiment.workload.name, item.reason), []).append(side)
    whole = {
        experiment.workload.name: {EnteredName(name).original for name in experiment.variants}
        for experiment in manifest.experiments
    }
    calls = {known.workload.name for known in manifest.experiments if known.workload.kind == "call"}
    lines = []
    for (workload, reason), left_out in names.items():
        who = ", ".join(dict.fromkeys(left_out))
        if workload and (workload not in calls or len(whole) > 1):
            all_of_it = workload not in calls and len(left_out) > 1 and whole[workload] <= {*left_out}
            who = workload if all_of_it else f"{who} on {workload}"
        lines.append(f"{who}: {one_text_line(reason, 1000)}")
    return lines


OVER_PROCESSES = "for another run of the same command on {machine}: it is taken over fresh processes"


UNFINISHED = {"running": "still goes on or was killed", "interrupted": "was interrupted", "failed": "failed"}


def run_notes(verdicts: Sequence[Verdict], manifest: Manifest) -> list[str]:
    """What stands below the verdicts of a run: how many there are, how sure they are, and on what machine."""
    lines = []
    if counts := ", ".join(f"{count} {word}" for word, count in verdict_counts(verdicts).items()):
        lines.append(f"{len(verdicts)} verdict{'s' * (len(verdicts) != 1)}: {counts}")
    if how := UNFINISHED.get(manifest.status or ""):
        lines.append(f"This run {how}: only its finished rounds are judged.")
    if manifest.noise and manifest.noise.line:
        lines.append(one_text_line(manifest.noise.line, 600))
    if any(not math.isnan(verdict.alpha) for verdict in verdicts):
        machine = "these machines" if manifest.machines else "this machine"
        lines.append(
            "A ratio is t_baseline / t_variant: above 1 the variant is faster. Each interval holds with at least "
            f"{100 * (1 - manifest.alpha):.4g} % confidence {OVER_PROCESSES.format(machine=machine)}."
        )
        lines.append(_how_sure(verdicts, manifest.alpha))
    elif any(verdict.effects for verdict in verdicts):
        lines.append("The intervals are of counts: they are bounds from experience, with no known probability.")
    for name, checkpoint in (manifest.checkpoints or {}).items():
        if checkpoint.facts is not None:
            lines.append(one_text_line(f"Checkpoint {name}: {checkpoint.facts}.", 600))
    if environment := manifest.machine_facts:
        seconds = sum(each.seconds or 0.0 for each in manifest.experiments)
        compared = sum(each.compared_seconds or 0.0 for each in manifest.experiments)
        sampled = compared or sum(each.sampled_seconds or 0.0 for each in manifest.experiments)
        of = "samples of what is compared" if compared else "timed samples"
        inside = f" of rounds ({100 * sampled / seconds:.0f} % inside {of})" if seconds and sampled else ""
        lines.append(
            f"Measured on {one_line(environment)}{f', in {duration_text(seconds)}{inside}' if seconds else ''}."
        )
    seen = [facts for each in manifest.experiments for facts in each.facts.values()]
    lines += filter(None, (environments_text(manifest.environments), import_text(seen)))
    return lines


def environments_text(environments: Mapping[str, SideEnvironment]) -> str:
    """In one line, what each side of a comparison ran in that had an environment, variables or interpreter options of
    its own; empty where none had.

    environments: by side."""
    parts = []
    for side, facts in environments.items():
        differs, packages = facts.differs, facts.packages
        shown = [name for name in ("torch", "numpy") if name in packages and name not in differs]
        names = [*differs[:MOST_PACKAGES], *shown]
        versions = [f"{name} {packages.get(name) or 'not installed'}" for name in names]
        more = [f"{len(differs) - MOST_PACKAGES} more that differ"] if len(differs) > MOST_PACKAGES else []
        packages_text = f" ({', '.join([*versions, *more])})" if versions or more else ""
        python = f" in Python {facts.python}{packages_text}" if facts.python is not None else " runs"
        own = in_words(facts.variables, facts.options)
        parts.append(f"{side}{python}{f' with {own}' if own else ''}")
    begins = "Environments: " if any(facts.python is not None for facts in environments.values()) else ""
    return one_text_line(f"{begins}{'; '.join(parts)}.", 600) if parts else ""


def _how_sure(verdicts: Sequence[Verdict], alpha: float) -> str:
    """How many of the verdicts may be wrong, and which of them hold all at once."""
    decided = [verdict for verdict in verdicts if verdict.verdict in GIVEN]
    given = [verdict for verdict in decided if not math.isnan(verdict.alpha)]
    bounded, together = len(decided) - len(given), sum(verdict.together for verdict in given)
    tried = len(given) + sum(verdict.verdict == Word.INCONCLUSIVE and verdict.alpha > 0 for verdict in verdicts)
    text = f"Each verdict is wrong with at most {100 * alpha:g} % probability"
    if tried > 1:
        text += f": of the {tried} that were tried, {alpha * tried:.2g} on average at worst"
    if together:
        text += (
            f". Those marked * ({together}) also hold together: with {100 * (1 - alpha):.4g} % none of them is wrong"
        )
    if bounded:
        text += f". This does not hold for the {bounded} that rest on counts: "
        text += "their intervals are bounds from experience"
    return f"{text}."


def verdict_counts(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """How many there are of each word, in the order of words; understated ones stand behind refuted ones."""
    counts = Counter(verdict.word for verdict in verdicts)
    return {word: counts[word] for word in COUNTED if counts[word]}
