"""Gates of models and of parts of a layer: right logits, the same as the reference's, and the op trace."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from secrets import randbelow  # not the run's seed, which a variant could know
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from llama_workbench import variants
from llama_workbench.cache import CacheError, partial_folder
from llama_workbench.datasets.checkpoints import Checkpoint, load
from llama_workbench.datasets.lengths import pieces
from llama_workbench.variants import Build, LlamaConfig, Model, Variant

from . import models
from .correctness import (
    SMALL_LENGTH,
    TOLERANCE,
    WEIGHTS,
    Case,
    OpTrace,
    case_of,
    comes_in_chunks,
    component_error,
    facts_of,
    greedy,
    judge_component,
    judge_logits,
    judge_tokens,
    op_counts,
    rounded,
    run_cases,
    small_cases,
    small_gate,
    small_geometries,
    small_weights,
    trace,
    trace_difference,
)
from .models import ComponentRunner, GenerateRunner, component_of
from .state import GATE_PROMPT, Bench, BenchKind, LogitsGate, Runner, Subject, Worker

# What the reference gives for the calls of the gates. It is computed once and then kept in the cache directory.
# Importing the library takes four seconds, longer than most gates. The key of a kept file covers everything that the
# logits depend on.


REFERENCE = "transformers_eager"

WIDE_PARAMETERS = 50_000_000
"""The reference computes in float64 for models with fewer parameters than this, else in float32."""

OWN_TYPE_PARAMETERS = 2_000_000_000  # from so many on, in the type of the weights: a copy of 7B in float32 is 27 GB
Logits = list[list[Tensor]]  # by case and step


def of_small_gate(worker: Worker, geometry: str, dtype: torch.dtype, rounding: str = "") -> Logits:
    """Logits of all cases of the small gate on one of its geometries. `rounding` of the cache: see `rounded`."""
    config = small_geometries()[geometry]
    cases = small_cases(config)

    def compute() -> Logits:
        return run_cases(reference_model(config, small_weights(config, dtype), SMALL_LENGTH, rounding), cases)

    what = f"small {WEIGHTS} {geometry} {dtype} {SMALL_LENGTH}" + (rounding and f" cache in {rounding}")
    return remembered(worker.cache, what, cases, compute)


def of_generation(worker: Worker, bench: Bench) -> tuple[Tensor, Tensor]:
    """What the reference generates after the gate prompt, and by how much each token led: [B, N] each."""
    count = bench.workload.new_tokens or 0
    prompt = bench.gate_prompt[:, : bench.workload.tokens].cpu()

    def compute() -> Logits:
        tokens, margins = greedy(_model(worker, bench), prompt, count)
        return [[torch.stack([tokens.double(), margins.double()])]]

    name = f"greedy {count} {_name(bench)}"
    [[both]] = remembered(worker.cache, name, [Case("prompt", ((prompt, 0),))], compute)
    return both[0].long(), both[1]


def _wide(checkpoint: Checkpoint) -> torch.dtype:
    if checkpoint.parameters >= OWN_TYPE_PARAMETERS:
        return checkpoint.weights["lm_head.weight"].dtype
    return torch.float64 if checkpoint.parameters < WIDE_PARAMETERS else torch.float32


def _name(bench: Bench) -> str:
    return f"{bench.loaded.digest} {bench.workload.dtype} {_wide(bench.loaded)}"


def _model(worker: Worker, bench: Bench, rounding: str = "") -> Model:
    """The reference, always on the CPU: variants on every device are held to the same logits."""
    checkpoint = bench.loaded
    if worker.device.kind != "cpu":
        assert bench.source is not None
        checkpoint = load(bench.source, dtype=bench.dtype, cache=worker.cache)
    weights = {name: tensor.to(_wide(checkpoint)) for name, tensor in checkpoint.weights.items()}
    return reference_model(checkpoint.config, weights, bench.max_length, rounding)


def reference_model(config: LlamaConfig, weights: Mapping[str, Tensor], max_length: int, rounding: str = "") -> Model:
    """The library's model. With a `rounding` its cache keeps keys and values rounded, those of the new tokens too."""
    model: Any = variants.get(REFERENCE).build(config, weights, max_length=max_length)
    if rounding:
        from transformers import DynamicCache

        class RoundedCache(DynamicCache):
            def update(
                self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
            ) -> tuple[Tensor, Tensor]:
                keys, values = (rounded(each, rounding) for each in (key_states, value_states))
                return super().update(keys, values, layer_idx, *args, **kwargs)

        model._new_cache = RoundedCache
    return cast(Model, model)


