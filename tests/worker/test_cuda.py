"""Measuring on a CUDA device: what of it can be seen without one, and the whole of it where there is one.

The variants are run for real on torch's `meta` device, which mixes with the CPU as little as a GPU does. Plans and
verdicts are real. Events are simulated: in what order they are queued, and what is read off them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from llama_workbench import ROOT, variants
from llama_workbench.cache import cache_directory
from llama_workbench.datasets import geometries, workloads
from llama_workbench.datasets.checkpoints import synthesize
from llama_workbench.harness.baselines.regressions import compare
from llama_workbench.harness.claims.model import Claim
from llama_workbench.harness.claims.reading import load_claims, select
from llama_workbench.harness.evidence.evidence import QUEUEING, evidence_from_manifest
from llama_workbench.harness.judge.parts import judge_claims
from llama_workbench.harness.machine.environment import comparable, fingerprint, one_line
from llama_workbench.harness.metrics.base import subjects
from llama_workbench.harness.plan.experiments import Plan, make_plan
from llama_workbench.harness.plan.options import Options, PlanError, Request
from llama_workbench.harness.session import run as session
from llama_workbench.harness.session.judging import rejudge
from llama_workbench.harness.spec.comparison import Comparison
from llama_workbench.harness.spec.sample import Round
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.worker import cuda, devices, gating, rounds
from llama_workbench.harness.worker.correctness import SMALL_LENGTH, small_geometries, small_weights
from llama_workbench.harness.worker.state import Worker
from llama_workbench.harness.worker.torch_verbs import open_workload
from llama_workbench.variants import components
from tests.runs import DEVICE, ENVIRONMENT, measurement_of, write_run
from tests.tables import table_of

CLAIMS = load_claims(ROOT / "claims")
OURS = [name for name in variants.names() if variants.get(name).engine is None]
OURS = [name for name in OURS if not (variants.get(name).compiled or name.startswith("grid_"))]
OURS += ["grid_modular_unified_per_model_fused", "grid_single_file_split_per_model_fused"]
OURS = [name for name in OURS if name not in ("transformers_sdpa", "transformers_static")]  # one of the library will do


def claims(*names: str) -> list[Claim]:
    return select(CLAIMS, names)


# --- variants -------------------------------------------------------------------------------------------------------


class OneDevice(TorchDispatchMode):
    """Refuses an op on tensors of several devices, and a copy from one to another: a GPU would wait for the bus."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        found = {t.device.type for t in tree_leaves((args, kwargs, out)) if isinstance(t, torch.Tensor) and t.ndim}
        assert len(found) < 2, f"{func} on {sorted(found)}"
        return out


MADE_ON_THE_HOST = ("fresh", "fresh_or_zeros")  # as the worker made its masks


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in OURS
        if variants.get(name).factors.get("mask") not in MADE_ON_THE_HOST
        and name != "team008_last"  # which makes its tables there, and has no factors
    ],
)
def test_a_model_makes_nothing_on_another_device_than_its_weights(name: str) -> None:
    config = small_geometries()["grouped"]
    weights = {key: weight.to("meta") for key, weight in small_weights(config, torch.float32).items()}
    model = variants.get(name).build(config, weights, max_length=SMALL_LENGTH)
    tokens = torch.zeros(1, 4, dtype=torch.long, device="meta")
    with torch.no_grad(), OneDevice():
        for length, position in ((4, 0), (1, 4), (3, 5)):  # prefill, decode, a chunk at an offset
            assert model.forward(tokens[:, :length], position).is_meta


@pytest.mark.parametrize("name", components.NAMES)
def test_a_component_makes_nothing_on_another_device_than_its_inputs(name: str) -> None:
    config = geometries.get("tiny").config
    for preset in ("team006_before", "team006_after", "team005_proposal", "candle"):
        settings = variants.get(preset).settings
        assert settings is not None
        part = components.build(name, settings, config, tokens=6, seed=0, device="meta")
        makes = (
            name in ("mask-create-apply", "attention", components.ROPE_ATTENTION, components.WORKER_LAYER)
            and settings.mask == "fresh"
        )
        with nullcontext() if makes else OneDevice():
            assert part.read(part.run()).is_meta
        assert part.expected().is_meta


# --- clocks ---------------------------------------------------------------------------------------------------------


