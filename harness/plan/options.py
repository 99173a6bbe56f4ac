"""Every option of `pytest --benchmark`: one line says its name, type, default and help, and where else it goes.

From these lines are made the options of pytest and those of verbs, what a node of a cluster is sent, and what a run
that goes on keeps. Nothing heavy is imported here: each session of pytest reads it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args, get_type_hints

import llama_workbench
from llama_workbench.datasets.lengths import Statistic

from ..calls.command import ANY_CODE, CONCLUDE, IGNORE, INPUT, PREPARE
from ..spec.regions import Condition

if TYPE_CHECKING:
    from ..calls.environments import OwnSetting
    from ..calls.source import Source

ADD, CALL, CHECK, COMPARE, ENV, SIDE_ENV = "--add-variant", "--call", "--check", "--compare", "--env", "--side-env"
"""Options that bring a user's code, for messages and for commands that go on."""

STATISTIC, CALM = "--statistic", "--calm"
SIZES, AGAINST, BEST = "--sizes", "--against", "best"
CHECKPOINT, CLAIMS, LONG = "--checkpoint", "--claims-dir", "--workbench-"  # what long names begin with

DEFAULT_BUDGET_SECONDS, WHOLE_BUDGET_SECONDS = 440.0, 3600.0
"""Of gates and rounds, where no budget was given; passes come on top. `make bench` then takes 10 minutes, `make
bench-all` 80. A budget that was given is for rounds alone."""


class PlanError(ValueError):
    """The request cannot be planned; the text names the value and the fix."""


@dataclass(frozen=True)
class Option:
    """What is known of an option beside the field that holds its value.

    A run that goes on keeps what it had, unless `again` allows that an option is given again.
    """

    name: str  # as it is typed, without dashes
    help: str
    metavar: str | tuple[str, str] | None = None
    typed: Any = str  # bool: a flag; list[str]: may be given several times; tuple[str, str]: two words
    usual: Any = None  # what is typed where nothing is
    bare: str | None = None  # what is meant where the name stands alone, of an option that may have a value
    read: Callable[[Any], Any] | None = None  # a word that was typed → the value; ValueError says what is expected
    again: bool = False  # may be given again to a run that goes on
    asks: bool = False  # says what is measured
    repeated: bool = False  # belongs to the command that measures one claim of a run again
    also: str = ""  # a second name

    @property
    def key(self) -> str:
        """As the name of a variable."""
        return self.name.replace("-", "_")

    def names(self, prefix: str = "--") -> list[str]:
        """As they are typed."""
        return [f"{prefix}{name}" for name in (self.name, self.also) if name]

    @property
    def default(self) -> Any:
        """What the command line gives where nothing is typed."""
        return {bool: False, list[str]: []}.get(self.typed, self.usual)

    def argparse(self) -> dict[str, Any]:
        """For `add_argument`."""
        words: dict[str, Any] = {"help": self.help.replace("%", "%%")}
        if self.typed is bool:
            return {"action": "store_true"} | words
        words |= {"metavar": self.metavar, "default": self.default}
        words |= {} if self.bare is None else {"nargs": "?", "const": self.bare}
        kinds: dict[Any, dict[str, Any]] = {list[str]: {"action": "append"}, tuple[str, str]: {"nargs": 2}}
        return words | kinds.get(self.typed, {} if self.typed is str else {"type": self.typed})

    def value(self, typed: Any) -> Any:
        """The value of what was typed. Raises PlanError."""
        return tuple(map(self._read, typed)) if isinstance(typed, (list, tuple)) else self._read(typed)

    def _read(self, word: Any) -> Any:
        try:
            return word if self.read is None else self.read(word)
        except ValueError as error:
            raise PlanError(f"--{self.name} {word}: {error}") from None


def words(text: str) -> tuple[str, ...]:
    """NAME,NAME"""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _sizes(text: str) -> tuple[int, ...]:
    """Sizes of inputs, the smallest first."""
    sizes = [int(word) for word in words(text) if word.isdecimal()]
    if len(sizes) < len(words(text)) or not all(sizes):
        raise ValueError("expected whole numbers above 0, such as 10,100,1000")
    return tuple(sorted({*sizes}))


