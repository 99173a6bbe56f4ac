"""Verdicts on the terminal. Every number has its interval and its rounds, every colour beside its word."""

from __future__ import annotations

import io
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TextIO

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..spec.words import Word
from ..store.schema import Manifest, SideFacts
from ..store.verdict_schema import Effect, Verdict
from .answer import answer
from .ladder import cards_of
from .outcome import command_of, goes_on, seconds_to_settle, to_settle, verdict_text
from .text import by_name, claim_text, effect_text, excluded_lines, one_text_line, run_notes, side_facts_text

if TYPE_CHECKING:
    from .causes import Explanation, Key
    from .comparison import Screen

_PLAIN = str.maketrans({"×": "x", "→": "->", "±": "+/-", "–": "-", "…": "...", "·": ",", "α": "alpha", "µ": "u"})


def console(file: TextIO | None = None, *, width: int | None = None) -> Console:
    """A console of the terminal's width; where there is none, of $COLUMNS or 100 columns."""
    target = file or sys.stdout
    if width is None and not target.isatty():
        width = int(os.environ["COLUMNS"]) if os.environ.get("COLUMNS", "").isdigit() else 100
    return Console(file=target, width=width, highlight=False, soft_wrap=False)


def show(content: RenderableType, out: Console) -> None:
    """Print `content`: without padding where no one looks at a screen, in ASCII where the encoding has no better."""
    encoding = getattr(out.file, "encoding", None) or "utf-8"
    if out.is_terminal and _can_write("×→±–…·", encoding):
        out.print(content)
        return
    drawn = io.StringIO()
    Console(file=drawn, width=out.width, highlight=False, color_system=None, force_terminal=False).print(content)
    text = "".join(f"{line.rstrip()}\n" for line in drawn.getvalue().splitlines())
    if not _can_write(text, encoding):
        text = text.translate(_PLAIN).encode(encoding, "replace").decode(encoding)
    out.file.write(text)


def _can_write(text: str, encoding: str) -> bool:
    return text.encode(encoding, "replace").decode(encoding) == text


WITH_REASON = (Word.DEPENDS, Word.INCONCLUSIVE)
"""Verdicts whose reason is shown; of the others the effects show it."""


AT_THE_END = "continue this run with the command at the end"
"""Instead of one that begins anew. Whoever prints a report knows where its run lies."""


def verdict_report(verdicts: Sequence[Verdict], manifest: Manifest, causes: Mapping[Key, Explanation] = {}) -> Group:
    """All verdicts, one block a verdict, one line an effect, with where its difference is as far as `causes` has it;
    below them the session's noise, the answer and why sides were left out: the end of it is what stands above the
    prompt."""
    verdicts = by_name(verdicts, manifest)
    blocks: list[RenderableType] = [
        Text.assemble(
            ("verdict · claim · who said it", "bold"),
            "\n    workload, effect [interval], its verdict, processes, seconds",
        )
    ]
    effects = [effect for verdict in verdicts for effect in verdict.effects]
    widths = [max((len(column(effect)) for effect in effects), default=0) for column in COLUMNS]  # all line up
    facts = {experiment.workload.name: experiment.facts for experiment in manifest.experiments}
    before: tuple[str, Sequence[Effect]] = "", ()
    for verdict in verdicts:
        blocks += ["", *_heading(verdict, manifest)]
        if verdict.effects and verdict.effects == before[1]:
            blocks.append(Padding(Text(f"effects: those of {one_text_line(before[0])}"), (0, 0, 0, 2)))
            continue
        blocks += _effects(verdict, widths, causes, facts)
        before = claim_text(verdict), verdict.effects
    if not verdicts:
        blocks += ["", Text("No verdicts: nothing was measured.")]
    blocks += ["", *(Text(line) for line in run_notes(verdicts, manifest))]
    blocks += ["", *_answer(verdicts, manifest)] if verdicts else []
    blocks += [Text(f"left out: {line}", style="yellow") for line in excluded_lines(manifest)]
    return Group(*blocks)


