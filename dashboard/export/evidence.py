"""A claim's evidence as files to share: one HTML page, or its figure as SVG or PNG.

The page is whole by itself: no script, no request, nothing beside it. What a run says is text in it and nothing else.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from llama_workbench import __version__
from llama_workbench.harness.machine.environment import one_line
from llama_workbench.harness.report.causes import CauseRow, DiffLine, Explanation, changes, diff_of, has_all_code
from llama_workbench.harness.report.comparison import Screen
from llama_workbench.harness.report.text import unit_of
from llama_workbench.harness.store.files import RunError
from llama_workbench.harness.store.verdict_schema import Effect
from llama_workbench.variants.spelling import did_you_mean

from .. import words
from ..export.svg import DARK, LIGHT, Palette
from ..views import data, forest, outcomes, samples
from .svg import FIGURE_PX, forest_svg, verdict_mark

PNG_ZOOM = 2  # pixels of the picture for each of the figure's: sharp on a screen of twice the density, and in print
NUMBERS = ("value [interval]", "identical code", "rounds", "seconds")


class ExportError(Exception):
    """Something cannot be exported. The message names it and says what to do."""


def find_claim(run: data.Run, claim: str, part: str | None = None) -> data.Claim:
    """The claim of a run, and its part where it has several. Raises ExportError with the nearest name or the parts."""
    same = [each for each in run.claims if each.claim == claim]
    if not same:
        raise ExportError(_unknown(f"{run.path}: the run has no claim", claim, [each.claim for each in run.claims]))
    chosen = same if part is None else [each for each in same if each.part == part]
    if not chosen:
        raise ExportError(_unknown(f"{run.path}: {claim} has no part", part or "", [each.part for each in same]))
    if len(chosen) > 1:
        ways = ", ".join(f"--part {shlex.quote(each.part)}" for each in chosen)
        raise ExportError(f"{run.path}: {claim} has {len(chosen)} parts, and a file holds one: choose with {ways}")
    return chosen[0]


def file_name(claim: data.Claim) -> str:
    """A name for the claim's file, without its ending: letters, digits, dots and dashes of its id and part."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", f"{claim.claim} {claim.part}").strip("-.")[:80] or "claim"


def evidence_svg(run: data.Run, claim: data.Claim) -> str:
    """The claim's forest plot as an SVG file, in the light colours. Raises ExportError where nothing was measured."""
    if not claim.effects:
        raise ExportError(
            f"{run.path}: {claim.claim} is {claim.verdict}: nothing was measured, so there is no figure; --html says "
            "why"
        )
    who = ", ".join(claim.who)
    claimed = f"{who} claimed: {claim.claimed}" if who and claim.claimed else claim.claimed or who
    return forest_svg(
        claim,
        run.floors,
        LIGHT,
        width=FIGURE_PX,
        title=(
            f"{claim.title} ({claim.part})" if claim.part else claim.title,
            " · ".join(filter(None, (outcomes.look_of(claim).word, claimed))),
        ),
        source=f"run {run.id} · {one_line(run.environment)}",
    )


def evidence_png(run: data.Run, claim: data.Claim) -> bytes:
    """The same as a PNG. Raises ExportError where resvg-py or every font is missing."""
    svg = evidence_svg(run, claim)
    try:
        import resvg_py
    except ImportError as error:
        raise ExportError(
            "a PNG needs the package resvg-py: pip install 'resvg-py>=0.5' (--svg needs nothing more)"
        ) from error
    png = bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=PNG_ZOOM))
    if png == bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=PNG_ZOOM, skip_system_fonts=True)):
        raise ExportError(
            "a PNG needs a font, and this machine has none of the usual ones: install DejaVu, or use --svg"
        )
    return png


