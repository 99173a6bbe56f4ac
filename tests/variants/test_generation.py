"""Generation: tokens one by one, what counts as a wrong one, and whole rounds of it (also in chunks and batches)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from llama_workbench import ROOT, variants
from llama_workbench.datasets import geometries, workloads
from llama_workbench.datasets.checkpoints import synthesize
from llama_workbench.harness.calls.source import parse
from llama_workbench.harness.claims.reading import load_claims
from llama_workbench.harness.evidence.evidence import evidence_from_manifest
from llama_workbench.harness.examiner.main import Examiner
from llama_workbench.harness.plan.experiments import make_plan
from llama_workbench.harness.plan.options import Request
from llama_workbench.harness.session.judging import stopping_rule
from llama_workbench.harness.spec.sample import Round, RoundAnswer, Sample
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.schema import manifest_of
from llama_workbench.harness.worker import gating, model_gating
from llama_workbench.harness.worker.correctness import TOLERANCES, greedy, judge_tokens, small_geometries, small_weights
from llama_workbench.harness.worker.gating import gate
from llama_workbench.harness.worker.models import GenerateRunner
from llama_workbench.harness.worker.rounds import measure_round
from llama_workbench.harness.worker.state import GATE_PROMPT, Worker
from llama_workbench.harness.worker.torch_verbs import open_workload
from llama_workbench.variants.generation import generate

OUTSIDE = ROOT / "tests" / "outside_variants.py"


class Counting:
    """A model whose most likely token is the number of calls so far, plus the row."""

    def __init__(self):
        self.calls = []

    def forward(self, tokens, position):
        self.calls.append((tokens.tolist(), position))
        logits = torch.zeros(len(tokens), 9)
        for row in range(len(tokens)):
            logits[row, len(self.calls) + row] = 1
        return logits

    def reset(self):
        self.calls.clear()


def test_tokens_come_one_by_one_and_nothing_is_computed_ahead():
    model = Counting()
    stream = generate(model, torch.tensor([[7, 8, 7], [5, 5, 5]]), 3)
    assert isinstance(stream, Iterator)
    assert model.calls == []
    assert next(stream).tolist() == [1, 2]
    assert model.calls == [([[7, 8, 7], [5, 5, 5]], 0)]
    assert next(stream).tolist() == [2, 3]
    assert model.calls[1:] == [([[1], [2]], 3)]
    assert next(stream).tolist() == [3, 4]
    assert model.calls[2:] == [([[2], [3]], 4)]
    assert next(stream, None) is None
    assert len(model.calls) == 3  # the last token is given, not fed


def test_generation_is_repeated_prefill_of_what_is_there_so_far():
    config = small_geometries()["grouped"]
    model = variants.get("candle").build(config, small_weights(config, torch.float64), max_length=20)
    text = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    with torch.inference_mode():
        got = torch.stack(list(generate(model, text, 6)), dim=1)
        for _ in range(6):
            model.reset()
            text = torch.cat((text, model.forward(text, 0).argmax(-1, keepdim=True)), dim=1)
    assert torch.equal(got, text[:, 5:])


def test_a_wrong_token_is_told_from_a_near_tie():
    expected = torch.tensor([[4, 5, 6], [7, 8, 9]])
    margins = torch.full((2, 3), 0.1)
    assert judge_tokens(expected.clone(), expected, margins, torch.float32) is None
    got = torch.tensor([[4, 5, 6], [7, 1, 2]])
    told = judge_tokens(got, expected, margins, torch.float32)
    assert told == "token 2 of sequence 2 is 1, expected 8, which leads by 1.0e-01 of the largest logit"
    margins[1, 1] = 2 * TOLERANCES[torch.float32]  # what follows a near-tie is another sequence: not compared
    assert judge_tokens(got, expected, margins, torch.float32) is None
    assert judge_tokens(got, expected, margins, torch.float64) is not None  # there the same lead is no near-tie
    margins[1, 1] = float("nan")
    assert judge_tokens(got, expected, margins, torch.float32) is not None
    assert judge_tokens(got[:, :2], expected, margins, torch.float32) == "[2, 2] tokens for [2, 3]"


def test_the_lead_of_a_token_is_a_share_of_the_largest_logit():
    class Fixed:
        def forward(self, tokens, position):
            return torch.tensor([[1.0, 4.0, 3.0], [-8.0, 1.0, 1.5]])

        def reset(self):
            pass

    tokens, margins = greedy(Fixed(), torch.zeros(2, 1, dtype=torch.long), 2)
    assert tokens.tolist() == [[1, 1], [2, 2]]
    assert margins.tolist() == [[0.125, 0.125], [0.0625, 0.0625]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthesize(geometries.get("tiny"), cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture
def worker(folder: Path) -> Iterator[Worker]:
    """A worker in this process; what it sets for its own is put back."""
    threads, gradients = torch.get_num_threads(), torch.is_grad_enabled()
    names = ("other_token_later", "shifted_later", "stale_later", "wrong")
    added = {name: asdict(parse(f"{OUTSIDE}:{name}", option="x")) for name in names}
    yield Worker({"process": 1, "added": added, "cache": str(folder.parent.parent), "threads": 1})
    torch.set_num_threads(threads)
    torch.set_grad_enabled(gradients)


def opened(worker: Worker, folder: Path, workload: str, *names: str) -> dict[str, dict]:
    """What the gates said of the variants, that workload being open."""
    open_workload(worker, workloads.get(workload).model_dump(), str(folder), 0)
    return {name: gate(worker, workload, name) for name in names}


def judged_round(worker: Worker, folder: Path, workload: str, index: int, names: list[str]) -> RoundAnswer:
    """A round with what the examiner says of it under "wrong"."""
    file = folder.parent / "outputs.safetensors"
    found = measure_round(worker, workload, index, names, outputs=str(file))
    examiner = Examiner({"cache": str(worker.cache), "threads": 1})
    work = worker.benches[workload].workload.model_dump()
    wrong = examiner.judge(str(folder), work, worker.draw, str(file), found.drawn)
    assert {entry["variant"] for entry in found.drawn} == set(names)
    return replace(found, wrong={**found.wrong, **wrong})


def test_our_own_variants_are_not_blamed_where_the_machine_makes_them_wait(worker, folder, monkeypatch):
    """Nobody computes for them. The same samples of foreign code are a reason to leave it out."""
    workload, names = "prefill-tiny-t16", ["fast", "yardstick"]
    opened(worker, folder, workload, *names)
    sample = worker.device.sample
    monkeypatch.setattr(
        worker.device, "sample", lambda *words: sample(*words)._replace(waits=1000, around_ns=10**10, queued_ns=0)
    )
    assert measure_round(worker, workload, 0, names).elsewhere == {}
    monkeypatch.setattr(worker, "is_outside", lambda name: name == "fast")
    assert measure_round(worker, workload, 1, names).elsewhere.keys() == {"fast"}


@pytest.mark.parametrize(
    "workload",
    [
        "generate-tiny-t8-n6-b1", "generate-tiny-t8-n6-b3", "prefill-tiny-t16-chunk6", "prefill-tiny-t16-b3",
        "decode-tiny-c16-b3",
    ],
)  # fmt: skip
def test_chunks_batches_and_generations_pass_gates_and_rounds(worker, folder, workload):
    ours = ("team006_before", "team005_hybrid", "team005_proposal", "candle", "fast", "yardstick")
    names = [*ours, "transformers_static"]
    gates = opened(worker, folder, workload, *names)
    assert {name: found["gate"]["passed"] for name, found in gates.items()} == dict.fromkeys(names, True), gates
    generated = workload.startswith("generate")
    batch = workloads.get(workload).batch
    assert all((f"and {6 * batch} greedy tokens" in found["gate"]["detail"]) == generated for found in gates.values())
    # Layout alone: the same operations, from the first token to the last.
    assert gates["team005_hybrid"]["trace"] == gates["team005_proposal"]["trace"]
    assert gates["candle"]["trace"]["digest"] != gates["yardstick"]["trace"]["digest"]
    assert worker.benches[workload].gate_prompt.shape[0] == batch
    for index in range(2):
        found = judged_round(worker, folder, workload, index, names)
        assert [found.wrong, found.leaks, found.changed, found.elsewhere] == [{}] * 4
        for sample in found.samples:
            first = (sample.first_cpu_ns, sample.first_wall_ns)
            if generated:
                assert (sample.tokens, sample.repeats) == (8, 1)
                assert 0 < first[0] < sample.cpu_ns
                assert 0 < first[1] < sample.wall_ns
            else:
                assert first == (0, 0)


def test_the_op_trace_covers_every_piece(worker, folder):
    def ops(workload: str) -> int:
        return opened(worker, folder, workload, "yardstick")["yardstick"]["trace"]["ops"]

    prefill, decode = ops("prefill-tiny-t16"), ops("decode-tiny-c16")
    assert ops("prefill-tiny-t16-chunk6") == pytest.approx(3 * prefill, rel=0.03)
    assert ops("generate-tiny-t8-n6-b1") == pytest.approx(prefill + 5 * decode, rel=0.05)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("other_token_later", "in a timed call token"),
        ("shifted_later", "logits of a timed call off by"),
        ("stale_later", "logits of a timed call off by"),
    ],
)
def test_a_generation_that_turns_wrong_is_found_in_its_round(worker, folder, monkeypatch, name, said):
    """Another token; the same tokens from other logits; the same tokens, but a cache that the last step left behind."""
    monkeypatch.setattr(gating, "CALIBRATION_NS", 10**12)  # always as many calls of the gate, however long they take
    workload = "generate-tiny-t8-n6-b3"
    names = ["fast", "yardstick", "candle", name]
    gates = opened(worker, folder, workload, *names)
    assert gates[name]["gate"]["passed"], gates[name]
    wrong: Mapping[str, str] = {}
    for index in range(20):
        wrong = judged_round(worker, folder, workload, index, names).wrong
        if wrong:
            break
    assert list(wrong) == [name]
    assert said in wrong[name]


def test_one_variant_alone_is_enough_to_find_a_wrong_token(worker, folder):
    workload = "generate-tiny-t8-n6-b1"
    opened(worker, folder, workload, "other_token_later")
    names = ["other_token_later"]
    rounds = (judged_round(worker, folder, workload, index, names).wrong for index in range(40))
    wrong = next(filter(None, rounds))
    # Where it begins with the last token, that one is right and the logits after it are not.
    assert wrong["other_token_later"].startswith(("in a timed call token", "logits of a timed call off by"))


def test_the_gate_compares_the_tokens_too(worker, folder, monkeypatch):
    """Every token leads by more than the tolerance here, so a variant that took another one is wrong."""
    workload = "generate-tiny-t8-n6-b1"
    assert opened(worker, folder, workload, "yardstick")["yardstick"]["gate"]["passed"]
    bench = worker.benches[workload]
    assert bench.generated is not None
    tokens, margins = bench.generated
    assert tokens.shape == margins.shape == (1, 6)
    assert bool((margins > 0).all())
    runner = bench.kind.runner(worker, bench, variants.get("yardstick"))
    assert isinstance(runner, GenerateRunner)
    with torch.inference_mode():
        runner.prepare(8, GATE_PROMPT, 1)
        assert torch.equal(runner.call(), tokens)
    other = ((tokens + 1) % 512, margins.fill_(1.0))
    monkeypatch.setattr(model_gating, "of_generation", lambda worker, bench: other)
    bench.generated = None
    found = gate(worker, workload, "yardstick")["gate"]
    assert not found["passed"]
    assert "logits off by" in found["detail"] or "token 1 of sequence 1 is" in found["detail"]


@pytest.mark.parametrize("slow_ns", [30e6, 10e6])
def test_decode_goes_through_the_same_positions_on_all_sides(worker, folder, slow_ns):
    """Also where one variant is slow enough to need no warm-up call and another is not."""
    names = ["candle", "fast", "yardstick"]
    opened(worker, folder, "decode-tiny-c16", *names)
    subjects = worker.benches["decode-tiny-c16"].subjects
    for name, call_ns in zip(names, (30e6, 15e6, slow_ns), strict=True):
        subjects[name].call_ns = call_ns
    assert judged_round(worker, folder, "decode-tiny-c16", 0, names).wrong == {}


def test_after_a_context_a_prefill_is_timed_once_a_sample(worker, folder):
    """A second call would come to lie behind the first where keys are appended."""
    work = workloads.get("prefill-tiny-t16").model_copy(update={"name": "after-a-context", "context": 8})
    open_workload(worker, work.model_dump(), str(folder), 0)
    names = ["candle", "fast", "yardstick"]
    for name in names:
        assert gate(worker, work.name, name)["gate"]["passed"]
    found = judged_round(worker, folder, work.name, 0, names)
    assert found.wrong == {}
    assert {sample.repeats for sample in found.samples} == {1}


def test_the_loop_stops_by_the_numbers_that_are_judged(tmp_path):
    """Live rounds and stored samples give the same differences by each of the three metrics."""
    name = "generate-15m-t32-n32"
    plan = make_plan(Request(claims=("refactor-2x-3x",), workloads=(name,)), load_claims(ROOT / "claims"))
    rule = stopping_rule(plan, {})
    folder = RunFolder.create(tmp_path / "run")
    rng = random.Random(3)
    for index in range(4):
        rows = []
        for sub_round in range(3):
            for place, variant in enumerate(("team006_before", "team005_proposal")):
                first, rest = rng.randrange(1_000, 2_000), rng.randrange(50_000, 60_000)
                whole = (first + rest, first + rest + 9)
                rows.append(Sample(variant, sub_round, place, 32, 1, *whole, 0, first, first + 5))
        finished = Round(name, 1 + index // 2, index, tuple(rows))  # two rounds a process
        rule.add(finished)
        folder.append_round(finished)
    rule.end_process()
    folder.finish()
    manifest = {
        "unit": "process",
        "experiments": [
            {
                "workload": {"name": name, "kind": "generate", "new_tokens": 32},
                "variants": ["team006_before", "team005_proposal"],
            }
        ],
    }
    evidence = evidence_from_manifest(manifest_of(manifest), folder.read_samples())
    asked = {comparison.metric: comparison for comparison in plan.comparisons()}
    assert set(asked) == {"time", "time_to_first_token", "time_per_output_token"}
    for metric, comparison in asked.items():
        live = rule.series[comparison]
        assert live == pytest.approx(list(evidence.differences(comparison).values)), metric
    assert rule.alpha == 0.01
