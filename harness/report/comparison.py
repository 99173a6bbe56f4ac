"""One comparison on one screen: who is faster and by how much, what a call costs on both sides, where the difference
is, in which lines, and what to do. The terminal and the page show the same."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..evidence.effect import ALPHA
from ..evidence.evidence import Evidence
from ..slices import faces
from ..spec.comparison import TIMES, Comparison
from ..spec.regions import MARGIN_PERCENT, SECOND_MARGIN_PERCENT
from ..spec.words import Cause, Word
from ..store.folder import RunFolder
from ..store.passes import MEMORY
from ..store.schema import ExperimentRecord, Manifest, SideEnvironment
from ..store.verdict_schema import Effect, Verdict
from .causes import LINES, Explanation, code_text, explanations_in, of_effect
from .markdown import markdown_cell, markdown_rows, markdown_text
from .text import (
    CALM,
    call_times,
    effect_text,
    environments_text,
    faults_text,
    gain_text,
    import_text,
    one_text_line,
    side_facts_text,
    size_text,
    three_digits,
)

# What a call costs on both sides of a comparison, measure by measure, as text.


TIME, PEAK, KEPT, INSTRUCTIONS, FAULTS = "time", "peak memory", "memory kept", "instructions", "page faults"

MANY_TIMES = 2
"""From it on what a side takes more is told in times, and in percent below it."""

LEAST_KEPT, LEAST_PEAK = 1 << 20, 1 << 16
"""Bytes. Less memory that is kept is not told: importing the module takes as much. A peak that differs by less is no
price."""

SAME_WITHIN = 1 + MARGIN_PERCENT / 100
"""Within this ratio two times are the same, as in a comparison without a claim."""


@dataclass(frozen=True)
class Measure:
    """What a call costs on both sides, as text. `change`: of the variant, with its interval where there is one.

    ratio, low, high: the variant's over the baseline's; low and high are the ratio where it was counted. more: how many
    bytes more the variant has, of memory.
    """

    what: str
    before: str
    after: str
    ratio: float
    low: float
    high: float
    more: float = 0.0

    @property
    def change(self) -> str:
        """ "-27 % [-31, -25]"; "the same" of what was counted and is as good as equal."""
        percents = [100 * (each - 1) for each in (self.ratio, self.low, self.high)]
        if not math.isfinite(percents[0]):
            return ""
        if self.low == self.high and abs(percents[0]) < 100 * (SAME_WITHIN - 1):
            return "the same"
        value, low, high = (f"{each:+,.0f}" if abs(each) >= 100 else f"{each:+.3g}" for each in percents)
        ends = "" if low == high else f" [{low}, {high}]" if math.isfinite(percents[2]) else " [no interval yet]"
        return f"{value} %{ends}"

    @property
    def amount(self) -> str:
        """What the variant takes of it: "27 % less time", "3.1 times the time", "the same peak memory", "8.3 MiB more
        memory kept"; empty where that is not known."""
        if self.what == KEPT:
            return f"{size_text(abs(self.more))} {'more' if self.more > 0 else 'less'} {self.what}"
        percent = 100 * (self.ratio - 1)
        if not math.isfinite(percent):
            return ""
        if self.ratio >= MANY_TIMES:
            return f"{three_digits(self.ratio)} times the {self.what}"
        if self.what != TIME and abs(percent) < 100 * (SAME_WITHIN - 1):
            return f"the same {self.what}"
        less, more = ("fewer", "more") if self.what.endswith("s") else ("less", "more")
        return f"{abs(percent):{'.0f' if abs(percent) >= 10 else '.2g'}} % {less if percent < 0 else more} {self.what}"


def counted_memory(folder: RunFolder, effect: Effect) -> list[Measure]:
    """The most that a call allocates at a time, and what is left after one, as far as both sides have it."""
    records = {record.variant: record for record in folder.read(MEMORY) if record.workload == effect.workload}
    sides = [records.get(effect.baseline), records.get(effect.variant)]
    peaks = [side and side.peak_transient_bytes for side in sides]
    kept = [side and side.held_bytes for side in sides]
    measures = []
    for what, (before, after) in ((PEAK, peaks), (KEPT, kept)):
        if before is not None and after is not None and (what == PEAK or max(before, after) >= LEAST_KEPT):
            ratio = after / before if before else math.nan if after else 1.0
            measures.append(
                Measure(what, size_text(before), size_text(after), ratio, ratio, ratio, float(after - before))
            )
    return measures


