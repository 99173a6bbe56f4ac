"""Inside a fresh process: gates, rounds, and the passes, on one checkpoint.

The parent (`processes`) sends one JSON object a line on standard input and reads one JSON object a line back; what
variants print goes to standard error. The process has its thread count and allocator set by its environment before
torch is imported, ignores Ctrl-C (the parent decides), and dies with its parent.
"""

from __future__ import annotations

import gc
import hashlib
import importlib.metadata
import importlib.util
import math
import mmap
import os
import random
import resource
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter, perf_counter_ns, process_time_ns, thread_time_ns  # bound before foreign code is there
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import llama_workbench
from llama_workbench import variants
from llama_workbench.datasets import geometries, tokenizer
from llama_workbench.datasets.cache import CacheError, partial_folder
from llama_workbench.datasets.checkpoints import Checkpoint, load
from llama_workbench.datasets.prompts import Prompts
from llama_workbench.datasets.workloads import (
    DECODE_ROOM,
    Workload,
    call_lengths,
    longest_call,
    pieces,
    warmup_length,
)
from llama_workbench.variants import Build, Model, Variant, components, outside
from llama_workbench.variants.memory_policy import doublings, expected, kv_bytes, policy_of, served_lengths
from llama_workbench.variants.presets import presets

from ..metrics.loading import loaders
from ..metrics.memory.holdings import bytes_by_kind, holdings, live_tensors
from ..metrics.roofline.kernels import Roof, matmul_roof, memory_roof
from ..metrics.roofline.work import products, weight_bytes, work_of_call
from ..metrics.share.phases import Instrumented, PhaseError, check_ops, durations, instrument, ops_of_phases
from .channel import CUT_OFF, Channel, carry_out
from .devices import Cuda, Device, Spent, device_of
from .drawn import Drawn
from .gates import (
    SMALL_LENGTH,
    TOLERANCES,
    Case,
    Gate,
    Trace,
    attention_kernels,
    beyond,
    greedy,
    judge_logits,
    judge_tokens,
    op_counts,
    run_cases,
    small_cases,
    small_gate,
    small_geometries,
    small_weights,
    trace,
    trace_difference,
)
from .runners import (
    GATE_PROMPT,
    Bench,
    ChunkedPrefillRunner,
    ComponentRunner,
    DecodeRunner,
    GenerateRunner,
    PrefillRunner,
    QueuedGenerateRunner,
    RequestRunner,
    RoofRunner,
    Runner,
    Subject,
)
from .watch import CLOSED, OWN_THREADS_SHARE, Watch

CALIBRATION_NS, LONG_CALL_NS = 50_000_000, 500_000_000
"""A call's time is taken from calls for so long after a first one; of a longer one than that, the first will do."""

LEAST_SAMPLING_NS, MOST_SAMPLING_NS = 10_000_000, 50_000_000
"""A round gives each variant's samples as long as its rebuilding took, within these bounds: what is left of the noise
within a round and between rounds then costs at most twice what the best split would."""

THREE_PAIRS_NS = 60_000_000
"""Samples shorter than this come at least three to a round: the median of three leaves out what a busy neighbour does
to one (a pair's spread was three times a round's), and averages the effect of a sample's place in its pair."""

FILLED_NS = 20_000_000
"""Decode calls longer than this are warm enough once the context is filled."""

MOST_PAIRS = 51
PRIME_NS = 5_000_000
"""A call shorter than this is made once untimed before its sample, or the sample would measure how cold the variants
before it left the caches, which no program that runs one model sees."""

PHASE_ROUND_NS, MOST_PHASE_CALLS = 40_000_000, 9
"""A round of the phase pass calls each variant this long, marked and plain together, within one and so many calls."""

READING_SHARE = 0.02
"""Phases are timed by thread CPU time, unless its readings (0.2-0.7 µs, a system call; wall time: 0.05) cost more."""

PREEMPTED_SHARE, PREEMPTED_NS, RETAKES = 0.02, 20_000, 5
"""By wall time, a call that waited longer than this for its processor is taken again, up to so many times."""

ROOF_SAMPLE_NS, LEAST_ROOF_ROUNDS, MOST_ROOF_ROUNDS = 5_000_000, 6, 40
"""A sample of the roofline pass lasts at least this long; of its rounds come so few or many, whatever the time."""

LEAK_LIMIT_BYTES, LEAK_LIMIT_WEIGHTS = 2 << 30, 2
"""More than this and so many times the weights between rounds, with everything freed, is a leak. What the allocator
keeps for reuse stays below: with its thresholds pinned it gives nothing back, and a variant may pack all weights."""
REFERENCE = "transformers_eager"

OURS = frozenset(presets())
"""Names of the variants that ship with the workbench; all others are foreign code."""


class WorkerError(Exception):
    """A command cannot be carried out; the text goes to the parent."""


# --- the worker ----------------------------------------------------------------------------------------------------