def evidence_html(run: data.Run, claim: data.Claim) -> str:
    """One HTML page with all that the verdict rests on: figure, numbers, checks, environment, and the command."""
    colours = _variables()
    mark = verdict_mark(outcomes.look_of_row(claim, claim.verdict), colours)
    known = {experiment.workload.name for experiment in run.manifest.experiments}
    page = template("evidence.html").render(
        run=run,
        claim=claim,
        look=outcomes.look_of(claim),
        headline=outcomes.answer_of(run).headline,
        cost=outcomes.cost(claim),
        mark=Markup(f'<svg class="mark" viewBox="-8 -8 16 16">{mark}</svg>'),
        light=css_variables(LIGHT),
        dark=css_variables(DARK),
        said=" · ".join(filter(None, (f"Said by {words.listing(claim.who)}" if claim.who else "", claim.source))),
        answer=outcomes.sentence(claim),
        more=[words.capital(outcomes.meaning(claim)), *outcomes.beside(run, claim)],
        figure=Markup(forest_svg(claim, run.floors, colours)) if claim.effects else "",
        caption=("" if claim.unit else "Above 1 the variant is faster. ") + forest.caption(claim, run.floors),
        screens=_screens(run, claim),
        effects=_effect_rows(run, claim),
        numbers=NUMBERS,
        checks=[_checks(run, effect) for effect in claim.effects if effect.variant and effect.workload in known],
        reproduce=outcomes.reproduce(run, claim),
        go_on=outcomes.go_on(run, claim),
        command=shlex.join(run.manifest.command or ()),
        facts=outcomes.how(run, claim)
        | {
            "Excluded from the run": "; ".join(run.left_out),
            "Run": " · ".join(filter(None, (run.id, run.manifest.started))),
            "Written by": f"llama-workbench {__version__}",
        },
    )
    return page.encode("utf-8", "replace").decode("utf-8")  # JSON may hold half a character, and a file may not


def write(run: data.Run, claim: data.Claim, files: Mapping[str, Path]) -> None:
    """Write the claim's evidence; `files` maps "html", "svg" and "png" to paths. Raises ExportError."""
    makers = {
        "html": lambda: evidence_html(run, claim).encode(),
        "svg": lambda: evidence_svg(run, claim).encode(),
        "png": lambda: evidence_png(run, claim),
    }
    made = {path: makers[kind]() for kind, path in files.items()}  # all or none
    for path, content in made.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError as error:
            raise ExportError(f"{path}: cannot be written ({error.strerror}); name another file") from error


def _unknown(problem: str, name: str, known: list[str]) -> str:
    there = ", ".join(dict.fromkeys(filter(None, known))) or "none"
    return f"{problem} {name!r}; {did_you_mean(name, known, f'there is: {there}')}"


def _variables() -> Palette:
    """A palette whose colours are CSS variables, so that one figure follows the page from light to dark."""
    plain: Any = {
        name: f"var(--{name.replace('_', '-')})" for name, each in vars(LIGHT).items() if isinstance(each, str)
    }
    return replace(LIGHT, verdict={name: f"var(--{name})" for name in LIGHT.verdict}, **plain)


def _checks(run: data.Run, effect: Effect) -> dict[str, str]:
    """What the gates found, of functions in their words: their answers were compared, and no logits."""
    row = outcomes.gates_row(run, effect)
    if not run.is_of_functions:
        return row
    return {name.replace("logits", "answers"): text for name, text in row.items() if name != "operation traces"}


def _screens(run: data.Run, claim: data.Claim) -> list[dict[str, Any]]:
    """Those of a comparison, of other claims those whose difference was looked into; none where a file of the run
    cannot be read, which the page says."""
    try:
        read = samples.read_screens(run, claim.claim, claim.part, not claim.is_comparison)
        return [_screen(screen) for screen in read]
    except RunError:
        return []


def _screen(screen: Screen) -> dict[str, Any]:
    """One comparison as the page has it: sentences, rows and code."""
    explained = screen.explained
    return {
        "headline": screen.headline,
        "told": screen.told,
        "costs": costs_html(screen),
        "causes": causes_html(changes(explained, screen.effect), screen.effect.variant) if explained else "",
        "code": diff_html(explained) if explained else "",
    }


def _effect_rows(run: data.Run, claim: data.Claim) -> list[dict[str, str]]:
    """The table of effects, a column a key; without the columns that say nothing. Values with a unit have no floor."""
    rows = [
        {
            "workload": f"{effect.named} ({effect.workload})" if effect.named else effect.workload,
            "machine": effect.machine,
            "variant": effect.variant,
            "baseline": effect.baseline,
            "verdict": outcomes.look_of_row(claim, effect.verdict).word,
            "what": effect.metric,
            "value [interval]": words.effect(effect),
            "identical code": "" if claim.unit else floor.text if floor else "not measured",
            "rounds": str(effect.rounds),
            "seconds": "not recorded" if effect.seconds is None else f"{effect.seconds:.1f}",
        }
        for effect, floor in ((effect, run.floors.get(effect.workload)) for effect in claim.effects)
    ]
    return [{name: row[name] for name in row if any(each[name] for each in rows)} for row in rows]