def remembered(cache: Path, what: str, cases: Sequence[Case], compute: Callable[[], Logits]) -> Logits:
    """The logits of `cases` from the cache directory, or computed and left there. `what` names the model."""
    versions = [importlib.metadata.version(package) for package in ("torch", "transformers")]
    sizes = [len(case.steps) for case in cases]
    key = hashlib.sha256(repr((what, versions, sizes)).encode())
    for case in cases:
        for tokens, position in case.steps:
            key.update(tokens.contiguous().numpy().tobytes() + bytes(str((tuple(tokens.shape), position)), "ascii"))
    path = cache / "reference" / f"{key.hexdigest()[:32]}.safetensors"
    if os.path.isfile(path):  # Path.is_file would raise where the folder may not be searched
        try:
            tensors = load_file(path)
            return [[tensors[f"{i}.{j}"] for j in range(size)] for i, size in enumerate(sizes)]
        except Exception as error:  # a damaged file can be computed again
            print(f"{path.name}: {error}; computed again", file=sys.stderr)
    logits = compute()
    named = {f"{i}.{j}": t.contiguous() for i, row in enumerate(logits) for j, t in enumerate(row)}
    # Without a cache the same work is done next time; the run has warned of that once.
    with suppress(CacheError, SafetensorError), partial_folder(path.parent, path.name, needed_bytes=0) as folder:
        save_file(named, folder / path.name)
        os.replace(folder / path.name, path)
    return logits


# Outputs of timed calls that the examiner will judge: a few, drawn at random, in a file of tensors.


@dataclass
class Drawn:
    """`most` sub-rounds of a round, each as likely as any other, and of each sample in them one call. Of each it holds
    variant, prompt and length, the fields of `examiner.Output`, and the output's tensors by part."""

    most: int
    seen: int = 0
    now: list[tuple[dict[str, Any], dict[str, Tensor]]] = field(default_factory=list)
    chosen: list[list[tuple[dict[str, Any], dict[str, Tensor]]]] = field(default_factory=list)

    def keep(self, variant: str, asked: list[tuple[int, int]], kept: list[Tensor]) -> dict[str, Tensor]:
        """Copy the output of one of a sample's calls; `asked` and `kept` have an entry for each of them."""
        call = randbelow(len(kept))
        prompt, length = asked[call]
        out = kept[call].clone()
        tensors = {"logits" if out.is_floating_point() else "tokens": out}
        self.now.append(({"variant": variant, "prompt": prompt, "length": length}, tensors))
        return tensors

    def end_sub_round(self) -> None:
        """Decide whether the outputs of the sub-round that is over will be checked."""
        self.seen += 1
        if len(self.chosen) < self.most:
            self.chosen.append(self.now)
        elif (place := randbelow(self.seen)) < self.most:
            self.chosen[place] = self.now
        self.now = []

    def write(self, path: Path) -> list[dict[str, Any]]:
        """Leave the drawn outputs in a file. The result is what `Examiner.judge` must know of them."""
        kept = [output for outputs in self.chosen for output in outputs]
        every = {f"{i}.{part}": t.cpu().contiguous() for i, (_, parts) in enumerate(kept) for part, t in parts.items()}
        save_file(every, path)
        return [{**asked, "kind": " and ".join(tensors)} for asked, tensors in kept]


