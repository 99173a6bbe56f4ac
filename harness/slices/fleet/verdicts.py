"""Verdicts over several machines, from the evidence of each. Pure functions.

A verdict over machines is a statement about the machines that were measured. *Supported* says that the claim holds on
each of them: it is false only if some effect on some machine lies outside the claimed range, whose own interval then
missed it, so alpha is not divided, as on one machine. So with *refuted*. *Depends* says where machines or workloads
differ; any of all intervals may be the wrong one, and each is judged at alpha over their number. "Depends on the
machine" is said where one machine settles an effect in one way and another in another, and, as long as not all
machines settle the claim alike, where two machines' intervals of one effect have no common point.

Each effect is also told by machine kind and over machines (machines.json). What is true on another machine may differ
by more than any interval is wide, so machines are never poured into one series of rounds: there is the mean of what is
true on each. Errors of different machines are independent, so half widths add as errors do, by squares; each is that of
an interval that holds at every look, which makes the sum wide enough. How much the machines differ has no part in it
(the "fixed effects" model: Rice, Higgins & Lumley 2018); that is Paule & Mandel's variance.

docs/concepts/statistics.md has simulated rates. Units are those of the effects: log ratios, or values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from ...evidence.effect import ON_THE_MACHINE, combine, exp, how_many
from ...evidence.evidence import Evidence
from ...judge.parts import Part, all_together, shared_alpha
from ...metrics.base import Judged
from ...spec.words import SETTLED, Cause, Word
from ...stats.confidence import looks_reached
from ...stats.means import CentredInterval, between_variance, student_quantile
from ...store.verdict_schema import Effect, OfKind, OverMachines, Pooled, Verdict


@dataclass(frozen=True)
class MachineEvidence:
    """What one machine measured. `name` is its own, `kind` that of all machines like it."""

    name: str
    kind: str
    evidence: Evidence


class Key(NamedTuple):
    """An effect, on whichever machine."""

    workload: str
    variant: str
    baseline: str
    metric: str

    @property
    def place(self) -> str:
        """As `Effect.place`."""
        return self.workload or self.metric


def key_of(effect: Effect) -> Key:
    """Which effect it is."""
    return Key(effect.workload, effect.variant, effect.baseline, effect.metric)


Found = Mapping[str, Judged]
"""What each machine says, by its name."""


def judge_machines(
    parts: Sequence[Part], machines: Sequence[MachineEvidence], alpha: float
) -> tuple[list[Verdict], list[OverMachines]]:
    """A verdict for each part over all machines (at least one), whose effects name their machine; and each effect by
    machine kind and over machines."""
    verdicts = all_together([partial(_judge, part, machines) for part in parts], alpha)
    over = [row for part, verdict in zip(parts, verdicts, strict=True) for row in _over(part, verdict, machines, alpha)]
    return verdicts, over


def _judge(part: Part, machines: Sequence[MachineEvidence], alpha: float) -> Verdict:
    alpha /= part.at_once([each.evidence for each in machines])
    by_machine = _ask(part, machines, alpha)
    judged = _combined(by_machine, apart=())
    shared = shared_alpha(alpha, _answers(by_machine))
    if len(by_machine) > 1 or judged.verdict == Word.DEPENDS:
        closer = _ask(part, machines, shared)
        apart = _apart(closer, machines)
        if judged.verdict in SETTLED:
            judged = replace(judged, reason=judged.reason + _size(apart))
        else:
            again = _combined(closer, apart)
            if Word.DEPENDS in (judged.verdict, again.verdict):
                by_machine, alpha, judged = closer, shared, again
    effects = tuple(replace(effect, machine=name) for name, effect in _rows(by_machine))
    return part.verdict(replace(judged, effects=effects), alpha)


def _ask(part: Part, machines: Sequence[MachineEvidence], alpha: float) -> Found:
    """What each machine says; those that could not measure it are left out, unless none could."""
    judged = {each.name: part.judge(each.evidence, alpha) for each in machines}
    measured = {name: one for name, one in judged.items() if any(map(_is_measured, one.effects))}
    return measured or judged


def _is_measured(effect: Effect) -> bool:
    return effect.verdict != Word.NOT_MEASURABLE


def _answers(by_machine: Found) -> int:
    """How many intervals there are in all."""
    return max(sum(one.answers or len(one.effects) for one in by_machine.values()), 1)


def _rows(by_machine: Found) -> Iterator[tuple[str, Effect]]:
    """Every effect with its machine, those that are one effect on several machines together."""
    keys = dict.fromkeys(key_of(effect) for one in by_machine.values() for effect in one.effects)
    for key in keys:
        yield from ((name, each) for name, one in by_machine.items() for each in one.effects if key_of(each) == key)


# -- one verdict from those of the machines ----------------------------------------------------------------------------


def _combined(by_machine: Found, apart: Sequence[Key]) -> Judged:
    """Verdict and reason over machines. apart: effects of which two machines' intervals have no common point."""
    reasons = {name: one.reason for name, one in by_machine.items()}
    if not any(_is_measured(effect) for one in by_machine.values() for effect in one.effects):
        return Judged(next(iter(by_machine.values())).verdict, _by_machine(reasons))
    answers = _answers_by_machine(by_machine)
    words = {word for told in answers.values() for word in told.values()}
    settled = words & {*SETTLED, Word.DEPENDS}
    if _differ(answers, apart):
        reason = f"{ON_THE_MACHINE}: {_by_place(answers)}{_size(apart)}"
        return Judged(Word.DEPENDS, reason, cause=Cause.MACHINES_DIFFER)
    if len(settled) > 1 or Word.DEPENDS in settled:
        return Judged(Word.DEPENDS, _by_place(answers))
    if words == settled:
        [word] = settled
        where = ", ".join(dict.fromkeys(name for told in answers.values() for name in told))
        return Judged(word, f"{word.look.start} on {where}, {_measured_by(answers)}")
    if words == {Word.NOT_EVIDENCE}:
        return Judged(Word.NOT_EVIDENCE, _by_machine(reasons))
    still = {name: _why(one) for name, one in by_machine.items() if one.verdict not in SETTLED}
    done = {name: one.verdict for name, one in by_machine.items() if name not in still}
    reason = _by_machine(still) + (f"; {_listed(done, alone='')}" if done else "")
    return Judged(Word.INCONCLUSIVE, reason, cause=by_machine[next(iter(still))].cause)