# -- a comparison, for its page and for the exported one ---------------------------------------------------------------

STYLE = Path(__file__).with_name("screen.css")
"""What it looks like; its colours are the variables of `css_variables`."""

LEAST_TOLD = 0.002
"""Of a call: less is not told beside a line."""


@cache
def template(name: str) -> Template:
    """A template of this folder; what is put into it is text, and no markup."""
    loader = FileSystemLoader(Path(__file__).parent)
    jinja = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    jinja.filters |= {"breakable": _breakable, "one_line": words.one_line}
    return jinja.get_template(name)


def css_variables(palette: Palette) -> Markup:
    """The colours by the names of their CSS variables."""
    pairs = {"before": palette.sides[0], "after": palette.sides[1]}
    pairs |= {"less": palette.difference[0], "more": palette.difference[-1]}
    colours = vars(palette) | dict(palette.verdict) | pairs
    flat = {name.replace("_", "-"): each for name, each in colours.items() if isinstance(each, str)}
    return Markup("".join(f"--{name}:{each};" for name, each in flat.items()))


def costs_html(screen: Screen) -> Markup:
    """Both sides' bars for each measure, from 0, with the change."""
    sides = screen.effect.baseline, screen.effect.variant
    rows = [
        (each, list(zip(sides, (each.before, each.after), _shares(each.ratio), strict=True)))
        for each in screen.measures
    ]
    return Markup(template("screen.html").module.costs(rows, screen.brackets))  # type: ignore[attr-defined]


def causes_html(rows: Sequence[CauseRow], variant: str) -> Markup:
    """Where the difference is: to the left of the line what the variant saves, to the right what it costs, each with
    its interval; empty without rows."""
    if not rows:
        return Markup()
    ends = [0.0, *(end for row in rows for end in (row.value, row.low, row.high) if math.isfinite(end))]
    left, span = min(ends), (max(ends) - min(ends)) or 1.0

    def place(value: float) -> float:
        return round(100 * min(max((value - left) / span, 0.0), 1.0), 2)

    bars = [
        {
            "name": row.name,
            "change": str(row),
            "way": ("less" if row.value < 0 else "more") if row.is_told else "open",
            "start": place(min(0.0, row.value)),
            "width": round(abs(place(row.value) - place(0.0)), 2),
            "low": place(row.low),
            "high": place(row.high),
        }
        for row in rows
    ]
    axis = f"← less time in {words.clip(variant, 40)}   [{rows[0].unit} a call]   more →"
    return Markup(template("screen.html").module.causes(bars, place(0.0), axis))  # type: ignore[attr-defined]


def _shares(ratio: float) -> tuple[float, float]:
    """Of both sides in the larger one."""
    return (0.0, 0.0) if math.isnan(ratio) else (1 / max(1.0, ratio), min(1.0, ratio))


def diff_html(explained: Explanation) -> Markup:
    """The code of both sides as a diff, with the time of a call beside each line; empty where nothing was sampled.
    Functions in which the sides are proven to differ come first; marked are the lines that make the difference."""
    if explained.division is None or not (diffs := diff_of(explained)):
        return Markup()
    unit_ns, unit = unit_of(max(explained.call_ns))

    def times(line: DiffLine) -> tuple[str, ...]:
        ends = zip(line.ns, explained.call_ns, strict=True)
        return tuple(f"{ns / unit_ns:.3g}" if ns and ns >= LEAST_TOLD * call_ns else "" for ns, call_ns in ends)

    parts = [(diff.name, [(line, times(line)) for line in diff.lines]) for diff in diffs]
    sides = explained.sampled.baseline, explained.sampled.variant
    counted = any(line.often for diff in diffs for line in diff.lines)
    kept = "" if has_all_code(explained) else " This run kept the lines with samples alone: others are not shown."
    note = f"Marked: where the two differ. Bold: what takes most. − is only in the old code, + only in the new.{kept}"
    most = max(ns for diff in diffs for line in diff.lines for ns in line.ns if ns is not None)
    return Markup(template("screen.html").module.diff(parts, unit, sides, counted, note, most))  # type: ignore[attr-defined]


def _breakable(text: str) -> Markup:
    """`text` for the cell of a table: a name may break behind `_` and `/`, and what is very long anywhere."""
    marked = re.sub(r"[_/](?=\S)|[^\s_/]{24}(?=\S)", lambda part: f"{part[0]}\0", text.replace("\0", ""))
    return Markup("<wbr>").join(marked.split("\0"))
