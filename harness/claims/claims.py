"""What is said: `claims/*.toml`, one claim a file, checked so strictly that a typo cannot change a verdict.

A file looks like this:

    id = "single-file-faster"
    title = "One file is faster than many"
    who = ["TEAM-005"]
    source = [{ document = "HANDOFF TO TEAM-006", section = "Claim 1" }]
    statement = "The model runs faster when its code stands in one file."
    assumes = ["the same operations in the same order on both sides"]
    decided_by = "Only the layout differs. Faster means by more than 1 %, on every workload."

    [[hypothesis]]
    part = "prefill"              # a label; only needed where a claim has several parts, each with its own verdict
    evidence = "architecture"     # "architecture": op traces must be identical; "operations": they may differ, that
    variant = "team005_proposal"  # is the subject; "context": across engines or libraries
    baseline = "team005_hybrid"   # or a list of names
    workloads = ["prefill-15m-t8"]
    metric = "time"
    faster_than_percent = 1       # or another of EXPECTATIONS
    quick = false                 # left out unless the claim is asked for by name, or everything is
    device = "cuda"               # or "cpu": about that kind of device alone; else about the one that is measured on

A hypothesis whose metric is not a time is a reading, without two sides:

    [[hypothesis]]
    metric = "share"              # time of some phases in percent; or one of those in READINGS
    variant = "team006_before"
    workloads = ["prefill-15m-t128"]
    phases = ["qkv"]
    of = "layer"                  # the denominator
    range = [58, 64]              # or one of above, at_most

Whether a variant or a workload of that name exists is the plan's question, not this module's.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from llama_workbench.datasets.files import SMALL_BYTES, parse_toml, read_bytes, short, shortened
from llama_workbench.variants.phase_map import DENOMINATORS

from ..spec.comparison import TIMES, Comparison, Metric
from ..spec.regions import Range, Region

EXPECTATIONS = (
    "faster_than_percent",
    "slower_than_percent",
    "not_faster_than_percent",
    "ratio",
    "gain_percent",
    "same_within_percent",
)
"""The keys that say what is claimed of t_baseline / t_variant. A hypothesis has exactly one of them."""

READINGS = ("share", "trend", "inflation", "attribution", "loading", "memory", "roofline", "count", "check", "none")
"""Metrics that give one value.

share   time of `phases` in percent of `of`, for `variant` on each of `workloads`
trend   by how much the gain of `variant` over `baseline` rises from the shortest workload to the longest
inflation  how many times too high a claim of `claimed` = [low, high] was: claimed over measured gain
attribution  what the speed-up of the grid on `workloads` is due to; `quantity` is architecture, operations, both or
        neither
loading  what loading the weights of each workload's checkpoint adds to the time to first token, in percent of it;
        `quantity` is the loader, `of` the page cache: cold or warm
