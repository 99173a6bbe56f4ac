"""A claim, as it is written in `claims/*.toml` and stored in claims.json of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, ValidationError, model_validator

from llama_workbench.datasets.files import MOST_FAULTS, Location, dotted, faults, model_below, unknown_key
from llama_workbench.datasets.lengths import Statistic

from ..calls.environments import VARIABLE
from ..metrics.registry import metric_of, names
from ..metrics.time import TimeHypothesis
from ..spec.comparison import Comparison
from ..spec.hypotheses import Hypothesis, Name, Text


class Citation(BaseModel):
    """Where a claim was made: the title of a document and the heading of a section in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    document: Annotated[Text, Field(description="the title of a document")]
    section: Annotated[Text, Field(description="the heading of a section")]


def hypothesis_model(metric: Any) -> type[Hypothesis]:
    """The model for a table with this `metric`; for an unknown one that of times, which then tells the fault."""
    return metric_of(metric).hypothesis if isinstance(metric, str) and metric in names() else TimeHypothesis


def _by_its_metric(table: Any) -> Any:
    """A table read by the model of its metric."""
    return hypothesis_model(table.get("metric")).model_validate(table) if isinstance(table, Mapping) else table


Slug = Annotated[
    str,
    Field(
        strict=True,
        pattern=r"^[a-z0-9][a-z0-9.-]*$",
        description="a name of lower-case letters, digits, dots and hyphens",
    ),
]


Variable = Annotated[str, Field(strict=True, pattern=VARIABLE.pattern, description="the name of a variable")]


class NamedFunction(BaseModel):
    """Any function that a claim compares, beside variants of the model: FILE:FUNCTION, from the claim's folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[Name, Field(description="the name that variant and baseline give it")]
    source: Annotated[Text, Field(description='FILE:FUNCTION or MODULE:FUNCTION, with "()" behind it for a factory')]
    environment: Annotated[
        Text | None, Field(description='where it runs, as for --env: a folder, an interpreter, or "numpy==2.1"')
    ] = None
    variables: Annotated[
        dict[Variable, Annotated[str, Field(strict=True)]],
        Field(description='a table of variables of its environment: { PYTHONMALLOC = "malloc" }'),
    ] = {}


class NamedCall(BaseModel):
    """What such functions are called with; a name for `workloads`. With `sizes` there is one workload for each, called
    NAME-SIZE."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Slug
    payload: Annotated[Text, Field(description="FILE:FUNCTION of a function that makes the arguments")]
    sizes: Annotated[
        tuple[Annotated[int, Field(strict=True, ge=1)], ...],
        Field(
            description="a list of whole numbers above 0: what it is given beside the seed, a workload NAME-SIZE each"
        ),
    ] = ()
    check: Annotated[Text | None, Field(description="FILE:FUNCTION of a function that compares two answers")] = None
    threads: Annotated[int, Field(strict=True, ge=1, le=1024, description="a number of threads")] = 1
    statistic: Annotated[
        Statistic | None, Field(description='the percentile of single calls that is compared: "p90", "p95" or "p99"')
    ] = None
    calm: Annotated[bool, Field(strict=True, description="whether it is measured as with --calm")] = False
    description: Annotated[Text | None, Field(description="a text")] = None


