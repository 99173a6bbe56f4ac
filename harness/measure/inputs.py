"""How the calls of functions are given their inputs, by what the gates of all sides learnt (see `calls.pool`)."""

from __future__ import annotations

from typing import Any

from ..calls.pool import AGAIN, COPIED, NEW, InputCosts, pool_size, way_of
from .participants import ExperimentState


def inputs_told(book: ExperimentState, side_seconds: float) -> dict[str, Any]:
    """What a process that samples each side for so long is told. All sides of a round have as many inputs: more of them
    lie less in the processor's caches."""
    make_ns = max((learnt.get("make_ns", 0) for learnt in book.learnt.values()), default=0)
    return {"way": _way(book), "pool_size": pool_size(make_ns, side_seconds * 1e9)}


def beside_ns(book: ExperimentState, name: str) -> int:
    """What a call of a function takes beside it: to make its input, or a copy of one, 0 where it is given one again,
    and of a command what runs before and after it."""
    learnt, way = book.learnt[name], _way(book)
    made: int = learnt["copy_ns"] if way == COPIED else learnt["make_ns"]
    is_given_again = way == AGAIN or (learnt["one_input"] and not learnt["changes_inputs"])
    return made * (not is_given_again) + int(learnt["beside_ns"])


def note_remembering(book: ExperimentState) -> None:
    """Keep of each function by how much more it gains than the baseline where an input is given again."""
    costs = _costs(book)
    for name, side in costs.items():
        if more := side.gains_over(costs.get(book.experiment.baseline, side)):
            book.note_facts({name: {"gains_again": more}})


def _way(book: ExperimentState) -> str:
    costs = _costs(book)
    if not costs:
        return NEW
    baseline = book.experiment.baseline
    in_order = [costs[name] for name in sorted(costs, key=lambda name: name != baseline)]
    return way_of(in_order, min(book.call_ns[name] for name in costs))


def _costs(book: ExperimentState) -> dict[str, InputCosts]:
    """By function; none where models are measured."""
    names = book.remaining().variants if book.experiment.workload.kind == "call" else ()
    return {name: InputCosts.of(book.learnt[name]) for name in names if name in book.learnt}