def answer_report(verdicts: Sequence[Verdict], manifest: Manifest) -> Group:
    """The answer of a run of claims on one screen, and what to change."""
    change = cards_of(verdicts, manifest.dispute, manifest).to_change
    return Group(
        *_answer(verdicts, manifest), *[Text.assemble("\n", ("What to change: ", "bold"), change)] * bool(change)
    )


def _answer(verdicts: Sequence[Verdict], manifest: Manifest) -> list[Text]:
    """The headline, then a line for each further question."""
    conclusion = answer(verdicts, manifest.dispute)
    first = Text.assemble((conclusion.headline, "bold"), *(f" {sentence}" for sentence in conclusion.beside))
    return [first, *(Text(f"  {line}") for line in conclusion.further)]


BAR = 32  # characters of the longest bar
LEAST_WIDTH = 60  # characters of a line of code with its time and number


def screen_report(screen: Screen, width: int, *, code: bool = True) -> Group:
    """One comparison: who is faster and what to do, its table, and where the difference is. code: with the lines of
    code that take the time. width: characters of a line."""
    from .causes import changes, code_text

    effect, explained = screen.effect, screen.explained
    blocks: list[RenderableType] = [Text(screen.headline, style=f"bold {screen.way.look.terminal}".strip())]
    blocks += [Text.assemble((f"{name}: ", "bold"), text) for name, text in screen.told.items()]
    table = Table.grid(padding=(0, 2))
    for measure in screen.measures:
        cells = (measure.what, f"{measure.before} → {measure.after}", measure.change)
        table.add_row(*map(Text, cells))
    blocks.append(Padding(table, (1, 0, 0, 2)))
    if screen.brackets:
        blocks.append(Padding(Text(screen.brackets, style="dim"), (0, 0, 0, 2)))
    if explained is not None and (causes := changes(explained, effect)):
        blocks.append(Padding(Text("Where the difference is"), (1, 0, 0, 0)))
        bars = Table.grid(padding=(0, 2))
        largest = max(abs(each.value) for each in causes) or 1.0
        for cause in causes:
            colour = ("green" if cause.value < 0 else "red") if cause.is_told else "dim"
            bar = Text("█" * max(1, round(BAR * abs(cause.value) / largest)), style=colour)
            bars.add_row(Text(cause.name), Text(str(cause), justify="right"), bar)
        blocks.append(Padding(bars, (0, 0, 0, 2)))
    if explained is not None and explained.division is not None and code:
        for name, side in ((effect.baseline, "baseline"), (effect.variant, "variant")):
            lines = code_text(explained, side, max(width - INDENT, LEAST_WIDTH))
            blocks += [Padding(Text(name, style="bold"), (1, 0, 0, 0)), Padding(Text(lines), (0, 0, 0, INDENT))]
    return Group(*blocks)


def _heading(verdict: Verdict, manifest: Manifest) -> Iterator[RenderableType]:
    """The verdict, its claim, and the reason where the effects do not show it."""
    heading = Text.assemble(
        (verdict_text(verdict), f"bold {verdict.verdict.look.terminal}".strip()),
        " · ",
        (one_text_line(claim_text(verdict)), "bold"),
        " · " + one_text_line(", ".join(verdict.who)) if verdict.who else "",
    )
    heading.overflow = "fold"
    yield heading
    lines = []
    if verdict.is_comparison:  # a question, not a claim
        lines.append(f"{one_text_line(verdict.statement)} ({verdict.claimed})")
    elif verdict.claimed:
        said = "asked" if verdict.is_condition else "claimed"
        lines.append(f"{said}: {one_text_line(verdict.claimed_here)}")
    if verdict.verdict in WITH_REASON or not verdict.effects:
        lines.append(one_text_line(verdict.reason, 1000))
    lines += settle_lines(verdict, manifest)
    yield from (Padding(Text(line), (0, 0, 0, 2)) for line in lines)