class Counter(devices.Callee):
    """Something to time that takes at least a millisecond."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.calls = 0

    def call(self) -> torch.Tensor:
        self.calls += 1
        self.log.append("call")
        time.sleep(0.001)
        return torch.tensor(self.calls)


def test_a_sample_on_the_cpu() -> None:
    spent = devices.Cpu().sample(Counter([]), 3)
    assert spent.out.item() == 3
    assert spent.wall_ns >= 3_000_000 > spent.cpu_ns > 0
    assert spent.device_ns == 0


class Simulated:
    """torch.cuda as far as timing goes. Events have passed once they, or the whole device, were waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: self._log("synchronize"))
        monkeypatch.setattr(torch.cuda, "Event", self._event)

    def _log(self, text: str) -> None:
        self.log.append(text)

    def _event(self, enable_timing: bool) -> SimpleNamespace:
        assert enable_timing
        event = SimpleNamespace(ms=0.0)

        def record() -> None:
            event.ms = time.perf_counter_ns() / 1e6
            self._log("record")

        def elapsed_time(end: SimpleNamespace) -> float:
            assert "wait" in self.log[len(self.log) - self.log[::-1].index("record") :], "read before it has passed"
            return float(end.ms - event.ms)

        event.record, event.elapsed_time, event.synchronize = record, elapsed_time, lambda: self._log("wait")
        return event


class OnTheHost(cuda.Cuda):
    """All of `Cuda` but where tensors lie."""

    kind = "cpu"
    held_bytes = devices.Cpu.held_bytes


def test_a_sample_on_cuda_lies_between_events_and_waits_for_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = Simulated(monkeypatch)
    spent = cuda.Cuda().sample(Counter(simulated.log), 2)
    assert simulated.log == ["synchronize", "record", "call", "call", "record", "wait"]
    assert 2_000_000 <= spent.device_ns <= spent.wall_ns  # milliseconds become nanoseconds
    assert spent.out.item() == 2


def test_rounds_on_cuda_have_the_devices_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A real worker with simulated events: what it hands on is stored and judged by the device's clock."""
    Simulated(monkeypatch)
    made = Worker({"process": 0, "added": {}, "cache": str(cache_directory()), "threads": 1})
    made.device = OnTheHost()
    folder = synthesize(geometries.get("tiny"), cache=cache_directory())
    run = RunFolder.create(tmp_path / "run")
    names = ["yardstick", "fast"]
    for workload in ("prefill-tiny-t16", "generate-tiny-t8-n6-b1", "mask-apply-t8"):
        component = workload.startswith("mask")
        sides = ["team006_before", "team006_after"] if component else names
        open_workload(made, workloads.get(workload).model_dump(), None if component else str(folder), 0)
        for name in sides:
            found = gating.gate(made, workload, name)
            assert found["gate"]["passed"], found
            assert found["learnt"]["own_threads"] is False and found["learnt"]["call_ns"] > 0
        record = rounds.measure_round(made, workload, 0, sides)
        assert not record.wrong
        run.append_round(Round(workload, 0, 0, record.samples))
    run.finish()
    samples = run.read_samples().frame()
    assert (samples["device_ns"] > 0).all()
    assert (samples["device_ns"] <= samples["wall_ns"]).all()
    generated = samples["workload"] == "generate-tiny-t8-n6-b1"
    assert (samples["first_device_ns"] > 0).tolist() == generated.tolist()
    assert not samples[["first_cpu_ns", "first_wall_ns"]].any().any()


def test_full_precision_is_set_and_held() -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    device = cuda.Cuda()
    assert not torch.backends.cuda.matmul.allow_tf32
    assert device.changed() is None
    torch.backends.cudnn.allow_tf32 = True
    assert device.changed() == "turns TensorFloat-32 on for everybody"
    assert not torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high")
    assert device.changed() is not None
    assert torch.get_float32_matmul_precision() == "highest"


def test_peaks_are_those_of_the_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"now": 100, "most": 900}
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: held.update(most=held["now"]))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: held["now"])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: held["most"])
    assert cuda.Cuda().peak_bytes(lambda: held.update(now=120, most=170)) == 70


# --- plans and verdicts ---------------------------------------------------------------------------------------------


def planned(device: str, *names: str) -> Plan:
    return make_plan(Request(claims=names, device=device), CLAIMS)


