"""What a measuring process keeps: its workloads, each with its inputs and variants, and what its verbs share."""

from __future__ import annotations

import gc
import math
import mmap
import os
import random
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Optional, TypeVar

import llama_workbench
from llama_workbench import variants
from llama_workbench.variants import FUNCTION_REFERENCE, Variant
from llama_workbench.variants.presets import presets

from ..calls.called import Call, Called
from ..calls.inputs import NEW
from ..calls.world import WorldTurn
from ..spec.comparison import EnteredName
from .channel import CUT_OFF, Channel
from .devices import Callee, Device, Spent, device_of
from .watch import CLOSED, Notes, Watch

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from llama_workbench.datasets.checkpoints import Checkpoint
    from llama_workbench.datasets.tokenizer import Prompts
    from llama_workbench.datasets.workloads import Workload

    from .correctness import OpTrace
    from .model_gating import Drawn


@dataclass(frozen=True)
class LogitsGate:
    """What a gate found. Errors and tolerance are shares of the largest reference logit. unable: whether an engine says
    itself that it cannot do the workload, which is no failure."""

    passed: bool
    detail: str
    cases: int = 0
    max_error: float = math.inf
    tolerance: float = 0.0
    unable: bool = False


GATE_PROMPT = -1
"""Number of the prompt that gates use: the same in every run of a seed, so that the reference's logits can be kept."""


@dataclass
class Subject:
    """One variant on one workload: how it is built, and what its gate measured. output: an empty tensor of the shape
    and type that a call gives. Of a component, `expected` is the right result and `last` the result of its last timed
    call. Of any function, `last` is that and `asked` the number of its input."""

    variant: Variant
    call_ns: float = math.nan
    growth_bytes: int = 0
    trace: OpTrace | None = None
    output: Tensor | None = None
    expected: Tensor | None = None
    last: Any = None
    asked: int = 0


class BenchKind(ABC):
    """What is compared on a workload: models, parts of a layer, or any functions."""

    @abstractmethod
    def variant(self, worker: Worker, bench: Bench, entered: str) -> Variant:
        """The variant of this name, imported for this side alone where it is foreign code."""

    @abstractmethod
    def gate(self, worker: Worker, bench: Bench, subject: Subject, entered: str) -> LogitsGate:
        """Whether what it answers is right."""

    @abstractmethod
    def runner(self, worker: Worker, bench: Bench, variant: Variant) -> Runner:
        """The variant built anew, with what a sample calls."""

    @abstractmethod
    def admit(self, worker: Worker, bench: Bench, subject: Subject, entered: str, learnt: Mapping[str, Any]) -> None:
        """Fill in what its gate would have, by what a gate in an earlier process found out."""

    def traced(self, bench: Bench, subject: Subject) -> dict[str, Any] | None:
        """What there is to say of its op trace; None where it has none."""
        return None

    def called_once(self, bench: Bench, subject: Subject, runner: Runner) -> None:
        """Keep what an output looks like, where outputs are kept."""
        return None

    def learnt(self, bench: Bench, subject: Subject, entered: str) -> dict[str, Any]:
        """What `admit` must be told in a later process."""
        return {}

    def facts(self, bench: Bench, entered: str) -> dict[str, Any]:
        """How it ran in its gate, by the fields of `SideFacts`."""
        return {}

    def wrong(self, bench: Bench, runners: Mapping[str, Runner]) -> dict[str, str]:
        """Variant → what is wrong with its last timed call, where this process can tell."""
        return {}

    def drawn(self, most: int) -> Drawn | None:
        """Where outputs of so many sub-rounds at most are kept for the examiner; None where it judges none."""
        return None

    def joined(self, file: str, drawn: Sequence[list[dict[str, Any]]], judged: set[str]) -> list[dict[str, Any]]:
        """Join what the sides of a block kept in files of their own."""
        return []


