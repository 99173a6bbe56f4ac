"""From effects to a verdict on a part of a claim."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..spec.words import LOOKS, SETTLED, Cause, Word
from ..store.verdict_schema import Effect
from .effect import duration

ON_THE_MACHINE = "depends on the machine"
"""What is said where machines differ."""

PIECE = ", piece "
"""In the name of a run, between the machine and the number of the piece of work that it measured there."""


def how_many(runs: Iterable[str]) -> int:
    """How many machines there are, by the names of their runs."""
    return len(set(map(machine_of, runs)))


def machine_of(run: str) -> str:
    """The machine of a run: several pieces of work may have been measured on one."""
    return run.partition(PIECE)[0]


def combine(effects: Sequence[Effect]) -> tuple[Word, str]:
    """Verdict and reason for a part from its effects (at least one).

    All settled alike: that. Settled differently: depends, with all lists. None of them evidence: not evidence.
    Otherwise inconclusive, with what is open; one open comparison is enough.
    """
    named = _grouped(effects)
    settled: dict[Word, list[str]] = {word: named[word] for word in SETTLED if word in named}
    excluded = named.get(Word.NOT_EVIDENCE, [])
    open_ = named.get(Word.INCONCLUSIVE, []) + excluded
    if len(settled) > 1:
        reason = "; ".join(f"{word} on {', '.join(where)}" for word, where in settled.items())
        return Word.DEPENDS, reason + (f"; inconclusive: {', '.join(open_)}" if open_ else "")
    if len(excluded) == len(effects):
        return Word.NOT_EVIDENCE, reasons(effects)
    if open_:
        return Word.INCONCLUSIVE, _open_reason(effects, settled)
    [(word, where)] = settled.items()
    return word, f"{LOOKS[word].start} on {', '.join(where)}"


def _grouped(effects: Sequence[Effect]) -> dict[Word, list[str]]:
    """Labels of the effects by verdict. A label is the workload, with the baseline where there are several."""
    if not effects:
        raise ValueError("a verdict needs at least one effect")
    several = len({effect.baseline for effect in effects}) > 1
    named: dict[Word, list[str]] = {}
    for effect in effects:
        where = f"{effect.place} against {effect.baseline}" if several else effect.place
        named.setdefault(effect.verdict, []).append(where)
    return named


def _open_reason(effects: Sequence[Effect], settled: Mapping[Word, Sequence[str]]) -> str:
    """One sentence for all open effects: why they are open, and how long it would take to settle them."""
    open_ = [effect for effect in effects if effect.verdict in (Word.INCONCLUSIVE, Word.NOT_EVIDENCE)]
    causes = _by_cause(open_)
    same = len(causes) == 1 and len(open_) == len(effects)
    parts = [next(iter(causes)) if same else "; ".join(f"{why} on {', '.join(where)}" for why, where in causes.items())]
    parts += filter(None, [time_to_settle(open_)])
    parts += [f"{word} on {', '.join(where)}" for word, where in settled.items()]
    return f"not decided: {'; '.join(parts)}"


MOMENT_S = 10.0
"""Estimates below this are not told to the second."""

MOST_SECONDS = 4 * 3600.0
"""Longer than this nobody would measure for one effect."""

AT_A_LIMIT = "more time may not decide it: as much as this varies, the difference lies too near a limit"
"""Of an effect whose interval may end on neither side of it for as long as anybody measures."""

TOO_LONG = f"more than {duration(MOST_SECONDS)} would be needed"


@dataclass(frozen=True)
class ToSettle:
    """What it takes to settle open effects: those that are sure to be settled in 9 of 10 cases, those that have no
    interval yet and would get one, and those that time alone may not settle. All seconds are of the clock."""

    settles: tuple[Effect, ...]
    begins: tuple[Effect, ...]
    takes_long: tuple[Effect, ...]
    at_a_limit: tuple[Effect, ...]

    @classmethod
    def of(cls, effects: Iterable[Effect]) -> ToSettle:
        """Of those whose seconds are known."""
        known = sorted((each for each in effects if each.seconds_more >= 0), key=lambda each: each.seconds_more)
        soon = [each for each in known if each.seconds_more <= MOST_SECONDS]
        early = (Cause.NO_ROUNDS, Cause.TOO_FEW_ROUNDS)
        return cls(
            settles=tuple(each for each in soon if each.cause not in early),
            begins=tuple(each for each in soon if each.cause in early),
            takes_long=tuple(each for each in known if MOST_SECONDS < each.seconds_more < math.inf),
            at_a_limit=tuple(each for each in known if math.isinf(each.seconds_more)),
        )

    @property
    def never(self) -> str:
        """Why the others may stay open; empty where there are none."""
        return "; ".join([*[TOO_LONG] * bool(self.takes_long), *[AT_A_LIMIT] * bool(self.at_a_limit)])


def clock_seconds(effects: Iterable[Effect]) -> float:
    """Seconds of the clock that all of these effects need together: those of one workload have the same processes,
    those of several come one after the other."""
    needed: dict[str, float] = {}
    for effect in effects:
        needed[effect.place] = max(needed.get(effect.place, 0.0), effect.seconds_more)
    return sum(needed.values())


def about(seconds: float) -> str:
    """ "about 4 min", "less than 10 s"."""
    return f"about {duration(seconds)}" if seconds >= MOMENT_S else f"less than {duration(MOMENT_S)}"


def time_to_settle(effects: Sequence[Effect]) -> str:
    """How much more measuring would settle the effects; empty where nothing can be said."""
    needs = ToSettle.of(effects)
    texts = []
    if soon := needs.settles:
        text = f"{about(soon[0].seconds_more)} more would decide {soon[0].workload if len(effects) > 1 else 'it'}"
        if len(soon) > 1:
            count = "all" if len(soon) == len(effects) else f"{len(soon)} of {len(effects)}"
            text += f", {about(clock_seconds(soon))} {count}"
        texts.append(text)
    if needs.begins:
        where = ", ".join(dict.fromkeys(each.workload for each in needs.begins)) if len(effects) > 1 else "it"
        texts.append(f"{about(clock_seconds(needs.begins))} more would give {where} a first interval")
    for why, left in ((TOO_LONG, needs.takes_long), (AT_A_LIMIT, needs.at_a_limit)):
        if left:
            where = f" ({', '.join(dict.fromkeys(each.workload for each in left))})" if len(effects) > 1 else ""
            texts.append(f"{why}{where}")
    return "; ".join(texts)


def reasons(effects: Sequence[Effect]) -> str:
    """Each effect's own reason, those with the same reason together."""
    return "; ".join(f"{', '.join(where)} ({why})" for why, where in _by_cause(effects).items())


def _by_cause(effects: Sequence[Effect]) -> dict[str, list[str]]:
    """Reason, or verdict where there is none → the different workloads."""
    causes: dict[str, list[str]] = {}
    for effect in effects:
        where = causes.setdefault(effect.reason or effect.verdict, [])
        where += [name for name in [effect.place] if name not in where]
    return causes