def _folder(text: str) -> Path:
    if "://" in text:
        raise ValueError(f"expected a folder of this machine; copy the run from there: workbench publish RUN {text}")
    return Path(text)


def more_sides(after: Sequence[str]) -> list[str]:
    """Of the words behind both sides of `--compare`: further sides. The others are tests."""
    return [word for word in after if not Path(word.partition("::")[0]).exists()]


def placed(text: str) -> tuple[str, str]:
    """Name of a side, or "" for both, and which environment it gets, from NAME=WHERE or WHERE ("numpy==2.1", too)."""
    from ..calls.source import NAME

    name, equals, place = text.partition("=")
    return (name, place) if equals and NAME.fullmatch(name) and not place.startswith("=") else ("", text)


def _exit_codes(text: str) -> str | tuple[int, ...]:
    """The codes that are no failure: N,N or ANY_CODE."""
    if text == ANY_CODE:
        return text
    try:
        return tuple(int(word) for word in words(text))
    except ValueError:
        raise ValueError(f"expected exit codes, such as 1,2, or {ANY_CODE}") from None


def own_setting(text: str) -> OwnSetting:
    """What a side has of its own, from NAME:KEY=VALUE or NAME:OPTIONS. Raises ValueError."""
    from ..calls.environments import OwnSetting

    return OwnSetting.parse(text)


def _percentile(text: str) -> Statistic:
    for known in get_args(Statistic):
        if text == known:
            return cast(Statistic, known)
    raise ValueError(f"expected {', '.join(get_args(Statistic))}")


def option(name: str, help: str, *, default: Any, sent: bool = False, **more: Any) -> Any:
    """A field that an option of this name fills. more: see `Option`."""
    return field(default=default, metadata={"option": Option(name.removeprefix("--"), help, **more), "sent": sent})


def drawn_seed() -> int:
    """Another one for each run."""
    return secrets.randbelow(1 << 31)


single = partial(option, default=None)
flag = partial(option, default=False, typed=bool)
names = partial(option, default=(), metavar="NAME,NAME", usual="", read=words)
several = partial(option, default=(), metavar="FILE:FUNCTION", typed=list[str])


# fmt: off
@dataclass(frozen=True)
class Start:
    """How a session begins: anew or with an earlier run, and where."""

    benchmark: bool = flag("benchmark",
        "measure, and print verdicts, instead of running tests (with no other option: the quick claims)", again=True)
    goes_on: str | None = single("continue",
        "resume RUN, which was cut off or has inconclusive verdicts: its plan, its folder and its finished rounds are "
        "kept. Example: --continue results/runs/ID",
        metavar="RUN", again=True, asks=True)
    on: str | None = single("on",
        "measure on the nodes of a Ray cluster: ray (this machine belongs to it) or ray://HEAD (default: this machine "
        "alone). Example: --on ray",
        metavar="CLUSTER", again=True)
    on_each_kind: bool = flag("on-each-kind",
        "with --on: measure everything on each machine type (default: everything once, on the nodes that are free)")