class Claim(BaseModel):
    """One claim. `Claim.model_validate(claim.stored())` gives it back."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Slug
    title: Annotated[Text, Field(description="a short text")]
    who: Annotated[
        tuple[Annotated[Text, Field(description="a name")], ...],
        Field(min_length=1, description="a list of one or more names"),
    ]
    source: Annotated[
        tuple[Citation, ...],
        Field(min_length=1, description='a list of one or more { document = "...", section = "..." }'),
    ]
    headline: Annotated[bool, Field(strict=True, description="true or false: whether it is measured first")] = False
    statement: Annotated[Text, Field(description="a text: the claim in your words")]
    assumes: Annotated[
        tuple[Annotated[Text, Field(description="a text")], ...], Field(description="a list of texts (it may be empty)")
    ]
    decided_by: Annotated[Text, Field(description="a text of one or two sentences")]
    function: Annotated[
        tuple[NamedFunction, ...], Field(description="tables, each under [[function]] in double brackets")
    ] = ()
    call: Annotated[tuple[NamedCall, ...], Field(description="tables, each under [[call]] in double brackets")] = ()
    hypothesis: Annotated[
        tuple[Annotated[SerializeAsAny[Hypothesis], BeforeValidator(_by_its_metric)], ...],
        Field(min_length=1, description="one or more tables, each under [[hypothesis]] in double brackets"),
    ]

    _folder: Path | None = None

    @property
    def folder(self) -> Path | None:
        """Where the file is from which its functions are looked for; None where it has none, or was stored in a run."""
        return self._folder

    def read_from(self, path: Path) -> Claim:
        """The claim, as read from this file: its functions are looked for from there."""
        if self.function or self.call:
            self._folder = path.parent
        return self

    def stored(self) -> dict[str, Any]:
        """The claim as claims.json of a run holds it."""
        return self.model_dump(mode="json", exclude_none=True)

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

    def on(self, device: str) -> Claim | None:
        """The claim without the parts that a run on this kind of device cannot settle; None if nothing is left."""
        parts = tuple(hypothesis for hypothesis in self.hypothesis if not hypothesis.elsewhere(device))
        return self.model_copy(update={"hypothesis": parts}) if parts else None

    def names(self) -> tuple[str, ...]:
        """Names of all variants that it asks about, baselines included; those that are compared first."""
        names = [name for pair in self.comparisons() for name in (pair.variant, pair.baseline)]
        names += [name for hypothesis in self.hypothesis for name in hypothesis.variant_names()]
        return tuple(dict.fromkeys(names))

    def workloads(self) -> tuple[str, ...]:
        """Names of all workloads that it needs; those of comparisons first."""
        names = [pair.workload for pair in self.comparisons()]
        names += [name for hypothesis in self.hypothesis for name in hypothesis.workload_names()]
        return tuple(dict.fromkeys(names))


# What is wrong with a claim, in words for its author: the key, its value, what is expected, the nearest valid word.


NOTED_BY_RUNS = "left_out"
"""A key of parts that only the claims stored with a run have."""


class ClaimError(ValueError):
    """A claim cannot be used. One line for each fault: file, key, value, what was expected, nearest valid name."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def problems_of(error: ValidationError, table: Mapping[str, Any], where: str) -> list[str]:
    """What pydantic found wrong with a claim, a line each; `where` stands at the start of every line."""

    def model_at(location: Location) -> type[BaseModel]:
        match location:
            case ["hypothesis", int(index), *below] if isinstance(part := table["hypothesis"][index], Mapping):
                return model_below(hypothesis_model(part.get("metric")), tuple(below))
        return model_below(Claim, location)

    lines = faults(error, table, model_at, words={"metric": names()}, unlisted=(NOTED_BY_RUNS,))
    return [f"{where}: {line}" for line in lines]


def noted_by_runs(table: Mapping[str, Any], where: str) -> list[str]:
    """The keys of a claim file that only a run may write, a line each."""
    parts = table.get("hypothesis")
    lines = []
    for index, part in enumerate(parts if isinstance(parts, list) else []):
        if isinstance(part, Mapping) and NOTED_BY_RUNS in part:
            keys = [name for name in hypothesis_model(part.get("metric")).model_fields if name != NOTED_BY_RUNS]
            place = dotted(("hypothesis", index, NOTED_BY_RUNS))
            lines.append(f"{where}: {unknown_key(place, part[NOTED_BY_RUNS], NOTED_BY_RUNS, keys)}")
    return lines[:MOST_FAULTS]


# A run's claims in the words of today: what a claim says of itself may be mended after it was measured, what it asks
# may not, or its limits could be moved to where the measurement lies.


WORDS = frozenset({"part", "who", "reason", "small", "quick", "left_out"})
"""Of a hypothesis: what it is called, who says it, why nobody can measure it, what more than it claims is called, and
when it is measured. All else is what is asked."""


def in_words_of(stored: Iterable[Claim], today: Iterable[Claim]) -> list[Claim]:
    """The stored claims, each with what the claim of the same name says of itself today: title, source, statement,
    what it assumes, and of its parts the labels, who says them and `small`. Where a part asks something else today, or
    is not there any more, all of the claim stays as it was stored: the words of today would be about another
    question."""
    by_name = {claim.id: claim for claim in today}
    return [_reworded(claim, by_name[claim.id]) if claim.id in by_name else claim for claim in stored]


def _reworded(stored: Claim, today: Claim) -> Claim:
    left, parts = list(today.hypothesis), list[Hypothesis]()
    for part in stored.hypothesis:
        alike = [other for other in left if _asks_the_same(part, other)]
        if not alike:
            return stored
        match = min(alike, key=lambda other: other.part != part.part)  # of several the one of this label
        left.remove(match)
        words = {"part", "who", "reason", "small"} & type(match).model_fields.keys()
        parts.append(part.model_copy(update={name: getattr(match, name) for name in words}))
    asked = {"hypothesis": tuple(parts), "function": stored.function, "call": stored.call}
    return today.model_copy(update=asked)


def _asks_the_same(stored: Hypothesis, today: Hypothesis) -> bool:
    """Whether the stored one is the other, of all its workloads or of some (a run may have left some out)."""
    before, after = (part.model_dump(exclude={*WORDS, "workloads"}) for part in (stored, today))
    return before == after and set(stored.workload_names()) <= set(today.workload_names())
