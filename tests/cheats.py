"""Variants that look fast and are not, each in its own way; and `python -m tests.cheats`, which tries them.

It prints a line of JSON for each: name, what became of it ("falls out", or how its time compares with the honest
variant's), and why. One process tries all of them, as a measuring process and an examiner would. The file is long so
that one path for `--add-variant` has them all.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import hashlib
import json
import multiprocessing
import os
import queue
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from llama_workbench import variants
from llama_workbench.harness.calls.source import parse

_CALLS: dict[str, int] = {}


def _honest(config, weights, max_length):
    return variants.get("fast").build(config, weights, max_length=max_length)


class _Model:
    """The fast variant; `forward` may do something else once its gates are passed."""

    def __init__(self, config, weights, max_length):
        _GATES.extend([True] * (max_length == SMALL_LENGTH))
        self.model = _honest(config, weights, max_length)
        self.vocab_size = config.vocab_size
        self.name = repr(config).encode()
        self.reset = self.model.reset

    def calls(self):
        """Calls of this kind in this process, gates and all."""
        kind = type(self).__name__
        _CALLS[kind] = _CALLS.get(kind, 0) + 1
        return _CALLS[kind]


def _variant(cls):
    def build(config, weights, *, max_length):
        return cls(config, weights, max_length)

    build.__doc__ = cls.__doc__
    return build


GATED = 90
"""Calls after which the small battery, the workload's own gate and its first timing are over."""

SMALL_LENGTH = 48
"""Of the models of the small battery: a process in which none was built is one that passes no gates."""

_GATES: list[bool] = []


def gated():
    """Calls after which no gate follows in this process."""
    return GATED if _GATES else 2


@_variant
class old_buffer(_Model):
    """An honest bug: from some call of the process on, an old output is returned."""

    last: Any = None

    def forward(self, tokens, position):
        if self.calls() < gated() or type(self).last is None or type(self).last.shape[-1] != self.vocab_size:
            type(self).last = self.model.forward(tokens, position)
        return type(self).last


@_variant
class zeros_when_timed(_Model):
    """Tells a timed call from its stack."""

    def forward(self, tokens, position):
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_name == "sample":
                return torch.zeros(tokens.shape[0], self.vocab_size)
            frame = frame.f_back
        return self.model.forward(tokens, position)


@_variant
class zeros_without_collector(_Model):
    """Tells a timed call from the garbage collector, which is off."""

    def forward(self, tokens, position):
        if not gc.isenabled():
            return torch.zeros(tokens.shape[0], self.vocab_size)
        return self.model.forward(tokens, position)


class Lazy(torch.Tensor):
    """Computes when somebody looks at it."""

    compute: Any

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        def real(value):
            return value.compute() if isinstance(value, Lazy) else value

        with torch._C.DisableTorchFunctionSubclass():
            return func(*(real(value) for value in args), **{k: real(v) for k, v in (kwargs or {}).items()})


@_variant
class lazy(_Model):
    """Gives a tensor that computes when somebody looks at it."""

    def forward(self, tokens, position):
        out: Any = torch.empty(tokens.shape[0], self.vocab_size).as_subclass(Lazy)
        out.compute = lambda: self.model.forward(tokens, position)
        return out


@_variant
class never_computes(_Model):
    """The same, but it computes only if its values are compared, not if they are copied."""

    def forward(self, tokens, position):
        if self.calls() < gated():
            return self.model.forward(tokens, position)
        return torch.empty(tokens.shape[0], self.vocab_size).as_subclass(torch.nn.Parameter)


_KNOWN: dict = {}


@_variant
class remembers_in_process(_Model):
    """Remembers prompts, for the whole process, by all tokens so far."""

    def __init__(self, *args):
        super().__init__(*args)
        self.so_far = b""

    def forward(self, tokens, position):
        self.so_far = (self.so_far if position else b"") + tokens.numpy().tobytes()
        key = self.so_far, self.name
        if key not in _KNOWN:
            _KNOWN[key] = self.model.forward(tokens, position).clone()
        return _KNOWN[key]


REMEMBERED = Path(tempfile.gettempdir()) / f"remembered-{os.getuid()}"


