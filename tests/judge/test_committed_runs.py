"""The committed runs, judged by today's code, give the verdicts and intervals that they were committed with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from llama_workbench import ROOT
from llama_workbench.commands.app import main
from llama_workbench.harness.claims.reading import load_claims
from llama_workbench.harness.evidence.evidence import compare_sides
from llama_workbench.harness.report.sessions import BothSessions, SessionAnswers, agreement_of
from llama_workbench.harness.report.standings import evidence_of
from llama_workbench.harness.session.judging import Rejudged, rejudge
from llama_workbench.harness.spec.comparison import Comparison
from llama_workbench.harness.spec.regions import Region
from llama_workbench.harness.store.files import CLAIMS, VERDICTS
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.forms import plain
from llama_workbench.harness.store.verdict_schema import Effect

RUNS = sorted(path.parent for path in (ROOT / "results" / "baselines").glob("*/run.json"))
NUMBERS = ("ratio", "value", "low", "high", "seconds")
DISPUTE = "docs/results/llama-dispute.md"
BLOCKS = {
    "README.md": ("answer-short",),
    DISPUTE: ("answer", "headlines", "session", "ladder", "rules"),
    "docs/results/all-verdicts.md": ("verdicts",),
}
"""The documents over both sessions, and what is written into each."""


def exact(effect: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in effect.items() if name not in (*NUMBERS, "reason", "notes")}


def numbers(effect: dict[str, Any]) -> dict[str, float]:
    return {name: math.nan if effect[name] is None else effect[name] for name in NUMBERS if name in effect}


@cache
def judged(run: Path) -> Rejudged:
    """By today's code."""
    return rejudge(RunFolder(run))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
@pytest.mark.whole
def test_verdicts_and_intervals_are_those_that_were_committed(run: Path) -> None:
    """Reasons and notes are words, and may change; all else may not."""
    stored = RunFolder(run).records("verdicts.json")
    verdicts, manifest = judged(run)
    found = plain(verdicts)
    assert stored
    then_said = RunFolder(run).manifest().noise
    assert manifest.noise and then_said and manifest.noise.line == then_said.line
    assert [(each["claim"], each["part"], each["verdict"]) for each in found] == [
        (each["claim"], each["part"], each["verdict"]) for each in stored
    ]
    for now, then in zip(found, stored, strict=True):
        for name in ("alpha", "claimed", "region"):
            assert now[name] == then[name]
        for effect, before in zip(now["effects"], then["effects"], strict=True):
            assert exact(effect) == exact(before)
            assert numbers(effect) == pytest.approx(numbers(before), rel=1e-9, nan_ok=True), now["claim"]