memory  `quantity` of `variant` on each of `workloads` (see harness/metrics/memory)
roofline  what share of this machine's peak `variant` reaches on each of `workloads` (see harness/metrics/roofline)
count   `quantity` of the source of `variant`, or how many times that of `baseline` (see harness/metrics/count.py)
check   `quantity` names a check: something that works or does not (see harness/metrics/check)
none    nobody can measure this here; `reason` says why
"""

DEVICES = ("cpu", "cuda")
"""Kinds of device that models can be measured on."""

_ON_CPU_ALONE = {
    "share": "shares of the time are not measured on CUDA: the host's clock between two statements says when work was "
    "queued, not when it was done, and an event between every two phases costs what launching a small kernel does",
    "loading": "loading is measured until the weights lie in main memory, and not on to a CUDA device",
    "roofline": "the roofs are those of the CPU, and none are measured of a CUDA device",
}
"""Metrics of readings that no run on another device has, and why."""

CAUSES = ("architecture", "operations", "both", "neither")

_RANGES = ("range", "above", "at_most")

_NAME = "a name of letters, digits and any of . _ + - (no spaces)"
_EXPECTED = {
    "id": "a name of lower-case letters, digits, dots and hyphens",
    "title": "a short text",
    "who": "a list of one or more names",
    "source": 'a list of one or more { document = "...", section = "..." }',
    "document": "the title of a document",
    "section": "the heading of a section",
    "statement": "a text: the claim in your words",
    "assumes": "a list of texts (it may be empty)",
    "decided_by": "a text of one or two sentences",
    "hypothesis": "one or more tables, each under [[hypothesis]] in double brackets",
    "part": "a short label",
    "evidence": '"architecture", "operations" or "context"',
    "variant": _NAME,
    "baseline": f"{_NAME}, or a list of such names without repeats",
    "workloads": "a list of one or more names without repeats",
    "metric": f"one of {', '.join((*TIMES, *READINGS))}",
    "quick": "true or false",
    "phases": "a list of one or more phases without repeats",
    "of": "the name of a denominator",
    "quantity": "a name",
    "range": "[low, high]",
    "above": "a number",
    "at_most": "a number",
    "claimed": "[low, high] with 1 < low < high, the ratios t_old / t_new that were promised",
    "reason": "a text of one sentence",
    "device": '"cpu" or "cuda"',
    "faster_than_percent": "a number of percent, 0 or more",
    "slower_than_percent": "a number of percent, 0 or more",
    "not_faster_than_percent": "a number of percent, 0 or more",
    "ratio": "[low, high] with 0 < low < high, of t_baseline / t_variant",
    "gain_percent": "[low, high] percent with -100 < low < high",
    "same_within_percent": "a number of percent above 0",
}
_EXPECTED_ITEM = {"who": "a name", "assumes": "a text", "baseline": _NAME, "workloads": _NAME, "phases": "a phase"}
_CHOICES = {"evidence": ("architecture", "operations", "context"), "metric": (*TIMES, *READINGS), "device": DEVICES}


MOST_ENTRIES = 100
"""Of a list: hypotheses of a claim, workloads of a hypothesis. The claims that ship have nine hypotheses at most."""

MOST_FAULTS = 20
"""Of one file are told; who has more has another kind of file."""


class ClaimError(ValueError):
    """A claim cannot be used. One line for each fault: file, key, value, what was expected, nearest valid name."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def _no_repeats(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) < len(values):
        raise ValueError("repeats")
    return values


def _rising(pair: tuple[float, float]) -> tuple[float, float]:
    if not pair[0] < pair[1]:
        raise ValueError("low must be below high")
    return pair


# Strict numbers: TOML's `true` is not 1 and "1" is not 1. TOML does have inf and nan, which no claim can mean.
_AtLeastZero = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0)]
_AboveZero = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0)]
_Percent = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=-100)]
_AboveOne = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=1)]
_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Text = Annotated[str, Field(strict=True, min_length=1, pattern=r"\S")]
_Name = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")]
_Id = Annotated[str, Field(strict=True, pattern=r"^[a-z0-9][a-z0-9.-]*$")]
_Device = Literal["cpu", "cuda"]
_Names = Annotated[tuple[_Name, ...], Field(min_length=1), AfterValidator(_no_repeats)]