def _is_of_effects(judged: Judged) -> bool:
    """Whether its verdict is what its effects come to, each being an answer."""
    return not judged.answers and combine([*filter(_is_measured, judged.effects)])[0] == judged.verdict


def _why(judged: Judged) -> str:
    """Its reason, without what it says of workloads that other machines measured."""
    return combine([*filter(_is_measured, judged.effects)])[1] if _is_of_effects(judged) else judged.reason


def _measured_by(answers: Mapping[str, Mapping[str, str]]) -> str:
    """ "on each of these 2 machines: A, B", or who measured what where they did not measure the same."""
    places = {tuple(told) for told in answers.values()}
    if len(answers) == 1:
        return f"measured on {next(iter(answers))}"
    if len(places) == 1:
        return f"on each of these {how_many(answers)} machines: {', '.join(answers)}"
    named = (f"{name} ({', '.join(told)})" for name, told in answers.items())
    return f"measured on {', '.join(named)}"


def _answers_by_machine(by_machine: Found) -> dict[str, dict[str, Word]]:
    """Machine → where → verdict: of each effect; of the whole where the verdict is not what its effects come to."""
    several = len({effect.baseline for one in by_machine.values() for effect in one.effects}) > 1
    answers: dict[str, dict[str, Word]] = {}
    for name, judged in by_machine.items():
        effects = list(filter(_is_measured, judged.effects))
        if _is_of_effects(judged):
            answers[name] = {_where(effect, several): effect.verdict for effect in effects}
        else:
            places = dict.fromkeys(effect.place for effect in effects)
            answers[name] = {", ".join(places): judged.verdict}
    return answers


def _where(effect: Effect, several: bool) -> str:
    return f"{effect.place} against {effect.baseline}" if several else effect.place


