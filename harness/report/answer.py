"""The answer to the dispute: a sentence for each main claim, and a short table. Pure functions of verdicts.json.

What is typed in here are the subjects of the sentences and which claims come first. Verdicts, what was claimed and
every number come from the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .markdown import markdown_cell, markdown_rows, markdown_text
from .text import Json, claim_text, effect_value, short


@dataclass(frozen=True)
class Sentence:
    """The sentence about one part of a claim.

    verb: as it stands where the claim holds, and where it does not. predicate: what is claimed; `{claimed}` stands for
    the verdict's own words. sides: the effects to quote, by the variant that they name; none for all of them.
    consequence: what follows from the largest value that the intervals allow.
    """

    claim: str
    part: str | None
    subject: str
    verb: tuple[str, str]
    predicate: str
    object: str = ""
    sides: tuple[tuple[str, str], ...] = ()
    consequence: Callable[[float], str] | None = None


def _most_from_share(percent: float) -> str:
    return f"so without that work a forward is at most {100 * percent / (100 - percent):.1f} % faster"


IS, ARE, TAKES = ("is", "is not"), ("are", "are not"), ("takes", "does not take")

SENTENCES = (
    Sentence(
        "refactor-2x-3x", "usual lengths", "the rewrite (one file, one cache)", IS, "{claimed} as fast",
        "as the code before it",
    ),
    Sentence("single-file-faster", "time", "one file", IS, "{claimed}", "than many"),
    Sentence("unified-cache-faster", "time", "one cache for all layers", IS, "{claimed}", "than one for each"),
    Sentence(
        "decision-rule", "the review's 5 %", "making masks", TAKES, "{claimed}", "of a forward",
        consequence=_most_from_share,
    ),
    Sentence(
        "rope-3x-5x", "end to end", "whole forwards", ARE, "{claimed} as fast", "with the library's RoPE",
    ),
    Sentence(
        "arch-or-ops", "operations", "the speed-up", IS, "due to operations", "and not to architecture",
        sides=(("operations", "operations new"), ("architecture", "architecture new")),
    ),
)  # fmt: skip
"""In the order of the README."""

HEADLINES = (
    *((sentence.claim, sentence.part) for sentence in SENTENCES),
    ("mask-caching-6-11", "whole prefill"),
    ("rope-3x-5x", "op alone"),
    ("fragmentation-10pct", None),
    ("qkv-61", "of a layer"),
    ("own-layers-slower", None),
    ("library-50-lines", "50 lines"),
)
"""Claims of the short table, and which part of each."""


def answer(verdicts: Iterable[Json]) -> str:
    """A Markdown list with a sentence for each main claim that these verdicts have."""
    parts = _by_part(verdicts)
    stated = ((each, _find(parts, each.claim, each.part)) for each in SENTENCES)
    lines = [f"- {_sentence(each, verdict)}" for each, verdict in stated if verdict is not None]
    return "\n".join(lines) + "\n" if lines else "This run has none of the main claims.\n"


def headlines(verdicts: Iterable[Json]) -> str:
    """A Markdown table with a row for each main claim that these verdicts have."""
    parts = _by_part(verdicts)
    rows = []
    for verdict in filter(None, (_find(parts, *key) for key in HEADLINES)):
        title = verdict["title"] + (f" ({verdict['part']})" if verdict.get("part") else "")
        cells = [title, ", ".join(verdict["who"]), verdict["claimed"], _measured(verdict["effects"])]
        rows.append([*map(markdown_cell, cells), f"**{markdown_cell(verdict['verdict'])}**"])
    return markdown_rows(("claim", "who said it", "claimed", "what was found", "verdict"), rows) + "\n"


def _by_part(verdicts: Iterable[Json]) -> dict[tuple[str, str | None], Json]:
    return {(verdict["claim"], verdict.get("part")): verdict for verdict in verdicts}


def _find(parts: Mapping[tuple[str, str | None], Json], claim: str, part: str | None) -> Json | None:
    """The verdict on a part of a claim. In older runs a claim had one part without a label where it has several now."""
    return parts.get((claim, part)) or parts.get((claim, None))


def _sentence(sentence: Sentence, verdict: Json) -> str:
    """Subject, verdict in words, and the numbers behind it."""
    predicate = sentence.predicate.format(claimed=markdown_text(verdict["claimed"]))
    subject, rest, word = sentence.subject, f" {sentence.object}" if sentence.object else "", verdict["verdict"]
    if word in ("supported", "refuted"):
        said = f"{subject} **{sentence.verb[word == 'refuted']} {predicate}**{rest}"
    else:
        open_ = {"depends": " **depends** on the workload", "inconclusive": " is **open**"}
        end = open_.get(word, f": **{markdown_text(word)}**")
        said = f"whether {subject} {sentence.verb[0]} {predicate}{rest}{end}"
    effects = verdict["effects"]
    text = f"{said[0].upper()}{said[1:]}: {_measured(effects, sentence.sides) or markdown_text(verdict['reason'])}"
    ends = [effect["high"] for effect in effects]
    if sentence.consequence and ends and None not in ends and verdict["verdict"] in ("supported", "refuted"):
        text += f", {sentence.consequence(max(ends))}"
    return f"{text} (`{markdown_text(claim_text(verdict))}`)."


def _measured(effects: Sequence[Json], sides: Sequence[tuple[str, str]] = ()) -> str:
    """The smallest and the largest effect with the ends of all intervals; by side where there are several. An effect
    without an interval says nothing of these ends: it is only counted."""
    if sides:
        each = {label: [effect for effect in effects if effect["variant"] == name] for label, name in sides}
        return ", ".join(f"{label} {_measured(some)}" for label, some in each.items() if some)
    known = [effect for effect in effects if effect["low"] is not None or effect["high"] is not None]
    if known and len(known) < len(effects):
        return f"{_measured(known)} ({len(known)} of {len(effects)} effects; no interval yet for the rest)"
    values = sorted(effect_value(effect) or 0.0 for effect in effects if effect["rounds"])
    if not values:
        return ""
    unit = effects[0].get("unit", "")
    text = " to ".join(dict.fromkeys(_number(value, unit) for value in (values[0], values[-1])))
    lows, highs = ([effect[end] for effect in effects] for end in ("low", "high"))
    if (lows, highs) != (values, values):
        ends = [_number(min(lows), unit) if None not in lows else "open"]
        ends.append(_number(max(highs), unit) if None not in highs else "open")
        text += f" [{', '.join(ends)}]"
    return f"{text} {unit}" if unit else f"{text} times as fast"


def _number(value: float, unit: str) -> str:
    if not unit:
        return f"{value:.2f}"
    return f"{value:.2g}" if abs(value) < 10 else short(value)