DEAR = 1.1
"""A side that needs this many times the memory of the other has its price named beside its gain."""

PLAIN_RATIO = 1.1
"""Below it a difference is told in percent, above it in times."""


@dataclass(frozen=True)
class Screen:
    """One comparison. `explained`: where its difference is, as far as somebody looked. `place`: the input, or the
    workload, in words. `statistic`: the percentile of its calls that is compared; empty for the median. `same`: whether
    both sides gave the same answers, in words. `queueing`: that a GPU waited for the host on both sides, in words.
    `is_dependent`: whether its processes depend on each other. `as_it_ran`: see `side_facts`."""

    verdict: Verdict
    effect: Effect
    call_ns: tuple[float, float]
    measures: tuple[Measure, ...]
    explained: Explanation | None
    place: str = ""
    statistic: str = ""
    same: str = ""
    queueing: str = ""
    is_dependent: bool = False
    as_it_ran: str = ""

    @property
    def told(self) -> dict[str, str]:
        """What a reader asks next, with the answers: why it is so, what to do, and how sure it is."""
        why = "Why" if self.is_settled else "Where they differ"
        answers = {
            "What is measured": self.queueing and f"{self.queueing[0].upper()}{self.queueing[1:]}.",
            "As it ran": self.as_it_ran,
            why: self.why,
            "What to do": f"{self.advice} {self.price}".rstrip(),
            "How sure": f"{self.certainty} {self.same}".rstrip(),
        }
        return {name: text for name, text in answers.items() if text}

    @property
    def why(self) -> str:
        """In which functions the difference is, and in how many instructions, where these were counted."""
        counted = self.instructions.amount if self.instructions and self.is_settled else ""
        reason = self.explained.reason if self.explained else ""
        text = "; ".join(filter(None, (self.where, reason, counted)))
        return f"{text[:1].upper()}{text[1:]}." if text else ""

    @property
    def certainty(self) -> str:
        """Between which ends the difference lies, how sure that is, and what another run would say."""
        effect = self.effect
        if effect.low <= 0 or math.isinf(effect.high):
            return f"Not yet: {effect_text(effect)} on {self.place} after {effect.rounds} processes."
        if self.is_doubtful:
            return f"Not known: {effect_text(effect)} on {self.place}, and this interval cannot be relied on."
        difference = f"{effect.variant} {self._by(effect.low, effect.high)} {effect.baseline}"
        timed = f"timed in {effect.rounds} fresh processes"
        again = f"That holds for another run of this command on this machine too ({timed})."
        return f"{100 * (1 - self.alpha):.4g} % that {difference}, on {self.place}. {again}"

    def _by(self, *ratios: float, ends: Iterable[float] = ()) -> str:
        """By how much the variant is faster or slower, up to where the other name follows: "is 4.7 times as fast as",
        "takes 2.1 times as long as", "is 1.2 to 3.1 % slower than"; of ends on both sides of 1 "is between 2 % slower
        and 3 % faster than". ends: of an interval, in brackets: "is 4.7 [4.5, 4.9] times as fast as"."""
        return " ".join(self._gain(*ratios, ends=ends))

    def _gain(self, *ratios: float, ends: Iterable[float] = ()) -> tuple[str, str, str]:
        """The same in three parts: the verb, by how much, and what the other name follows."""
        fast = ratios[0] > 1
        by, interval = (sorted(each if fast else 1 / each for each in some) for some in (ratios, ends))
        if by[0] < 1:
            return "is", gain_text(min(ratios), max(ratios)), "than"
        in_times = max(self.effect.ratio, 1 / self.effect.ratio) >= PLAIN_RATIO

        def told(some: Iterable[float], between: str) -> str:
            return between.join(three_digits(each) if in_times else f"{100 * (each - 1):.2g}" for each in some)

        size, brackets = told(by, " to "), f" [{told(interval, ', ')}]" if interval else ""
        if in_times:
            verb, way = ("is", "fast") if fast else ("takes", "long")
            return verb, f"{size}{brackets} times as {way}", "as"
        return "is", f"{size} %{brackets} {'faster' if fast else 'slower'}", "than"

    @property
    def way(self) -> Word:
        """Whether the variant is faster, slower, or neither, by the interval; open where that leaves it open."""
        effect = self.effect
        if effect.verdict == Word.NOT_EVIDENCE:
            return Word.NOT_EVIDENCE
        if self.is_doubtful:
            return Word.INCONCLUSIVE
        if effect.verdict == Word.SAME:
            return Word.SAME
        if effect.low > 1 or effect.high < 1:
            return Word.FASTER if effect.low > 1 else Word.SLOWER
        return Word.SAME if self._is_within_margin else Word.INCONCLUSIVE

    @property
    def _is_within_margin(self) -> bool:
        return self.effect.low >= 1 / SAME_WITHIN and self.effect.high <= SAME_WITHIN

    @property
    def is_doubtful(self) -> bool:
        """Whether the interval cannot be taken for what is true."""
        effect = self.effect
        return effect.cause.is_doubtful or (self.is_dependent and effect.verdict == Word.INCONCLUSIVE)

    @property
    def is_settled(self) -> bool:
        """Whether one side is faster."""
        return self.way in (Word.FASTER, Word.SLOWER)

    @property
    def is_known(self) -> bool:
        """Whether it is known which side is faster, or that neither is."""
        return self.way in (Word.FASTER, Word.SLOWER, Word.SAME)

    @property
    def significance(self) -> str:
        """Whether there is any difference, however small."""
        if self.is_doubtful or self._ends is None:
            return "Not known."
        low, high = self._ends
        if low <= 1 <= high:
            return f"No: with {100 * (1 - self.alpha):.4g} % confidence it is {gain_text(low, high)}."
        _, least, _ = self._gain(low if low > 1 else high)
        return f"Yes: with {100 * (1 - self.alpha):.4g} % confidence at least {least}."

    @property
    def relevance(self) -> str:
        """Whether the difference is large enough to matter: against the margin that a claim states with its source,
        else against that within which two times are the same."""
        return f"{': '.join(filter(None, self.relevant))}."

    @property
    def relevant(self) -> tuple[str, str]:
        """The same as a word, and why."""
        if self.is_doubtful or self._ends is None:
            return "Not known", ""
        logs = [abs(math.log(end)) for end in self._ends]
        least, most = (0.0 if self._ends[0] <= 1 <= self._ends[1] else min(logs)), max(logs)
        percents = (100 * math.expm1(end) for end in (least, most))
        low, high = (f"{percent:.2g}" if percent < 99.5 else f"{percent:,.0f}" for percent in percents)
        matters, source = self.verdict.margin or MARGIN_PERCENT, self.verdict.margin_from
        where = f" ({source})" if source else ""
        margin = f"up to {matters:g} % counts as the same{where}"
        if most <= math.log1p(matters / 100):
            return "No", f"at most {high} %; {margin}"
        if least <= math.log1p(matters / 100):
            return "Not known", f"{low} to {high} %; {margin}"
        return "Yes", f"more than the {matters:g} % that counts as the same{where}"

    @property
    def _ends(self) -> tuple[float, float] | None:
        """Of the interval; None where it is open."""
        effect = self.effect
        return (effect.low, effect.high) if effect.low > 0 and math.isfinite(effect.high) else None

    @property
    def headline(self) -> str:
        """Who is faster and by how much, with the interval, in one sentence with the times of a call."""
        variant, baseline = self.effect.variant, self.effect.baseline
        before, after = call_times(self.call_ns)
        at = f" at {self.statistic}" if self.statistic else ""
        times = "" if any(map(math.isnan, self.call_ns)) else f": {before} → {after} a call{at}"
        if self.way == Word.SAME:
            within = MARGIN_PERCENT if self._is_within_margin else SECOND_MARGIN_PERCENT
            return f"{variant} takes the same time as {baseline}, within {within:g} %{times}"
        if self.way == Word.INCONCLUSIVE:
            return f"{variant} may be faster or slower than {baseline}{times}"
        if not self.is_settled:
            return f"{variant} against {baseline}: {self.way.look.word.lower()}{times}"
        return f"{variant} {self._by(self.effect.ratio, ends=self._ends or ())} {baseline}{times}"

    @property
    def instructions(self) -> Measure | None:
        """How many a call executes, where they were counted."""
        return next((each for each in self.measures if each.what == INSTRUCTIONS), None)

    @property
    def where(self) -> str:
        """In which functions the difference is; empty where there is none, or nobody could look."""
        return one_text_line(self.explained.sentence, 300) if self.explained else ""

    @property
    def advice(self) -> str:
        """What to do, by the rule in docs/concepts/verdicts.md."""
        variant, baseline = self.effect.variant, self.effect.baseline
        if self.way == Word.FASTER:
            relevant = self.relevant[0] if self._ends else ""  # an early look tells of a large difference alone
            if relevant == "No":
                return f"Keep {baseline}, or whichever is simpler: the gain is too small to matter."
            dear = [each for each in self.memory if each.ratio >= DEAR]
            prices = [each.amount if each.what == KEPT else f"{each.ratio:.3g} times the {each.what}" for each in dear]
            conditions = ["it is as simple"] * (relevant == "Not known")
            conditions += [f"you can spare {' and '.join(prices)}"] if prices else []
            doubt = ": whether the gain matters is not known" if relevant == "Not known" else ""
            return f"Take {variant}{', if ' if conditions else ''}{' and '.join(conditions)}{doubt}."
        if self.way == Word.SLOWER:
            return f"Keep {baseline}."
        if self.way == Word.SAME:
            return f"Keep {baseline}, or whichever is simpler: the time is the same."
        if self.way == Word.INCONCLUSIVE:
            return "Measure more, then decide."
        if self.effect.cause is Cause.EXCLUDED:
            return "Mend the side that is left out (why stands below), then compare again."
        return "Do not use this result: it is not evidence."

    @property
    def price(self) -> str:
        """What the variant takes more and less of, where it is faster or slower: "g takes 31 % less time and 4 % more
        peak memory."."""
        costs = (self.measures[0], *self.memory) if self.is_settled else ()
        parts = [amount for measure in costs if (amount := measure.amount)]
        return f"{self.effect.variant} takes {' and '.join(parts)}." if parts else ""

    @property
    def memory(self) -> tuple[Measure, ...]:
        """The measures of memory that are worth a word. Less of one kind is none beside as much more of the other."""
        both = [each for each in self.measures if each.what in (PEAK, KEPT)]
        grows = sum(each.more for each in both) >= 0
        large = (each for each in both if abs(each.more) >= (LEAST_PEAK if each.what == PEAK else LEAST_KEPT))
        return tuple(each for each in large if each.more >= 0 or not grows)

    @property
    def brackets(self) -> str:
        """What stands in the brackets beside a measure; empty where none has any."""
        if all(each.low == each.high for each in self.measures):
            return ""
        faults = any(each.what == FAULTS for each in self.measures)
        more = " A page fault: the system hands over memory." if faults else ""
        return (
            f"In brackets: the {100 * (1 - self.alpha):.4g} % interval. Rows without one were counted, not timed.{more}"
        )

    @property
    def alpha(self) -> float:
        """Of its interval; that of every run where the verdict says none."""
        return ALPHA if math.isnan(self.verdict.alpha) else self.verdict.alpha