@pytest.mark.whole
def test_what_is_made_from_the_run_is_up_to_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """README.md, the dispute's page and that of all verdicts say what the committed runs give."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("llama_workbench.harness.session.judging.rejudge", lambda run, claims_folder: judged(run.path))
    with pytest.raises(SystemExit) as ended:
        written = [word for file in BLOCKS for word in ("--write", file)]
        main(["judge", "reference", "--session", "reference-second", *written, "--check"])
    assert (ended.value.code, capsys.readouterr().err) == (0, "".join(f"{file}: up to date\n" for file in BLOCKS))
    for file, blocks in BLOCKS.items():
        text = (ROOT / file).read_text(encoding="utf-8")
        assert all(text.count(f"<!-- {name}:begin -->") == 1 for name in blocks), file


def test_a_make_bench_contradicts_no_interval_over_both_sessions() -> None:
    answers = {
        name: RunFolder(ROOT / "results" / "baselines" / name).read(VERDICTS)
        for name in ("reference", "reference-second", "bench-epyc")
    }
    first, second = (SessionAnswers(name, answers[name], {}) for name in ("reference", "reference-second"))
    over_both = agreement_of(BothSessions(first, second).verdicts, answers["bench-epyc"])
    assert over_both.intervals >= 75 and not over_both.disjoint


def effects_of(run: str) -> dict[tuple[str, str], Effect]:
    """By part and workload."""
    verdicts = RunFolder(ROOT / "results" / "baselines" / run).read(VERDICTS)
    return {(one.part, effect.workload): effect for one in verdicts for effect in one.effects}


def test_what_is_said_of_compiled_products_was_measured() -> None:
    text = " ".join((ROOT / DISPUTE).read_text(encoding="utf-8").split())
    effects = effects_of("fast-is-level")
    for part, workload in (
        ("one token's products by the compiler", "decode-15m-c64"),
        ("one token's products by the compiler", "decode-7b-1layer-c1"),
        ("llama.cpp, against compiled by rows", "decode-15m-c64"),
    ):
        effect = effects[part, workload]
        assert f"{effect.ratio:.3f} [{effect.low:.3f}, {effect.high:.3f}] times" in text, (part, workload)


@pytest.mark.parametrize(
    ("run", "part", "digits", "document"),
    [
        ("fast-is-level", "of the roof, compiled by rows", 0, DISPUTE),
        ("layers", "the same work in every layer", 1, "results/README.md"),
    ],
)
def test_what_is_said_of_roofs_and_layers_was_measured(run: str, part: str, digits: int, document: str) -> None:
    text = " ".join((ROOT / document).read_text(encoding="utf-8").split())
    for (asked, workload), effect in effects_of(run).items():
        if asked.startswith(part) and not workload.startswith("prefill-15m"):
            value, low, high = (f"{each:.{digits}f}" for each in (effect.ratio, effect.low, effect.high))
            assert f"{value} % [{low}, {high}]" in text, workload


def test_what_is_said_of_one_layer_and_of_all_was_measured() -> None:
    folder = RunFolder(ROOT / "results" / "baselines" / "layers")
    evidence = evidence_of(folder, folder.manifest())
    anything = Region(-math.inf, math.inf)
    one, whole = (
        compare_sides(evidence, Comparison(name, "fast", "team006_after", "time"), anything, "context", 0.01).ratio
        for name in ("prefill-tinyllama-1layer-t128", "prefill-tinyllama-t128")
    )
    part = "the best code, which leaves out work in the last layer, 128 tokens"
    [effect] = [each for (asked, _), each in effects_of("layers").items() if asked == part]
    assert 100 * (whole / one - 1) == pytest.approx(effect.ratio)
    for name, told in (
        (
            DISPUTE,
            "all steps together make one layer of TinyLlama {:.2f} times as fast, and its 22 layers {:.2f} times.",
        ),
        (DISPUTE, "all steps together make a TinyLlama of 22 layers {1:.2f} times as fast in a prefill"),
        ("results/README.md", "makes one layer {:.2f} times as fast, and all 22 {:.2f} times."),
    ):
        text = " ".join((ROOT / name).read_text(encoding="utf-8").split())
        assert told.format(one, whole) in text, name


BOOKED = ("mask-caching-10-30-overall", "mask-time-halved", "own-rules", "rope-3x-5x")
"""Claims of which a part once counted for a team that did not say it."""

RENEWED = ("claims-inflated-20-50x", "layers-add-up", "weight-loading-bottleneck")
"""Claims that runs keep in the form of today, as those with a document's own limit."""

OF_THE_RUN = ("part", "quick", "workloads", "left_out")


@pytest.mark.whole
def test_claims_of_runs_have_their_speakers_and_limits_of_today() -> None:
    now = {claim.id: plain(claim.stored()) for claim in load_claims(ROOT / "claims")}
    renewed = {name for name, claim in now.items() if any("margin" in part for part in claim["hypothesis"])}
    renewed |= {*RENEWED}
    seen = set()
    for run in RUNS:
        for claim in RunFolder(run).records(CLAIMS) if (run / CLAIMS).exists() else []:
            if (name := claim["id"]) not in (*renewed, *BOOKED):
                continue
            seen.add(name)
            assert claim["who"] == now[name]["who"], (run.name, name)
            for part in claim["hypothesis"]:
                key = "part" if "part" in part else "variant"  # an earlier run names no part where there was one alone
                today = [each for each in now[name]["hypothesis"] if each.get(key) == part.get(key)]
                assert all(each.get("who", part.get("who")) == part.get("who") for each in today), (run.name, name)
                if name in renewed:
                    [same] = today
                    assert _without(same) == _without(part), (run.name, name)
    assert seen >= {*RENEWED, *BOOKED}


def _without(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part of a claim, but for what the plan of its run chose."""
    return {key: value for key, value in part.items() if key not in OF_THE_RUN}