@dataclass(frozen=True)
class Request:
    """What is measured. Empty tuples mean "not said"."""

    claims: tuple[str, ...] = names("claims",
        "measure only these claims (`workbench claims` lists them)", metavar="ID,ID", sent=True, asks=True)
    variants: tuple[str, ...] = names("variants",
        "measure only these variants (`workbench variants` lists them)", sent=True, asks=True)
    workloads: tuple[str, ...] = names("workloads",
        "measure only these workloads (`workbench workloads` lists them; default: those of the claims)",
        sent=True, asks=True)
    workloads_file: Path | None = single("workloads-file",
        "a file of your own workloads (`workbench new workload NAME` writes one)", metavar="FILE", read=Path, asks=True)
    added: tuple[str | Source, ...] = several(ADD,
        "add a variant of your own, named after the function that builds it. Also NAME=FILE:FUNCTION, MODULE:FUNCTION, "
        "and @REV behind it; repeatable. Example: --add-variant mine.py:build_mine",
        again=True, asks=True, repeated=True)
    compare: tuple[Any, ...] | None = single(COMPARE,  # the baseline, then others: a name, FILE:FUNCTION, or a Source
        "no claim: is B faster or slower than A (the baseline), or the same within 1 %? Each is the name of a variant, "
        "FILE:FUNCTION or MODULE:FUNCTION (with --call, unless it builds a model), cmd:COMMAND (without a shell: "
        "cmd:sh -c '...' is one) or import:MODULE; a bare name is a function of the file of --call. More sides may "
        "follow. Example: --compare old.py:f new.py:f --call bench.py:texts",
        metavar=("A", "B"), typed=tuple[str, str], sent=True, asks=True,
        again=True)
    calls: tuple[str | Source, ...] = several(CALL,
        "with --compare: input generator. It is called with a seed and returns the arguments of one call (a tuple: "
        "several arguments); repeatable. Example: --call bench.py:texts",
        again=True, repeated=True, also="inputs")
    sizes: tuple[int, ...] = names(SIZES,
        "with --call: measure at each of these sizes; the input generator is called with a seed and a size. Prints "
        "which side is best at which size, where that changes, and how times grow. Example: --sizes 10,100,1000,10000",
        metavar="N,N", read=_sizes, repeated=True)
    against: str = single(AGAINST,
        "with --compare: the side that the others are compared with, by its name, or best: at each size the best one "
        "(default: the first side)",
        metavar="NAME", default="", repeated=True)
    check: str | Source | None = single(CHECK,
        "with --call, or of commands (their standard output): output check. It takes both results and says whether "
        "they agree, or it takes one and returns the part to compare (default: tensors and arrays within rounding, "
        "all else by ==). Example: --check bench.py:same",
        metavar="FILE:FUNCTION", again=True, repeated=True)
    statistic: Statistic | None = single(STATISTIC,
        "with --call: compare this percentile of the times of single calls, p90, p95 or p99 (default: the median). A "
        "process then times 20, 40 or 200 calls of each function. Example: --statistic p95",
        metavar="NAME", read=_percentile, sent=True, repeated=True)
    calm: bool = flag(CALM,
        "with --call: keep freed memory for reuse and collect no garbage while a call is timed. Times vary less, but "
        "a real program does not run so (default: the system's allocator and Python's collector as they are)",
        sent=True, repeated=True)
    environments: tuple[tuple[str, str], ...] = several(ENV,
        "with --call: environment in which one of A and B runs, by its name (without a name: both): a virtual "
        "environment, an interpreter, or packages to install. The workbench need not be installed there; repeatable "
        "(default: this environment). Example: --env new='numpy==2.1'",
        metavar="NAME=WHERE", read=placed, repeated=True)
    of_sides: tuple[OwnSetting, ...] = several(SIDE_ENV,
        "environment variable of one of A and B alone, by its name (it overrides what the workbench sets), or options "
        "of its Python; repeatable. Examples: --side-env new:OMP_NUM_THREADS=4, --side-env 'new:-O'",
        metavar="NAME:KEY=VALUE", read=own_setting, repeated=True,
        again=True)
    ignore_failure: str | tuple[int, ...] = option(IGNORE,
        "of commands: exit codes that are no failure, or any code where none is given. Both commands must end with the "
        "same one (default: 0 alone). Example: --ignore-failure=1,2",
        default=(), metavar="CODES", read=_exit_codes, bare=ANY_CODE, repeated=True,
        again=True)
    prepare: str = option(PREPARE,
        "of commands: run this before each timed run of both, untimed and without a shell (default: nothing). Example: "
        "--prepare 'make clean'", default="",
        metavar="COMMAND", repeated=True, again=True)
    conclude: str = option(CONCLUDE,
        "of commands: run this after each timed run, in the same way (default: nothing)", default="", metavar="COMMAND",
        repeated=True, again=True)
    input: Path | None = single(INPUT,
        "of commands: file that they read as standard input (default: it is empty). Example: --input words.txt",
        metavar="FILE", read=Path, repeated=True, again=True)
    fail_if: tuple[Condition, ...] = several("fail-if",
        "with --compare: exit with 1 if one of these holds; repeatable. Example: --fail-if slower:5\n"
        "slower:P  B is more than P % slower\nmaybe-slower:P  that cannot be ruled out\n"
        "not-faster:P  it is not proven that B is more than P % faster\n"
        "not-between:LOW:HIGH  it is not proven that B is LOW to HIGH times as fast",
        metavar="WHAT:PERCENT", read=Condition.parse, sent=True)
    only_conditions: bool = False  # nobody waits for faster, slower or the same
    everything: bool = flag("all",
        "run the full claim suite, with the slow claims too (about two hours)", sent=True, asks=True)
    threads: int | None = single("threads",
        "threads that each workload computes on (default: what the workload says, mostly 1). Example: --threads 2",
        metavar="N", typed=int, sent=True, repeated=True)
    device: str = single("device",
        "where models compute: cpu (default) or cuda (CUDA_VISIBLE_DEVICES chooses one of several GPUs)",
        metavar="KIND", default="cpu", usual="cpu", sent=True, repeated=True)

    @property
    def own_environment(self) -> str:
        """The first option that gives one side an environment or variables of its own, as typed; else empty."""
        placed = [f"{ENV} {name}{'=' * bool(name)}{place}" for name, place in self.environments]
        return next(iter([*placed, *(f"{SIDE_ENV} {setting}" for setting in self.of_sides)]), "")


