"""`workbench count`"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from llama_workbench.commands.shared import MODELS, AsJson, Failure, Listed, ends, print_json, show, sources_of, table
from llama_workbench.harness.spec.words import VerbExit

if TYPE_CHECKING:
    from llama_workbench.harness.calls.source import Source

    from .metric import Instructions

DEFAULT_WORKLOADS = ("prefill-15m-t8",)

Side = Annotated[
    str,
    typer.Argument(help="Name of a variant, or FILE:FUNCTION of your own; also MODULE:FUNCTION, and @REV behind it."),
]


VERB = "count"
LISTED = Listed(22, MODELS, {"count BASE NEW": "how many instructions does a call of each execute?"})


@ends(
    {
        VerbExit.DONE: "both were counted on every workload",
        VerbExit.COULD_NOT: "at least one was not: the reason is printed",
    }
)
def command(
    baseline: Side,
    variant: Side,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            "-w",
            metavar="NAME",
            help=f"Workload to count on; repeatable. [default: {', '.join(DEFAULT_WORKLOADS)}]",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How many instructions does a call of each variant execute, and in whose code: Python, torch, kernels?

    Valgrind's callgrind counts them (apt-get install valgrind). It takes about a minute to start, and some 10 seconds
    for each count of a small prefill. Other programs do not change a count, so differences of 0.5 % are visible on a
    busy machine. A count is work, not time: a cache miss counts as much as an addition. Outputs are not checked here; a
    run does that before it counts (metric = "instructions" in a claim).

    The first variant is counted twice (or the second, if that fails). The interval of the difference is as wide as
    these two counts differ, and at least 100,000 instructions, because another process has other addresses.

    \b
    Exit codes:

    \b
    --json prints:
      {"format": 1, "baseline", "variant", "rows": [{"workload", "baseline": {"instructions", "again", "by"},
       "variant": {..}, "capability", "versions", "more_work_percent", "low", "high", "reason"}]}
      more_work_percent: how much more the baseline executes. `by`: whose code → instructions of a call.

    \b
    Examples:
      workbench count team006_before team005_proposal
      workbench count fast mine.py:build_mine --workload decode-15m-c64
    """
    from .counting import lacks
    from .metric import INSTRUCTIONS

    if reason := lacks():
        raise Failure(reason)
    names, added = _names((baseline, variant))
    if names[0] == names[1]:
        raise Failure(f"{names[0]} is given twice; name two variants")
    workloads = tuple(dict.fromkeys(workload or DEFAULT_WORKLOADS))
    records = INSTRUCTIONS.form.validate_python(_counted(names, added, workloads))
    rows = [_row(records, name, names) for name in workloads]
    if as_json:
        print_json({"format": 1, "baseline": names[0], "variant": names[1], "rows": rows})
    else:
        show(Group(*(block for row in rows if not row["reason"] for block in _blocks(row, names))))
    if missing := [f"{row['workload']}: {row['reason']}" for row in rows if row["reason"]]:
        raise Failure("\n".join(missing))


def _names(sides: Sequence[str]) -> tuple[tuple[str, str], dict[str, Source]]:
    """The names of both sides, and the sources of those from outside. Raises Failure."""
    from llama_workbench import variants

    parsed = {side: sources_of([side]) for side in sides if ":" in side}
    added = sources_of(source for each in parsed.values() for source in each.values())
    first, second = (next(iter(parsed[side])) if side in parsed else variants.get(side).name for side in sides)
    return (first, second), added


def _counted(names: Sequence[str], added: Mapping[str, Source], workloads: Sequence[str]) -> list[dict[str, Any]]:
    """The records of all counts, checkpoint by checkpoint; checkpoints are made where they are not in the cache."""
    from llama_workbench.cache import cache_directory
    from llama_workbench.datasets import geometries
    from llama_workbench.datasets import workloads as workload_data
    from llama_workbench.datasets.synthetic_files import synthesize
    from llama_workbench.harness.evidence.effect import duration

    from .counting import Wanted, cannot_count, count, no_count

    def step(text: str, done: float, seconds_left: float) -> None:
        sys.stderr.write(f"{done:4.0%}  {text}, about {duration(seconds_left)} left\n")

    records: list[dict[str, Any]] = []
    by_geometry: dict[str, list[Any]] = {}
    for work in map(workload_data.get, workloads):
        reasons = {name: reason for name in names if (reason := cannot_count(work, name, added))}
        if reasons:
            records += [no_count((work.name, name), reasons.get(name, "the other variant has none")) for name in names]
        else:
            by_geometry.setdefault(work.geometry, []).append(work)
    cache = cache_directory()
    with tempfile.TemporaryDirectory(prefix="workbench-count-log-") as folder:
        log = Path(folder, "log")
        for geometry, works in by_geometry.items():
            source = synthesize(geometries.get(geometry), seed=0, cache=cache)
            pairs = tuple((work.name, name) for work in works for name in names)
            records += count(Wanted(source, tuple(works), pairs, added, 0), cache=cache, log=log, step=step)
        if any(record["reason"] for record in records) and log.exists():
            sys.stderr.writelines(f"{line}\n" for line in log.read_text(errors="replace").splitlines()[-3:])
    return records


def _row(records: Sequence[Instructions], workload: str, names: tuple[str, str]) -> dict[str, Any]:
    """One workload, as --json prints it."""
    from .metric import difference

    row: dict[str, Any] = {"workload": workload}
    for side, name in zip(("baseline", "variant"), names, strict=True):
        record = next(one for one in records if (one.workload, one.variant) == (workload, name))
        row[side] = {"instructions": record.instructions, "again": record.again, "by": record.by}
        row |= {"capability": record.capability, "versions": record.versions}
    try:
        apart = difference(records, workload, names[1], names[0])
    except ValueError as error:
        return row | {"more_work_percent": None, "low": None, "high": None, "reason": str(error)}
    return row | {"more_work_percent": apart.percent, "low": apart.low, "high": apart.high, "reason": None}


def _blocks(row: Mapping[str, Any], names: Sequence[str]) -> list[RenderableType]:
    """One workload in words, and a table of whose code the instructions lie in."""
    sides = row["baseline"], row["variant"]
    first, second = (side["instructions"] for side in sides)
    counts = f"{first:,.0f} instructions a call of {names[0]}, {second:,.0f} of {names[1]}"
    more = f"{names[0]} does {row['more_work_percent']:+.3f} % more work [{row['low']:+.3f}, {row['high']:+.3f}]"
    libraries = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
    rows = table("code of", names[0], names[1], "difference")
    for group in dict.fromkeys((*sides[0]["by"], *sides[1]["by"])):
        left, right = (side["by"].get(group, 0.0) for side in sides)
        rows.add_row(*map(Text, (group, f"{left:,.0f}", f"{right:,.0f}", f"{left - right:+,.0f}")))
    about = Text(f"work, not time; torch's {row['capability']} kernels; {libraries}", style="dim")
    return [Text(row["workload"], style="bold"), Text(counts), Text(more), rows, about]