def _differ(answers: Mapping[str, Mapping[str, str]], apart: Sequence[Key]) -> bool:
    """Whether two machines settle the same in different ways, or an effect that not all settle alike is apart."""
    places: dict[str, set[str]] = {}
    for by_place in answers.values():
        for where, word in by_place.items():
            places.setdefault(where, set()).add(word)
    settled = {where: words & {*SETTLED, Word.DEPENDS} for where, words in places.items()}
    if any(len(words) > 1 for words in settled.values()):
        return True
    unsettled = [where for where, words in places.items() if words != settled[where]]
    names = {name for where in unsettled for name in (where, *where.split(", "))}
    return any({key.place, f"{key.place} against {key.baseline}"} & names for key in apart)


def _by_place(answers: Mapping[str, Mapping[str, str]]) -> str:
    """ "a: refuted on A, B, inconclusive on C; b: refuted on all", or without places where there is one."""
    places: dict[str, dict[str, str]] = {}
    for machine, by_place in answers.items():
        for where, word in by_place.items():
            places.setdefault(where, {})[machine] = word
    texts = {where: _listed(words, alone=" on all" if len(words) > 1 else "") for where, words in places.items()}
    return "; ".join(texts.values() if len(texts) == 1 else (f"{where}: {text}" for where, text in texts.items()))


def _listed(words: Mapping[str, str], alone: str) -> str:
    """ "refuted on a, b, inconclusive on c", from words by name; of one word for several names, it and `alone`."""
    named: dict[str, list[str]] = {}
    for name, word in words.items():
        named.setdefault(word, []).append(name)
    if len(named) == 1 and alone:
        return f"{next(iter(named))}{alone}"
    return ", ".join(f"{word} on {', '.join(names)}" for word, names in named.items())


def _by_machine(reasons: Mapping[str, str]) -> str:
    """ "REASON (A, B); OTHER REASON (C)": machines of which the same is to be said together."""
    named: dict[str, list[str]] = {}
    for machine, reason in reasons.items():
        named.setdefault(reason, []).append(machine)
    if len(named) == 1 and len(reasons) > 1:
        return f"{next(iter(named))} (on each of these {how_many(reasons)} machines)"
    return "; ".join(f"{reason} ({', '.join(names)})" for reason, names in named.items())


def _size(apart: Sequence[Key]) -> str:
    where = ", ".join(dict.fromkeys(key.place for key in apart))
    return f"; how large the effect is differs between machines ({where})" if apart else ""


def _apart(by_machine: Found, machines: Sequence[MachineEvidence]) -> tuple[Key, ...]:
    """Effects of which two machines' intervals, each as wide as a control that fired makes it, do not touch."""
    evidence = {each.name: each.evidence for each in machines}
    intervals: dict[Key, list[CentredInterval]] = {}
    for name, effect in _rows(by_machine):
        if _is_sound(effect):
            bias = 0.0 if effect.unit else evidence[name].bias(effect.workload)
            ends = ends_of(effect)
            intervals.setdefault(key_of(effect), []).append(
                CentredInterval(ends.centre, ends.low - bias, ends.high + bias)
            )
    return tuple(key for key, each in intervals.items() if have_no_common_point(each))


def _is_sound(effect: Effect) -> bool:
    """Whether its interval can be taken for what is true: it was measured, and nothing makes it doubtful."""
    counts = effect.verdict not in (Word.NOT_MEASURABLE, Word.NOT_EVIDENCE)
    return effect.rounds > 0 and counts and not effect.cause.is_doubtful


# -- each effect by machine kind and over machines, as machines.json has it --------------------------------------------