def settle_lines(verdict: Verdict, manifest: Manifest) -> list[str]:
    """What would decide an inconclusive verdict, with its command: a line, or none."""
    more = goes_on(manifest) and seconds_to_settle([verdict])
    settle = to_settle(verdict, AT_THE_END if more else command_of(verdict, manifest))
    return [one_text_line(settle, 1000)] if settle else []


def _effects(
    verdict: Verdict,
    widths: Sequence[int],
    causes: Mapping[Key, Explanation],
    facts: Mapping[str, Mapping[str, SideFacts]],
) -> Iterator[RenderableType]:
    """A claim's effects by what they compare. A note that several share comes once, before them; what the verdict's
    reason says already is not repeated."""
    effects = verdict.effects
    reason = verdict.reason if verdict.verdict in WITH_REASON else ""
    notes = [[one_text_line(note) for note in effect.said if note not in reason] for effect in effects]
    shared = {note for note, count in Counter(note for each in notes for note in set(each)).items() if count > 1}
    for note in dict.fromkeys(note for each in notes for note in each if note in shared):
        about = [effect for effect, each in zip(effects, notes, strict=True) if note in each]
        yield _note(f"{note}{_where_of(about, effects)}", 2)
    pairs = [(effect.baseline, effect.variant) for effect in effects]
    for pair in dict.fromkeys(pairs):
        if names := " → ".join(one_text_line(name) for name in pair if name):
            yield Padding(Text(names, style="dim"), (0, 0, 0, 2))
        for index, effect in enumerate(effects):
            if pairs[index] == pair:
                yield _Row(effect, widths)
                if explanation := causes.get((effect.workload, effect.variant, effect.baseline)):
                    lines = (explanation.times, explanation.told)
                    yield from (Padding(Text(one_text_line(line, 400)), (0, 0, 0, 6)) for line in filter(None, lines))
                yield from (_note(note, 6) for note in notes[index] if note not in shared)
                if ran := side_facts_text(facts.get(effect.workload, {}), pair):
                    yield Padding(Text(one_text_line(ran, 1000)), (0, 0, 0, 6))


def _where_of(about: Sequence[Effect], effects: Sequence[Effect]) -> str:
    """Which of the effects a shared note is about: by their workloads, or how many where those do not tell."""
    if len(about) == len(effects):
        return ""
    if len({_where(effect) for effect in effects}) < len(effects) or len(about) > 4:
        return f" ({len(about)} of {len(effects)} effects)"
    return f" (on {', '.join(map(_where, about))})"


def _note(text: str, indent: int) -> RenderableType:
    return Padding(Text(f"! {text}", style="yellow"), (0, 0, 0, indent))


@dataclass(frozen=True)
class _Row:
    """One effect. The names of workloads are broken where the terminal is too narrow; numbers never are."""

    effect: Effect
    widths: Sequence[int]

    def __rich_console__(self, out: Console, options: ConsoleOptions) -> RenderResult:
        effect, (workload, *others) = self.effect, self.widths
        room = options.max_width - INDENT - sum(width + GAP for width in others if width)
        grid = Table.grid(padding=(0, GAP, 0, 0))
        grid.add_column(width=min(workload, max(room, LEAST_NAME)), overflow="fold")
        for width, justify in zip(others, JUSTIFY, strict=True):
            grid.add_column(min_width=width, justify=justify, no_wrap=True)
        cells = [Text(column(effect)) for column in COLUMNS]
        grid.add_row(*cells[:2], Text(effect.verdict, style=effect.verdict.look.terminal), *cells[3:])
        yield Padding(grid, (0, 0, 0, INDENT))


def _where(effect: Effect) -> str:
    return one_text_line(effect.where)


COLUMNS: tuple[Callable[[Effect], str], ...] = (
    _where,
    effect_text,
    lambda effect: effect.verdict,
    lambda effect: str(effect.rounds),
    lambda effect: f"{effect.seconds:.1f} s",
)
JUSTIFY: tuple[Literal["left", "right"], ...] = ("left", "left", "right", "right")
"""Of the columns behind the first."""

INDENT, GAP, LEAST_NAME = 4, 2, 12