@dataclass
class Bench:
    """One workload with its inputs, ready to be measured.

    kind: what is compared on it. prompt_tokens: of `gate_prompt`, None where no model is measured. generated: of a
    `generate` workload, the reference's tokens after the gate prompt and their lead, [B, N] each. idle_bytes: least
    memory seen between rounds. source: the checkpoint's folder. call: what functions are compared on; called: each side
    of that, by the name it was entered under; way and pool_size: how their calls are given inputs (see `calls.inputs`).
    """

    workload: Workload
    kind: BenchKind
    seed: int
    checkpoint: Checkpoint | None = None
    prompt_tokens: Tensor | None = None
    max_length: int = 0
    prompts: Prompts | None = None
    subjects: dict[str, Subject] = field(default_factory=dict)
    generated: tuple[Tensor, Tensor] | None = None
    rebuild_ns: float = 0.0
    idle_bytes: float = math.inf
    source: Path | None = None
    call: Call | None = None
    called: dict[str, Called] = field(default_factory=dict)
    way: str = NEW
    pool_size: int = 0
    numbers: int = 0

    @property
    def gate_prompt(self) -> Tensor:
        """Tokens of the prompt that gates use, [B, max_length]."""
        assert self.prompt_tokens is not None
        return self.prompt_tokens

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights."""
        import torch  # a process in which somebody asks has it

        dtype: torch.dtype = getattr(torch, self.workload.dtype)
        return dtype

    @property
    def once(self) -> bool:
        """Whether each call needs a `prepare` of its own: a second one of the same length would find what the first
        cached; after a context, it would come behind it; beside a command something else may have to run each time."""
        beside = self.call is not None and self.call.commands.runs_more
        after_context = self.workload.kind == "prefill" and self.workload.context > 0
        return self.workload.lengths != "repeated" or after_context or beside

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the checkpoint's tensors; a tied head counts once."""
        tensors = self.checkpoint.weights.values() if self.checkpoint else ()
        return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors}.values())

    @property
    def loaded(self) -> Checkpoint:
        """The checkpoint of a workload of models."""
        assert self.checkpoint is not None
        return self.checkpoint

    def give_inputs(self, way: str, pool_size: int) -> None:
        """From here on the calls of functions are given inputs in this way (see `calls.inputs`)."""
        self.way, self.pool_size = way, pool_size
        compared = [called for name, called in self.called.items() if name != FUNCTION_REFERENCE]
        for called in compared:
            called.given_as(compared, way, pool_size)

    def take(self, count: int = 1) -> int:
        """The first of `count` numbers of prompts (or other inputs) that no call was given yet."""
        if self.prompts is not None:
            return self.prompts.take(count)
        self.numbers += count
        return self.numbers - count

    @property
    def make_ns(self) -> int:
        """Untimed time of one call of any function: to make its input, and of what runs beside a command; 0 of a
        model."""
        return max((called.untimed_ns for called in self.called.values()), default=0)

    def tokens(self, prompt: int, length: int) -> Tensor:
        """The first `length` tokens of a prompt, [B, length]: a copy, because a model may write into its input."""
        if prompt == GATE_PROMPT:
            return self.gate_prompt[:, :length].clone()
        assert self.prompts is not None
        tokens = self.prompts.tokens(prompt, length)
        return self.gate_prompt.new_tensor(tokens)


OURS = frozenset(presets())  # names of the variants that ship with the workbench; all others are foreign code

Made = TypeVar("Made")


STRICTLY = (
    " (checked strictly, by --strict or judge-change; else most of such is measured, undone and said, and no fault)"
)
"""Behind why a function is left out, where its user asked for that."""


class WorkerError(Exception):
    """A command cannot be carried out; the text goes to the parent."""