@dataclass(frozen=True)
class Options:
    """How a run is made, beside what it measures."""

    budget_seconds: float = single("budget",
        f"measuring time in seconds (default {DEFAULT_BUDGET_SECONDS:g}, with --all {WHOLE_BUDGET_SECONDS:g}; these "
        "include the output checks, except with --compare). Up to 10 % more is used if it should decide a result; the "
        "rest is reported as inconclusive. Example: --budget 60",
        metavar="SECONDS", typed=float, default=DEFAULT_BUDGET_SECONDS, sent=True,
        again=True)
    budget_has_gates: bool = field(default=False, metadata={"sent": True})  # see `for_rounds`
    to_compare: bool = flag("to-compare",
        "keep measuring until times relative to the reference benchmark are known to 1 %, or the budget is spent; use "
        "it for runs that are saved as baselines (default: stop when all is decided)", sent=True)
    seed: int = field(default_factory=drawn_seed, metadata={"option": Option("seed",
        "random seed of orders and of what each process draws (default: new for each run, stored in run.json). Runs "
        "with the same seed are not independent. Example: --seed 1", metavar="N", typed=int), "sent": True})
    run_dir: Path | None = single("run-dir",
        "folder of the run (default: results/runs/<time>)", metavar="FOLDER", read=_folder)
    checkpoint: Path | None = single(CHECKPOINT,
        "real Llama for all workloads: a Hugging Face folder or a .gguf file (default: generated weights)",
        metavar="PATH", read=Path, sent=True, again=True, repeated=True)
    claims_folder: Path = single(CLAIMS,
        "folder of claim files (default: those that ship). Example: --claims-dir claims/public", metavar="FOLDER",
        read=Path, default=llama_workbench.ROOT / "claims",
        again=True, asks=True, repeated=True)
    count_instructions: bool = flag("count-instructions",
        "then count the instructions of a call of each variant (needs valgrind; a slow call takes minutes)", sent=True)
    no_causes: bool = flag("no-causes",
        "skip locating the difference and measuring memory, some 10 s per pair (default: both are done for functions "
        "that differ, and for models with --compare and --profile)", sent=True, repeated=True)
    strict: bool = flag("strict",
        "exclude a function that starts processes or threads, or changes settings of the process, as code that may "
        "cheat (default: it is timed by the wall, settings are restored, both are said)", sent=True, repeated=True)
    profile: bool = flag("profile",
        "then profile each variant: py-spy stacks, memray peaks", sent=True, again=True)
    gates_only: bool = False

    def for_rounds(self, seconds: float) -> Options:
        """The same with a budget for rounds alone."""
        return replace(self, budget_seconds=seconds, budget_has_gates=False)

    def usual(self, request: Request) -> Options:
        """The same with the budget that a request has where none was given: for gates too, but of a comparison."""
        seconds = WHOLE_BUDGET_SECONDS if request.everything else DEFAULT_BUDGET_SECONDS
        return replace(self, budget_seconds=seconds, budget_has_gates=request.compare is None)

    @property
    def is_saved(self) -> bool:
        """Whether the run may be compared with others later. A look of a few seconds is no baseline."""
        return self.to_compare or self.budget_seconds >= 5.0

    @property
    def places(self) -> dict[str, Path]:
        """Where something lies that is not ours: option → path, as far as it was given."""
        claims = None if self.claims_folder == Options.claims_folder else self.claims_folder
        return {name: path for name, path in ((CHECKPOINT, self.checkpoint), (CLAIMS, claims)) if path is not None}

    @property
    def at_most(self) -> str:
        """The budget in words."""
        return f"at most {self.budget_seconds:.0f} s of {'measuring' if self.budget_has_gates else 'rounds'}"