def _over(part: Part, verdict: Verdict, machines: Sequence[MachineEvidence], alpha: float) -> Iterator[OverMachines]:
    """Each effect of a part by machine kind and over machines, every interval at alpha."""
    alpha /= part.at_once([each.evidence for each in machines])
    by_machine = _ask(part, machines, alpha)
    if not any(judged.effects for judged in by_machine.values()):
        return
    apart = _apart(_ask(part, machines, shared_alpha(alpha, _answers(by_machine))), machines)
    kinds = {each.name: each.kind for each in machines}
    rows: dict[Key, dict[str, list[tuple[str, Effect]]]] = {}
    for name, effect in _rows(by_machine):
        if _is_sound(effect):
            rows.setdefault(key_of(effect), {}).setdefault(kinds[name], []).append((name, effect))
    for key, by_kind in rows.items():
        effects = [effect for each in by_kind.values() for _, effect in each]
        unit, several = effects[0].unit, len(effects) > 1
        means = {kind: mean_of([ends_of(effect) for _, effect in each]) for kind, each in by_kind.items()}
        errors = [_error(effect, alpha, part.looks_once) for effect in effects]
        yield OverMachines(
            claim=verdict.claim,
            part=verdict.part or verdict.title * verdict.is_comparison,
            **key._asdict(),
            unit=unit,
            alpha=alpha,
            kinds=tuple(
                OfKind(
                    kind=kind,
                    machines=tuple(name for name, _ in each),
                    rounds=sum(effect.rounds for _, effect in each),
                    verdict=_word([effect.verdict for _, effect in each]),
                    **_shown(means[kind], unit),
                )
                for kind, each in by_kind.items()
            ),
            mean=Pooled(**_shown(mean_of([*map(ends_of, effects)]), unit)) if several else None,
            spread=_spread(effects, errors) if several else math.nan,
            apart=key in apart,
        )


def mean_of(intervals: Sequence[CentredInterval]) -> CentredInterval:
    """The mean of what is true on each of these machines, each interval at the same alpha. One is itself."""
    count = len(intervals)
    centre = sum(each.centre for each in intervals) / count
    below = math.hypot(*(each.centre - each.low for each in intervals)) / count
    above = math.hypot(*(each.high - each.centre for each in intervals)) / count
    return CentredInterval(centre, centre - below, centre + above)


def have_no_common_point(intervals: Sequence[CentredInterval]) -> bool:
    """Whether two of the intervals do not touch."""
    return max(each.low for each in intervals) > min(each.high for each in intervals)


def ends_of(effect: Effect) -> CentredInterval:
    """Its interval: of log ratios, or of values."""
    if effect.unit:
        return CentredInterval(effect.ratio, effect.low, effect.high)
    low = math.log(effect.low) if effect.low > 0 else -math.inf
    return CentredInterval(math.log(effect.ratio), low, math.log(effect.high))


def _word(verdicts: Sequence[Word]) -> Word:
    """What machines of one kind say together: what they all say; else it is inconclusive, or depends."""
    words = set(verdicts)
    if len(words) == 1:
        return verdicts[0]
    return Word.DEPENDS if len(words & {*SETTLED}) > 1 else Word.INCONCLUSIVE


def _shown(ends: CentredInterval, unit: str) -> dict[str, float]:
    """An interval as a file has it: a ratio is never 0 there, and what is open is infinite."""
    if unit:
        return {"ratio": ends.centre, "low": ends.low, "high": ends.high}
    low = exp(ends.low) if math.isfinite(ends.low) else -math.inf
    return {"ratio": exp(ends.centre), "low": low, "high": exp(ends.high)}


def _error(effect: Effect, alpha: float, looks_once: bool) -> float:
    """Standard error of its centre, from the width of its interval; infinite where that is open."""
    ends = ends_of(effect)
    half = (ends.high - ends.low) / 2
    if not math.isfinite(half):
        return math.inf
    if looks_once:
        return half / student_quantile(effect.rounds - 1, 1 - alpha / 2) if effect.rounds > 1 else half
    reached = looks_reached(effect.rounds, effect.plan(alpha))
    return half / (reached[-1].half_width(1.0) * math.sqrt(reached[-1].rounds)) if reached else half


def _spread(effects: Sequence[Effect], errors: Sequence[float]) -> float:
    """Standard deviation between machines, beyond what the errors explain; NaN where one has no interval."""
    centres = [ends_of(effect).centre for effect in effects]
    if not all(map(math.isfinite, errors)):
        return math.nan
    if not all(errors):  # counted, not estimated
        return float(np.std(centres, ddof=1))
    return math.sqrt(between_variance(centres, errors))