class Source(BaseModel):
    """Where a claim was made: the title of a document and the heading of a section in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    document: _Text
    section: _Text


class Hypothesis(BaseModel):
    """What would make the claim true: which variant against which baselines, on which workloads, by how much."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    part: _Text | None = None
    evidence: Literal["architecture", "operations", "context"]
    variant: _Name
    baseline: Annotated[_Names, BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]
    workloads: _Names
    metric: Metric
    quick: Annotated[bool, Field(strict=True)] = True
    device: _Device | None = None
    faster_than_percent: _AtLeastZero | None = None
    slower_than_percent: _AtLeastZero | None = None
    not_faster_than_percent: _AtLeastZero | None = None
    ratio: Annotated[tuple[_AboveZero, _AboveZero], AfterValidator(_rising)] | None = None
    gain_percent: Annotated[tuple[_Percent, _Percent], AfterValidator(_rising)] | None = None
    same_within_percent: _AboveZero | None = None

    @model_validator(mode="after")
    def _is_decidable(self) -> Hypothesis:
        given = [key for key in EXPECTATIONS if getattr(self, key) is not None]
        if len(given) != 1:
            found = " and ".join(given) if given else "none"
            raise ValueError(f"expected exactly one of {', '.join(EXPECTATIONS)}; found {found}")
        if self.variant in self.baseline:
            raise ValueError(f'variant and baseline are both "{self.variant}": there is nothing to compare')
        try:
            _ = self.region
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{given[0]} is too narrow or too large to compute with") from error
        return self

    @property
    def region(self) -> Region:
        """The log ratios t_baseline / t_variant that the hypothesis allows."""
        if self.faster_than_percent is not None:
            return Region.faster_than_percent(self.faster_than_percent)
        if self.slower_than_percent is not None:
            return Region.slower_than_percent(self.slower_than_percent)
        if self.not_faster_than_percent is not None:
            return Region.not_faster_than_percent(self.not_faster_than_percent)
        if self.ratio is not None:
            return Region.ratio(*self.ratio)
        if self.gain_percent is not None:
            return Region.gain_percent(*self.gain_percent)
        assert self.same_within_percent is not None
        return Region.same_within_percent(self.same_within_percent)

    def describe(self) -> str:
        """What is claimed of the ratio, in words."""
        return self.region.describe()

    def comparisons(self) -> Iterator[Comparison]:
        """Every effect that it takes, baseline by baseline, workload by workload."""
        for baseline in self.baseline:
            for workload in self.workloads:
                yield Comparison(workload, self.variant, baseline, self.metric)


