"""The first screen of the dispute: what matters, each side at its strongest, and the same words wherever it is told."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_workbench import ROOT, variants
from llama_workbench.datasets import geometries
from llama_workbench.harness.claims.model import ClaimError
from llama_workbench.harness.claims.reading import check_claim, load_folder
from llama_workbench.harness.report.answer import answer
from llama_workbench.harness.report.ladder import cards_of
from llama_workbench.harness.report.outcome import found_text, outcome
from llama_workbench.harness.report.sessions import BothSessions, SessionAnswers
from llama_workbench.harness.report.text import hull, span_text
from llama_workbench.harness.spec.regions import Region
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.stats.samples import call_times_ns
from llama_workbench.harness.store.files import VERDICTS
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.verdict_schema import Effect, Verdict
from llama_workbench.variants.memory_policy import expected, served_lengths
from tests.commands.test_cli import output
from tests.runs import a_claim, write_run
from tests.verdicts import a_verdict, an_effect

CLAIMS, DISPUTE = load_folder(ROOT / "claims")
BASELINES = ROOT / "results" / "baselines"
MARGIN = {"percent": 5.0, "document": "A document", "section": "A section"}
TOLD = " ".join(each.text for question in DISPUTE.question for each in question.beside)


@cache
def verdicts_of(run: str) -> tuple[Verdict, ...]:
    return RunFolder(BASELINES / run).read(VERDICTS)


@cache
def over_both() -> BothSessions:
    first, second = (SessionAnswers(name, verdicts_of(name), {}) for name in ("reference", "reference-second"))
    return BothSessions(first, second)


# -- the margin that matters -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expectation", "ratio", "verdict", "words"),
    [
        ("faster_than_percent", 1.0, "refuted", "no difference beyond"),
        ("faster_than_percent", 1.03, "refuted", "no difference beyond"),
        ("faster_than_percent", 0.97, "refuted", "no difference beyond"),
        ("faster_than_percent", 1.05, "inconclusive", "faster"),
        ("faster_than_percent", 1.12, "supported", "at least"),
        ("faster_than_percent", 0.88, "refuted", "slower"),
        ("slower_than_percent", 0.97, "refuted", "no difference beyond"),
        ("slower_than_percent", 0.88, "supported", "slower"),
        ("not_faster_than_percent", 1.03, "supported", "no difference beyond"),
        ("not_faster_than_percent", 1.12, "refuted", "at least"),
        ("same_within_percent", 0.97, "supported", "no difference beyond"),
        ("same_within_percent", 1.05, "inconclusive", "faster"),
        ("same_within_percent", 1.12, "refuted", "at least"),
    ],
)
def test_an_interval_inside_the_margin_is_an_answer(
    tmp_path: Path, expectation: str, ratio: float, verdict: str, words: str
) -> None:
    asked = a_claim("alone", {"workloads": ["decode-15m-c64"], expectation: 1, "margin": MARGIN})
    factors = {"team006_before": 1.0, "team006_after": 1 / ratio}
    [judged] = write_run(tmp_path / "run", only=["decode-15m-c64"], claims=[asked], factors=factors, noise=0.004).read(
        VERDICTS
    )
    [effect] = judged.effects
    assert (judged.verdict, judged.margin, judged.margin_from) == (verdict, 5.0, "A document, A section")
    assert words in found_text(judged)
    inside = effect.low >= 1 / 1.05 and effect.high <= 1.05
    assert (words == "no difference beyond") == inside
    at_one_percent = [
        note for note in effect.notes if note.startswith(("more than 1 %", "at most 1 %", "same within ±1"))
    ]
    differs = {
        ("faster_than_percent", 1.03),
        ("slower_than_percent", 0.97),
        ("not_faster_than_percent", 1.03),
        ("same_within_percent", 0.97),
    }
    assert bool(at_one_percent) == ((expectation, ratio) in differs), "the claim's own limit says something else"


def test_without_a_margin_a_claim_keeps_its_own_limit(tmp_path: Path) -> None:
    asked = a_claim("alone", {"workloads": ["decode-15m-c64"], "faster_than_percent": 1})
    factors = {"team006_before": 1.0, "team006_after": 1 / 1.03}
    [judged] = write_run(tmp_path / "run", only=["decode-15m-c64"], claims=[asked], factors=factors).read(VERDICTS)
    assert (judged.verdict, judged.claimed, judged.margin) == ("supported", "more than 1 % faster", 0.0)
    assert "no difference" not in found_text(judged)


def test_how_far_an_answer_inside_the_margin_reaches() -> None:
    """Of the end that lies farther from 1, on either side; and only where all of it is settled."""
    rows = [an_effect(low=0.984, high=1.004, verdict="refuted"), an_effect(low=0.99, high=1.0128, verdict="refuted")]
    usual = {"verdict": "refuted", "margin": 5.0, "low": 1.05}
    assert found_text(a_verdict(*rows, **usual)) == "no difference beyond 1.6 %"
    assert found_text(a_verdict(*rows, **usual | {"verdict": "inconclusive"})) != "no difference beyond 1.6 %"
    beyond = an_effect(low=0.94, high=1.0, verdict="refuted")
    assert found_text(a_verdict(*rows, beyond, **usual)) == "at most 1.3 % faster"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"margin": MARGIN, "ratio": [2.0, 3.0]}, "margin: ratio has its limits already"),
        ({"margin": MARGIN | {"percent": 0.5}, "faster_than_percent": 1}, "margin.percent = 0.5, expected at least"),
        ({"margin": {"percent": 5.0}, "faster_than_percent": 1}, "margin.document is missing"),
        ({"margin": 5, "faster_than_percent": 1}, "margin = 5, expected"),
    ],
)
def test_a_margin_without_a_source_is_a_fault(changes: Mapping[str, Any], told: str) -> None:
    with pytest.raises(ClaimError, match=told):
        check_claim(a_claim("alone", {"workloads": ["decode-15m-c64"], **changes}), "alone.toml")


def test_a_run_measures_until_the_margin_is_decided() -> None:
    [asked] = check_claim(
        a_claim("alone", {"workloads": ["decode-15m-c64"], "faster_than_percent": 1, "margin": MARGIN}), "alone.toml"
    ).hypothesis
    assert [target.regions for target in asked.targets()] == [(Region.faster_than_percent(5),)]


def test_a_margin_is_a_limit_of_one_of_the_five_documents() -> None:
    stated = {
        (part.matters.percent, part.matters.document, part.matters.section)
        for claim in CLAIMS
        for part in claim.hypothesis
        if part.matters
    }
    assert stated == {(5.0, "TEAM-006 CRITICAL REVIEW & DECISION", "If Profiling Shows Issues")}


def test_no_question_is_inconclusive_whose_interval_lies_inside_that_limit() -> None:
    for verdicts in (verdicts_of("reference"), verdicts_of("reference-second"), over_both().verdicts):
        lines = answer(verdicts, DISPUTE).lines
        assert len(lines) == len(DISPUTE.question)
        for line in (line for line in lines if line.verdict.is_open):
            open_ = [each for each in line.verdict.effects if each.verdict is Word.INCONCLUSIVE and not each.unit]
            assert not [each for each in open_ if each.low >= 1 / 1.05 and each.high <= 1.05], line.question


# -- each side at its strongest ----------------------------------------------------------------------------------------


def test_there_are_seventeen_questions_and_two_cards() -> None:
    assert len(DISPUTE.question) == 17
    assert [each.card for each in DISPUTE.question if each.card] == ["2-3x?", "6-11 %?"]


def test_the_faster_form_of_the_rewrite_leads() -> None:
    """Of its two faithful forms, by their best effect over both sessions."""
    parts = {(each.claim, each.part): each for each in over_both().verdicts}
    led = 0
    for question in (each for each in DISPUTE.question if each.claim == "refactor-2x-3x"):
        forms = [(question.claim, str(each.part)) for each in question.beside if each.claim == question.claim]
        if all(form in parts for form in forms):
            best, *others = (
                max(effect.ratio for effect in parts[form].effects)
                for form in ((question.claim, str(question.part)), *forms)
            )
            assert best >= max(others), question.text
            led += 1
    assert led == 1, "the worker of TEAM-003 has been measured against one form alone"


def test_where_a_run_lacks_the_part_the_next_one_leads() -> None:
    planned = a_verdict(an_effect(verdict="refuted"), claim="refactor-2x-3x", part="usual lengths", verdict="refuted")
    gone = a_verdict(claim="refactor-2x-3x", part="usual lengths, with added masks", verdict="not measurable here")
    for verdicts in ([planned], [gone, planned]):
        line = answer(verdicts, DISPUTE).lines[0]
        assert line.verdict is planned and not any("As planned" in each for each in line.beside)
        assert " on short prompts" not in line.text, "said of the other part alone"
    assert answer([gone], DISPUTE).lines[0].verdict is gone


def test_where_prefill_and_decode_differ_each_has_its_own_numbers() -> None:
    claim = {"claim": "own-layers-slower", "part": "Candle's Llama in Python", "verdict": "depends", "high": 0.99}
    rows = [
        an_effect(workload="prefill-15m-t128", low=1.16, high=1.21, verdict="refuted"),
        an_effect(workload="decode-15m-c64", low=0.6, high=0.66, verdict="supported"),
    ]
    [line] = answer([a_verdict(*rows, low=None, **claim)], DISPUTE).lines
    assert line.text == "in decode 52 to 67 % slower (yes); in prefill 16 to 21 % faster (no)"
    assert line.told.endswith(f": it depends. {line.beside[0]}")


def test_what_stands_beside_an_answer_has_a_verdict_of_its_own() -> None:
    """Else a reader takes that of the answer for it."""
    claim = {"claim": "mask-caching-6-11", "claimed": "6-11 % faster", "low": 1.06, "high": 1.11}
    no = a_verdict(
        an_effect(low=0.98, high=1.03, verdict="refuted"), part="micro-op on Candle itself", verdict="refuted", **claim
    )
    rows = [
        an_effect(workload="mask-create-apply-t128", low=1.1, high=1.14, verdict="inconclusive"),
        an_effect(workload="mask-create-apply-t512", low=1.07, high=1.1, verdict="supported"),
    ]
    part = a_verdict(*rows, part="micro-op (create + apply)", verdict="inconclusive", **claim)
    [line] = answer([no, part], DISPUTE).lines
    assert line.said == "it depends" and line.overall is Word.DEPENDS and not line.beside
    assert line.text == (
        "at most 3 % faster on Candle (no); in PyTorch at 128 tokens, for which TEAM-006 reports 10.4 % in Rust, "
        "10 to 14 % faster (yes, or more)"
    )
    early = [replace(each, low=0.57, high=1.77, rounds=4, verdict=Word.INCONCLUSIVE) for each in rows]
    [line] = answer([no, replace(part, effects=tuple(early))], DISPUTE).lines
    assert line.text.endswith(" in Rust, not known yet (inconclusive)"), "an early look tells no bound"
    assert (line.said, line.overall) == ("no", None), "what is not known yet speaks against nothing"
    elsewhere = replace(part, effects=tuple(rows[1:]))
    [line] = answer([no, elsewhere], DISPUTE).lines
    assert (line.said, line.text) == ("no", "at most 3 % faster on Candle"), "that length was not measured"
    alike = replace(rows[0], low=0.98, high=1.02, verdict=Word.REFUTED)
    [line] = answer([no, replace(part, effects=(alike,), verdict=Word.REFUTED)], DISPUTE).lines
    assert (line.said, line.overall) == ("no", None) and line.text.endswith("(no)"), "both say the same"
    [line] = answer([part], DISPUTE).lines
    assert " on Candle" not in line.text and line.beside[0].startswith("In PyTorch at 128 tokens, for")
    forms = [
        a_verdict(
            an_effect(low=1.0, high=1.02, verdict="refuted"), claim="refactor-2x-3x", part=each, verdict="refuted"
        )
        for each in ("usual lengths, with added masks", "usual lengths")
    ]
    assert answer(forms, DISPUTE).lines[0].beside[0].endswith(" faster (no).")


def test_how_far_an_open_grid_reaches_has_both_of_its_sides() -> None:
    """Also of a workload where one of them is settled: the table then says what the answer says."""
    grids = [each for each in over_both().verdicts if each.claim == "arch-or-ops" and each.due_to]
    assert len(grids) == 2
    for verdict in grids:
        assert outcome(verdict) == f"inconclusive: {found_text(verdict)}"


def test_more_than_was_claimed_is_no_no() -> None:
    more = a_verdict(
        an_effect(low=7.0, high=9.0, verdict="refuted"),
        claim="rope-3x-5x", part="op alone", claimed="3-5x", verdict="refuted", low=3.0, high=5.0,
    )  # fmt: skip
    [line] = answer([more], DISPUTE).lines
    assert line.sentence == "Is the library's RoPE alone 3-5x as fast as TEAM-003's? At least 7.00x: yes, and more."


def test_a_condition_of_a_rule_counts_for_no_team() -> None:
    said_by = {claim.id: claim.who for claim in CLAIMS}
    for name in ("decision-rule", "fragmentation-10pct", "mask-caching-10-30-overall"):
        assert said_by[name] == ("this workbench",)
    [rules] = [claim for claim in CLAIMS if claim.id == "own-rules"]
    conditions = [
        part for part in rules.hypothesis if (part.part or "").startswith(("kept at", "the plan", "the review"))
    ]
    assert len(conditions) == 7 and {part.who for part in conditions} == {("this workbench",)}


# -- what was found elsewhere ------------------------------------------------------------------------------------------


def test_what_is_told_of_the_gpu_was_measured() -> None:
    of_part = {(each.claim, each.part): each for each in verdicts_of("h200")}
    worker = of_part["refactor-2x-3x", "against the worker of TEAM-003"]
    [line] = answer([worker], DISPUTE).lines
    assert f"On a GPU, with older versions of both: {found_text(worker)} ({line.said})." in TOLD
    prefill = [each for each in of_part["refactor-2x-3x", "usual lengths"].effects if "prefill" in each.workload]
    least, most = min(each.low for each in prefill), max(each.high for each in prefill)
    masks = [each for each in of_part["mask-caching-10-30-overall", ""].effects if "prefill" in each.workload]
    assert masks and all(each.low is None or not math.isfinite(each.high) for each in masks), "no interval yet"
    alone = f"{100 * (np.median([each.ratio for each in masks]) - 1):.0f} %"
    gains = f"it gains {100 * (least - 1):.0f} to {100 * (most - 1):.0f} % in a prefill"
    assert f"{gains}; cached masks alone about {alone} (no interval)." in TOLD


def between(effects: Sequence[Effect]) -> str:
    """The hull of their intervals in words."""
    bounds = hull(effects)
    assert bounds is not None
    return span_text(bounds, "between")


def test_what_is_told_of_candles_kernels_was_measured_in_both_sessions() -> None:
    first, second = (
        SessionAnswers(name, verdicts_of(name), {}) for name in ("candle-kernels", "candle-kernels-second")
    )
    of_part = {(each.claim, each.part): each for each in BothSessions(first, second).verdicts}
    rewrite, masks = of_part["kernels-2x-3x", "one thread"], of_part["kernels-mask-caching-6-11", "whole prefill"]
    small, wide = ([each for each in rewrite.effects if size in each.workload] for size in ("-15m-", "-7b-"))
    assert rewrite.verdict == "refuted" and len(small) == len(wide) == 4
    most, most_wide = (max(each.high for each in some) for some in (small, wide))
    two_cores = of_part["kernels-2x-3x", "two cores"]
    assert two_cores.verdict == "refuted"
    most_two = max(each.high for each in two_cores.effects if "-15m-" in each.workload)
    small_text = f"at most {most:.2f}x on one core and {most_two:.2f}x on two"
    assert f"On Candle's own kernels {small_text}; at 7B width, known less well, at most {most_wide:.2f}x (no)." in TOLD
    assert masks.verdict == "refuted" and all("-15m-" in each.workload for each in masks.effects)
    on_two = of_part["kernels-mask-caching-6-11", "whole prefill, two cores"]
    assert on_two.verdict == "refuted"
    told = f"{found_text(masks)} on one thread, {found_text(on_two).removeprefix('at most ').removesuffix(' faster')}"
    assert f"On Candle's own kernels, at 15M parameters: {told} on two (no)." in TOLD
    all_layers = of_part["kernels-own-layers-slower", "masks cached"].effects
    layers = [each for each in all_layers if "-15m-" in each.workload]
    [decode_wide] = [each for each in all_layers if each.workload == "decode-7b-1layer-c64"]
    prefill, decode = ([each for each in layers if kind in each.workload] for kind in ("prefill", "decode"))
    assert {each.verdict for each in prefill} == {"refuted"} and {each.verdict for each in decode} == {"inconclusive"}
    wider = between([decode_wide]).removesuffix(" slower")
    assert decode_wide.verdict == "inconclusive"
    up_to, up_to_wide = (f"up to {text.partition(' to ')[2]}" for text in (between(decode), f"{wider} slower"))
    told = f"{between(prefill)} in a prefill (no); in decode {up_to}, at 7B width {up_to_wide} (both inconclusive)."
    assert f"With both on Candle's own kernels, at 15M parameters: {told}" in TOLD
    runs = [RunFolder(BASELINES / name) for name in ("candle-kernels", "candle-kernels-second")]
    others = [sitting.others or 1 for run in runs for sitting in run.manifest().sittings]
    assert len(others) == 4 and max(others) < 0.02, "nothing else was running, and each was continued"
    rounds = [
        each.rounds for run in runs for one in run.read(VERDICTS) for each in one.effects if "-7b-" in each.workload
    ]
    page = (ROOT / "docs" / "results" / "candle-kernels.md").read_text(encoding="utf-8")
    assert f"a session has {min(rounds)} to {max(rounds)} for each" in page
    text = " ".join(page.split())
    small_text = f"at most {most:.2f}x on one thread and {most_two:.2f}x on two cores"
    assert f"at 15M parameters {small_text}, at most {most_wide:.2f}x at 7B width.**" in text
    slower = between(decode)
    assert f"In decode the layers are {slower} at 15M parameters and {wider} at 7B width, which" in text
    alike = [of_part["kernels-one-file", ""], of_part["kernels-one-cache", "ownership alone"]]
    there = [each for verdict in alike for each in verdict.effects if "-15m-" in each.workload]
    assert len(there) == 8 and all(1 / 1.05 < each.low <= each.high < 1.05 for each in there)


def test_what_is_told_of_a_whole_model_was_measured() -> None:
    same = [each for each in verdicts_of("layers") if each.part.startswith("the same work in every layer")]
    ends = [end for verdict in same for effect in verdict.effects for end in (effect.low, effect.high)]
    layers = geometries.get("tinyllama").config.num_hidden_layers
    assert len(same) == 3 and {each.variant for verdict in same for each in verdict.effects} == {"team005_planned"}
    assert (
        f"A whole TinyLlama of {layers} layers gains as much by the planned rewrite as one of its layers, "
        f"within {max(map(abs, ends)):.1f} %."
    ) in TOLD


def test_how_much_of_the_workers_part_is_no_projection_was_measured() -> None:
    shares = []
    for run in ("reference", "reference-second"):
        samples = RunFolder(BASELINES / run).read_samples({"team006_after"})
        for tokens in (8, 32, 128):
            part, whole = (
                np.median(call_times_ns(samples.where(workload=f"{name}-t{tokens}"), clock="cpu"))
                for name in ("rope-attention", "worker-layer")
            )
            shares.append(100 * part / whole)
    most = 100 * max(shares) / (100 - max(shares))
    told = f"RoPE, scores, mask, softmax and output take {min(shares):.1f} to {max(shares):.1f} % of it: "
    told += f"without that work it is at most {most:.1f} % faster."
    assert told in TOLD


def test_the_hours_in_the_public_history_follow_from_its_commits() -> None:
    [claim] = [claim for claim in CLAIMS if claim.id == "refactor-hours"]
    [history] = [each for each in claim.assumes if each.startswith("the public history")]
    times = [
        timedelta(hours=int(h), minutes=int(m), seconds=int(s)) for h, m, s in re.findall(r"(\d+):(\d+):(\d+)", history)
    ]
    before, masks, last, handed_off, library = (each.total_seconds() / 60 for each in times)
    reason = claim.hypothesis[0].model_dump()["reason"]
    assert f"within {math.ceil(masks - before)} minutes of the commit before" in reason
    assert f"came {library - last:.0f} to {library - handed_off:.0f} minutes after TEAM-008's hand-off" in reason


def test_what_is_told_of_masks_of_a_whole_model_follows_from_its_shape() -> None:
    config = geometries.get("7b").config
    weights = 4 * geometries.parameter_count(config)

    def masks(variant: str, longest: int) -> int:
        policy = variants.get(variant).memory
        assert policy is not None
        lengths = served_lengths(longest, 32)
        return expected(policy, config, lengths, item_bytes=4, max_length=longest)["held"]["mask"]

    short, long, shared = masks("team006_after", 512), masks("team006_after", 4096), masks("team005_hybrid", 4096)
    assert (
        f"A whole 7B holds {short / 2**30:.1f} GiB of masks after prompts up to 512 tokens, and {long / 2**30:.0f} GiB "
        f"({100 * long / weights:.0f} % of the weights) after prompts up to 4,096; "
        f"with one dict for all layers, instead of one in each, {100 * shared / weights:.1f} %."
    ) in TOLD


# -- the same words everywhere -----------------------------------------------------------------------------------------


@pytest.mark.whole
def test_screen_and_page_answer_every_question_in_the_same_words() -> None:
    text = (ROOT / "docs" / "results" / "llama-dispute.md").read_text(encoding="utf-8").replace("**", "")
    page = " ".join(text.split())
    screen = " ".join(output("show", "reference").split())
    here, both = answer(verdicts_of("reference"), DISPUTE).lines, answer(over_both().verdicts, DISPUTE).lines
    assert len(here) == len(both) == 17
    for one, other in zip(here, both, strict=True):
        assert one.question == other.question
        assert screen.count(f" {one.told}" if one is not here[0] else one.told) == 1, one.question
        assert page.count(other.sentence) == 1 and all(each in page for each in other.beside), other.question
    assert "What to change: All steps together" in screen


def test_the_cards_have_both_headlines_and_what_to_change() -> None:
    run = RunFolder(BASELINES / "reference")
    cards = cards_of(verdicts_of("reference"), DISPUTE, run.manifest())
    assert [line.card for line in cards.answers] == ["2-3x?", "6-11 %?"]
    assert cards.change is not None and cards.change.take and cards.to_change.startswith("All steps together")
    assert all(math.isfinite(step.proven) for step in cards.change.take)
    fresh = RunFolder(BASELINES / "bench-epyc")
    without = cards_of(verdicts_of("bench-epyc"), DISPUTE, fresh.manifest())
    assert len(without.answers) == 2 and without.change is None
    assert without.to_change.endswith("pytest --benchmark --claims left-to-gain")
