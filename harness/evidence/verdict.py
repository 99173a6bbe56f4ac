"""From effects to a verdict on a part of a claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..spec.words import LOOKS, SETTLED, Word
from ..store.verdict_schema import Effect
from .numbers import duration

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
        return Word.DEPENDS, reason + (f"; open: {', '.join(open_)}" if open_ else "")
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
    return f"not settled: {'; '.join(parts)}"


MOMENT_S = 10.0
"""Estimates below this are not told to the second."""

DAY_S = 86_400.0
"""Longer than this nobody would measure for one effect."""


def time_to_settle(effects: Sequence[Effect]) -> str:
    """How much more measuring would settle the effects; empty where nothing can be said."""
    known = sorted((effect for effect in effects if effect.seconds_more >= 0), key=lambda effect: effect.seconds_more)
    soon = [effect for effect in known if effect.seconds_more <= DAY_S]
    if not soon:
        return "more time would not help much" if known else ""
    short = [effect for effect in soon if effect.seconds_more < MOMENT_S]
    texts = []
    if short:
        names = list(dict.fromkeys(effect.workload for effect in short)) if len(effects) > 1 else ["it"]
        texts.append(f"less than {duration(MOMENT_S)} more would settle {', '.join(names)}")
    if later := soon[len(short) :]:
        shortest, longest = (f"about {duration(effect.seconds_more)}" for effect in (later[0], later[-1]))
        text = f"{shortest} more would settle {later[0].workload if len(effects) > 1 else 'it'}"
        if len(later) > 1:
            text += f", {longest} {'all' if len(soon) == len(effects) else f'{len(soon)} of {len(effects)}'}"
        texts.append(text)
    if beyond := list(dict.fromkeys(effect.workload for effect in known[len(soon) :])):
        texts.append(f"more time would not help much on {', '.join(beyond)}")
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