@pytest.mark.whole
def test_each_device_measures_what_is_about_it() -> None:
    asked = ("gpu-kernels", "cpu-only", "single-file-faster", "qkv-61", "own-checks")
    here, there = planned("cpu", *asked), planned("cuda", *asked)
    parts = [tuple(part.as_a_whole() for part in claim.hypothesis) for claim in claims(*asked)]
    assert {claim.id for claim in here.claims} == {*asked} and here.claims == there.claims
    assert [claim.hypothesis for claim in here.claims] == parts
    layout = set(claims("single-file-faster")[0].comparisons())
    ours = {pair for claim in claims("cpu-only", "qkv-61") for pair in claim.comparisons()}
    assert set(here.comparisons()) == layout | ours
    assert set(there.comparisons()) == layout | set(claims("gpu-kernels")[0].comparisons())
    assert {part.metric for part in here.hypotheses()} == {
        "time", "instructions", "share", "share_of_parts", "check",
    }  # fmt: skip
    assert {part.metric for part in there.hypotheses()} == {"time", "attribution", "check"}
    assert subjects(here.hypotheses()) and not subjects(there.hypotheses())
    assert not any(experiment.grid for experiment in here.experiments)
    assert {e.workload.name for e in there.experiments if e.grid} == {"prefill-15m-t128", "decode-15m-c64"}


@pytest.mark.whole
def test_an_engine_is_named_and_left_out_on_cuda(tmp_path: Path) -> None:
    plan = make_plan(
        Request(variants=("fast", "candle_engine"), workloads=("prefill-15m-t128",), device="cuda"), CLAIMS
    )
    progress = SimpleNamespace(notes=[], step=lambda *_: None)
    progress.note = progress.notes.append
    found = measurement_of(plan, tmp_path, progress=progress)
    found.processes.groups.clear()
    found.gates.pass_gates()
    reason = "an engine that computes on the CPU; this run measures on cuda"
    assert found.participants.excluded == {"candle_engine": reason}
    assert progress.notes == ["candle_engine is left out"]
    assert all("candle_engine" not in state.remaining().entered() for state in found.participants.states)
    assert {state.record().clock.default for state in found.participants.states} == {"device"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunFolder, RunFolder]]:
    """The same times on a CPU and on a GPU, where the rewrite is a tenth slower by the host's clocks and twice as fast
    by the device's."""
    folder = tmp_path_factory.mktemp("runs")
    asked = [c.stored() for c in claims("gpu-kernels", "cpu-only", "decision-rule")]
    asked = json.loads(json.dumps(asked).replace("team005_planned", "team005_proposal"))  # which simulated runs have
    only = ("prefill-15m-t128", "decode-15m-c64")
    slow, fast = {"team005_proposal": 1.2}, {"team005_proposal": 0.5}
    settings = {"only": only, "rounds": 60, "claims": asked, "factors": slow, "judged": False}
    yield (write_run(folder / "cpu", **settings), write_run(folder / "cuda", device_factors=fast, **settings))


@pytest.mark.whole
def test_a_stored_run_is_judged_by_the_device_that_it_names(runs: tuple[RunFolder, RunFolder]) -> None:
    on_cpu, on_cuda = ({(verdict.claim, verdict.part): verdict for verdict in rejudge(run)[0]} for run in runs)
    rewrite = ("gpu-kernels", "the rewrite, on a GPU")
    assert "device" not in ENVIRONMENT  # as in runs from before there was a choice
    assert on_cpu["cpu-only", "as planned"].verdict == "refuted"
    assert {effect.metric for effect in on_cpu["cpu-only", "as planned"].effects} == {"cpu time"}
    for key in (rewrite, ("gpu-kernels", "by its kernels")):
        assert on_cpu[key].verdict == "not measurable here"
        assert on_cpu[key].reason == "needs a CUDA device: run with --device cuda; this run measured on cpu"
        assert not on_cpu[key].effects
    assert on_cuda[rewrite].verdict == "supported"
    assert {effect.metric for effect in on_cuda[rewrite].effects} == {"device time"}
    assert all(2.1 < effect.ratio < 2.3 for effect in on_cuda[rewrite].effects)
    assert on_cuda["cpu-only", "as planned"].verdict == "not measurable here"
    assert on_cuda["cpu-only", "as planned"].reason.endswith("run with --device cpu; this run measured on cuda")
    shares = [verdict for (name, _), verdict in on_cuda.items() if name == "decision-rule"]
    assert shares and {share.verdict for share in shares} == {"not measurable here"}
    assert all("when work was queued" in share.reason and "--device cpu" in share.reason for share in shares)