OF_A_PART = tuple(metric.replace("_", " ") for metric in TIMES if metric != "time")
"""Times of a part of a generation, which is no whole call."""


def screens(folder: RunFolder, verdicts: Iterable[Verdict], evidence: Evidence) -> list[Screen]:
    """The screen of every comparison of two sides by time, in the order of the verdicts. Raises RunError."""
    explained = explanations_in(folder)
    manifest = folder.manifest()
    return [
        _screen(folder, evidence, verdict, effect, of_effect(explained, effect), manifest)
        for verdict in verdicts
        for effect in verdict.effects
        if effect.baseline and not effect.unit and not effect.factor and not effect.metric.endswith(OF_A_PART)
    ]


def _screen(
    folder: RunFolder,
    evidence: Evidence,
    verdict: Verdict,
    effect: Effect,
    explained: Explanation | None,
    manifest: Manifest,
) -> Screen:
    experiment = next((each for each in manifest.experiments if each.workload.name == effect.workload), None)
    comparison = Comparison(effect.workload, effect.variant, effect.baseline)
    call_ns, faults, queueing = (math.nan, math.nan), (0.0, 0.0), ""
    if evidence.has(comparison):
        apart = evidence.differences(comparison)
        call_ns = apart.call_baseline_ns, apart.call_baseline_ns / (effect.value or math.nan)
        faults, queueing = (apart.faults_baseline, apart.faults_variant), evidence.queueing(comparison) or ""
    if explained is not None:  # the same times as beside its places
        call_ns = explained.call_ns
    ends = (1 / each if each else math.inf for each in (effect.ratio, effect.high, effect.low))
    statistic = evidence.design.statistics.get(effect.workload, "")
    is_call = experiment is not None and experiment.workload.kind == "call"
    place = f'the input "{effect.where}"' if is_call else effect.where
    measures = [Measure(f"{TIME}, {statistic}" if statistic else TIME, *call_times(call_ns), *ends)]
    for face in faces("beside"):
        measures += face.measures(folder, effect)
    measures += counted_memory(folder, effect)
    if max(faults) >= 1:
        ratio = faults[1] / faults[0] if faults[0] else math.inf
        measures.append(Measure(FAULTS, _count(faults[0]), _count(faults[1]), ratio, ratio, ratio))
    same = _same(experiment, effect)
    return Screen(
        verdict,
        effect,
        call_ns,
        tuple(measures),
        explained,
        place,
        statistic,
        same,
        queueing,
        evidence.is_dependent(comparison) if evidence.has(comparison) else False,
        _as_it_ran(experiment, effect, call_ns, faults, manifest.environments),
    )