class ModelsKind(BenchKind):
    """Variants of a model, with a checkpoint."""

    def variant(self, worker: Worker, bench: Bench, entered: str) -> Variant:
        return models.model_variant(worker, entered)

    def gate(self, worker: Worker, bench: Bench, subject: Subject, entered: str) -> LogitsGate:
        """The small gate once for all workloads, then the workload's own calls, then the tokens of a generation."""
        device, no_chunks = worker.device.kind, subject.variant.no_chunks
        build, rounding = subject.variant.build, subject.variant.rounding
        reference = partial(of_small_gate, worker, rounding=rounding)
        small = worker.once(("small gate", entered), lambda: small_gate(build, reference, device, no_chunks, rounding))
        if not small.passed:
            return small
        if rounding and bench.workload.kind == "generate":
            why = f"{rounding} may choose other tokens than the reference, and nothing says which are right"
            return replace(small, passed=False, unable=True, detail=why)
        case = own_case(worker, bench)
        if no_chunks and comes_in_chunks(case):
            why = f"cannot do this workload (chunks: {no_chunks})"
            return replace(small, passed=False, unable=True, detail=why)
        model = models.model_of(bench, subject.variant)
        expected = remembered(
            worker.cache,
            _name(bench) + (rounding and f" cache in {rounding}"),
            [case],
            lambda: run_cases(_model(worker, bench, rounding), [case]),
        )
        result = judge_logits([case], run_cases(model, [case], device), expected, bench.dtype, rounding=rounding)
        if result.passed and bench.generated is not None:
            if wrong := _wrong_tokens(bench, model):
                return replace(result, passed=False, detail=f"{case.name}: {wrong}")
            result = replace(result, detail=f"{result.detail} and {bench.generated[0].numel()} greedy tokens")
        return replace(
            result,
            cases=result.cases + small.cases,
            detail=f"{small.detail}; {result.detail} on {bench.workload.geometry}" if result.passed else result.detail,
        )

    def traced(self, bench: Bench, subject: Subject) -> dict[str, Any] | None:
        """torch sees nothing of an engine: two of them would have the same trace. Compiled code cannot be traced."""
        if subject.variant.engine is not None or subject.variant.compiled:
            return None
        subject.trace = _trace(bench, subject.variant.build)
        return facts_of(subject.trace)

    def called_once(self, bench: Bench, subject: Subject, runner: Runner) -> None:
        """Keep the shape and type of what a call gives."""
        runner.prepare(bench.workload.tokens, bench.take(), 1)
        out = runner.call()
        subject.output = out.new_empty(out.shape)

    def learnt(self, bench: Bench, subject: Subject, entered: str) -> dict[str, Any]:
        assert subject.output is not None
        return {"shape": list(subject.output.shape), "dtype": str(subject.output.dtype).removeprefix("torch.")}

    def admit(self, worker: Worker, bench: Bench, subject: Subject, entered: str, learnt: Mapping[str, Any]) -> None:
        subject.output = torch.empty(learnt["shape"], dtype=getattr(torch, learnt["dtype"]), device=worker.device.kind)

    def runner(self, worker: Worker, bench: Bench, variant: Variant) -> Runner:
        return models.model_runner(worker, bench, variant)

    def drawn(self, most: int) -> Drawn:
        return Drawn(most)

    def joined(self, file: str, drawn: Sequence[list[dict[str, Any]]], judged: set[str]) -> list[dict[str, Any]]:
        """drawn: of each side, what it left in the file `file`.PLACE. Those of `judged` go into one, in their order."""
        tensors: dict[str, Tensor] = {}
        every: list[dict[str, Any]] = []
        for place, of_side in enumerate(drawn):
            left = Path(f"{file}.{place}")
            if judged & {each["variant"] for each in of_side}:
                for key, tensor in load_file(left).items():
                    number, _, part = key.partition(".")
                    tensors[f"{len(every) + int(number)}.{part}"] = tensor
                every += of_side
            left.unlink(missing_ok=True)
        save_file(tensors, file)
        return every