def test_where_the_gpu_waits_for_the_host_it_is_launching_that_is_measured(runs: tuple[RunFolder, RunFolder]) -> None:
    pair = Comparison("prefill-15m-t128", "team005_proposal", "team006_before")
    plain, waiting = (evidence_from_manifest(run.manifest(), run.read_samples()) for run in runs)
    assert plain.queueing(pair) is None
    assert waiting.queueing(pair) == f"{QUEUEING} (100 % of the time in team006_before, 100 % in team005_proposal)"
    samples = runs[1].read_samples().frame()
    samples["cpu_ns"] = samples["cpu_ns"].where(samples["variant"] != "team006_before", samples["cpu_ns"] // 2)
    busy = evidence_from_manifest(runs[1].manifest(), table_of(samples))
    assert busy.queueing(pair) is None, "one side's kernels take longer than queueing them"
    assert waiting.queueing(pair._replace(metric="time_to_first_token")) is None
    assert replace(waiting, queued={}).queueing(pair) is None
    judged = [e for verdict in rejudge(runs[1])[0] for e in verdict.effects if e.baseline == "team006_before"]
    assert judged and all(any(note.startswith(QUEUEING) for note in effect.notes) for effect in judged)


def test_what_is_not_measured_takes_no_part_of_alpha(runs: tuple[RunFolder, RunFolder]) -> None:
    run = runs[1]
    evidence = evidence_from_manifest(run.manifest(), table_of(run.read_samples().frame()))
    asked = claims("refactor-2x-3x", "cpu-only", "qkv-61")
    alone = judge_claims(claims("refactor-2x-3x"), evidence)
    with_others = [verdict for verdict in judge_claims(asked, evidence) if verdict.claim == "refactor-2x-3x"]
    assert with_others[0].alpha == alone[0].alpha


def test_runs_on_two_devices_are_not_compared(runs: tuple[RunFolder, RunFolder]) -> None:
    found = compare(*runs)
    assert (found.exit_code, found.verdict) == (2, "inconclusive")
    assert {row.reason for row in found.rows} == {"cpu measured on cpu, cuda on cuda"}
    assert "device: cpu against cuda" in found.machine_differences
    assert compare(runs[1], runs[1]).exit_code == 0


def test_a_gpu_has_its_name_driver_and_settings_in_the_fingerprint() -> None:
    ours = dict(ENVIRONMENT) | {"device": dict(DEVICE)}
    assert comparable(ours, ours) == []
    theirs = dict(ENVIRONMENT) | {"device": dict(DEVICE) | {"driver": "580.2", "matmul_allow_tf32": True}}
    assert comparable(ours, theirs) == [
        "cuda driver: 570.1 against 580.2", "cuda matmul allow tf32: False against True",
    ]  # fmt: skip
    assert one_line(ours).startswith("Simulated GPU (CUDA 12.8, driver 570.1) beside Simulated CPU (AVX2), 2 cores")
    assert one_line(ENVIRONMENT).startswith("Simulated CPU (AVX2), 2 cores")
    assert fingerprint(1)["device"] == {"kind": "cpu"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA device")
def test_without_a_device_nothing_is_begun(tmp_path: Path) -> None:
    options = Options(run_dir=tmp_path / "run")
    with pytest.raises(PlanError, match=r"--device cuda: (this torch .* without CUDA|torch finds no CUDA device here)"):
        session.check(Request(device="cuda"), options)
    with pytest.raises(
        PlanError, match="--count-instructions: only on the CPU; leave it out, or leave out --device cuda"
    ):
        session.check(Request(device="cuda"), Options(count_instructions=True))
    with pytest.raises(PlanError, match="--device gpu: expected cpu or cuda"):
        session.check(Request(device="gpu"), options)
    session.check(Request(), options)


# --- the real thing -------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_run_on_cuda(tmp_path: Path) -> None:
    tiny = ("prefill-tiny-t16", "decode-tiny-c16", "generate-tiny-t8-n6-b1", "mask-create-apply-t32")
    options = Options(run_dir=tmp_path / "run", budget_seconds=30.0, profile=True)
    request = Request(compare=("team006_before", "team006_after"), workloads=tiny, device="cuda")
    progress = SimpleNamespace(phase=print, note=print, step=lambda *_: None)
    session.check(request, options)
    result = session.Run(session.plan_run(request, options), options, progress).measure()
    samples = result.folder.read_samples().frame()
    assert set(samples["workload"].unique()) == set(tiny)
    assert (samples["device_ns"] > 0).all()
    assert (samples.loc[samples["workload"] == "generate-tiny-t8-n6-b1", "first_device_ns"] > 0).all()
    assert {effect.metric for effect in result.verdicts[0].effects} == {"device time"}
    device = result.manifest.machine_facts["device"]
    assert device["kind"] == "cuda" and device["name"] and device["compute_capability"] and device["driver"]
    assert {key: device[key] for key in cuda.FULL_PRECISION} == cuda.FULL_PRECISION
    assert all(gate.passed for e in result.manifest.experiments for gate in e.gates.values())
    memory = {(e["workload"], e["variant"]): e for e in json.loads((tmp_path / "run" / "memory.json").read_text())}
    assert memory["prefill-tiny-t16", "team006_before"]["peak_transient_bytes"] > 0
