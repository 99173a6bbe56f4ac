"""What a model is asked to do, from `datasets/workloads.toml`, and how many tokens each call of a round has."""

from __future__ import annotations

import bisect
import itertools
import math
import statistics
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, model_validator

from llama_workbench import ROOT

from .files import impossible, nearest, short, shortened, shown
from .geometries import MOST_COUNT, Count, DataError, Geometry, Text, checked, geometries, named, read_toml
from .lengths import Statistic, drawn_length, longest_call

WORKLOADS_FILE = ROOT / "datasets" / "workloads.toml"
TRACES_FILE = ROOT / "datasets" / "trace_lengths.toml"

MOST_WORKLOADS = 1000
"""Of a file; the lists of a table make one for each combination."""

# Keys that may hold a list: one workload for each value.
_LISTS = ("geometry", "tokens", "new_tokens", "context", "chunk", "batch", "threads")


class Trace(BaseModel):
    """Lengths of real requests: `at_most` holds rows [tokens, requests of at most that many tokens], ascending; the
    last one has all `requests`."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    description: Text
    source: Text
    counts: Text
    requests: Count
    at_most: list[Annotated[list[Count], Field(min_length=2, max_length=2)]] = Field(min_length=1)

    def length_at(self, fraction: float) -> float:
        """Length in tokens that `fraction` (0 to 1) of the requests do not exceed; linear between two rows."""
        target = fraction * self.requests
        rows = [[0, 0], *self.at_most]
        row = min(bisect.bisect_left([count for _, count in self.at_most], target), len(self.at_most) - 1)
        (tokens_before, count_before), (tokens, count) = rows[row], rows[row + 1]
        share = 1.0 if count == count_before else (target - count_before) / (count - count_before)
        return tokens_before + (tokens - tokens_before) * share


class Workload(BaseModel):
    """One thing a model is asked to do.

    `prefill`: `tokens` new tokens after `context` earlier ones, at once or in chunks of `chunk` (the last may be
    shorter). `decode`: one token at a time, the first after `context` earlier ones. `generate`: a prompt of `tokens`,
    then `new_tokens` greedy ones; one call is one whole generation. `component`: one part of a layer at the geometry's
    width, without a checkpoint, for one sequence in float32. `call`: any function, with the arguments that the function
    `payload` makes (FILE:FUNCTION; the same for `check`, which compares two answers), from a `size` where it has one;
    the sizes of models mean nothing.
    With a `statistic` each call is timed by itself, and this percentile of the times is compared instead of the median.
    `calm`: its processes keep freed memory for reuse, and collect no garbage while a call is timed; a `call` may be
    measured as Python and the system have it instead.
    `tokens` is the length of a call, the middle of the lengths where they are distinct, the mean where they come from a
    trace. `batch` sequences share every call. `prompts`: "fresh" gives each timed call one that no call had before,
    "repeated" the same one to all, for what is kept from one request to the next.

    Values are checked against the geometry: `context` and the longest call must fit `max_position_embeddings`.
    `Workload.model_validate(values, context={"geometries": {...}})` checks against others than the shipped ones."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
    kind: Literal["prefill", "decode", "generate", "component", "call"]
    geometry: str
    tokens: Count
    new_tokens: Count | None = None
    chunk: Count | None = None
    batch: Count = 1
    context: Annotated[int, Field(ge=0, le=MOST_COUNT)] = 0
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    threads: Count = 1
    lengths: Literal["repeated", "distinct", "trace"] = "repeated"
    trace: str | None = None
    length_divisor: Annotated[float, Field(ge=1e-3, le=1e6)] = 1.0
    length_limit: Count | None = None
    prompts: Literal["fresh", "repeated"] = "fresh"
    component: Text | None = None
    payload: Text | None = None
    size: Count | None = None
    check: Text | None = None
    statistic: Statistic | None = None
    calm: bool = True
    description: Text

    _trace: Trace | None = None

    @property
    def has_model(self) -> bool:
        """Whether a model with a checkpoint does it: neither one part of a layer nor any function."""
        return self.kind not in ("component", "call")

    @model_validator(mode="after")
    def _possible(self, info: ValidationInfo) -> Workload:
        context: Mapping[str, Any] = info.context or {}
        self._check_kind()
        if self.kind == "call":
            return self
        self._find_trace(context.get("traces"))
        self._check_fit(context["geometries"] if "geometries" in context else geometries())
        return self

    def _check_kind(self) -> None:
        component, generate, call = (self.kind == kind for kind in ("component", "generate", "call"))
        because = f'because kind = "{self.kind}"'
        single, beforehand = f"{because} is one sequence in float32", "each prompt's tokens are known beforehand"
        no_chunks = self.chunk is not None and (self.kind != "prefill" or self.chunk >= self.tokens)
        rules = (  # what may not be, the key to blame, what was expected
            (call and self.payload is None, "payload", f"FILE:FUNCTION, {because}"),
            (not call and self.payload is not None, "payload", f"none, {because}"),
            (not call and self.size is not None, "size", f"none, {because}"),
            (not call and self.check is not None, "check", f"none, {because}"),
            (not call and self.statistic is not None, "statistic", f"none, {because}"),
            (not call and not self.calm, "calm", f"none, {because}"),
            (component and self.component is None, "component", f"the name of a part, {because}"),
            (not component and self.component is not None, "component", f"none, {because}"),
            ((component or generate) and self.context > 0, "context", f"0, {because} has no earlier tokens"),
            (component and self.batch != 1, "batch", f"none, {single}"),
            (component and self.dtype != "float32", "dtype", f"none, {single}"),
            (generate and (self.new_tokens or 0) < 2, "new_tokens", f"at least 2, {because} times what follows"),
            (generate and self.lengths != "repeated", "lengths", f'"repeated": {beforehand}'),
            (not generate and self.new_tokens is not None, "new_tokens", f"none, {because}"),
            (no_chunks, "chunk", f'fewer than tokens = {self.tokens}, and kind = "prefill"'),
            (self.kind == "decode" and self.tokens != 1, "tokens", f"1, {because} takes one token at a time"),
            (self.lengths == "distinct" and self.tokens < 4, "tokens", 'at least 4, because lengths = "distinct"'),
        )
        for is_wrong, key, expected in rules:
            if is_wrong:
                raise impossible(key, getattr(self, key), expected)

    def _find_trace(self, by_name: Mapping[str, Trace] | None) -> None:
        if self.lengths != "trace":
            for key, default in (("trace", None), ("length_divisor", 1.0), ("length_limit", None)):
                if getattr(self, key) != default:
                    raise impossible(key, getattr(self, key), f'none, because lengths = "{self.lengths}"')
            return
        by_name = traces() if by_name is None else by_name
        if self.trace is None or self.trace not in by_name:
            raise impossible("trace", self.trace, f"a trace of trace_lengths.toml; {nearest(str(self.trace), by_name)}")
        self._trace = by_name[self.trace]
        mean = statistics.fmean(drawn_length(self, (step + 0.5) / 1000) for step in range(1000))
        if abs(self.tokens - mean) > max(1.0, 0.01 * mean):
            raise impossible("tokens", self.tokens, f"the mean of the lengths, {mean:.0f}")

    def _check_fit(self, by_name: Mapping[str, Geometry]) -> None:
        if self.geometry not in by_name:
            expected = f"a geometry of geometries.toml; {nearest(self.geometry, by_name)}"
            raise impossible("geometry", self.geometry, expected)
        room = by_name[self.geometry].config.max_position_embeddings
        longest = longest_call(self)
        if self.context + longest > room:
            key = "context" if self.context >= room or self.kind == "decode" else "tokens"
            what = "decode calls over" if self.kind == "decode" else "calls of up to"
            wanted = f"context {self.context} and {what} {longest} tokens to fit"
            raise impossible(key, getattr(self, key), f"{wanted} max_position_embeddings = {room} of {self.geometry!r}")