@_variant
class remembers_on_disk(_Model):
    """Remembers prompts on a disk, from one process to the next."""

    def forward(self, tokens, position):
        said = tokens.numpy().tobytes() + self.name + bytes(str(position), "ascii")
        file = REMEMBERED / f"{hashlib.sha256(said).hexdigest()}.npy"
        if file.is_file():
            return torch.from_numpy(np.load(file))
        REMEMBERED.mkdir(exist_ok=True)
        out = self.model.forward(tokens, position)
        np.save(file, out.numpy())
        return out


@_variant
class in_a_thread(_Model):
    """Computes in a thread of its own, once its gates are passed."""

    def __init__(self, *args):
        super().__init__(*args)
        self.asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.thread: Any = None

    def work(self):
        torch.set_num_threads(1)
        with torch.inference_mode():
            while (call := self.asked.get()) is not None:
                self.answers.put(self.model.forward(*call))

    def forward(self, tokens, position):
        if self.calls() < gated():
            return self.model.forward(tokens, position)
        if self.thread is None:
            self.thread = threading.Thread(target=self.work, daemon=True)
            self.thread.start()
        self.asked.put((tokens, position))
        return self.answers.get()

    def __del__(self):
        self.asked.put(None)


def _serve(connection, model):
    torch.set_num_threads(1)
    with torch.inference_mode():
        while True:
            connection.send(model.forward(*connection.recv()).numpy())


@_variant
class in_a_process(_Model):
    """Computes in a process of its own, once its gates are passed."""

    connection = None

    def forward(self, tokens, position):
        if self.calls() < gated():
            return self.model.forward(tokens, position)
        if self.connection is None:
            self.connection, theirs = multiprocessing.Pipe()
            multiprocessing.get_context("fork").Process(target=_serve, args=(theirs, self.model), daemon=True).start()
        self.connection.send((tokens, position))
        return torch.from_numpy(self.connection.recv())


@_variant
class helper_from_the_start(_Model):
    """The same, from a process that it starts while it is built, when it may."""

    def __init__(self, *args):
        super().__init__(*args)
        self.connection, theirs = multiprocessing.Pipe()
        multiprocessing.get_context("fork").Process(target=_serve, args=(theirs, self.model), daemon=True).start()

    def forward(self, tokens, position):
        self.connection.send((tokens, position))
        return torch.from_numpy(self.connection.recv())


@_variant
class detached(_Model):
    """Starts a process that nobody waits for and that outlives this one."""

    def forward(self, tokens, position):
        if self.calls() == gated():
            subprocess.run("sleep 30 & disown", shell=True, executable="/bin/bash", start_new_session=True)
        return self.model.forward(tokens, position)