def _count(faults: float) -> str:
    """Page faults of a call: "1,281", "1.76"."""
    return f"{faults:,.0f}" if faults >= 100 else f"{faults:.3g}"


def _same(experiment: ExperimentRecord | None, effect: Effect) -> str:
    gates = [experiment.gates.get(side) for side in (effect.baseline, effect.variant)] if experiment else []
    if experiment is None or not all(gate is not None and gate.passed for gate in gates):
        return ""
    if experiment.workload.kind == "call":
        by = f", by {experiment.workload.check}" if experiment.workload.check else ""
        return f"{effect.baseline} and {effect.variant} gave the same answers{by}."
    what = "values" if experiment.workload.kind == "component" else "logits"
    return f"{effect.baseline} and {effect.variant} gave the reference's {what}."


def _as_it_ran(
    experiment: ExperimentRecord | None,
    effect: Effect,
    call_ns: tuple[float, float],
    faults: tuple[float, float],
    environments: Mapping[str, SideEnvironment],
) -> str:
    sides = effect.baseline, effect.variant
    facts = experiment.facts if experiment else {}
    times, faulted = (dict(zip(sides, of_sides, strict=True)) for of_sides in (call_ns, faults))
    lines = [
        environments_text({side: environments[side] for side in sides if side in environments}),
        import_text(facts[side] for side in sides if side in facts),
        side_facts_text(facts, sides),
        faults_text(facts, times, faulted),
        CALM if experiment and experiment.workload.kind == "call" and experiment.workload.calm else "",
    ]
    return " ".join(filter(None, lines))


def screen_markdown(screen: Screen, to_do: str = "") -> str:
    """The screen for a pull request: sentence, costs, causes, and the lines of both sides folded. to_do: in place of
    the screen's advice, where more was asked than which side is faster."""
    effect, explained = screen.effect, screen.explained
    sentences = screen.told | ({"What to do": to_do} if to_do else {})
    blocks = [
        f"### {markdown_text(screen.headline)}",
        *(f"**{name}:** {markdown_text(text)}" for name, text in sentences.items()),
        markdown_rows(
            ("of a call", markdown_cell(effect.baseline), markdown_cell(effect.variant), "change"),
            (list(map(markdown_cell, (each.what, each.before, each.after, each.change))) for each in screen.measures),
        ),
        *([screen.brackets] if screen.brackets else []),
    ]
    if explained is not None and explained.division is not None:
        for name, side in ((effect.baseline, "baseline"), (effect.variant, "variant")):
            code = html.escape(code_text(explained, side), quote=False)
            title = html.escape(f"Lines of {name} that take time")
            blocks.append(f"<details><summary>{title}</summary>\n\n{LINES}\n\n<pre>\n{code}\n</pre>\n</details>")
    return "\n\n".join(blocks) + "\n"
