"""Verdicts as Markdown: the table of every verdict, and the blocks of a document that are made from a run."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..claims.model import Claim
from ..spec.dispute import Dispute
from ..store.schema import Manifest
from ..store.verdict_schema import Effect, Verdict
from .outcome import command_of, cost_text, outcome
from .text import call_times, claim_text, effect_text, excluded_lines, one_text_line, run_notes

if TYPE_CHECKING:
    from .sessions import BothSessions


class ReadmeError(Exception):
    """A document cannot be rewritten: the message names the file and what to add."""


def markdown_table(
    verdicts: Sequence[Verdict],
    manifest: Manifest,
    *,
    command: str | None = None,
    sessions: BothSessions | None = None,
) -> str:
    """The verdicts as a Markdown table, one row a verdict, with the smallest and the largest of its effects, grouped by
    the questions that the dispute asks about their claims; then come all others by name.

    sessions: the two that the verdicts are over, if they are: one more column has what each says by itself. Below the
    table: what the numbers mean, the machine, the run's noise, and `command`, which makes the table again.
    """
    rows = []
    groups = _by_question(verdicts, manifest.dispute)
    verdicts = [verdict for _, group in groups for verdict in group]
    headed = {id(group[0]): question for question, group in groups if question}
    for verdict in verdicts:
        if question := headed.get(id(verdict)):
            rows.append([f"**{markdown_cell(question)}**", *[""] * (5 + bool(sessions))])
        effects = sorted((each for each in verdict.effects if each.value is not None), key=lambda effect: effect.ratio)
        rounds = [effect.rounds for effect in effects]
        name, part, claimed = map(markdown_cell, (verdict.claim, verdict.part, verdict.claimed_here))
        cells = [
            f"`{name}`" + (f" ({part})" if part else "") + (f": {claimed}" if claimed else ""),
            markdown_cell(", ".join(verdict.who)),
            f"**{markdown_cell(outcome(verdict))}**" + "\\*" * verdict.together,
            _effect_cell(effects[0]) if effects else "",
            _effect_cell(effects[-1]) if len(effects) > 1 else "",
            " to ".join(dict.fromkeys(str(end(rounds)) for end in (min, max) if rounds)),
        ]
        rows.append([*cells, markdown_cell(sessions.each_says(verdict))] if sessions else cells)
    headings = ["claim", "said by", "verdict", "smallest effect", "largest effect", "processes"]
    table = markdown_rows([*headings, *["each session"] * bool(sessions)], rows)
    if sessions:
        table += f"\n\n{sessions_markdown(sessions)}"
    if opened := [verdict for verdict in verdicts if verdict.is_open]:
        items = "\n".join(_open_item(verdict, manifest) for verdict in opened)
        table += f"\n\nWhat would decide the inconclusive ones:\n\n{items}"
    notes = [markdown_text(line) for line in run_notes(verdicts, manifest)]
    notes += [f"Excluded: {markdown_text(line)}" for line in excluded_lines(manifest)]
    if command:
        notes.append(f"This table is made by `{command}`.")
    return "\n\n".join([table, *notes]) + "\n"


def sessions_markdown(sessions: BothSessions, *, whole: bool = True) -> str:
    """How far two sessions agree: a sentence, and a list of the differences where it is to be `whole`."""
    first, *differences = map(markdown_text, sessions.agreement_lines())
    items = [f"- {line}" for line in differences if whole]
    return "\n".join([f"A repeat run, {first}", *[""] * bool(items), *items])


NO_QUESTION = "Of none of these questions"


def _by_question(verdicts: Sequence[Verdict], dispute: Dispute) -> list[tuple[str, list[Verdict]]]:
    """The verdicts by the question that their part, or else their claim, answers or stands beside, what answers it
    first; without a heading where nothing is asked."""
    leads = [(question.claim, question.part or "", at) for at, question in enumerate(dispute.question)]
    beside = [(each.claim, each.part or "", at) for at, one in enumerate(dispute.question) for each in one.beside]
    of_part: dict[tuple[str | None, str], int] = {}
    of_claim: dict[str | None, int] = {}
    for claim, part, at in (*leads, *beside):
        of_part.setdefault((claim, part), at)
        of_claim.setdefault(claim, at)
    groups: dict[int, list[Verdict]] = {}
    for verdict in verdicts:
        at = of_part.get((verdict.claim, verdict.part), of_claim.get(verdict.claim, len(leads)))
        groups.setdefault(at, []).append(verdict)
    named = []
    for at, group in sorted(groups.items()):
        if at == len(leads):
            named.append((NO_QUESTION if leads else "", group))
            continue
        group.sort(key=lambda verdict: (verdict.claim, verdict.part) != leads[at][:2])
        named.append((dispute.question[at].text.replace("{claimed}", group[0].claimed), group))
    return named


def _open_item(verdict: Verdict, manifest: Manifest) -> str:
    """How an open verdict stands, the command that measures it again, and what that would cost."""
    again, cost = markdown_text(command_of(verdict, manifest)), markdown_text(cost_text(verdict))
    stands = f"{markdown_text(claim_text(verdict))}: {markdown_text(outcome(verdict))}"
    return f"- {stands}{f' ({cost})' if cost else ''}: `{again}`"


def markdown_rows(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells stand in it as they are (see `markdown_cell`)."""
    lines = [f"| {' | '.join(cells)} |" for cells in (headings, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(headings), *lines[1:]])