class ComponentsKind(BenchKind):
    """Parts of a layer, without a checkpoint."""

    def variant(self, worker: Worker, bench: Bench, entered: str) -> Variant:
        return models.model_variant(worker, entered)

    def gate(self, worker: Worker, bench: Bench, subject: Subject, entered: str) -> LogitsGate:
        component = component_of(worker, bench, subject.variant)
        if subject.variant.component is not None:
            subject.variant = replace(subject.variant, component=lambda *_, **__: component)
        got, expected = component.read(component.run()).double(), component.expected().double()
        result = judge_component(got, expected)
        if result.passed:
            subject.expected = expected.float()  # as calls give it
        return result

    def admit(self, worker: Worker, bench: Bench, subject: Subject, entered: str, learnt: Mapping[str, Any]) -> None:
        self.gate(worker, bench, subject, entered)

    def runner(self, worker: Worker, bench: Bench, variant: Variant) -> Runner:
        worker.turn.end()
        return ComponentRunner(component_of(worker, bench, variant))

    def wrong(self, bench: Bench, runners: Mapping[str, Runner]) -> dict[str, str]:
        """Those whose last timed call gave another result than at the gate; their inputs never change."""
        wrong: dict[str, str] = {}
        for name, runner in runners.items():
            subject = bench.subjects[name]
            assert isinstance(runner, ComponentRunner)
            if subject.expected is not None and subject.last is not None:
                error = component_error(runner.component.read(subject.last).float(), subject.expected)
                if not error <= 2 * TOLERANCE:
                    wrong[name] = f"a timed call is off by {error:.1e} of the largest value"
            subject.last = None
        return wrong


def _wrong_tokens(bench: Bench, model: Model) -> str | None:
    """Where the model generates other tokens than the reference after the gate prompt, in words."""
    assert bench.generated is not None
    runner = GenerateRunner(model, bench)
    with torch.inference_mode():
        runner.prepare(bench.workload.tokens, GATE_PROMPT, 1)
        return judge_tokens(runner.call().cpu(), *bench.generated, bench.dtype)


def own_case(worker: Worker, bench: Bench) -> Case:
    """The calls that will be timed: the prompt at its full length and one decode step after it. Of a generation every
    step, along the reference's own tokens, so that one near-tie does not hide the rest."""
    work = bench.workload
    tokens = bench.gate_prompt.cpu()
    lengths = [work.context, *pieces(work, work.tokens), 1]
    if work.kind == "generate":
        if bench.generated is None:
            bench.generated = of_generation(worker, bench)
        tokens = torch.cat((tokens[:, : work.tokens], bench.generated[0]), dim=1)
        lengths = [work.tokens] + [1] * bench.generated[0].shape[-1]
    return case_of(work.name, tokens[:, : bench.max_length], lengths)


def _trace(bench: Bench, build: Build) -> OpTrace:
    """The op trace of the workload's own call, caches warm, on a model built outside inference mode (see `trace`)."""
    work, context = bench.workload, bench.workload.context
    with torch.no_grad():
        model = build(bench.loaded.config, bench.loaded.weights, max_length=bench.max_length)
        if work.kind == "generate":
            generation = GenerateRunner(model, bench)
            generation.prepare(work.tokens, GATE_PROMPT, 1)
            generation.call()
            generation.prepare(work.tokens, GATE_PROMPT, 1)
            return trace(generation.call)

        def fill() -> None:
            model.reset()
            if context:
                model.forward(bench.gate_prompt[:, :context], 0)

        def advance(position: int) -> None:
            for length in pieces(work, work.tokens):
                model.forward(bench.gate_prompt[:, position : position + length], position)
                position += length

        fill()
        advance(context)
        if work.kind == "decode":
            return trace(lambda: advance(context + 1))
        fill()
        return trace(lambda: advance(context))


def differences(worker: Worker, workload: str, pairs: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Op-trace differences of (baseline, variant) pairs."""
    subjects = worker.benches[workload].subjects
    entries: list[dict[str, Any]] = []
    for baseline, variant in pairs:
        ours, theirs = subjects[baseline].trace, subjects[variant].trace
        if ours is not None and theirs is not None:
            detail = trace_difference(ours, theirs)
            entry = {"same": detail is None, "detail": detail or "", "counts": op_counts(ours, theirs)}
            entries.append({"baseline": baseline, "variant": variant, **entry})
    return entries