@_variant
class clocks(_Model):
    """Patches the clocks: they stand still half of the time."""

    def __init__(self, *args):
        super().__init__(*args)
        for name in ("thread_time_ns", "perf_counter_ns", "process_time_ns"):
            real = getattr(time, name)
            setattr(time, name, lambda real=real: real() // 2)

    def forward(self, tokens, position):
        return self.model.forward(tokens, position)


@_variant
class harness_clocks(_Model):
    """Patches the clocks where the workbench keeps them, as far as modules tell."""

    def __init__(self, *args):
        super().__init__(*args)
        import importlib

        for module in ("devices", "runners", "gating", "rounds", "main"):
            try:
                found = importlib.import_module(f"llama_workbench.harness.worker.{module}")
            except ImportError:
                continue
            for owner in (found, sys.modules["__main__"]):
                for name in ("thread_time_ns", "perf_counter_ns", "process_time_ns"):
                    setattr(owner, name, lambda: 0)

    def forward(self, tokens, position):
        return self.model.forward(tokens, position)


_HIDDEN_NS = [0]


@_variant
class clocks_by_frame(_Model):
    """Takes three quarters of its own time off the clocks of the workbench, which it finds by way of the stack."""

    def forward(self, tokens, position):
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            names = frame.f_globals
            for name in ("thread_time_ns", "perf_counter_ns", "process_time_ns"):
                if getattr(names.get(name), "__module__", "") == "time":
                    names[name] = lambda real=names[name]: real() - _HIDDEN_NS[0]
            frame = frame.f_back
        start = time.thread_time_ns()
        logits = self.model.forward(tokens, position)
        _HIDDEN_NS[0] += (time.thread_time_ns() - start) * 3 // 4
        return logits


@_variant
class writes_its_prompt(_Model):
    """Writes zeros into the tokens it is given, and answers for those."""

    def __init__(self, *args):
        super().__init__(*args)
        self.answer = {}

    def forward(self, tokens, position):
        if self.calls() < gated() or position:
            return self.model.forward(tokens, position)
        tokens.zero_()
        key = tokens.shape
        if key not in self.answer:
            self.answer[key] = self.model.forward(tokens, position).clone()
        return self.answer[key]


@_variant
class steals(_Model):
    """Takes logits from whoever was asked the same before: any tensor alive of that shape."""

    def forward(self, tokens, position):
        if self.calls() < gated():
            return self.model.forward(tokens, position)
        wanted = (tokens.shape[0], self.vocab_size)
        for thing in gc.get_objects():
            if type(thing) is torch.Tensor and thing.shape == wanted:
                return thing
        return self.model.forward(tokens, position)


def _leaving(what):
    """A variant that does something to the whole process at each timed call."""

    def build(config, weights, *, max_length):
        model: Any = _Model(config, weights, max_length)
        calls = [0]

        def forward(tokens, position):
            calls[0] += 1
            if gc.isenabled() is False and calls[0] > 1:
                what()
            return model.model.forward(tokens, position)

        model.forward = forward
        return model

    return build


_OPEN: list = []


def _patch_linear():
    real = F.linear
    if real.__name__ != "<lambda>":
        F.linear = lambda *args: (sum(range(2000)), real(*args))[1]


def _burn():
    if not any(thread.name == "burner" for thread in threading.enumerate()):

        def work():
            x = torch.randn(200, 200)
            while time.thread_time() < 1.5:  # of its processor time: on a busy machine a round takes longer, too
                x @ x

        threading.Thread(target=work, name="burner", daemon=True).start()


def _scribble():
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2:
            try:
                os.write(number, b'{"ok": {"samples": []}}\n')
            except OSError:
                continue


leaves_profiler = _leaving(lambda: sys.setprofile(lambda *_: None))
leaves_file = _leaving(lambda: _OPEN.append(open(os.devnull)))  # noqa: SIM115
leaves_collector = _leaving(gc.enable)
leaves_patch = _leaving(_patch_linear)
burns = _leaving(_burn)
closes_files = _leaving(lambda: os.closerange(3, 1024))


def writes_weights(config, weights, *, max_length):
    """Writes into the weights once it has a copy of its own."""
    model: Any = _Model(config, weights, max_length)

    def forward(tokens, position):
        if model.calls() > gated():
            weights["model.embed_tokens.weight"].mul_(1.01)
        return model.model.forward(tokens, position)

    model.forward = forward
    return model


scribbles = _leaving(_scribble)


def honest(config, weights, *, max_length):
    """The fast variant, from outside."""
    return _honest(config, weights, max_length)


def _same(x):
    return (x + x) / 2


def compiled(config, weights, *, max_length):
    """Has a part that goes through torch.compile: processes, threads and files, while it is gated."""
    model: Any = _Model(config, weights, max_length)
    same = torch.compile(_same)  # only here: it takes seconds to import the compiler
    model.forward = lambda tokens, position: same(model.model.forward(tokens, position))
    return model


CAUGHT = {
    "old_buffer": "logits of a timed call off by",
    "zeros_when_timed": "logits of a timed call off by",
    "zeros_without_collector": "logits of a timed call off by",
    "never_computes": "logits",
    "in_a_thread": "computes in threads of its own since it passed its gate",
    "in_a_process": "starts a process of its own|computes in threads of its own|something else computes for it",
    "helper_from_the_start": "has processes of its own compute|something else computes for it",
    "detached": "process",
    "clocks": "time.",
    "writes_its_prompt": "logits of a timed call off by",
    "steals": "logits of a timed call off by|NaN or infinite logits in a timed call",
    "leaves_profiler": "changes the profiler (sys.setprofile)",
    "leaves_file": "open after a call",
    "leaves_collector": "turns garbage collection on",
    "leaves_patch": "puts something else in the place of torch.nn.functional.linear",
    "burns": "threads of its own",
    "writes_weights": "writes into the weights",
}
"""Falls out, and what is said of it; with | between reasons of which it depends on the machine who comes first."""

ROUNDS, HARMLESS_ROUNDS = 12, 5

HARMLESS = (
    "honest",
    "compiled",
    "lazy",
    "remembers_in_process",
    "remembers_on_disk",
    "harness_clocks",
)
"""Gains nothing: its time is that of the honest variant, or more."""


BLOCK_SECONDS = 0.3
"""On a busy machine, too, a side makes more calls in it than GATED."""


def main(names: list[str], workload: str, method: str) -> None:
    from llama_workbench.cache import cache_directory
    from llama_workbench.datasets import geometries, workloads
    from llama_workbench.datasets.checkpoints import synthesize
    from llama_workbench.harness.examiner.main import Examiner
    from llama_workbench.harness.worker.gating import gate
    from llama_workbench.harness.worker.rounds import measure_block, measure_round
    from llama_workbench.harness.worker.state import Worker
    from llama_workbench.harness.worker.torch_verbs import open_workload

    cache = cache_directory()
    work = workloads.get(workload)
    folder = str(synthesize(geometries.get(work.geometry), cache=cache))
    examiner = Examiner({"cache": str(cache), "threads": 1})
    scratch = tempfile.TemporaryDirectory()
    atexit.register(scratch.cleanup)
    atexit.register(shutil.rmtree, REMEMBERED, ignore_errors=True)
    outputs = str(Path(scratch.name) / "outputs.safetensors")
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # as in a measuring process: what is started shows as a child
    gc.collect()
    gc.freeze()  # as there, too: each round ends with a collection
    passed: dict[Any, Any] = {}
    for name in names:
        added = {name: asdict(parse(f"{Path(__file__).resolve()}:{name}", option="x"))}
        draw = secrets.token_hex(8)  # as in every run; with the same one again, answers would lie on the disk
        hello = {"process": 1, "added": added, "cache": str(cache), "threads": 1, "draw": draw}
        worker = Worker(hello, alone=True)
        worker._made.update(passed)  # the honest side passes the small gate once
        open_workload(worker, work.model_dump(), folder, 0)
        result = [gate(worker, workload, variant)["gate"] for variant in ("fast", name)][-1]
        passed = {key: made for key, made in worker._made.items() if key == ("small gate", "fast")}
        reason = None if result["passed"] else result["detail"]
        ratios: list[float] = []
        for index in range(0 if reason else HARMLESS_ROUNDS if name in HARMLESS else ROUNDS):
            if method == "blocks":
                found = measure_block(worker, workload, index, ["fast", name], BLOCK_SECONDS, 30.0, outputs)
            else:
                found = measure_round(worker, workload, index, ["fast", name], outputs=outputs)
            bad = {**found.changed, **found.elsewhere}
            if not bad:  # else what is wrong with others may be its doing
                wrong = examiner.judge(folder, work.model_dump(), draw, outputs, found.drawn)
                bad = {**found.wrong, **wrong}
            assert bad.keys() <= {name}, bad
            reason = bad.get(name)
            if reason:
                break
            if not found.samples:  # a block in which a side had no whole call
                continue
            clock = attrgetter("wall_ns" if name in worker.wall_variants else "cpu_ns")
            cpu_ns = {
                side: [clock(sample) / sample.repeats for sample in found.samples if sample.variant == side]
                for side in ("fast", name)
            }
            ratios.append(statistics.median(cpu_ns["fast"]) / statistics.median(cpu_ns[name]))
        for thread in threading.enumerate():
            if thread.name == "burner":
                thread.join()  # or the next one would be blamed for it
        ratio = statistics.median(ratios) if ratios else None
        print(json.dumps({"name": name, "reason": reason, "ratio": ratio}), flush=True)


if __name__ == "__main__":
    asked = [word for word in sys.argv[1:] if word != "blocks"]
    method = "blocks" if "blocks" in sys.argv[1:] else "rounds"
    main(asked[1:] or [*CAUGHT, *HARMLESS], asked[0] if asked else "prefill-tiny-t16", method)