def workloads(path: Path = WORKLOADS_FILE) -> dict[str, Workload]:
    """All workloads of a file by name, in its order, families expanded. Raises `DataError` on a mistake in it."""
    context = {"geometries": geometries(), "traces": traces()}
    file, tables = shown(path), read_toml(path)
    for key in tables.keys() - {"workload"}:
        raise DataError(f"{file}: [{shortened(key)}]: no such table; {nearest(key, ['workload'])}")
    families = tables.get("workload", [])
    if not isinstance(families, list) or not all(isinstance(family, dict) for family in families):
        raise DataError(f"{file}: workload = {short(families)}, expected tables with the heading [[workload]]")
    by_name: dict[str, Workload] = {}
    members = 0
    for number, family in enumerate(families, start=1):
        name = f" ({shortened(family['name'])})" if isinstance(family.get("name"), str) else ""
        label = f"[[workload]] {number}{name}"
        members += math.prod(len(family[key]) for key in _LISTS if isinstance(family.get(key), list))
        if members > MOST_WORKLOADS:
            too_many = f"makes {members:,} workloads, expected at most {MOST_WORKLOADS} in a file"
            raise DataError(f"{file}: {label}: {too_many}")
        for member in _members(family):
            workload = checked(Workload, member, file=file, table=label, context=context)
            if workload.name in by_name:
                raise DataError(
                    f"{file}: {label}: name = {short(workload.name)} occurs twice, expected a name of its own "
                    "(a list of tokens needs {tokens} in the name, a list of contexts {context})"
                )
            by_name[workload.name] = workload
    return by_name


@cache
def _shipped() -> Mapping[str, Workload]:
    """Those of the file that ships, read once: a plan of everything asks for some 400."""
    return workloads()


def get(name: str) -> Workload:
    """One workload. Raises `DataError` with the nearest name if there is none of that name."""
    return named(_shipped(), name, f"{shown(WORKLOADS_FILE)}: no workload")


def on_geometry(workload: Workload, geometry: Geometry) -> Workload:
    """The same workload on another model, say the user's own. Raises `DataError` if its context is too short."""
    values = workload.model_dump() | {"geometry": geometry.name}
    context = {"geometries": {geometry.name: geometry}}
    return checked(Workload, values, file="workload", table=workload.name, context=context)


def traces(path: Path = TRACES_FILE) -> dict[str, Trace]:
    """Length distributions of published traces by name. Raises `DataError` on a mistake in the file."""
    file = shown(path)
    return {name: checked(Trace, table, file=file, table=f"[{name}]") for name, table in read_toml(path).items()}


def _members(family: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One table for each combination of the listed values, with {key} filled in in name and description."""
    lists = {key: family[key] for key in _LISTS if isinstance(family.get(key), list) and family[key]}
    for values in itertools.product(*lists.values()):
        member = dict(family) | dict(zip(lists, values, strict=True))
        for key in ("name", "description"):
            for placeholder in _LISTS:
                if isinstance(member.get(key), str):
                    value = member.get(placeholder, "")
                    text = value if isinstance(value, str) else short(value)
                    member[key] = member[key].replace("{" + placeholder + "}", text)
        yield member
