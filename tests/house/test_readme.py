"""Documents say what the committed runs and trials give."""

from __future__ import annotations

import re

import pytest

from llama_workbench import ROOT
from llama_workbench.harness.claims.reading import load_folder
from llama_workbench.harness.report.standings import evidence_of
from llama_workbench.harness.session.judging import rejudge
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.variants.phase_map import VIEWS
from tests.commands.test_cli import fails, output


def test_the_committed_run_names_no_folder_of_a_machine() -> None:
    run = RunFolder(ROOT / "results" / "baselines" / "reference")
    for path in run.path.rglob("*"):
        if path.suffix in (".json", ".folded"):
            assert not re.search(r"[\"(\s=]/[A-Za-z]", path.read_text(encoding="utf-8")), path.name
    assert run.read_manifest()["status"] == "complete"


@pytest.mark.whole
def test_what_is_said_of_a_gpu_is_in_the_two_runs_on_one() -> None:
    page = (ROOT / "docs/results/gpu.md").read_text(encoding="utf-8")
    run, earlier = (RunFolder(ROOT / "results" / "baselines" / name) for name in ("h200", "h200-register"))
    traces = {each.workload.name: each.traces for each in run.manifest().experiments}
    sides = ("team003", "team006_before", "team006_after", "team005_planned", "ladder_transposed")
    for title, workload in (("prefill, 8 tokens", "prefill-15m-t8"), ("decode", "decode-15m-c64")):
        counts = [traces[workload][side].counts or {} for side in sides]
        work = [sum(count for op, count in ops.items() if op.partition(".")[0] not in VIEWS) for ops in counts]
        assert f"| {title} | {' | '.join(map(str, work))} |" in page

    queued = evidence_of(run, run.manifest()).queued
    assert queued["prefill-15m-t8", "team003"] == 297 and queued["decode-15m-c64", "team003"] == 2 * 249  # two calls

    def ratios(run: RunFolder) -> dict[tuple[str, ...], float]:
        effects = [effect for verdict in rejudge(run)[0] for effect in verdict.effects if effect.rounds >= 10]
        return {(each.workload, each.variant, each.baseline): each.ratio for each in effects}

    rewrite = [
        effect
        for verdict in rejudge(run)[0]
        for effect in verdict.effects
        if verdict.claim == "gpu-kernels" and effect.workload.startswith("prefill")
    ]
    ends = [round(100 * (end - 1)) for end in (min(each.low for each in rewrite), max(each.high for each in rewrite))]
    for name, who in (
        ("docs/results/gpu.md", "rewrite"),
        ("README.md", "it"),
        ("docs/results/statements.md", "rewrite"),
    ):
        text = " ".join((ROOT / name).read_text(encoding="utf-8").split())
        assert f"{who} gains {ends[0]} to {ends[1]} % in a prefill" in text, name

    [worker] = [verdict for verdict in rejudge(run)[0] if verdict.part == "against the worker of TEAM-003"]
    least, most = min(effect.low for effect in worker.effects), max(effect.high for effect in worker.effects)
    assert f"{least:.2f}x to {most:.2f}x" in (ROOT / "README.md").read_text(encoding="utf-8")
    refuted = max(effect.high for effect in worker.effects if effect.verdict is Word.REFUTED)
    [left] = [effect for effect in worker.effects if effect.verdict is Word.INCONCLUSIVE]
    assert (
        f"**At most {refuted:.2f}x; on decode, after 64 tokens {left.low:.2f}x to {left.high:.2f}x: no on 2 of 3"
        in page
    )

    now, then = ratios(run), ratios(earlier)
    apart = max(abs(now[pair] / then[pair] - 1) for pair in now.keys() & then.keys())
    assert f"the two differ by {apart:.1%} at most".replace("%", " %") in page


def test_the_screen_of_a_claim_says_that_the_gpu_waited() -> None:
    shown = " ".join(output("show", "h200", "--claim", "single-file-faster").split())
    assert shown.startswith("single-file-faster (time) on prefill-15m-t8: refuted ")
    assert shown.count(" takes the same time as ") + shown.count(" may be faster or slower than ") == 3
    rewrite = output("show", "h200", "--claim", "refactor-2x-3x", "--markdown")
    assert "refactor-2x-3x (usual lengths) on prefill-15m-t8: refuted\n\n### " in rewrite
    assert "**What is measured:** Launching, not kernels: the GPU waits while the host queues them (100 % of" in rewrite
    decode = output("show", "h200", "--claim", "gpu-kernels").partition("decode-15m-c64: refuted\n")[2]
    assert decode.startswith("! not independent: successive values are correlated or drift, so the interval is too")
    assert "! more than 1 % faster: inconclusive\n" in decode
    assert "Is the rewrite 2-3x faster? At most 1.10x" in output("show", "h200")
    assert "did you mean 'single-file-faster'?" in fails("show", "h200", "--claim", "single-file")


# The page of statements names claims that are there, with parts that they have, and leaves none out.


PAGE = ROOT / "docs" / "results" / "statements.md"
TEXT = PAGE.read_text(encoding="utf-8").partition("## What they said, and where it is judged")[2]
CLAIMS = {claim.id: claim for claim in load_folder(ROOT / "claims")[0]}
NAMED = re.findall(r"`([\w.-]+)`(?: \(([^)]*)\))?", TEXT)


def test_every_claim_is_named_and_every_name_is_a_claim() -> None:
    assert {name for name, _ in NAMED} - {"id"} == set(CLAIMS)


def test_every_part_that_is_named_is_one_of_its_claim() -> None:
    for name, said in NAMED:
        known = [part.part or "" for part in CLAIMS[name].hypothesis] if name in CLAIMS else []
        for part in filter(None, said.split("; ")):
            assert any(each.startswith(part.split(",")[0]) for each in known), (name, part, known)


def test_there_is_a_row_for_each_of_some_seventy_statements() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith("| statement")]
    assert len(rows) > 70 and len(set(rows)) == len(rows)
    assert all((line.count("|") == 4 and "`" in line) or "none: " in line or "the gate: " in line for line in rows)