class Reading(BaseModel):
    """What would make the claim true: a value (of each workload, where it names any) inside a range."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    part: _Text | None = None
    metric: Literal[
        "share", "trend", "inflation", "attribution", "loading", "memory", "roofline", "count", "check", "none"
    ]
    quick: Annotated[bool, Field(strict=True)] = True
    device: _Device | None = None
    variant: _Name | None = None
    baseline: _Name | None = None
    workloads: Annotated[tuple[_Name, ...], AfterValidator(_no_repeats)] = ()
    phases: Annotated[tuple[_Name, ...], AfterValidator(_no_repeats)] = ()
    of: _Name | None = None
    quantity: _Name | None = None
    range: Annotated[tuple[_Number, _Number], AfterValidator(_rising)] | None = None
    above: _Number | None = None
    at_most: _Number | None = None
    claimed: Annotated[tuple[_AboveOne, _AboveOne], AfterValidator(_rising)] | None = None
    reason: _Text | None = None

    @model_validator(mode="after")
    def _is_decidable(self) -> Reading:
        needed, allowed = _KEYS[self.metric]
        given = [
            key
            for key in type(self).model_fields
            if key not in ("part", "metric", "quick", "device") and _set(self, key)
        ]
        if missing := [key for key in needed if key not in given]:
            raise ValueError(f'metric = "{self.metric}" needs {", ".join(missing)}')
        if foreign := [key for key in given if key not in (*needed, *allowed)]:
            raise ValueError(
                f'metric = "{self.metric}" has no {", ".join(foreign)} (keys here: {", ".join((*needed, *allowed))})'
            )
        ranges = [key for key in _RANGES if key in given]
        if len(ranges) != (0 if self.metric in ("attribution", "check", "none") else 1):
            found = " and ".join(ranges) if ranges else "none"
            raise ValueError(f"expected exactly one of {', '.join(_RANGES)}; found {found}")
        if self.metric == "inflation" and self.range is None:
            raise ValueError('metric = "inflation" needs range = [low, high], the factors')
        if self.metric == "attribution" and self.quantity not in CAUSES:
            raise ValueError(f'metric = "attribution" needs quantity = one of {", ".join(CAUSES)}')
        if self.metric == "share":
            whole = DENOMINATORS.get(self.of or "")
            if whole is None:
                raise ValueError(f'of = "{self.of}" is no denominator; there are {", ".join(DENOMINATORS)}')
            if foreign := [phase for phase in self.phases if phase not in whole]:
                raise ValueError(f'{", ".join(foreign)} is no phase of "{self.of}", which has {", ".join(whole)}')
        if self.metric == "trend" and len(self.workloads) < 2:
            raise ValueError('metric = "trend" needs two workloads or more')
        return self

    @property
    def unit(self) -> str:
        """What its value is counted in."""
        if self.metric == "count" and self.baseline is not None:
            return "times"
        percent = ("share", "loading", "memory", "roofline", "check")
        units = {"trend": "% rise", "inflation": "times", **dict.fromkeys(percent, "%")}
        return units.get(self.metric, self.quantity or "")

    @property
    def region(self) -> Range:
        """The values that it allows; a check allows only that every case passes (100 %), an attribution has none."""
        if self.range is not None:
            return Range(*self.range, self.unit)
        if self.above is not None:
            return Range(self.above, math.inf, self.unit)
        if self.at_most is not None:
            return Range(-math.inf, self.at_most, self.unit)
        if self.metric == "check":
            return Range(100.0, 100.0, self.unit)
        return Range(-math.inf, math.inf, self.unit)

    def describe(self) -> str:
        """What is claimed of the value, in words."""
        if self.metric == "none":
            return ""
        if self.metric == "attribution":
            return f"the speed-up is due to {self.quantity}"
        return "every case passes" if self.metric == "check" else self.region.describe()

    def comparisons(self) -> Iterator[Comparison]:
        """The timed effects that it is computed from; only a trend and an inflation have any."""
        if self.metric in ("trend", "inflation"):
            assert self.variant is not None and self.baseline is not None
            for workload in self.workloads:
                yield Comparison(workload, self.variant, self.baseline)


_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "share": (("variant", "workloads", "phases", "of"), _RANGES),
    "trend": (("variant", "baseline", "workloads"), _RANGES),
    "inflation": (("variant", "baseline", "workloads", "claimed"), _RANGES),
    "loading": (("workloads", "quantity", "of"), _RANGES),
    "memory": (("variant", "workloads", "quantity"), _RANGES),
    "roofline": (("variant", "workloads"), _RANGES),
    "count": (("variant", "quantity"), ("baseline", *_RANGES)),
    "attribution": (("workloads", "quantity"), ()),
    "check": (("quantity",), ()),
    "none": (("reason",), ()),
}
"""By metric: the keys that a reading needs, and those that it may have."""


def _set(reading: Reading, key: str) -> bool:
    return getattr(reading, key) not in (None, ())


def _kind(hypothesis: Any) -> str:
    """Which of the two models a table is meant for; one of a wrong metric is told so as a comparison."""
    metric = hypothesis.get("metric") if isinstance(hypothesis, Mapping) else getattr(hypothesis, "metric", None)
    return "reading" if metric in READINGS else "comparison"


_Either = Annotated[Annotated[Hypothesis, Tag("comparison")] | Annotated[Reading, Tag("reading")], Discriminator(_kind)]


class Claim(BaseModel):
    """One claim. `Claim.model_validate(claim.model_dump(mode="json"))` gives it back (see claims.json of a run)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: _Id
    title: _Text
    who: Annotated[tuple[_Text, ...], Field(min_length=1)]
    source: Annotated[tuple[Source, ...], Field(min_length=1)]
    statement: _Text
    assumes: tuple[_Text, ...]
    decided_by: _Text
    hypothesis: Annotated[tuple[_Either, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _parts_have_names(self) -> Claim:
        labels = [hypothesis.part for hypothesis in self.hypothesis]
        if len(labels) > 1:
            if None in labels:
                raise ValueError(f'hypothesis[{labels.index(None)}] has no "part": with several, each needs a label')
            for index, label in enumerate(labels):
                if label in labels[:index]:
                    raise ValueError(f'hypothesis[{index}].part = "{label}" is there twice')
        return self

    def comparisons(self) -> Iterator[Comparison]:
        """Every effect of every hypothesis; one may occur more than once."""
        for hypothesis in self.hypothesis:
            yield from hypothesis.comparisons()

    def readings(self) -> Iterator[Reading]:
        """Every hypothesis that is not about a time."""
        return (hypothesis for hypothesis in self.hypothesis if isinstance(hypothesis, Reading))

    def on(self, device: str) -> Claim | None:
        """The claim without the parts that a run on this kind of device cannot settle; None if nothing is left."""
        parts = tuple(hypothesis for hypothesis in self.hypothesis if not elsewhere(hypothesis, device))
        return self.model_copy(update={"hypothesis": parts}) if parts else None

    def names(self) -> tuple[str, ...]:
        """Names of all variants that it asks about, baselines included, in order of appearance."""
        names = [name for pair in self.comparisons() for name in (pair.variant, pair.baseline)]
        names += [name for reading in self.readings() for name in (reading.variant, reading.baseline) if name]
        return tuple(dict.fromkeys(names))

    def workloads(self) -> tuple[str, ...]:
        """Names of all workloads that it needs, in order of appearance."""
        names = [pair.workload for pair in self.comparisons()]
        names += [name for reading in self.readings() for name in reading.workloads]
        return tuple(dict.fromkeys(names))

    def quick(self) -> Claim | None:
        """The claim without the parts that take long; None if nothing is left."""
        parts = tuple(hypothesis for hypothesis in self.hypothesis if hypothesis.quick)
        return self.model_copy(update={"hypothesis": parts}) if parts else None


def elsewhere(hypothesis: Hypothesis | Reading, device: str) -> str:
    """Why a run that measures on this kind of device cannot settle a hypothesis; empty where it can."""
    if hypothesis.device is not None and hypothesis.device != device:
        needs = "needs a CUDA device" if hypothesis.device == "cuda" else "is about the CPU alone"
        return f"{needs}: run with --device {hypothesis.device}; this run measured on {device}"
    if device != "cpu" and hypothesis.metric in _ON_CPU_ALONE:
        return f"{_ON_CPU_ALONE[hypothesis.metric]}: run with --device cpu; this run measured on {device}"
    return ""


def load_claims(folder: Path) -> list[Claim]:
    """All claims of `folder`, in order of file names. Raises ClaimError with every fault of every file in it."""
    try:
        paths = sorted(Path(folder).glob("*.toml"))
    except OSError as error:
        raise ClaimError([f"{shortened(str(folder))}: cannot be read ({error.strerror})"]) from error
    if not paths:
        raise ClaimError([f"{folder}: no claims here: expected one or more .toml files"])
    claims: list[Claim] = []
    problems: list[str] = []
    first: dict[str, Path] = {}
    for path in paths:
        try:
            claim = read_claim(path)
        except ClaimError as error:
            problems += error.problems
            continue
        if claim.id in first:
            problems.append(f'{path}: id = "{claim.id}": {first[claim.id].name} has it already; an id is given once')
        else:
            first[claim.id] = path
            claims.append(claim)
    if problems:
        raise ClaimError(problems)
    return claims


def read_claim(path: Path) -> Claim:
    """Read one file. Raises ClaimError that names the file, and the line and column or the key at fault."""
    try:
        raw = read_bytes(path, at_most=SMALL_BYTES)
    except OSError as error:
        raise ClaimError([f"{path}: cannot be read ({error.strerror})"]) from error
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        raise ClaimError([f"{path}:{line}:{column}: not UTF-8 text, which TOML has to be"]) from error
    try:
        table = parse_toml(text)
    except tomllib.TOMLDecodeError as error:
        raise ClaimError([_syntax_problem(path, text, str(error))]) from error
    return check_claim(table, str(path))


def check_claim(table: Any, where: str) -> Claim:
    """Check one claim that was read already; `where` stands at the start of each problem of a ClaimError."""
    if not isinstance(table, Mapping):
        raise ClaimError([f"{where} = {_shown(table)}: expected a table of keys"])
    if long := [f"{where}: {shortened(place)}: {found}" for place, found in _long_lists(table)]:
        raise ClaimError(long[:MOST_FAULTS])
    try:
        return Claim.model_validate(table)
    except ValidationError as error:
        faults = error.errors()
        # A list whose items are all faulty is reported once more as too short; that would only confuse.
        inner = {fault["loc"][:depth] for fault in faults for depth in range(1, len(fault["loc"]))}
        told = [fault for fault in faults if not (fault["type"] == "too_short" and fault["loc"] in inner)]
        problems = dict.fromkeys(_problem(where, table, fault) for fault in told[:MOST_FAULTS])
        more = [f"{where}: and {len(told) - MOST_FAULTS} more faults"] if len(told) > MOST_FAULTS else []
        raise ClaimError([*(shortened(problem, len(where) + 800) for problem in problems), *more]) from error


def _long_lists(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Lists of more than `MOST_ENTRIES`: each workload goes with each baseline, of each hypothesis."""
    for key, value in table.items():
        if not isinstance(value, list):
            continue
        if len(value) > MOST_ENTRIES:
            yield key, f"has {len(value):,} entries, expected at most {MOST_ENTRIES}"
            continue
        for index, inner in enumerate(value):
            if isinstance(inner, Mapping):
                yield from ((f"{key}[{index}].{place}", found) for place, found in _long_lists(inner))


def select(claims: Sequence[Claim], names: Sequence[str] | None) -> list[Claim]:
    """The claims of these ids, in the order of `claims`; all of them for None or an empty list.

    Raises ClaimError for an id that does not exist, with the nearest one that does.
    """
    if not names:
        return list(claims)
    known = [claim.id for claim in claims]
    unknown = [name for name in dict.fromkeys(names) if name not in known]
    if unknown:
        raise ClaimError(f'no claim "{name}"{_nearest(name, known)} (claims: {", ".join(known)})' for name in unknown)
    return [claim for claim in claims if claim.id in set(names)]


def _syntax_problem(path: Path, text: str, message: str) -> str:
    """tomllib gives the place only inside its message, and none for a file that ends too early."""
    found = re.search(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$", message)
    if not found:
        return f"{path}: not valid TOML: {message}"
    if found[1]:
        line, column = int(found[1]), int(found[2])
    else:
        lines = text.split("\n")
        line, column = len(lines), len(lines[-1]) + 1
    return f"{path}:{line}:{column}: not valid TOML: {message[: found.start()]}"


def _problem(where: str, table: Mapping[str, Any], fault: Mapping[str, Any]) -> str:
    """One pydantic fault as a line: the key's path, its value, what was expected, and the nearest valid word."""
    location: tuple[str | int, ...] = tuple(step for step in fault["loc"] if step not in ("comparison", "reading"))
    keys = [step for step in location if isinstance(step, str)]
    key = keys[-1] if keys else ""
    if fault["type"] == "missing" and location and isinstance(location[-1], str):
        return f"{where}: {_dotted(location)}: missing; expected {_EXPECTED[key]}"
    if fault["type"] == "value_error" and key in ("", "hypothesis"):  # a check of ours over several keys
        return f"{where}: {_dotted(location)}: {fault['ctx']['error']}" if key else f"{where}: {fault['ctx']['error']}"
    location, value = _in_file(table, location)
    place = f"{where}: {_dotted(location)} = {_shown(value)}"
    if fault["type"] == "extra_forbidden":
        kind = Reading if "reading" in fault["loc"] else Hypothesis
        model: type[BaseModel] = Source if "source" in keys[:-1] else kind if "hypothesis" in keys[:-1] else Claim
        valid = list(model.model_fields)
        return f"{place}: unknown key{_nearest(key, valid)} (keys here: {', '.join(valid)})"
    expected = _EXPECTED[key]
    if isinstance(location[-1], int):
        expected = _EXPECTED_ITEM.get(key, expected)
    hint = _nearest(value, _CHOICES[key]) if key in _CHOICES and isinstance(value, str) else ""
    return f"{place}: expected {expected}{hint}"


def _dotted(location: Sequence[str | int]) -> str:
    text = ""
    for step in location:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += "." * bool(text) + shortened(step, 80)
    return text


def _in_file(table: Any, location: Sequence[str | int]) -> tuple[tuple[str | int, ...], Any]:
    """A fault's place and value as the file has them: pydantic may point inside what our own conversions made."""
    found: list[str | int] = []
    for step in location:
        if isinstance(step, int) != isinstance(table, list):
            break
        try:
            table = table[step]
        except (KeyError, IndexError, TypeError):
            break
        found.append(step)
    return tuple(found), table


def _shown(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):  # a number of too many digits, or nested deep
        return short(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _nearest(name: str, valid: Iterable[str]) -> str:
    """The nearest of `valid`, as the end of a sentence; empty where none is near."""
    close = difflib.get_close_matches(name.lower(), list(valid), n=1, cutoff=0.5)
    return f'; did you mean "{close[0]}"?' if close else ""