def update_file(path: Path, blocks: Mapping[str, str], *, check: bool = False) -> bool:
    """Put each block between its markers, `<!-- NAME:begin -->` and `<!-- NAME:end -->`. True if that changes the file.

    A block whose markers the file lacks is left out. With `check` nothing is written. Raises ReadmeError where the file
    cannot be read or written, has no markers at all, or a marker is missing, repeated or out of order.
    """
    try:
        old = path.read_bytes().decode("utf-8")  # as bytes, so that the rest of the file keeps its line ends
    except FileNotFoundError as error:
        raise ReadmeError(f"{path}: no such file; give a file that has the markers") from error
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


def _effect_cell(effect: Effect) -> str:
    return f"{markdown_cell(effect_text(effect))} {markdown_cell(effect.workload)}".rstrip()


def markdown_text(text: object, limit: int = 300) -> str:
    """One line of text that cannot start a tag or code."""
    return one_text_line(text, limit).replace("\\", "\\\\").replace("<", "&lt;").replace("`", "'")


def markdown_cell(text: object) -> str:
    """The same for a table, whose cell it cannot leave."""
    return markdown_text(text).replace("|", "\\|")


# Claims of a run one after the other, as a page for readers: what is said, by whom and where, what came out on each
# workload, and the command that measures it again.


_THREAD = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")
"""A thread of a repository, as its forge writes it."""

LONGEST_STATEMENT = 2000  # letters


Times = Mapping[tuple[str, str, str], tuple[float, float]]
"""(workload, variant, baseline) → time of a call of the baseline and of the variant, in ns."""


def gallery_markdown(claims: Sequence[Claim], verdicts: Sequence[Verdict], times: Times, folder: str) -> str:
    """A table of all claims, then a section for each. folder: where the claims lie, for the commands."""
    by_claim: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_claim.setdefault(verdict.claim, []).append(verdict)
    measured = [(claim, by_claim[claim.id]) for claim in claims if claim.id in by_claim]
    index = markdown_rows(
        ("what is said", "what came out"),
        (
            (
                f"[{markdown_cell(claim.title)}](#{_anchor(claim.title)})",
                "; ".join(f"{markdown_cell(part.part)}{': ' * bool(part.part)}**{outcome(part)}**" for part in parts),
            )
            for claim, parts in measured
        ),
    )
    described = {call.name: call.description for claim in claims for call in claim.call}

    def row(effect: Effect) -> tuple[str, ...]:
        both_ns = times.get((effect.workload, effect.variant, effect.baseline))
        return (
            markdown_cell(described.get(effect.workload) or effect.workload),
            f"{markdown_cell(effect.variant)} against {markdown_cell(effect.baseline)}",
            " against ".join(reversed(call_times(both_ns))) if both_ns else "",
            markdown_cell(effect_text(effect)),
            markdown_cell(effect.verdict.look.word.lower()),
        )

    again = f"pytest --benchmark --claims-dir {folder} --all --claims"
    sections = [_section(claim, parts, row, f"{again} {claim.id}") for claim, parts in measured]
    return "\n\n".join([index, *sections]) + "\n"


def _section(claim: Claim, parts: Sequence[Verdict], row: Callable[[Effect], tuple[str, ...]], command: str) -> str:
    blocks = [
        f"## {markdown_text(claim.title)}",
        markdown_text(one_text_line(claim.statement, LONGEST_STATEMENT)),
        "\n".join(f"- {_linked(each.document)}: {markdown_text(each.section)}" for each in claim.source),
    ]
    for part in parts:
        said = ", ".join(filter(None, (part.claimed_here, f"by {' and '.join(part.who)}")))
        title = f"**{markdown_text(part.part or 'Claimed')}** ({markdown_text(said)})"
        blocks.append(f"{title}: **{markdown_text(outcome(part))}**")
        blocks.append(
            markdown_rows(("on", "compared", "a call of each", "times as fast", "verdict"), map(row, part.effects))
        )
    assumed = "\n".join(f"- {markdown_text(each)}" for each in claim.assumes)
    blocks.append(f"<details><summary>What is assumed, and what decides</summary>\n\n{assumed}\n")
    blocks.append(f"{markdown_text(one_text_line(claim.decided_by, LONGEST_STATEMENT))}\n\n</details>")
    blocks.append(f"Measure it: `{command}`")
    return "\n\n".join(blocks)


def _linked(document: str) -> str:
    thread = _THREAD.fullmatch(document)
    return f"[{document}](https://github.com/{thread[1]}/issues/{thread[2]})" if thread else markdown_text(document)


def _anchor(title: str) -> str:
    """As forges make it of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