# fmt: on

SECTIONS = (Start, Request, Options)
Section = TypeVar("Section", Start, Request, Options)


def options_of(*sections: type) -> dict[str, Option]:
    """Field → its option."""
    return {
        each.name: each.metadata["option"] for kind in sections for each in fields(kind) if "option" in each.metadata
    }


def every_option() -> Iterator[Option]:
    """As `pytest --help` lists them."""
    return iter(options_of(*SECTIONS).values())


def typed(section: type[Section], line: Mapping[str, Any]) -> Section:
    """A section of what was typed. line: what the command line has, by the keys of options. Raises PlanError."""
    by_field = {name: (each, line.get(each.key)) for name, each in options_of(section).items()}
    given = {
        name: each.value(word)
        for name, (each, word) in by_field.items()
        if word is not None and (word != "" or each.read is None)
    }
    return section(**given)


# -- to another machine, and to a run that goes on ---------------------------------------------------------------------


def sent(section: Request | Options) -> dict[str, Any]:
    """What is sent to a node, as JSON: no paths of this machine but those that name a place on the node."""
    return {each.name: _plain(getattr(section, each.name)) for each in _sent(type(section))}


def received(section: type[Section], table: object) -> Section:
    """What `sent` made, again; a section as it is. Raises ValueError, which names the field."""
    from pydantic import ConfigDict, create_model

    if isinstance(table, section):
        return table
    hints = get_type_hints(section, localns={"Source": str, "OwnSetting": str})
    shapes: dict[str, Any] = {
        each.name: (hints[each.name], each.default if each.default is not MISSING else ...) for each in _sent(section)
    }
    model = create_model(section.__name__, __config__=ConfigDict(extra="forbid"), **shapes)
    content = model.model_validate(table)
    return section(**{name: getattr(content, name) for name in shapes})


def kept(options: Options) -> dict[str, Any]:
    """What a run that goes on keeps of its options, as JSON."""
    return {name: value for name, value in sent(options).items() if _is_kept(type(options), name)}


def going_on(given: Options, before: Options) -> Options:
    """The options of a run that goes on: as they were, but for those that may be given again."""
    return replace(given, **{name: getattr(before, name) for name in kept(before)})


def _is_kept(section: type, name: str) -> bool:
    known = options_of(section).get(name)
    return known is None or not known.again


def _sent(section: type) -> list[Field]:
    return [each for each in fields(section) if each.metadata.get("sent")]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [*map(_plain, value)]
    return str(value.resolve()) if isinstance(value, Path) else str(value) if isinstance(value, Condition) else value
