"""Verdicts as text: a table for the terminal, a table for the README. Pure builders; only `update_readme` writes.

Verdicts come in the form of verdicts.json (`forms.plain(verdicts)`), so that a stored run and a fresh one print alike.
Every number stands with its interval and its rounds, and every colour stands beside the word that it means.
"""

from __future__ import annotations

import io
import math
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..machine.environment import one_line

if TYPE_CHECKING:
    from ..metrics.roofline.roofline import Estimate, Reached

Json = Mapping[str, Any]

STYLES = {
    "supported": "green",
    "refuted": "red",
    "depends": "magenta",
    "inconclusive": "yellow",
    "not evidence": "yellow",
    "not measurable here": "yellow",
    "faster": "green",
    "slower": "red",
    "same": "cyan",
}
"""Colour of each verdict; the word itself always stands there too."""

BEGIN, END = "<!-- verdicts:begin -->", "<!-- verdicts:end -->"

_PLAIN = str.maketrans({"×": "x", "→": "->", "±": "+/-", "–": "-", "…": "...", "·": ",", "α": "alpha", "µ": "u"})
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]|\x1b\[[0-9;?]*[A-Za-z]")


class ReadmeError(Exception):
    """A README cannot be rewritten: the message names the file and what to add."""


# -- words -------------------------------------------------------------------------------------------------------------


def ratio_text(ratio: float | None) -> str:
    """A ratio t_baseline / t_variant with four digits or so: "1.013×", "12.35×", "?" where there is none."""
    return "?" if ratio is None else f"{_digits(ratio)}×"


def interval_text(low: float | None, high: float | None) -> str:
    """Ends of an interval of ratios: "[1.009, 1.018]"; a missing end is open."""
    if not low and high is None:
        return "[no interval yet]"
    return f"[{_digits(low or 0.0)}, {'open' if high is None else _digits(high)}]"


def effect_text(effect: Json) -> str:
    """An effect with its interval: "1.013× [1.009, 1.018]"."""
    if effect.get("unit"):
        return value_text(effect)
    if effect.get("ratio") is None:
        return "no rounds"
    return f"{ratio_text(effect['ratio'])} {interval_text(effect.get('low'), effect.get('high'))}"


def value_text(effect: Json) -> str:
    """A reading with its interval and unit: "61.2 % [60.1, 62.3]"; an exact one without: "76 lines"."""
    value, low, high, unit = effect.get("value"), effect.get("low"), effect.get("high"), effect["unit"]
    if value is None and low is None and high is None:
        return "no value"
    if value is not None and low == high == value:
        return f"{_short(value)} {unit}"
    ends = f"[{'open' if low is None else _short(low)}, {'open' if high is None else _short(high)}]"
    return f"{'?' if value is None else _short(value)} {unit} {ends}"


def _short(value: float) -> str:
    """Three digits that count, and all of a whole number."""
    if abs(value) >= 100 or value == round(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def duration_text(seconds: float) -> str:
    """Seconds as people say them: "0.4 s", "42 s", "8 min 30 s", "2 h 5 min"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min" if whole % 3600 // 60 else f"{whole // 3600} h"


def claim_text(verdict: Json) -> str:
    """A claim's id, with the label of the part in brackets where it has one."""
    part = verdict.get("part")
    return f"{verdict['claim']} ({part})" if part else str(verdict["claim"])


def one_text_line(text: object, limit: int = 300) -> str:
    """`text` on one line, without control characters: what a variant raised may hold anything."""
    line = " ".join(_CONTROL.sub(" ", str(text)).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _digits(ratio: float) -> str:
    if ratio < 10:
        return f"{ratio:.3f}"
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"


# -- the terminal ------------------------------------------------------------------------------------------------------


def console(file: TextIO | None = None, *, width: int | None = None, stderr: bool = False) -> Console:
    """A console of the terminal's width; where there is none, of $COLUMNS or 100 columns."""
    target = file or (sys.stderr if stderr else sys.stdout)
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
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def verdict_report(verdicts: Sequence[Json], manifest: Json) -> Group:
    """All verdicts, one block a verdict, one line an effect; below them the session's noise and what was left out."""
    blocks: list[RenderableType] = [
        Text.assemble(
            ("verdict · claim · who said it", "bold"),
            "\n    workload, effect [interval], its verdict, rounds, seconds",
        )
    ]
    widths = _widths(verdicts)
    for verdict in verdicts:
        blocks += ["", *_verdict_block(verdict, widths)]
    if not verdicts:
        blocks += ["", Text("No verdicts: nothing was measured.")]
    blocks += ["", *(Text(line) for line in _footer(verdicts, manifest))]
    blocks += [Text(f"left out: {line}", style="yellow") for line in excluded_lines(manifest)]
    return Group(*blocks)


def _verdict_block(verdict: Json, widths: Sequence[int]) -> list[RenderableType]:
    word = str(verdict["verdict"])
    heading = Text.assemble(
        (word, f"bold {STYLES.get(word, '')}".strip()),
        " · ",
        (one_text_line(claim_text(verdict)), "bold"),
        " · " + one_text_line(", ".join(verdict["who"])) if verdict.get("who") else "",
    )
    heading.overflow = "fold"
    lines: list[RenderableType] = [heading]
    if verdict["claim"] == "ad-hoc":  # a question, not a claim
        lines.append(Padding(Text(f"{one_text_line(verdict['statement'])} ({verdict['claimed']})"), (0, 0, 0, 2)))
    elif verdict.get("claimed"):
        lines.append(Padding(Text(f"claimed: {one_text_line(verdict['claimed'])}"), (0, 0, 0, 2)))
    reason = ""
    if word in ("depends", "inconclusive") or not verdict["effects"]:  # elsewhere the lines of the effects say it all
        reason = one_text_line(verdict.get("reason") or "", 1000)
        lines.append(Padding(Text(reason), (0, 0, 0, 2)))
    told: Sequence[str] = ()
    pairs = dict.fromkeys((effect["baseline"], effect["variant"]) for effect in verdict["effects"])
    for baseline, variant in pairs:
        if pair := " → ".join(one_text_line(name) for name in (baseline, variant) if name):
            lines.append(Padding(Text(pair, style="dim"), (0, 0, 0, 2)))
        for effect in verdict["effects"]:
            if (effect["baseline"], effect["variant"]) == (baseline, variant):
                warnings = [text for text in effect.get("warnings") or () if text not in reason]
                lines += _effect_lines(effect, () if warnings == told else warnings, widths)
                told = warnings
    return lines


def _effect_lines(effect: Json, warnings: Iterable[str], widths: Sequence[int]) -> list[RenderableType]:
    workload, numbers, word = widths
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(min_width=workload, overflow="fold")
    grid.add_column(min_width=numbers, no_wrap=True)
    grid.add_column(min_width=word, no_wrap=True)
    grid.add_column(min_width=4, justify="right", no_wrap=True)
    grid.add_column(min_width=6, justify="right", no_wrap=True)
    grid.add_row(
        Text(_where(effect)),
        Text(effect_text(effect)),
        Text(effect["verdict"], style=STYLES.get(effect["verdict"], "")),
        Text(str(effect["rounds"])),
        Text(f"{effect['seconds']:.1f} s"),
    )
    notes = [Padding(Text(f"! {one_text_line(warning)}", style="yellow"), (0, 0, 0, 6)) for warning in warnings]
    return [Padding(grid, (0, 0, 0, 4)), *notes]


def _where(effect: Json) -> str:
    """The workload; of a reading without one, what was read."""
    return str(effect["workload"] or effect["metric"])


def _widths(verdicts: Sequence[Json]) -> tuple[int, int, int]:
    """Widths of the first three columns, so that the effects of all verdicts line up."""
    effects = [effect for verdict in verdicts for effect in verdict["effects"]]
    return (
        max((len(_where(effect)) for effect in effects), default=0),
        max((len(effect_text(effect)) for effect in effects), default=0),
        max((len(effect["verdict"]) for effect in effects), default=0),
    )


def excluded_lines(manifest: Json) -> list[str]:
    """One line for each variant that was left out: of the whole run, or of one workload."""
    lines = [f"{item['variant']}: {one_text_line(item['reason'])}" for item in manifest.get("excluded") or ()]
    for experiment in manifest.get("experiments") or ():
        name = experiment["workload"].get("name", "?")
        for item in experiment.get("excluded") or ():
            line = f"{item['variant']} on {name}: {one_text_line(item['reason'])}"
            if line not in lines:
                lines.append(line)
    return lines


def _footer(verdicts: Sequence[Json], manifest: Json) -> list[str]:
    lines = []
    counts = _counts(verdicts)
    if counts:
        lines.append(f"{len(verdicts)} verdict{'s' * (len(verdicts) != 1)}: {counts}")
    unfinished = {"running": "still goes on or was killed", "interrupted": "was interrupted", "failed": "failed"}
    if manifest.get("status") in unfinished:
        lines.append(f"This run {unfinished[manifest['status']]}: judged are the rounds that it finished.")
    noise = (manifest.get("noise") or {}).get("line")
    if noise:
        lines.append(one_text_line(noise, 600))
    alpha = manifest.get("alpha")
    if alpha and verdicts:
        lines.append(
            "A ratio is t_baseline / t_variant: above 1 the variant is faster. "
            f"With {100 * (1 - alpha):g} % confidence all intervals hold at once."
        )
    for name, checkpoint in (manifest.get("checkpoints") or {}).items():
        if isinstance(checkpoint, dict) and isinstance(checkpoint.get("facts"), str):
            lines.append(one_text_line(f"Checkpoint {name}: {checkpoint['facts']}.", 600))
    environment = manifest.get("environment")
    if environment:
        lines.append(f"Measured on {one_line(environment)}{_measured_for(manifest)}.")
    return lines


def _counts(verdicts: Iterable[Json]) -> str:
    counts: dict[str, int] = {}
    for verdict in verdicts:
        counts[verdict["verdict"]] = counts.get(verdict["verdict"], 0) + 1
    order = [*STYLES, *(word for word in counts if word not in STYLES)]
    return ", ".join(f"{counts[word]} {word}" for word in order if word in counts)


def _measured_for(manifest: Json) -> str:
    seconds = sum(float(item.get("seconds") or 0) for item in manifest.get("experiments") or ())
    return f", in {duration_text(seconds)}" if seconds else ""


# -- the roofline ------------------------------------------------------------------------------------------------------


def roofline_markdown(rows: Sequence[Reached], missing: Iterable[str], *, alpha: float) -> str:
    """What each variant reaches of this machine's roof, as a Markdown table; `missing` has a line for each without."""
    lines = [
        "# What this machine can do, and what is reached of it",
        "",
        "| workload | variant | ms a call | share of the roof, % | rounds | binds | FLOP a byte | GFLOP/s | GB/s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    kernels: dict[str, str] = {}
    for row in rows:
        cells = [markdown_cell(row.workload), markdown_cell(row.variant), _estimate_text(row.call_ms)]
        cells += [_estimate_text(row.share), str(row.rounds), row.binds, _short(row.intensity)]
        lines.append(f"| {' | '.join([*cells, _estimate_text(row.gflops), _estimate_text(row.gbytes)])} |")
        fits = {True: "fit in the last-level cache: GB/s are the cache's", False: "do not fit in the last-level cache"}
        where = fits[row.in_cache] if row.in_cache is not None else "may fit in a cache, whose size is not known here"
        compute, memory = map(markdown_text, row.kernels)
        kernels[markdown_text(row.workload)] = (
            f"GFLOP/s by a matrix product ({compute}), GB/s by a {memory}; its weights {where}"
        )
    notes = [f"{name}: {text}." for name, text in kernels.items()]
    if rows:
        notes.append(
            "The roof is the least time that the operations and bytes of a call can take at the rates measured in the "
            f"same rounds; each interval holds with {100 * (1 - alpha):.4g} % confidence."
        )
    notes += [f"Not measured: {markdown_text(line)}" for line in missing]
    return "\n".join([*lines, "", *(line for note in notes for line in (note, ""))]).rstrip("\n") + "\n"


def _estimate_text(estimate: Estimate) -> str:
    ends = [_short(end) if 0 < end < math.inf else "open" for end in estimate[1:]]
    return f"{_short(estimate.value)} [{', '.join(ends)}]"


# -- the README --------------------------------------------------------------------------------------------------------


def markdown_table(verdicts: Sequence[Json], manifest: Json, *, command: str | None = None) -> str:
    """The verdicts as a Markdown table, one row a verdict, with the smallest and the largest of its effects.

    Below it: what the numbers mean, the machine, the session's noise, and `command`, which makes the table again.
    """
    lines = [
        "| claim | said by | verdict | smallest effect | largest effect | rounds |",
        "|---|---|---|---|---|---|",
    ]
    for verdict in verdicts:
        effects = sorted(
            (effect for effect in verdict["effects"] if _value(effect) is not None),
            key=lambda effect: float(_value(effect) or 0.0),
        )
        claimed = f": {markdown_cell(verdict['claimed'])}" if verdict.get("claimed") else ""
        cells = [
            f"`{markdown_cell(verdict['claim'])}`"
            + (f" ({markdown_cell(verdict['part'])})" if verdict.get("part") else "")
            + claimed,
            markdown_cell(", ".join(verdict.get("who") or ())),
            f"**{markdown_cell(verdict['verdict'])}**",
            _effect_cell(effects[0]) if effects else "",
            _effect_cell(effects[-1]) if len(effects) > 1 else "",
            _range([int(effect["rounds"]) for effect in effects]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    notes = [markdown_text(line) for line in _footer(verdicts, manifest)]
    notes += [f"Left out: {markdown_text(line)}" for line in excluded_lines(manifest)]
    if command:
        notes.append(f"This table is made by `{command}`.")
    return "\n".join([*lines, "", *(line for note in notes for line in (note, ""))]).rstrip("\n") + "\n"


def update_readme(path: Path | str, markdown: str, *, check: bool = False) -> bool:
    """Put `markdown` between the markers of the file at `path`. True if that changes the file.

    With `check` nothing is written. Raises ReadmeError where the file or one of its markers is missing.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8")  # as bytes, so that the rest of the file keeps its line ends
    except FileNotFoundError as error:
        raise ReadmeError(f"{path}: there is no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ReadmeError(f"{path}: cannot be read ({error})") from error
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ReadmeError(f"{path}: needs the two lines {BEGIN} and {END}, once each; the table goes between them")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    new = f"{before}{BEGIN}\n{markdown.strip()}\n{END}{after}"
    if new != text and not check:
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes(new.encode("utf-8"))
            shutil.copymode(path, temporary)
            os.replace(temporary, path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise ReadmeError(f"{path}: cannot be written ({error.strerror})") from error
    return new != text


def _value(effect: Json) -> float | None:
    value: float | None = effect.get("value") if effect.get("unit") else effect.get("ratio")
    return value


def _effect_cell(effect: Json) -> str:
    return f"{markdown_cell(effect_text(effect))} {markdown_cell(effect['workload'])}".rstrip()


def _range(rounds: Sequence[int]) -> str:
    if not rounds:
        return ""
    return str(rounds[0]) if min(rounds) == max(rounds) else f"{min(rounds)} to {max(rounds)}"


def markdown_text(text: object) -> str:
    """One line of text that cannot start a tag or code."""
    return one_text_line(text).replace("\\", "\\\\").replace("<", "&lt;").replace("`", "'")


def markdown_cell(text: object) -> str:
    """The same for a table, whose cell it cannot leave."""
    return markdown_text(text).replace("|", "\\|")
