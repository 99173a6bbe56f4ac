"""A claim as it was when the run was made, out of claims.json: a value of a wrong kind counts as missing (MAYBE)."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from llama_workbench.harness.store.forms import MAYBE, Shape, Text

MaybeText = Annotated[Text, MAYBE]
MaybeTexts = Annotated[tuple[Text, ...], MAYBE]


class Source(Shape):
    """Where a claim was made."""

    document: MaybeText = ""
    section: MaybeText = ""


class Hypothesis(Shape):
    """One part of a claim: what was to be measured. A single baseline becomes a list of one."""

    part: MaybeText = ""
    metric: MaybeText = ""
    quantity: MaybeText = ""
    of: MaybeText = ""
    variant: MaybeText = ""
    baseline: Annotated[
        tuple[Text, ...], BeforeValidator(lambda one: [one] if isinstance(one, str) else one), MAYBE
    ] = ()
    workloads: MaybeTexts = ()
    phases: MaybeTexts = ()


class Definition(Shape):
    """A claim with all its parts."""

    id: MaybeText = ""
    title: MaybeText = ""
    statement: MaybeText = ""
    source: Annotated[tuple[Source, ...], MAYBE] = ()
    decided_by: MaybeText = ""
    assumes: MaybeTexts = ()
    hypothesis: Annotated[tuple[Hypothesis, ...], MAYBE] = ()
