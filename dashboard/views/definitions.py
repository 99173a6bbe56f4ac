"""A claim as it was when the run was made, out of claims.json: what the pages show of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from llama_workbench.harness.store.files import CLAIMS
from llama_workbench.harness.store.forms import JsonFile, Shape, Text


class Source(Shape):
    """Where a claim was made."""

    document: Text = ""
    section: Text = ""


class Hypothesis(Shape):
    """One part of a claim: what was to be measured. A single baseline becomes a list of one."""

    part: Text = ""
    metric: Text = ""
    quantity: Text = ""
    of: Text = ""
    variant: Text = ""
    baseline: Annotated[
        tuple[Text, ...], BeforeValidator(lambda names: [names] if isinstance(names, str) else names)
    ] = ()
    workloads: tuple[Text, ...] = ()
    phases: tuple[Text, ...] = ()


class Definition(Shape):
    """A claim with all its parts."""

    id: Text = ""
    title: Text = ""
    statement: Text = ""
    source: tuple[Source, ...] = ()
    decided_by: Text = ""
    assumes: tuple[Text, ...] = ()
    hypothesis: tuple[Hypothesis, ...] = ()


DEFINITIONS = JsonFile(CLAIMS, list[Definition])
