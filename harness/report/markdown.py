"""Verdicts as Markdown: the table of every verdict, and the blocks of a document that are made from a run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from .text import Json, effect_text, excluded_lines, one_text_line, run_notes


class ReadmeError(Exception):
    """A document cannot be rewritten: the message names the file and what to add."""


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
    notes = [markdown_text(line) for line in run_notes(verdicts, manifest)]
    notes += [f"Excluded: {markdown_text(line)}" for line in excluded_lines(manifest)]
    if command:
        notes.append(f"This table is made by `{command}`.")
    return "\n".join([*lines, "", *(line for note in notes for line in (note, ""))]).rstrip("\n") + "\n"


def update_file(path: Path, blocks: Mapping[str, str], *, check: bool = False) -> bool:
    """Put each block between its markers, `<!-- NAME:begin -->` and `<!-- NAME:end -->`. True if that changes the file.

    A block whose markers the file lacks is left out. With `check` nothing is written. Raises ReadmeError where the file
    cannot be read or written, has no markers at all, or a marker is missing, repeated or out of order.
    """
    try:
        old = path.read_bytes().decode("utf-8")  # as bytes, so that the rest of the file keeps its line ends
    except FileNotFoundError as error:
        raise ReadmeError(f"{path}: there is no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ReadmeError(f"{path}: cannot be read ({error})") from error
    new = old
    here = [name for name in blocks if any(marker in old for marker in _markers(name))]
    for name in here or list(blocks)[-1:]:
        begin, end = _markers(name)
        if new.count(begin) != 1 or new.count(end) != 1 or new.index(begin) > new.index(end):
            raise ReadmeError(f"{path}: needs the two lines {begin} and {end}, once each; the text goes between them")
        before, after = new[: new.index(begin)], new[new.index(end) + len(end) :]
        new = f"{before}{begin}\n{blocks[name].strip()}\n{end}{after}"
    if new != old and not check:
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes(new.encode("utf-8"))
            shutil.copymode(path, temporary)
            os.replace(temporary, path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise ReadmeError(f"{path}: cannot be written ({error.strerror})") from error
    return new != old


def _markers(name: str) -> tuple[str, str]:
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


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