class Worker:
    """Answers the parent's commands. State: benches by workload name, and the checkpoint they share."""

    def __init__(self, hello: dict[str, Any], *, alone: bool = False, channel: Channel | None = None) -> None:
        """`alone`: nothing else goes on in this process. `channel`: by which it answers, where it has a parent."""
        self.alone = alone
        self.channel = channel
        self.process: int = hello.get("process", 0)
        self.added: dict[str, str] = hello.get("added", {})  # name → FILE:FUNCTION
        self.cache = Path(hello["cache"])
        self.threads: int = hello["threads"]
        self.inflight = mmap.mmap(hello["inflight_fd"], 8) if hello.get("inflight_fd") is not None else None
        self.checkpoints: dict[tuple[str, str], Checkpoint] = {}
        self.benches: dict[str, Bench] = {}
        self.small_gates: dict[str, Gate] = {}
        self.engines: dict[tuple[str, int], tuple[int, Model]] = {}  # entered as, checkpoint → its longest, model
        self.instrumented: dict[str, Instrumented] = {}
        self.device: Device = device_of(hello.get("device", "cpu"))
        self.draw: str = hello.get("draw", "")
        self.by_wall: set[str] = set()  # entered names that compute in threads of their own, as their gates found
        self.hidden: dict[str, ModuleType] = {}
        self.stretched: Runner | None = None
        self.kept: list[Tensor] = []
        torch.set_num_threads(self.threads)
        torch.manual_seed(0)
        torch.set_grad_enabled(False)
        self.watch = Watch()

    def mark(self, index: int) -> None:
        """Tell the parent which variant is running, should this process die or hang."""
        if self.inflight is not None:
            self.inflight[0] = index + 1

    # -- open ----------------------------------------------------------------------------------------------------

    def open(self, workload: dict[str, Any], folder: str | None, seed: int) -> dict[str, Any]:
        """Load the checkpoint (once a process) and cut the prompts of a workload; no folder for a component."""
        dtype = getattr(torch, workload["dtype"])
        if folder is None:
            work = Workload.model_validate(workload)
            self.benches[work.name] = Bench(work, None, torch.empty(0, 0), 0, seed, dtype)
            return {"parameters": 0, "digest": "", "synthetic": True}
        key = (folder, workload["dtype"])
        if key not in self.checkpoints:
            self.checkpoints[key] = load(Path(folder), dtype=dtype, device=self.device.kind, cache=self.cache)
        checkpoint = self.checkpoints[key]
        geometry = geometries.Geometry(workload["geometry"], checkpoint.config, "", "")
        work = Workload.model_validate(workload, context={"geometries": {geometry.name: geometry}})
        longest = min(work.context + longest_call(work) + 1, checkpoint.config.max_position_embeddings)
        words = checkpoint.config.vocab_size
        ids = tokenizer.prompt_ids(
            Path(folder), count=work.batch, length=longest, seed=seed, vocab_size=words, cache=self.cache
        )
        prompts = Prompts(
            tokenizer.text_ids(Path(folder), vocab_size=words, cache=self.cache),
            batch=work.batch,
            draw=self.draw,
            repeated=work.prompts == "repeated",
        )
        own = torch.tensor(ids, dtype=torch.long).to(self.device.kind)
        self.benches[work.name] = Bench(
            work, checkpoint, own, longest, seed, dtype, prompts=prompts, source=Path(folder)
        )
        return {
            "parameters": checkpoint.parameters,
            "hidden_size": checkpoint.config.hidden_size,
            "digest": checkpoint.digest,
            "synthetic": checkpoint.synthetic,
        }

    # -- gates and calibration -----------------------------------------------------------------------------------

    def gate(self, workload: str, variant: str) -> dict[str, Any]:
        """Logits gate (small battery, then this workload's own calls), op trace, and the time of a call.

        A variant that raises fails its gate; the parent sees a result, not an error. So does one that leaves something
        changed behind that others would feel.
        """
        found = self._gated(workload, variant)
        if changed := self._changed(variant, files=False):
            self.benches[workload].subjects.pop(variant, None)
            return {"gate": {**found["gate"], "passed": False, "detail": changed}}
        if not self._is_outside(variant):
            self.watch.accept()
        return found

    def _gated(self, workload: str, variant: str) -> dict[str, Any]:
        bench = self.benches[workload]
        try:
            subject = Subject(self._variant(variant))
            gate = (
                self._component_gate(bench, subject)
                if bench.checkpoint is None
                else self._gate(bench, subject, variant)
            )
        except outside.OutsideVariantError as error:
            return {"gate": Gate(False, 0, math.inf, 0.0, str(error)).to_json()}
        except Exception as error:
            return {"gate": Gate(False, 0, math.inf, 0.0, _told(error)).to_json()}
        if not gate.passed:
            return {"gate": gate.to_json()}
        found: dict[str, Any] = {"gate": gate.to_json()}
        try:
            # Of an engine torch sees nothing: two of them would have the same trace. Nor can compiled code be traced.
            if bench.checkpoint is not None and subject.variant.engine is None and not subject.variant.compiled:
                subject.trace = self._trace(bench, subject.variant.build)
                found["trace"] = {
                    "digest": subject.trace.digest,
                    "ops": len(subject.trace.ops),
                    "attention_kernels": attention_kernels(subject.trace),
                }
            found |= self._calibrate(bench, subject, variant)
        except Exception as error:
            return {"gate": replace(gate, passed=False, detail=_told(error)).to_json()}
        bench.subjects[variant] = subject
        return found

    def _gate(self, bench: Bench, subject: Subject, entered: str) -> Gate:
        assert bench.checkpoint is not None
        small = self.small_gates.get(entered)
        if small is None:
            small = self.small_gates[entered] = small_gate(
                subject.variant.build, self._small_reference, subject.variant.engine, self.device.kind
            )
        if not small.passed:
            return small
        case = self._own_case(bench)
        engine = subject.variant.engine
        if engine is not None and (what := beyond(case, engine)) is not None:
            return replace(small, passed=False, detail=f"cannot do this workload ({what}: {engine.cannot[what]})")
        if engine is None or not engine.loads_once:
            model = self._build(bench, subject.variant)
        else:
            model = self._engine(bench, subject.variant, entered)
            subject.variant = replace(subject.variant, build=lambda *_, **__: model)
        expected = self._own_reference(bench, case)
        if requests := _takes_requests(subject.variant):  # which computes all before anew at each step
            case, expected = replace(case, steps=case.steps[:2]), [expected[0][:2]]
        gate = judge_logits([case], run_cases(model, [case], self.device.kind), expected, bench.dtype, engine=engine)
        if gate.passed and bench.expected is not None:
            runner = RequestRunner(model, bench) if requests else GenerateRunner(model, bench)
            with torch.inference_mode():
                runner.prepare(bench.workload.tokens, GATE_PROMPT, 1)
                tokens = runner.call().cpu()
            if wrong := judge_tokens(tokens, *bench.expected, bench.dtype):
                return replace(gate, passed=False, detail=f"{case.name}: {wrong}")
            gate = replace(gate, detail=f"{gate.detail} and {bench.expected[0].numel()} greedy tokens")
        return replace(
            gate,
            cases=gate.cases + small.cases,
            detail=f"{small.detail}; {gate.detail} on {bench.workload.geometry}" if gate.passed else gate.detail,
        )

    def _own_case(self, bench: Bench) -> Case:
        """The calls that will be timed: the prompt at its full length and one decode step after it.

        Of a generation every step, along the reference's own tokens, so that one near-tie does not hide the rest.
        """
        work = bench.workload
        tokens = bench.gate_prompt.cpu()
        lengths = [work.context, *pieces(work, work.tokens), 1]
        if work.kind == "generate":
            if bench.expected is None:
                bench.expected = self._expected(bench)
            tokens = torch.cat((tokens[:, : work.tokens], bench.expected[0]), dim=1)
            lengths = [work.tokens] + [1] * bench.expected[0].shape[-1]
        steps = []
        position = 0
        for length in lengths:
            if length and position + length <= bench.max_length:
                steps.append((tokens[:, position : position + length], position))
                position += length
        return Case(work.name, tuple(steps))

    def _expected(self, bench: Bench) -> tuple[Tensor, Tensor]:
        """What the reference generates for the gates' prompt, and by how much each token led: [B, N] each."""
        work = bench.workload
        assert work.new_tokens is not None
        count = work.new_tokens
        prompt = Case("prompt", ((bench.gate_prompt[:, : work.tokens].cpu(), 0),))

        def compute() -> list[list[Tensor]]:
            found = greedy(self._reference_model(bench), prompt.steps[0][0], count)
            return [[torch.stack([values.double() for values in found])]]

        [[both]] = self._remembered(f"greedy {count} {self._reference_name(bench)}", [prompt], compute)
        return both[0].long(), both[1]

    def _small_reference(self, geometry: str, dtype: torch.dtype) -> list[list[Tensor]]:
        config = small_geometries()[geometry]
        cases = small_cases(config)

        def compute() -> list[list[Tensor]]:
            weights = small_weights(config, dtype)
            model = variants.get(REFERENCE).build(config, weights, max_length=SMALL_LENGTH)
            return run_cases(model, cases)

        return self._remembered(f"small {geometry} {dtype} {SMALL_LENGTH}", cases, compute)

    def _own_reference(self, bench: Bench, case: Case) -> list[list[Tensor]]:
        return self._remembered(
            self._reference_name(bench), [case], lambda: run_cases(self._reference_model(bench), [case])
        )

    def _wide(self, bench: Bench) -> torch.dtype:
        """What the reference computes in: float64 where the model is small enough for it."""
        assert bench.checkpoint is not None
        return torch.float64 if bench.checkpoint.parameters < 50_000_000 else torch.float32

    def _reference_name(self, bench: Bench) -> str:
        assert bench.checkpoint is not None
        return f"{bench.checkpoint.digest} {bench.workload.dtype} {self._wide(bench)}"

    def _reference_model(self, bench: Bench) -> Model:
        """The reference computes on the CPU whatever the variants compute on, so that all devices are held to one."""
        checkpoint = bench.checkpoint
        assert checkpoint is not None
        if self.device.kind != "cpu":
            assert bench.source is not None
            checkpoint = load(bench.source, dtype=bench.dtype, cache=self.cache)
        weights = {name: tensor.to(self._wide(bench)) for name, tensor in checkpoint.weights.items()}
        return variants.get(REFERENCE).build(checkpoint.config, weights, max_length=bench.max_length)

    def _remembered(
        self, what: str, cases: Sequence[Case], compute: Callable[[], list[list[Tensor]]]
    ) -> list[list[Tensor]]:
        """The reference's logits, from the cache directory where they lie there already.

        Importing the library takes four seconds, more than most gates. The key covers all that the logits depend on.
        """
        from safetensors import SafetensorError

        versions = [importlib.metadata.version(package) for package in ("torch", "transformers")]
        sizes = [len(case.steps) for case in cases]
        key = hashlib.sha256(repr((what, versions, sizes)).encode())
        for case in cases:
            for tokens, position in case.steps:
                key.update(tokens.contiguous().numpy().tobytes() + bytes(str((tuple(tokens.shape), position)), "ascii"))
        path = self.cache / "reference" / f"{key.hexdigest()[:32]}.safetensors"
        if os.path.isfile(path):  # unlike the path's own question this one is answered where nothing may be looked at
            try:
                tensors = load_file(path)
                return [[tensors[f"{i}.{j}"] for j in range(size)] for i, size in enumerate(sizes)]
            except Exception as error:  # a damaged file is only a file to be made again
                print(f"{path.name}: {error}; computed again", file=sys.stderr)
        logits = compute()
        named = {f"{i}.{j}": t.contiguous() for i, row in enumerate(logits) for j, t in enumerate(row)}
        # A cache that takes nothing costs the same work next time; the run has said so, once.
        with suppress(CacheError, SafetensorError), partial_folder(path.parent, path.name, needed_bytes=0) as place:
            save_file(named, place / path.name)
            os.replace(place / path.name, path)
        return logits

    def _component_gate(self, bench: Bench, subject: Subject) -> Gate:
        component = self._component(bench, subject.variant)
        if subject.variant.component is not None:
            subject.variant = replace(subject.variant, component=lambda *_, **__: component)
        got, expected = component.read(component.run()).double(), component.expected().double()
        tolerance = TOLERANCES[torch.float32]
        if got.shape != expected.shape:
            return Gate(False, 1, math.inf, tolerance, f"{list(got.shape)} for {list(expected.shape)}")
        error = _component_error(got, expected)
        if not error <= tolerance:
            return Gate(False, 1, error, tolerance, f"off by {error:.1e} of the largest value")
        subject.expected = expected
        return Gate(True, 1, error, tolerance, "1 case")

    def _trace(self, bench: Bench, build: Build) -> Trace:
        """The op trace of the workload's own call, caches warm, on a model built outside inference mode.

        (Caches made in inference mode could not be written outside it; see `gates.trace`.)
        """
        work, checkpoint = bench.workload, bench.checkpoint
        assert checkpoint is not None
        context = work.context
        with torch.no_grad():
            model = build(checkpoint.config, checkpoint.weights, max_length=bench.max_length)
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

    def _calibrate(self, bench: Bench, subject: Subject, entered: str) -> dict[str, Any]:
        """How long a call takes, and whether the variant computes in threads of its own."""
        with torch.inference_mode():
            runner = self._runner(bench, subject.variant)
            length = bench.workload.tokens
            calls_ns: list[int] = []

            def take() -> None:
                runner.prepare(length, bench.take(), 1)
                calls_ns.append((self.device.call_ns(runner) - runner.uncounted_ns) // runner.counts_as)

            wall, thread, process = perf_counter_ns(), thread_time_ns(), process_time_ns()
            take()
            if calls_ns[0] < LONG_CALL_NS:  # the first of short calls says how long it takes to make caches, not more
                calls_ns.clear()
                wall, thread, process = perf_counter_ns(), thread_time_ns(), process_time_ns()
                while not calls_ns or (len(calls_ns) < 20 and perf_counter_ns() - wall < CALIBRATION_NS):
                    take()
            process = process_time_ns() - process
            thread = thread_time_ns() - thread  # read around the process's, as in `Cpu.sample`
            subject.call_ns = max(min(calls_ns), 1)
            if bench.checkpoint is not None:
                runner.prepare(length, bench.take(), 1)
                out = runner.call()
                subject.output = torch.empty(out.shape, dtype=out.dtype, device=out.device)
            if isinstance(self.device, Cuda) and bench.checkpoint is None:
                subject.call_ns = self._call_ns_of_many(runner)
        own_threads = (
            not isinstance(self.device, Cuda)
            and self.threads == 1
            and process - thread > OWN_THREADS_SHARE * process
            and process > 5_000_000
        )
        own_threads = own_threads or _takes_requests(subject.variant)
        if own_threads:
            self.by_wall.add(entered)
        return {"call_ns": subject.call_ns, "own_threads": own_threads}

    def _call_ns_of_many(self, runner: Runner) -> float:
        """Time of a call among as many as fill a sample: that of an event would be more than one of a short call."""
        count = 1
        while (spent := self.device.sample(runner, count).device_ns) < self.device.sample_ns and count < 1 << 16:
            count *= 4
        return max(spent, 1) / count

    def _changed(self, entered: str, *, files: bool = True) -> str | None:
        """What a variant changed for everybody in the turn that ends here; put right again where that can be."""
        foreign = self._is_outside(entered)
        said = self.device.changed() or self.watch.changes(entered, trusted=not foreign, files=files)
        if said == CLOSED and self.channel is not None and not self.channel.is_open():
            os._exit(CUT_OFF)  # while the parent still sees whose turn it is
        if not said and foreign and any(map(self.watch.weights_changed, self._weights())):
            said = "writes into the weights that everybody is given"
        return said

    def _weights(self) -> list[dict[str, Tensor]]:
        return [checkpoint.weights for checkpoint in self.checkpoints.values()]

    def _is_outside(self, entered: str) -> bool:
        name = entered.partition("@")[0]
        return name in self.added or name not in OURS

    # -- building ------------------------------------------------------------------------------------------------

    def _variant(self, entered: str) -> Variant:
        """A variant by the name it was entered under; a control (`NAME@aa`, `NAME@copy`) is NAME once more."""
        name = entered.partition("@")[0]
        if self._is_outside(name):
            for weights in self._weights():
                self.watch.weights_changed(weights)  # as they are before it is imported
            self._hide()
        if name in self.added:
            path, function = outside.parse(self.added[name])
            return outside.load(path, function)  # imported anew each time
        return import_privately(variants.get(name), entered.replace("@", "_"))

    def _hide(self) -> None:
        """Take what measures and judges, and our variants, off the list of modules before foreign code is imported.

        What it imports under these names afterwards are copies of its own. (They need not be hidden from one who
        searches the stack or the heap; see METHODOLOGY.)
        """
        if not self.alone:
            return
        packages = ("llama_workbench.harness", "llama_workbench.datasets")
        private = [name for name in sys.modules if name.startswith(f"{variants.__name__}.") and "__" in name]
        gone = [name for name in sys.modules if name.startswith(packages)]
        for name in [*gone, *private, "__main__"]:
            self.hidden[f"{len(self.hidden)} {name}"] = sys.modules.pop(name)
        sys.modules["__main__"] = ModuleType("__main__")
        for package in packages:
            with suppress(AttributeError):
                delattr(llama_workbench, package.rpartition(".")[2])

    def _build(self, bench: Bench, variant: Variant) -> Model:
        assert bench.checkpoint is not None
        with torch.inference_mode():
            return variant.build(bench.checkpoint.config, bench.checkpoint.weights, max_length=bench.max_length)

    def _engine(self, bench: Bench, variant: Variant, entered: str) -> Model:
        """The model of an engine that cannot be loaded in every round: one for all workloads it is long enough for.

        Others are built anew as ours are: a load of a model may be slower than another for as long as it lives, and
        no number of rounds with the same two loads would show it.
        """
        key = (entered, id(bench.checkpoint))
        longest, model = self.engines.get(key, (0, None))
        if model is None or longest < bench.max_length:
            model = self._build(bench, variant)
            self.engines[key] = (bench.max_length, model)
        return model

    def _component(self, bench: Bench, variant: Variant) -> components.Component:
        work = bench.workload
        config = geometries.get(work.geometry).config
        if variant.component is not None and work.component is not None:
            return variant.component(work.component, config, tokens=work.tokens, seed=bench.seed)
        if variant.settings is None or work.component is None:
            raise WorkerError(f"{variant.name} has no separate {work.component}: only variants of ours do")
        return components.build(
            work.component, variant.settings, config, tokens=work.tokens, seed=bench.seed, device=self.device.kind
        )

    def _runner(self, bench: Bench, variant: Variant) -> Runner:
        if bench.checkpoint is None:
            return ComponentRunner(self._component(bench, variant))
        model = self._build(bench, variant)
        work = bench.workload
        if _takes_requests(variant):
            return RequestRunner(model, bench)
        if work.kind == "generate":
            if isinstance(self.device, Cuda):
                return QueuedGenerateRunner(model, bench, self.device)
            return GenerateRunner(model, bench)
        if work.kind == "decode":
            return DecodeRunner(model, bench)
        return ChunkedPrefillRunner(model, bench) if work.chunk else PrefillRunner(model, bench)

    # -- rounds --------------------------------------------------------------------------------------------------

    def round(self, workload: str, round_index: int, active: list[str], outputs: str = "") -> dict[str, Any]:
        """One round: all of `active` rebuilt in random order, then sub-rounds, each with all of them in random order.

        Keeping compared variants adjacent would lower the spread of a difference by a third, but then a variant with
        many partners has other neighbours than its twin, and A/A controls on µs operations saw it (0.4 %). A plain
        shuffle makes every pair exchangeable.

        `drawn` of the answer are outputs for the examiner, in the file `outputs`; `wrong` are variants of which this
        process can tell, `changed` those that changed something for all, `elsewhere` those that hid computing.
        """
        bench = self.benches[workload]
        rng = random.Random(f"round {bench.seed} {workload} {self.process} {round_index}")
        count, repeats, prime = self._shape(bench, active)
        lengths = call_lengths(bench.workload, round_index=round_index, count=count, seed=bench.seed)
        changed: dict[str, str] = {}
        self.watch.beside_foreign = any(map(self._is_outside, active))
        drawn = Drawn(2 if self.watch.beside_foreign else 1)
        with torch.inference_mode():
            runners, padding = self._rebuilt(bench, rng, active, lengths, repeats, changed)
            gc.disable()
            try:
                samples = self._sub_rounds(bench, rng, active, runners, lengths, repeats, prime, drawn, changed)
                wrong = self._wrong_components(bench, active, runners)
            finally:
                gc.enable()
        self.mark(-1)
        runners.clear()
        padding.clear()
        gc.collect()
        one_thread = self.threads == 1 and not isinstance(self.device, Cuda)
        return {
            "samples": samples,
            "wrong": wrong,
            "drawn": drawn.write(Path(outputs)) if bench.checkpoint is not None and outputs else [],
            "changed": changed,
            "elsewhere": self.watch.elsewhere(frozenset(self.by_wall)) if one_thread else {},
            "leaks": self._leaks(bench),
        }

    def _rebuilt(
        self,
        bench: Bench,
        rng: random.Random,
        active: Sequence[str],
        lengths: Sequence[int],
        repeats: Mapping[str, int],
        changed: dict[str, str],
    ) -> tuple[dict[str, Runner], list[Tensor]]:
        """All variants built anew and warm, in random order; and the padding between them, to be held as long."""
        warm_length = warmup_length(bench.workload, lengths=lengths)
        # The same for all, or some would be a position behind the others and give other logits.
        fastest_ns = min(bench.subjects[name].call_ns for name in active)
        filled = bench.workload.kind == "decode" and fastest_ns > FILLED_NS
        runners: dict[str, Runner] = {}
        padding = []
        begun = perf_counter_ns()
        prompt_of = self._prompts(bench, active, max(repeats.values()))
        for name in rng.sample(active, len(active)):
            self.mark(active.index(name))
            before = self.device.held_bytes()
            # Memory placement of one build biases a ratio by 0.2-0.3 % for as long as the build lives: move it.
            padding.append(torch.empty(rng.randrange(1, 1 << 18), dtype=torch.uint8, device=self.device.kind))
            runner = self._runner(bench, bench.subjects[name].variant)
            runner.prepare(warm_length, prompt_of[name], repeats[name])
            if not filled:
                runner.call()
            runners[name] = runner
            bench.subjects[name].growth_bytes += self.device.held_bytes() - before
            if said := self._changed(name, files=False):
                changed.setdefault(name, said)
        self.device.synchronise()
        rebuild_ns = (perf_counter_ns() - begun) / len(active)
        bench.rebuild_ns = min(bench.rebuild_ns or rebuild_ns, rebuild_ns)
        return runners, padding

    def _prompts(self, bench: Bench, active: Sequence[str], count: int) -> dict[str, int]:
        """The first of `count` fresh prompts for each variant: the same for all of ours, so that one answer of the
        reference serves them; others have their own, lest they take it from whoever answered before."""
        common = bench.take(count)
        return {name: bench.take(count) if self._is_outside(name) else common for name in active}

    def _shape(self, bench: Bench, active: Sequence[str]) -> tuple[int, dict[str, int], bool]:
        """Pairs in a round, calls in a sample, and whether an untimed call comes before each sample.

        The same number of calls on all sides, so that the loop costs all the same; only sides that differ by more than
        ten times get different ones, because else one sample would last for seconds.
        """
        call_ns = {name: bench.subjects[name].call_ns for name in active}
        slowest_ns = max(call_ns.values())
        repeats: dict[str, int] = {}
        fastest_ns = math.inf
        for name in sorted(active, key=call_ns.__getitem__):
            if not repeats or call_ns[name] > 10 * fastest_ns:  # the first of a group sets the count for all in it
                fastest_ns = call_ns[name]
                count = math.ceil(self.device.sample_ns / fastest_ns)
                if bench.workload.kind == "decode":
                    count = min(count, DECODE_ROOM // 2)  # there are no more positions
            repeats[name] = count
        if bench.once or bench.workload.kind == "generate":  # a generation has a first token, and is timed on its own
            repeats = dict.fromkeys(active, 1)
        prime = slowest_ns < PRIME_NS and not bench.once
        sample_ns = statistics.median(call_ns[name] * (repeats[name] + prime) for name in active)
        pairs = round(min(max(bench.rebuild_ns, LEAST_SAMPLING_NS), MOST_SAMPLING_NS) / sample_ns)
        if sample_ns < THREE_PAIRS_NS:
            pairs = max(pairs, 3)
        if bench.workload.kind == "decode":
            pairs = min(pairs, (DECODE_ROOM - 2) // (max(repeats.values()) + 1))
        pairs = max(1, min(MOST_PAIRS, pairs))
        return pairs - (pairs % 2 == 0), repeats, prime

    def _sub_rounds(
        self,
        bench: Bench,
        rng: random.Random,
        active: Sequence[str],
        runners: Mapping[str, Runner],
        lengths: Sequence[int],
        repeats: Mapping[str, int],
        prime: bool,
        drawn: Drawn,
        changed: dict[str, str],
    ) -> list[list[Any]]:
        samples: list[list[Any]] = []
        places: dict[tuple[Any, ...], list[Tensor]] = {}
        for sub_round, length in enumerate(lengths):
            prompt_of = self._prompts(bench, active, max(repeats.values()) + prime)
            for position, name in enumerate(rng.sample(active, len(active))):
                if name in changed:  # falls out after this round
                    continue
                runner, subject = runners[name], bench.subjects[name]
                count = repeats[name] if runner.counts_as == 1 else 1
                kept = _places(places, subject.output, count)
                self.mark(active.index(name))
                runner.prepare(length, prompt_of[name], count + prime)
                primed = prime and runner.counts_as == 1
                if primed:
                    runner.call()
                faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
                spent = self.device.sample(runner, count, kept)
                faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
                subject.growth_bytes += max(0, faults) * resource.getpagesize()
                wall = spent.wall_ns - runner.uncounted_ns
                first = runner.first_ns()
                if isinstance(self.device, Cuda):
                    first = (0, 0, spent.device_ns, runner.first_device_ns())
                worth = count * runner.counts_as
                samples.append([name, sub_round, position, length, worth, spent.cpu_ns, wall, faults, *first])
                self._look(bench, name, runner, spent, drawn, runner.asked[primed:] if kept else [], kept, changed)
            drawn.end_sub_round()
        return samples

    def _look(
        self,
        bench: Bench,
        name: str,
        runner: Runner,
        spent: Spent,
        drawn: Drawn,
        asked: list[tuple[int, int]],
        kept: list[Tensor],
        changed: dict[str, str],
    ) -> None:
        """After a sample: keep an output for the examiner, and see what the variant left behind."""
        if kept:
            tensors = drawn.keep(name, asked, kept)
            if isinstance(runner, GenerateRunner):
                tensors["logits"] = runner.next_logits().clone()
        elif bench.checkpoint is None:
            bench.subjects[name].last = spent.out
        self.watch.spent(
            name,
            calls=max(len(kept), 1),
            process_ns=spent.process_ns,
            others_ns=spent.others_ns,
            wall_ns=spent.around_ns,
            waits=spent.waits,
        )
        said = self._changed(name)
        if gc.isenabled():
            gc.disable()
            said = said or "turns garbage collection on while it is timed"
        if said:
            changed.setdefault(name, said)

    def _wrong_components(self, bench: Bench, active: Sequence[str], runners: Mapping[str, Runner]) -> dict[str, str]:
        """Parts of a layer whose last timed call gave something else than at the gate; their inputs never change."""
        wrong: dict[str, str] = {}
        for name in active if bench.checkpoint is None else ():
            runner, subject = runners[name], bench.subjects[name]
            assert isinstance(runner, ComponentRunner)
            if subject.expected is not None and subject.last is not None:
                error = _component_error(runner.component.read(subject.last).double(), subject.expected)
                if not error <= 2 * TOLERANCES[torch.float32]:
                    wrong[name] = f"a timed call is off by {error:.1e} of the largest value"
            subject.last = None
        return wrong

    def _leaks(self, bench: Bench) -> dict[str, int]:
        """The variant during whose building and calls the process grew most, once it has grown too far for good."""
        idle_bytes = self.device.held_bytes()
        bench.idle_bytes = min(bench.idle_bytes, idle_bytes)
        grown = int(idle_bytes - bench.idle_bytes)
        if grown <= LEAK_LIMIT_BYTES + LEAK_LIMIT_WEIGHTS * _parameter_bytes(bench.checkpoint):
            return {}
        blamed = max(bench.subjects, key=lambda name: bench.subjects[name].growth_bytes)
        bench.idle_bytes = idle_bytes
        return {blamed: grown}

    def differences(self, workload: str, pairs: list[list[str]]) -> list[dict[str, Any]]:
        """Op-trace differences of (baseline, variant) pairs."""
        subjects = self.benches[workload].subjects
        found = []
        for baseline, variant in pairs:
            ours, theirs = subjects[baseline].trace, subjects[variant].trace
            if ours is None or theirs is None:
                continue
            difference = trace_difference(ours, theirs)
            found.append(
                {
                    "baseline": baseline,
                    "variant": variant,
                    "same": difference is None,
                    "detail": difference or "",
                    "counts": op_counts(ours, theirs),
                }
            )
        return found

    # -- passes --------------------------------------------------------------------------------------------------

    def loop(
        self, workload: str, variant: str, lead_seconds: float, seconds: float, wait: Callable[[], None]
    ) -> dict[str, Any]:
        """Run a variant for a while, for a profiler that attaches between `wait` and the first call.

        Calls of the first `lead_seconds` are not made by `_profiled_call`, by which samples are told to count.
        """
        bench = self.benches[workload]
        calls_ns: list[int] = []
        with torch.inference_mode():
            runner = self._runner(bench, bench.subjects[variant].variant)
            for _ in range(2):
                runner.prepare(bench.workload.tokens, bench.take(), 1)
                runner.call()
            wait()
            wait_for_device = self.device.synchronise if isinstance(self.device, Cuda) else None
            begin = perf_counter() + lead_seconds
            while perf_counter() < begin:
                runner.prepare(bench.workload.tokens, bench.take(), 1)
                runner.call()
            end = perf_counter() + seconds
            while perf_counter() < end or not calls_ns:
                _profiled_call(runner, bench.workload.tokens, bench.take(), calls_ns, wait_for_device)
        return {
            "calls": len(calls_ns),
            "median_ns": statistics.median(calls_ns),
            "median_error_ns": _median_error(calls_ns),
        }

    def stretch(self, workload: str, variant: str, seconds: float, wait: Callable[[], None]) -> dict[str, Any]:
        """As many calls as take about `seconds`, begun when `wait` returns, for the parent to time from outside.

        None at all for 0 seconds, which says what the asking costs.
        """
        bench = self.benches[workload]
        subject = bench.subjects[variant]
        assert subject.output is not None
        with torch.inference_mode():
            if self.stretched is None:
                self.stretched = self._runner(bench, subject.variant)
            runner = self.stretched
            count = max(round(seconds * 1e9 / subject.call_ns / runner.counts_as), seconds > 0)
            if count and (bench.once or bench.workload.kind == "generate" or runner.counts_as > 1):
                count = 1
            elif bench.workload.kind == "decode":
                count = min(count, DECODE_ROOM // 2)
            kept = _places({}, subject.output, count)
            runner.prepare(bench.workload.tokens, bench.take(count), count)
            wait()
            for place in kept:
                place.copy_(runner.call())
        self.kept = kept
        return {"calls": count * runner.counts_as}

    def stretch_outputs(self, variant: str, outputs: str) -> dict[str, Any]:
        """Leave an output of the last stretch in a file for the examiner."""
        drawn = Drawn(1)
        assert self.stretched is not None
        drawn.keep(variant, self.stretched.asked, self.kept)
        drawn.end_sub_round()
        return {"drawn": drawn.write(Path(outputs)), "changed": self._changed(variant, files=False)}

    def memory(self, workload: str, variant: str) -> dict[str, Any]:
        """Peak bytes that one warmed-up call allocates above what lives already, on the device (`peak_bytes` of it).

        Parameter bytes count the checkpoint's tensors; cache bytes are what a rebuilt variant keeps after a call,
        beyond the weights it was given.
        """
        bench = self.benches[workload]
        before = live_tensors()
        with torch.inference_mode():
            runner = self._runner(bench, bench.subjects[variant].variant)
            peak = _peak_transient_bytes(runner, bench, bench.workload.tokens, self.device)
            model = getattr(runner, "model", None)
            del runner  # what the harness keeps for itself, generated tokens say, is none of the variant's
            found = holdings(before) if model is not None else {}
        return {
            "peak_transient_bytes": peak,
            "parameter_bytes": _parameter_bytes(bench.checkpoint),
            "cache_bytes": sum(holding.nbytes for holding in found.values()),
        }

    def memory_peak(self, workload: str, variant: str) -> dict[str, Any]:
        """Peak bytes of this process, which must be fresh: weights loaded and read, then lengths served.

        On a CPU resident memory, where what a variant imports counts as its own; else what the device's allocator gave
        out. `peak_bytes` has one for each number of different lengths, `served` the lengths of the last.
        """
        bench = self.benches[workload]
        assert bench.checkpoint is not None
        for tensor in bench.checkpoint.weights.values():
            tensor.sum()  # weights are mapped: what nobody has read takes no memory yet
        loaded = self.device.most_held_bytes()
        with torch.inference_mode():
            runner = self._runner(bench, self._variant(variant))
            peaks = []
            served: list[int] = []
            for lengths in self._serve(runner, bench):
                served = lengths
                peaks.append(self.device.most_held_bytes())
        return {
            "device": self.device.kind,
            "planned_lengths": doublings(longest_call(bench.workload))[-1],
            "served": served,
            "weights_bytes": _parameter_bytes(bench.checkpoint),
            "loaded_bytes": loaded,
            "peak_bytes": peaks,
        }

    def memory_held(self, workload: str, variant: str) -> dict[str, Any]:
        """Bytes of tensors that a variant holds beyond the checkpoint, by kind, measured and computed.

        `steps` has one entry as built (no lengths), then one for each number of different lengths served: `held` with
        the longest served last, `kept` after a `reset`. Variants whose modules keep tensors need a fresh process.
        """
        bench = self.benches[workload]
        checkpoint, work = bench.checkpoint, bench.workload
        assert checkpoint is not None
        longest = longest_call(work)
        positions = (work.context + longest, bench.max_length)
        before = live_tensors()
        found = self._variant(variant)
        if found.engine is not None:
            raise WorkerError("an engine's tensors are not torch's: of its memory only the resident part is known")
        policy = policy_of(variant, found.factors)
        sizes = {"item_bytes": bench.dtype.itemsize, "batch": work.batch}

        def by_kind(built: frozenset[int]) -> dict[str, int]:
            return bytes_by_kind(holdings(before), checkpoint.config, lengths=positions, built=built)

        def step(lengths: list[int], held: dict[str, int], kept: dict[str, int]) -> dict[str, Any]:
            entry: dict[str, Any] = {"lengths": lengths, "held": held, "kept": kept, "computed": None}
            if policy is not None:
                entry["computed"] = asdict(
                    expected(
                        policy,
                        checkpoint.config,
                        lengths,
                        max_length=bench.max_length,
                        context=work.context,
                        chunk=work.chunk,
                        **sizes,
                    )
                )
            return entry

        with torch.inference_mode():
            runner = self._runner(bench, found)
            if not isinstance(runner, PrefillRunner):
                raise WorkerError(f"memory is swept over lengths of prefill workloads; {workload} is {work.kind}")
            built = frozenset(holdings(before))
            as_built = by_kind(built)
            steps = [step([], as_built, as_built)]
            for lengths in self._serve(runner, bench):
                held = by_kind(built)
                runner.model.reset()
                steps.append(step(lengths, held, by_kind(built)))
        return {
            "kv_bytes": kv_bytes(checkpoint.config, positions=positions[0], **sizes),
            "steps": steps,
        }

    def memory_transients(self, workload: str, variant: str) -> list[dict[str, int]]:
        """Peak bytes of one call above what lives, at the longest length, its half, quarter and eighth."""
        bench = self.benches[workload]
        longest = longest_call(bench.workload)
        with torch.inference_mode():
            runner = self._runner(bench, self._variant(variant))
            return [
                {"tokens": length, "peak_bytes": _peak_transient_bytes(runner, bench, length, self.device)}
                for length in dict.fromkeys(longest // part for part in (1, 2, 4, 8) if longest >= part)
            ]

    def _serve(self, runner: Runner, bench: Bench) -> Iterator[list[int]]:
        """Serve 1, 2, 4, ... different lengths, the longest last each time; ends early where memory gets short."""
        longest = longest_call(bench.workload)
        start = self.device.held_bytes()
        served: set[int] = set()
        for count in doublings(longest):
            # Twice as many lengths, none longer, hold at most twice as much, here and in the process beside this one.
            if 2 * (self.device.held_bytes() - start) > self.device.available_bytes():
                return
            lengths = served_lengths(longest, count)
            for length in [*(length for length in lengths[:-1] if length not in served), longest]:
                runner.prepare(length, bench.take(), 1)
                runner.call()
            served.update(lengths)
            yield lengths

    def phases(self, workload: str, variants: list[str], rounds: int, wall: bool) -> dict[str, Any]:
        """Time by phase: rows [variant, round, call, tokens, plain_ns, {phase: ns}]; facts or a reason by variant.

        `wall`: thread CPU time does not tell, because something computes in other threads.
        """
        bench = self.benches[workload]
        if bench.checkpoint is None:
            raise WorkerError("a component has no phases: it is one part of a forward, timed alone")
        facts: dict[str, dict[str, Any]] = {}
        marked: dict[str, Instrumented] = {}
        readings: dict[str, int] = {}
        for index, name in enumerate(variants):
            self.mark(index)
            try:
                made = self._instrumented(name)
                readings[name] = self._check_phases(bench, name, made)
            except Exception as error:
                reason = str(error) if isinstance(error, PhaseError) else _told(error)
                facts[name] = {"reason": reason, "clock": None, "readings": 0, "lines": {}}
                continue
            marked[name] = made
            facts[name] = {"reason": None, "readings": readings[name], "lines": made.lines}
        self.mark(-1)
        names = list(marked)
        cost_ns = _reading_ns()
        dear = any(readings[name] * cost_ns > READING_SHARE * bench.subjects[name].call_ns for name in names)
        clock = perf_counter_ns if wall or dear else thread_time_ns
        for name, made in marked.items():
            made.set_clock(clock)
            facts[name]["clock"] = "thread CPU" if clock is thread_time_ns else "wall"
        rows: list[list[Any]] = []
        for round_index in range(rounds if names else 0):
            rows += self._phase_round(bench, marked, round_index, clock, retake=dear and not wall)
        return {"rows": rows, "facts": facts}

    def _instrumented(self, entered: str) -> Instrumented:
        """The marked twin of a variant; one private import a process."""
        if entered not in self.instrumented:
            name = entered.partition("@")[0]
            if name in self.added:
                raise PhaseError(f"{name}: code from outside has no map of phases (variants/phase_map.py holds ours)")
            self.instrumented[entered] = instrument(variants.get(name), f"phases_{entered.replace('@', '_')}")
        return self.instrumented[entered]

    def _check_phases(self, bench: Bench, name: str, made: Instrumented) -> int:
        """Same logits to the bit as the plain variant, and every op in its phase; → readings in a timed call."""
        assert bench.checkpoint is not None
        case = self._own_case(bench)
        build = bench.subjects[name].variant.build
        with torch.no_grad():
            plain, twin = (
                one(bench.checkpoint.config, bench.checkpoint.weights, max_length=bench.max_length)
                for one in (build, made.variant.build)
            )
            for model in (plain, twin):
                model.reset()
            for tokens, position in case.steps:
                ops, logits = ops_of_phases(made, partial(twin.forward, tokens, position))
                check_ops(ops)
                if not torch.equal(logits, plain.forward(tokens, position)):
                    raise PhaseError(f"{name}: the marked variant gives other logits than the plain one")
        with torch.inference_mode():
            runner = self._runner(bench, made.variant)
            runner.prepare(bench.workload.tokens, bench.take(), 1)
            made.start(0)
            runner.call()
        return len(made.log)

    def _phase_round(
        self, bench: Bench, marked: dict[str, Instrumented], round_index: int, clock: Callable[[], int], *, retake: bool
    ) -> list[list[Any]]:
        """All variants rebuilt, each marked and plain; calls of all of them in random order."""
        work = bench.workload
        rng = random.Random(f"phases {bench.seed} {work.name} {self.process} {round_index}")
        slowest_ns = max(bench.subjects[name].call_ns for name in marked)
        count = round(min(max(PHASE_ROUND_NS / 2 / slowest_ns, 1), MOST_PHASE_CALLS))
        if slowest_ns < THREE_PAIRS_NS:
            count = max(count, 3)
        prime = slowest_ns < PRIME_NS and not bench.once
        retakes = RETAKES if retake and work.lengths == "repeated" else 0
        lengths = call_lengths(work, round_index=round_index, count=count, seed=bench.seed)
        sides = [(name, made) for name in marked for made in (None, marked[name])]
        runners: dict[tuple[str, bool], Runner] = {}
        padding: list[Tensor] = []
        rows: list[list[Any]] = []
        with torch.inference_mode():
            for name, made in rng.sample(sides, len(sides)):
                self.mark(list(marked).index(name))
                padding.append(torch.empty(rng.randrange(1, 1 << 18), dtype=torch.uint8))
                runner = self._runner(bench, made.variant if made else bench.subjects[name].variant)
                runner.prepare(warmup_length(work, lengths=lengths), bench.take(), 1)
                runner.call()
                runners[name, made is not None] = runner
            gc.collect()
            gc.disable()
            try:
                for call, length in enumerate(lengths):
                    found: dict[tuple[str, bool], dict[str, int]] = {}
                    for name, made in rng.sample(sides, len(sides)):
                        self.mark(list(marked).index(name))
                        runner = runners[name, made is not None]

                        def prepare(runner: Runner = runner, length: int = length) -> None:
                            runner.prepare(length, bench.take(1 + prime), 1 + prime)
                            if prime:
                                runner.call()

                        found[name, made is not None] = _phased_call(runner, made, clock, prepare, retakes)
                    for name in marked:
                        plain_ns = sum(found[name, False].values())
                        rows.append([name, round_index, call, length, plain_ns, found[name, True]])
            finally:
                gc.enable()
                self.mark(-1)
        return rows

    def roofline(self, workload: str, variants: list[str], seconds: float) -> dict[str, Any]:
        """Samples of both roofs and of all variants side by side, in the form of `roofline.Record`; about `seconds`."""
        bench = self.benches[workload]
        assert bench.checkpoint is not None
        if bench.gate_prompt.device.type != "cpu":
            raise WorkerError("the roofs are those of the CPU: on other devices none are measured")
        config, work, item_bytes = bench.checkpoint.config, bench.workload, bench.dtype.itemsize
        weights = weight_bytes(config, item_bytes=item_bytes)
        self.mark(-1)
        with torch.inference_mode():
            # No variant is called so: a function's name has no @.
            both = {"@matmul": matmul_roof(products(config, work), bench.dtype), "@memory": memory_roof(weights)}
        begun = perf_counter()
        self._roofline_round(bench, variants, both, 0)
        fitting = seconds / (perf_counter() - begun)
        # From a round that does not count, so that what is measured cannot decide how long it is measured.
        rounds = round(min(max(fitting, LEAST_ROOF_ROUNDS), MOST_ROOF_ROUNDS))
        roof_rows: list[list[Any]] = []
        rows: list[list[Any]] = []
        for number in range(1, rounds + 1):
            for name, sub_round, tokens, calls, cpu, wall in self._roofline_round(bench, variants, both, number):
                if name in both:
                    roof_rows.append([name[1:], number, sub_round, calls, cpu, wall])
                else:
                    rows.append([name, number, sub_round, tokens, calls, cpu, wall])
        return {
            "rounds": rounds,
            "roofs": {name[1:]: {"kernel": roof.kernel, "amount": roof.amount} for name, roof in both.items()},
            "weight_bytes": weights,
            "work": {
                length: [
                    [one.flops, one.nbytes] for one in work_of_call(config, work, tokens=length, item_bytes=item_bytes)
                ]
                for length in sorted({row[3] for row in rows})
            },
            "roof_samples": roof_rows,
            "samples": rows,
        }

    def _roofline_round(
        self, bench: Bench, variants: list[str], both: dict[str, Roof], number: int
    ) -> list[tuple[str, int, int, int, int, int]]:
        """Everything rebuilt, then sampled in random order: name, sub-round, tokens, calls, CPU and wall ns."""
        work = bench.workload
        rng = random.Random(f"roofline {bench.seed} {work.name} {self.process} {number}")
        call_ns = {name: bench.subjects[name].call_ns for name in variants}
        call_ns |= {name: float(roof.call_ns) for name, roof in both.items()}
        repeats = {name: math.ceil(ROOF_SAMPLE_NS / taken) for name, taken in call_ns.items()}
        if bench.once or work.kind == "generate":
            repeats |= dict.fromkeys(variants, 1)
        if work.kind == "decode":
            repeats |= {name: min(repeats[name], DECODE_ROOM - 2) for name in variants}
        slowest_ns = max(repeats[name] * call_ns[name] for name in call_ns)
        count = 1 if slowest_ns >= THREE_PAIRS_NS else 3 if slowest_ns >= FILLED_NS else 5
        lengths = call_lengths(work, round_index=number, count=count, seed=bench.seed)
        warm_length = warmup_length(work, lengths=lengths)
        found = []
        with torch.inference_mode():
            runners: dict[str, Runner] = {}
            padding = []
            for name in rng.sample(list(call_ns), len(call_ns)):
                self.mark(-1 if name in both else variants.index(name))
                padding.append(torch.empty(rng.randrange(1, 1 << 18), dtype=torch.uint8))
                runner = RoofRunner(both[name]) if name in both else self._runner(bench, bench.subjects[name].variant)
                runner.prepare(warm_length, bench.take(), 1)
                runner.call()
                runners[name] = runner
            gc.collect()
            gc.disable()
            try:
                for sub_round, length in enumerate(lengths):
                    for name, runner in rng.sample(list(runners.items()), len(runners)):
                        self.mark(-1 if name in both else variants.index(name))
                        calls = repeats[name] if runner.counts_as == 1 else 1
                        # A roof is that of a warm kernel, whatever came before it.
                        prime = name in both or (call_ns[name] < PRIME_NS and not bench.once and runner.counts_as == 1)
                        runner.prepare(length, bench.take(calls + prime), calls + prime)
                        if prime:
                            runner.call()
                        wall, cpu = perf_counter_ns(), thread_time_ns()
                        for _ in range(calls):
                            runner.call()
                        cpu, wall = thread_time_ns() - cpu, perf_counter_ns() - wall - runner.uncounted_ns
                        found.append((name, sub_round, length, calls * runner.counts_as, cpu, wall))
            finally:
                gc.enable()
                self.mark(-1)
        return found


def _component_error(got: Tensor, expected: Tensor) -> float:
    """Largest error as a share of the largest finite value; infinite where infinite values are not the same."""
    if got.shape != expected.shape:
        return math.inf
    finite = torch.isfinite(expected)
    if not bool((got[~finite] == expected[~finite]).all()):
        return math.inf
    return float((got[finite] - expected[finite]).abs().max() / expected[finite].abs().max().clamp_min(1e-30))


def _places(places: dict[tuple[Any, ...], list[Tensor]], like: Tensor | None, count: int) -> list[Tensor]:
    """`count` tensors that outputs are copied to, shared by all variants whose outputs are alike; none for none."""
    if like is None:
        return []
    shared = places.setdefault((like.shape, like.dtype, like.device), [])
    shared.extend(torch.zeros_like(like) for _ in range(count - len(shared)))
    return shared[:count]


def _phased_call(
    runner: Runner, made: Instrumented | None, clock: Callable[[], int], prepare: Callable[[], None], retakes: int
) -> dict[str, int]:
    """Nanoseconds by phase of one call, of all in one where it is not marked; taken again where it had to wait."""
    best: dict[str, int] = {}
    least_waited = math.inf
    for _ in range(1 + retakes):
        prepare()
        cpu = thread_time_ns()
        start = clock()
        if made is not None:
            made.start(start)
        runner.call()
        end = clock()
        cpu = thread_time_ns() - cpu
        waited = end - start - cpu
        if waited < least_waited:
            least_waited = waited
            best = {"": end - start} if made is None else durations(made.log, end)
        if waited <= PREEMPTED_NS + PREEMPTED_SHARE * (end - start):
            break
    return best


def _reading_ns() -> float:
    """What a reading of the thread's CPU time costs here."""
    start = perf_counter_ns()
    for _ in range(1000):
        thread_time_ns()
    return (perf_counter_ns() - start) / 1000


def _profiled_call(
    runner: Runner, length: int, prompt: int, calls_ns: list[int], wait_for_device: Callable[[], None] | None
) -> None:
    """One call of the profiled loop; a function of its own so that a profile shows where calls begin."""
    runner.prepare(length, prompt, 1)
    start = perf_counter_ns()
    runner.call()
    if wait_for_device is not None:
        wait_for_device()
    calls_ns.append(perf_counter_ns() - start)


def _median_error(values: Sequence[int]) -> float | None:
    """Standard error of a median: half of what lies between the values sqrt(n) / 2 ranks below and above the middle.

    None below five values. Calls that follow each other are not quite independent, so it is rather too small.
    """
    count = len(values)
    if count < 5:
        return None
    ordered, reach = sorted(values), math.sqrt(count) / 2
    low, high = (min(max(round((count - 1) / 2 + sign * reach), 0), count - 1) for sign in (-1, 1))
    return (ordered[high] - ordered[low]) / 2


def _peak_transient_bytes(runner: Runner, bench: Bench, length: int, device: Device) -> int:
    """What one warmed-up call allocates above what lives, at its peak.

    A KV cache that grows by concatenation is made anew within the call, and counts.
    """
    # Warmed up twice or the first variant pays for one-off buffers of the whole process.
    for _ in range(2):
        runner.prepare(length, bench.take(), 1)
        runner.call()
    gc.collect()
    runner.prepare(length, bench.take(), 1)
    return device.peak_bytes(runner.call)


def _parameter_bytes(checkpoint: Checkpoint | None) -> int:
    """Bytes of the checkpoint's tensors; a tied head counts once."""
    if checkpoint is None:
        return 0
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in checkpoint.weights.values()}.values())


def import_privately(variant: Variant, tag: str) -> Variant:
    """The same variant from an import of its source that nobody shares: other code objects, same text.

    Variants that share code warm it for each other, in the processor's caches and in the interpreter's inline caches:
    with a common import, a second copy of a layered model was 4 % slower at 0.4 ms a call than the first, which two
    more variants used. The library's own model cannot be had twice and is left as it is.
    """
    module = getattr(variant.build, "module", None)
    if module is None or module == ".library":
        return variant
    package = variants.__name__
    top, _, rest = module.lstrip(".").partition(".")
    source = importlib.util.find_spec(f"{package}.{top}")
    assert source is not None
    private = f"{package}.{top}__{tag}"
    if private not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            private, source.origin, submodule_search_locations=source.submodule_search_locations
        )
        assert spec is not None and spec.loader is not None
        sys.modules[private] = loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
    build = import_module(f"{private}.{rest}" if rest else private).build
    return replace(variant, build=partial(build, **variant.build.options))  # type: ignore[attr-defined]


def _takes_requests(variant: Variant) -> bool:
    """Whether it is an engine that answers requests with tokens, in threads of its own."""
    return variant.engine is not None and variant.engine.outputs == "log-probabilities"


def _told(error: BaseException) -> str:
    return f"raises {type(error).__name__}: {' '.join(str(error).split())[:300]}"


# --- the process ---------------------------------------------------------------------------------------------------


def main() -> None:
    """Answer commands until standard input ends."""
    if "--help" in sys.argv[1:]:
        print(__doc__)
        return
    channel = Channel()
    hello = channel.receive()
    if hello is None:
        return
    worker = Worker(hello, alone=True, channel=channel)
    gc.freeze()
    channel.answer({"ok": {"pid": os.getpid()}})

    def wait() -> None:
        channel.answer({"ready": True})
        channel.receive()

    def freeze() -> None:
        gc.collect()
        gc.freeze()  # imports and gates are done: rounds need not walk what they left

    verbs: dict[str, Callable[..., Any]] = {
        "device": worker.device.facts,
        "open": worker.open,
        "gate": worker.gate,
        "differences": worker.differences,
        "round": worker.round,
        "memory": worker.memory,
        "memory_peak": worker.memory_peak,
        "memory_held": worker.memory_held,
        "memory_transients": worker.memory_transients,
        "phases": worker.phases,
        "roofline": worker.roofline,
        "loop": partial(worker.loop, wait=wait),
        "stretch": partial(worker.stretch, wait=wait),
        "stretch_outputs": worker.stretch_outputs,
        "prepare_loads": partial(loaders.prepare, cache=str(worker.cache)),
        "load": partial(loaders.measure, cache=str(worker.cache)),
        "freeze": freeze,
    }
    carry_out(channel, verbs)


if __name__ == "__main__":
    main()
