"""Claims of a run one after the other, as a page for readers: what is said, by whom and where, what came out on each
workload, and the command that measures it again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..claims.model import Claim
from ..store.verdict_schema import Effect, Verdict
from .comparison import Screen
from .markdown import markdown_cell, markdown_rows, markdown_text
from .outcome import outcome
from .text import call_times, effect_text, one_text_line

_THREAD = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")
"""A thread of a repository, as its forge writes it."""

LONGEST = 2000  # letters of a statement


Times = Mapping[tuple[str, str, str], tuple[float, float]]
"""(workload, variant, baseline) → time of a call of the baseline and of the variant, in ns."""


def times_of(screens: Sequence[Screen]) -> Times:
    """The times of all comparisons of a run."""
    return {(each.effect.workload, each.effect.variant, each.effect.baseline): each.call_ns for each in screens}


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
    cells = _Cells({call.name: call.description for claim in claims for call in claim.call}, times)
    again = f"pytest --benchmark --claims-dir {folder} --all --claims"
    sections = [_section(claim, parts, cells, f"{again} {claim.id}") for claim, parts in measured]
    return "\n\n".join([index, *sections]) + "\n"


@dataclass(frozen=True)
class _Cells:
    """What a row says beside its effect: of a workload, and the times of a call."""

    described: Mapping[str, str | None]
    times: Times

    def row(self, effect: Effect) -> tuple[str, ...]:
        """The cells of a row."""
        times = self.times.get((effect.workload, effect.variant, effect.baseline))
        return (
            markdown_cell(self.described.get(effect.workload) or effect.workload),
            f"{markdown_cell(effect.variant)} against {markdown_cell(effect.baseline)}",
            " against ".join(reversed(call_times(times))) if times else "",
            markdown_cell(effect_text(effect)),
            markdown_cell(effect.verdict.look.word.lower()),
        )


def _section(claim: Claim, parts: Sequence[Verdict], cells: _Cells, command: str) -> str:
    blocks = [
        f"## {markdown_text(claim.title)}",
        markdown_text(one_text_line(claim.statement, LONGEST)),
        "\n".join(f"- {_linked(each.document)}: {markdown_text(each.section)}" for each in claim.source),
    ]
    for part in parts:
        said = ", ".join(filter(None, (part.claimed_here, f"by {' and '.join(part.who)}")))
        title = f"**{markdown_text(part.part or 'Claimed')}** ({markdown_text(said)})"
        blocks.append(f"{title}: **{markdown_text(outcome(part))}**")
        blocks.append(
            markdown_rows(
                ("on", "compared", "a call of each", "times as fast", "verdict"), map(cells.row, part.effects)
            )
        )
    assumed = "\n".join(f"- {markdown_text(each)}" for each in claim.assumes)
    blocks.append(f"<details><summary>What is assumed, and what decides</summary>\n\n{assumed}\n")
    blocks.append(f"{markdown_text(one_text_line(claim.decided_by, LONGEST))}\n\n</details>")
    blocks.append(f"Measure it: `{command}`")
    return "\n\n".join(blocks)


def _linked(document: str) -> str:
    thread = _THREAD.fullmatch(document)
    return f"[{document}](https://github.com/{thread[1]}/issues/{thread[2]})" if thread else markdown_text(document)


def _anchor(title: str) -> str:
    """As forges make it of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
