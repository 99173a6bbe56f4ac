"""What is left to gain, step by step: the steps follow each other, multiply, and have their price in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from llama_workbench import ROOT
from llama_workbench.dashboard.sections import strips as picture
from llama_workbench.dashboard.views import data
from llama_workbench.harness.claims.reading import _unknown, load_folder
from llama_workbench.harness.report.ladder import advice_markdown, ladder_advice, ladder_markdown, ladder_of
from llama_workbench.harness.spec.dispute import Dispute, LadderClaim
from llama_workbench.harness.store.files import VERDICTS
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.schema import manifest_of
from llama_workbench.harness.store.verdict_schema import Verdict
from llama_workbench.variants.changes import CHANGES
from tests.verdicts import a_verdict, an_effect

CLAIMS, DISPUTE = load_folder(ROOT / "claims")
MANIFEST = manifest_of(
    {"experiments": [{"workload": {"name": "prefill-15m-t128", "kind": "prefill", "geometry": "15m"}, "variants": []}]}
)


def verdicts() -> list[Verdict]:
    """Of the claim that ships: each step 1.1 times as fast, all of them together what that comes to."""
    assert DISPUTE.ladder is not None
    [claim] = [claim for claim in CLAIMS if claim.id == DISPUTE.ladder.claim]
    eager = len(claim.hypothesis) - 3  # compiled, one token's products by the compiler, and all eager steps as one
    found = []
    parts: list[Any] = list(reversed(claim.hypothesis))
    for part in parts:  # the order of a file does not matter
        ratio = 1.1**eager if part.part == DISPUTE.ladder.whole else 1.1
        [baseline] = part.baseline
        effect = an_effect(
            workload="prefill-15m-t128", variant=part.variant, baseline=baseline,
            value=ratio, low=0.99 * ratio, high=1.01 * ratio,
        )  # fmt: skip
        found.append(a_verdict(effect, claim=claim.id, part=part.part))
    return found


def test_the_steps_lead_from_the_first_variant_to_the_last_and_multiply() -> None:
    found = ladder_of(verdicts(), DISPUTE, MANIFEST)
    assert found is not None
    path = [found.steps[0].baseline, *(step.variant for step in found.steps)]
    assert (path[0], path[-1]) == (found.whole.baseline, found.whole.variant) == ("team006_after", "fast")
    assert [step.variant for step in found.beyond] == ["fast_compiled", "fast_rows_compiled"]
    ratio, low, high = found.product("prefill-15m-t128") or (0, 0, 0)
    whole = found.whole.effects["prefill-15m-t128"]
    assert ratio == pytest.approx(whole.ratio) and low <= whole.ratio <= high


def test_each_step_has_its_price_in_memory_and_they_add_up() -> None:
    found = ladder_of(verdicts(), DISPUTE, MANIFEST)
    assert found is not None
    prices = {step.name: step.memory["prefill-15m-t128"] for step in found.steps}
    assert sum(prices.values()) == pytest.approx(found.whole.memory["prefill-15m-t128"])
    assert prices["products joined"] > 20 and prices["calls written out"] == 0  # copies of Q, K and V, gate and up


def test_the_table_has_a_row_a_step_and_the_product() -> None:
    found = ladder_of(verdicts(), DISPUTE, MANIFEST)
    assert found is not None
    rows = [line.split(" | ") for line in ladder_markdown(found).splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(found.steps) + len(found.beyond) + 2
    assert rows[-4][0] == "| these multiplied" and rows[-4][2].startswith("1.772×")
    assert rows[0][2] == "1.100× [1.089, 1.111]"


def test_advice_names_what_gains_and_what_loses() -> None:
    found = verdicts()
    slower = replace(found[3], effects=(replace(found[3].effects[0], ratio=0.9, low=0.89, high=0.91),))
    ladder = ladder_of([*found[:3], slower, *found[4:]], DISPUTE, MANIFEST)
    assert ladder is not None
    lost = next(step for step in ladder.steps if step.name == slower.part)
    advice = ladder_advice(ladder)
    assert advice is not None
    left = advice.not_to_take
    assert lost.change.told in left and lost.change.told not in advice.to_take
    assert len(advice.take) > 3 and all(step.change.told.lower() in advice.to_take.lower() for step in advice.take)
    assert advice.together == "All steps together, from team006_after to fast: 1.75 to 1.79 times as fast."
    assert advice.to_take[0].isupper() and "(1.09 to 1.11 times" in advice.to_take
    assert advice_markdown(ladder) == f"{advice.to_take} {left} {advice.together}\n"
    rows = advice.rows()
    assert len(rows) == 4 and {"times as fast", "prefill", "memory"} == {*rows[0]}
    assert left.startswith(f"Do not: {lost.change.told} (0.89 to 0.91 times as fast")
    assert lost.change.told not in [row["times as fast"] for row in rows]
    assert rows[2]["prefill"] == "1.10" and rows[3]["times as fast"] == "these and 3 other steps together"
    prices = {row["times as fast"]: row["memory"] for row in rows}
    assert prices.get(CHANGES["ladder_fused"].told, "up to +20 %").startswith("up to +") and "+0 %" in prices.values()
    nothing = [replace(each, effects=(replace(each.effects[0], low=0.99),)) for each in found]
    assert (same := ladder_of(nothing, DISPUTE, MANIFEST)) is not None and ladder_advice(same) is None


def test_what_the_last_layer_gains_is_in_brackets_where_there_is_no_other() -> None:
    workload = {"name": "prefill-15m-t128", "kind": "prefill", "geometry": "7b-1layer"}
    alone = manifest_of({"experiments": [{"workload": workload, "variants": []}]})
    shown = {}
    for name, manifest in (("one layer", alone), ("six layers", MANIFEST)):
        ladder = ladder_of(verdicts(), DISPUTE, manifest)
        assert ladder is not None
        advice = ladder_advice(ladder)
        assert advice is not None
        taken = replace(advice, take=(ladder.steps[-1], *ladder.steps[:2]))
        shown[name] = [row["prefill"] for row in taken.rows()]
        run = data.Run(Path("run"), manifest, (), {}, {}, {}, (), ())
        assert ("In brackets" in picture._change(run, taken)["told"]) == (name == "one layer")
    assert shown["one layer"] == ["(1.10)", "1.10", "1.10", "(1.77)"]
    assert shown["six layers"] == ["1.10", "1.10", "1.10", "1.77"]


def test_a_step_without_an_interval_leaves_the_product_open() -> None:
    found = verdicts()
    short = replace(found[3], effects=(replace(found[3].effects[0], high=float("inf")),))
    ladder = ladder_of([*found[:3], short, *found[4:]], DISPUTE, MANIFEST)
    assert ladder is not None and ladder.product("prefill-15m-t128") is None
    advice = ladder_advice(ladder)
    assert advice is not None and "inf" not in f"{advice.together} {advice.to_take} {advice.rows()}"


@pytest.mark.parametrize(
    ("second", "heads"),
    [
        ({"name": "decode-15m-c64", "kind": "decode", "geometry": "15m"}, ["prefill", "decode"]),
        (
            {"name": "prefill-15m-t8", "kind": "prefill", "geometry": "15m"},
            ["128 tokens", "8 tokens"],
        ),
    ],
)
def test_the_table_calls_workloads_by_as_few_words_as_tell_them_apart(second: dict[str, str], heads: list[str]) -> None:
    first = {"name": "prefill-15m-t128", "kind": "prefill", "geometry": "15m"}
    manifest = manifest_of({"experiments": [{"workload": each, "variants": []} for each in (first, second)]})
    ladder = ladder_of(verdicts(), DISPUTE, MANIFEST)
    assert ladder is not None
    advice = ladder_advice(ladder)
    assert advice is not None
    effects = {name: an_effect(workload=name) for name in (first["name"], second["name"])}
    taken = replace(advice, whole=replace(ladder.whole, effects=effects))
    row, *_ = picture._change(data.Run(Path("run"), manifest, (), {}, {}, {}, (), ()), taken)["rows"]
    assert [*row] == ["times as fast", *heads, "memory"]


def test_the_steps_that_were_measured_multiply_to_the_whole_within_their_intervals() -> None:
    """In the first session on all workloads, in the second wherever each step has an interval."""
    for name in ("reference", "reference-second"):
        folder = RunFolder(ROOT / "results" / "baselines" / name)
        manifest = folder.manifest()
        ladder = ladder_of(folder.read(VERDICTS), manifest.dispute, manifest)
        assert ladder is not None and len(ladder.steps) == 6
        for workload, whole in ladder.whole.effects.items():
            product = ladder.product(workload)
            assert product is not None or (name, workload) == ("reference-second", "prefill-7b-1layer-t32")
            if product is not None:
                assert product[1] <= whole.high and whole.low <= product[2], (name, workload)


def test_without_a_ladder_there_is_none() -> None:
    assert ladder_of(verdicts(), Dispute(), MANIFEST) is None
    assert ladder_of([], DISPUTE, MANIFEST) is None


def test_a_ladder_that_is_no_claim_is_named() -> None:
    wrong = Dispute(ladder=LadderClaim(claim="left-to-gain", whole="all eager step"))
    [said] = _unknown(wrong, CLAIMS)
    assert "ladder names 'left-to-gain', part 'all eager step'" in said and "did you mean 'all eager steps'" in said


def sides_of(code: str) -> list[str]:
    """The code before and after a change."""
    return ["\n".join(line[1:] for line in code.splitlines() if line[:1] in (" ", mark)) for mark in "-+"]


def test_each_step_says_what_to_write() -> None:
    found = ladder_of(verdicts(), DISPUTE, MANIFEST)
    assert found is not None
    assert [*CHANGES] == [step.variant for step in (*found.steps, *found.beyond)]
    for text, code, _ in CHANGES.values():
        before, after = sides_of(code)
        assert len(text) < 70 and compile(after, text, "exec") and compile(before, text, "exec") and before != after


@pytest.mark.parametrize(
    ("step", "results"), [("ladder_one_kernel", "y"), ("ladder_fused", "qkv"), ("ladder_transposed", "x")]
)
def test_what_to_write_computes_the_same(step: str, results: str) -> None:
    heads, size, tokens, hidden = 4, 8, 6, 32

    def computed(code: str) -> list[torch.Tensor]:
        there: dict[str, Any] = {"torch": torch, "F": F, "H": heads, "kv_heads": 2, "D": size, "T": tokens}
        generator = torch.Generator().manual_seed(7)

        def drawn(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator)

        there |= {name: drawn(1, heads, tokens, size) for name in "qkv"}
        there |= {name: drawn(tokens, hidden) for name in "xy"}
        there["mask"] = torch.full((tokens, tokens), float("-inf")).triu(1)
        there["weights"] = {"down": drawn(hidden, hidden)}
        there |= {f"{name}_weight": drawn(n * size, hidden) for name, n in (("q", heads), ("k", 2), ("v", 2))}
        exec(code, there)
        return [there[name] for name in results]

    for before, after in zip(*map(computed, sides_of(CHANGES[step].code)), strict=True):
        torch.testing.assert_close(before, after)
