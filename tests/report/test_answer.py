"""The types that a measuring process and the run exchange, and the names that take part."""

from __future__ import annotations

import json

import pytest

from llama_workbench.harness.spec.comparison import AA, COPY, EnteredName
from llama_workbench.harness.spec.sample import RoundAnswer, Sample


def test_an_answer_comes_through_the_pipe_as_it_was() -> None:
    sample = Sample("fast@aa", 2, 1, 16, 30, 1_000, 1_100, 5, first_cpu_ns=7)
    answer = RoundAnswer(
        samples=(sample, sample._replace(variant="fast")),
        wrong={"slow": "off by 2"},
        drawn=({"variant": "fast", "prompt": 3, "length": 16, "kind": "logits"},),
        changed={"good": "turns garbage collection on"},
        elsewhere={"bad": "computes in another thread"},
        by_wall=("starts",),
        facts={"starts": {"child_processes": 1}},
        leaks={"leaky": 1 << 33},
    )
    received = RoundAnswer.from_json(json.loads(json.dumps(answer.to_json())))
    assert received == answer
    assert all(type(each) is Sample for each in received.samples)


@pytest.mark.parametrize(("name", "control"), [("fast", ""), ("fast@aa", AA), ("fast@copy", COPY)])
def test_a_name_says_what_it_is_once_more(name: str, control: str) -> None:
    entered = EnteredName(name)
    assert (entered.original, entered.control, entered.is_control) == ("fast", control, bool(control))
    assert entered.identifier.isidentifier()
    if control:
        assert EnteredName.of_control("fast", control) == name