class Worker:
    """The state of a measuring process: what the parent sent at its start, and what its verbs keep for each other.

    process: its number in the run. added: name of an added variant → the fields of its `Source`; functions: the same of
    any other function; turn: whose modules Python knows, of these. draw: decides which prompts are timed. benches: by
    workload. wall_variants: variants that compute in threads of their own and are timed by wall time. calm: freed
    memory is kept for reuse, and the collector is off in samples; else both are as Python and the system have them.
    ballast: memory that it holds and does not use. stand_ins: see the function. hidden: modules that were removed from
    `sys.modules`, so that they stay alive."""

    def __init__(self, hello: Mapping[str, Any], *, alone: bool = False, channel: Channel | None = None) -> None:
        """`hello` is the parent's first message. `alone`: nothing else runs in this process."""
        self.alone = alone
        self.channel = channel
        self.calm: bool = hello.get("calm", True)
        self.ballast = ballast(hello.get("ballast", 0))  # what comes after lies elsewhere in each process
        self.process: int = hello.get("process", 0)
        self.added: dict[str, dict[str, Any]] = hello.get("added", {})
        self.functions: dict[str, dict[str, Any]] = hello.get("functions", {})
        self.turn = WorldTurn()
        self.cache = Path(hello["cache"])
        self.threads: int = hello["threads"]
        self.draw: str = hello.get("draw", "")
        self.device: Device = device_of(hello.get("device", "cpu"))
        self.checkpoints: dict[tuple[str, str], Checkpoint] = {}
        self.benches: dict[str, Bench] = {}
        self.wall_variants: set[str] = set()
        self.stand_ins: list[dict[int, Any]] = []
        self.hidden: list[ModuleType] = []
        self._made: dict[Hashable, Any] = {}
        self._running = mmap.mmap(hello["inflight_fd"], 8) if hello.get("inflight_fd") is not None else None
        self.torch: Any = sys.modules.get("torch")  # None in a process of functions that do not use it
        if self.torch is not None:
            if not hello.get("own_threads"):  # else torch has read the side's own number
                self.torch.set_num_threads(self.threads)
            self.torch.manual_seed(0)
            self.torch.set_grad_enabled(False)
        self.watch = Watch()
        # What the user's own functions do is noted, unless they are to be held to as much as foreign code.
        self.notes = None if hello.get("strict") else Notes(self.watch)

    def mark(self, index: int) -> None:
        """Tell the parent which variant is running (-1: none), in case this process dies or hangs."""
        if self._running is not None:
            self._running[0] = index + 1

    def wait(self) -> None:
        """Answer that all is ready, and return when the parent says to go on."""
        assert self.channel is not None
        self.channel.answer({"ready": True})
        self.channel.receive()

    @contextmanager
    def modes_of(self, bench: Bench | None) -> Iterator[None]:
        """The modes of torch in which a bench's calls are made: models infer; any function finds torch as it is by
        default, or it could not train."""
        if self.torch is None:
            yield
            return
        if bench is None or bench.call is None:
            with self.torch.inference_mode():
                yield
            return
        with self.torch.inference_mode(False), self.torch.enable_grad(), self.watch.gradients_on():
            yield

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` gave at the first call with this key."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def is_outside(self, entered: str) -> bool:
        """Whether a variant is foreign code in this process; a command is in one of its own."""
        name = EnteredName(entered).original
        if name == FUNCTION_REFERENCE or self.functions.get(name, {}).get("command"):
            return False
        return name in self.added or name in self.functions or name not in OURS

    def noted(self, entered: str) -> Notes | None:
        """Where it is noted what a side does: of the user's own functions, which are trusted; None of any others."""
        trusted = self.is_outside(entered) and EnteredName(entered).original in self.functions
        return self.notes if trusted else None

    def turn_of(self, entered: str) -> None:
        """The code of this side, any function, runs from here on; "": ours."""
        if self.notes is not None:
            self.notes.turn(entered)

    def inputs_made(self) -> None:
        """Inputs of a function were made: what they hold open is not the function's."""
        if self.notes is not None:
            self.notes.begin()
        else:
            self.watch.accept_files()

    def inputs_gone(self, entered: str) -> None:
        """They were let go of, with the files that they held."""
        if self.notes is not None:
            self.notes.gone(entered)
        else:
            self.watch.accept_files()

    def sampled(self, entered: str, calls: int, kept: int, spent: Spent) -> None:
        """Note what a sample of so many calls used, of which so many outputs were kept."""
        ours = not self.is_outside(entered)
        if self.notes is not None and EnteredName(entered).original in self.functions:
            self.notes.end(calls, spent)
            if not ours:
                return
        # Ours have nobody who computes for them: where they wait, the machine makes them.
        waits = {"waits": 0 if ours else spent.waits, "queued_ns": spent.queued_ns}
        used = {"process_ns": spent.process_ns, "others_ns": spent.others_ns, "wall_ns": spent.around_ns}
        self.watch.spent(entered, calls=max(kept, 1), **used, **waits)

    def seen(self, active: Iterable[str]) -> dict[str, Any]:
        """What the samples so far say beside their times, by the fields of `RoundAnswer`."""
        noted = {name: notes for name in active if (notes := self.noted(name))}
        facts = {name: notes.facts(name) for name, notes in noted.items()}
        late = {name for name, notes in noted.items() if notes.needs_wall(name)} - self.wall_variants
        by_wall = sorted(late) if self.threads == 1 else []
        self.wall_variants.update(by_wall)
        one_thread = self.threads == 1 and self.device.kind == "cpu"
        reasons = self.watch.elsewhere(frozenset(self.wall_variants)) if one_thread else {}
        elsewhere = {name: f"{reason}{self._way_of(name)}" for name, reason in reasons.items()}
        return {"elsewhere": elsewhere, "by_wall": by_wall, "facts": facts}

    def weights(self) -> list[dict[str, Tensor]]:
        """The weights of every checkpoint that was opened."""
        return [checkpoint.weights for checkpoint in self.checkpoints.values()]

    def changed(self, entered: str, *, files: bool = True) -> str | None:
        """What a variant changed for everybody in the turn that ends here, in words; undone where that is possible.
        `files`: files that it left open count as well."""
        self.turn_of("")
        if notes := self.noted(entered):
            self._look_at_pipe()
            return self.device.changed() or notes.of(entered).fault or None
        foreign = self.is_outside(entered)
        change = self.watch.changes(entered, trusted=not foreign, files=files)
        if change == CLOSED:
            self._look_at_pipe()
        change = self.device.changed() or (change and f"{change}{self._way_of(entered)}")
        if not change and foreign and any(map(self.watch.weights_changed, self.weights())):
            change = "writes into the weights that everybody is given"
        return change

    def _way_of(self, entered: str) -> str:
        """How a function may do what it is left out for; empty of what is never trusted."""
        return STRICTLY * (self.notes is None and EnteredName(entered).original in self.functions)

    def _look_at_pipe(self) -> None:
        if self.channel is not None and not self.channel.is_open():
            os._exit(CUT_OFF)  # while the parent still sees whose turn it is


# -- what a process holds and does not use, so that functions find memory and collector as in other programs -----------

POOL_BYTES, LARGEST_SMALL = 1 << 14, 512
"""Python keeps small objects of one size side by side in pools of the one number of bytes, up to the other in size."""


def ballast(most: int) -> list[bytes]:
    """A block of up to so many bytes, and of each size of small objects a drawn number, up to a pool of them."""
    drawn, head = random.Random(most), sys.getsizeof(b"")
    small = (
        bytes(size - head) for size in range(48, LARGEST_SMALL, 16) for _ in range(drawn.randrange(POOL_BYTES // size))
    )
    return [bytes(most), *small]


REFERENCES, STRIDE = 4, 7919
"""Of each stand-in to others, which lie scattered: as many as an object of an interpreter has."""


def stand_ins(count: int) -> list[dict[int, Any]]:
    """So many objects that the collector walks in about the time that those of a bare interpreter take. With ours a
    function would be timed with collections that are longer, and fewer, than in a program of the user's; so ours are
    frozen. With none at all they would be shorter, and more."""
    made: list[dict[int, Any]] = [{} for _ in range(count)]
    for place, holder in enumerate(made):
        for reference in range(REFERENCES):
            holder[reference] = made[(place * STRIDE + reference) % count]
    gc.collect()
    return made


# -- what a sample calls: something built on a workload, split into what is timed and what is not ----------------------


class Runner(Callee):
    """What a sample calls, for one built variant. Only `call` is timed.

    `prepare` gets everything ready for `repeats` calls of `length` tokens. They use prompts from number `prompt` on: a
    prefill takes one for each call. `asked` then has (number of the prompt, all tokens so far) for each of these calls.
    Of the last call's wall time `uncounted_ns` do not count. `enter` lets imports find the variant's own modules, where
    it has some. is_fresh: each call begins a process of its own, and finds nothing warm that one before it left."""

    uncounted_ns = 0
    is_fresh = False
    enter: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, model: Any, bench: Bench) -> None:
        self.model = model
        self.bench = bench
        self.asked: list[tuple[int, int]] = []
        self.calls: deque[Tensor] = deque()

    def prepare(self, length: int, prompt: int, repeats: int) -> None:
        """Get ready, in the variant's own world, as `set_up` says."""
        self.enter()
        self.set_up(length, prompt, repeats)

    def set_up(self, length: int, prompt: int, repeats: int) -> None:
        """Here: whole prompts of `length` tokens, one for each call."""
        self.asked = [(number, length) for number in range(prompt, prompt + repeats)]
        self.calls = deque(self.bench.tokens(number, length) for number, _ in self.asked)

    def finish(self) -> None:
        """Let go of what the calls were given."""

    def counted_ns(self) -> Optional[tuple[int, int]]:
        """CPU time of the thread and wall time of the last calls, where they count in part; None: as they took."""
        return None

    def left_behind(self) -> dict[str, Tensor]:
        """What the last call left behind that the examiner must see beside its output, by part."""
        return {}

    def first_ns(self) -> tuple[int, int, int]:
        """CPU, wall and device time until the last call's first token was there; 0 for what there is none of."""
        return 0, 0, 0


class PlainRunner(Runner):
    """A call that needs nothing: of one part of a layer, or of a kernel."""

    def __init__(self, call: Callable[[], Tensor]) -> None:
        self.asked = []
        self.call = call  # type: ignore[method-assign]

    def set_up(self, length: int, prompt: int, repeats: int) -> None:
        pass


def hide(worker: Worker) -> None:
    """Remove what measures and judges, and our variants, from `sys.modules` before foreign code is imported. What
    foreign code then imports under these names are copies of its own. Code that searches the stack or the heap still
    finds the originals."""
    if not worker.alone:
        return
    packages = ("llama_workbench.harness", "llama_workbench.datasets")
    private = [name for name in sys.modules if name.startswith(f"{variants.__name__}.") and "__" in name]
    gone = [name for name in sys.modules if name.startswith(packages)]
    worker.hidden += [sys.modules.pop(name) for name in (*gone, *private, "__main__")]
    sys.modules["__main__"] = ModuleType("__main__")
    for package in packages:
        with suppress(AttributeError):
            delattr(llama_workbench, package.rpartition(".")[2])
