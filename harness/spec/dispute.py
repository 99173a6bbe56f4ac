"""What a dispute is about, beside its claims: the questions of the first screen and the rules of its teams.

Written in `dispute.toml` of a folder of claims, and stored in run.json, so that a run says the same wherever it is
opened. A folder without that file is one of claims that nobody asks a question about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .hypotheses import Text

SHARE_OF, GAIN_OF = "share of {}".format, "gain of {}".format
"""How a rule calls the numbers of `shares` and `gains`."""

WITHOUT = "{without}"
"""In a consequence: by how many percent all is faster without work that takes so much of its time."""

FOUND = "{found}"
"""In what stands beside an answer: what was measured."""


class _DisputeTable(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Beside(_DisputeTable):
    """A sentence beside an answer: with a claim what became of a part of it, without one what was found elsewhere."""

    text: Annotated[Text, Field(description=f'a sentence; "{FOUND}" stands for what was measured')]
    claim: Annotated[Text | None, Field(description="the id of a claim in this folder")] = None
    part: Annotated[Text | None, Field(description="the part of that claim, where it has several")] = None
    workloads: Annotated[tuple[Text, ...], Field(description="those that it is about, where not all")] = ()
    words: Annotated[
        Mapping[str, Text], Field(description="a table from verdicts to the words in brackets behind what was measured")
    ] = {}
    in_answer: Annotated[bool, Field(description="whether it is a part of the answer itself, not beside it")] = False

    @model_validator(mode="after")
    def _has_a_place(self) -> Self:
        if (self.claim is None) == (FOUND in self.text):
            raise ValueError(f'text: expected "{FOUND}" together with a claim, and not without')
        return self


class MainQuestion(_DisputeTable):
    """What a main claim comes down to. Where a run lacks that part, the first one beside it of the same claim leads."""

    claim: Annotated[Text, Field(description="the id of a claim in this folder")]
    part: Annotated[Text | None, Field(description="the part of that claim, where it has several")] = None
    text: Annotated[Text, Field(description='a question; "{claimed}" stands for what the claim says')]
    card: Annotated[str, Field(description="a short question, where it stands on one of the first cards")] = ""
    beside: Annotated[tuple[Beside, ...], Field(description="tables, each under [[question.beside]]")] = ()
    where: Annotated[str, Field(description="on which workloads the found value holds, in words")] = ""
    consequence: Annotated[
        str, Field(description=f'what follows from the largest possible value; "{WITHOUT}" is that gain in percent')
    ] = ""
    words: Annotated[
        Mapping[str, Text], Field(description="a table from verdicts to the words that answer the question")
    ] = {}

    @property
    def parts(self) -> tuple[str | None, ...]:
        """The parts of its claim that may answer it, the best first."""
        return (self.part, *(each.part for each in self.beside if each.claim == self.claim))

    def follows(self, percent: float) -> str:
        """What follows from the largest share of the time that the intervals allow; empty where nothing does."""
        without = f"{100 * percent / (100 - percent):.1f}" if percent < 100 else "more than 100"
        return self.consequence.replace(WITHOUT, without)


class Headline(_DisputeTable):
    """A further row of the short table, below those of the questions."""

    claim: Annotated[Text, Field(description="the id of a claim in this folder")]
    part: Annotated[Text | None, Field(description="the part of that claim, where it has several")] = None


class Gain(_DisputeTable):
    """The gain of one variant over another, in percent."""

    variant: Annotated[Text, Field(description="the name of a variant")]
    baseline: Annotated[Text, Field(description="the name of a variant")]


class Pick(_DisputeTable):
    """What a rule does where its condition holds, or without one in every other case."""

    option: Annotated[Text, Field(description="a letter of [options]")]
    action: Annotated[Text, Field(description="what is then done, in the document's own terms")]
    above: Annotated[Text | None, Field(description="a number that must lie above `percent`")] = None
    not_above: Annotated[Text | None, Field(description="a number that must not lie above `percent`")] = None
    percent: Annotated[float | None, Field(allow_inf_nan=False, description="a limit in percent")] = None

    @model_validator(mode="after")
    def _one_condition(self) -> Self:
        given = [name for name in (self.above, self.not_above) if name is not None]
        if len(given) > 1:
            raise ValueError("above and not_above: expected one of them")
        if bool(given) != (self.percent is not None):
            raise ValueError("percent: expected together with above or not_above, and not without")
        return self

    @property
    def quantity(self) -> str | None:
        """The number that it asks for."""
        return self.above if self.above is not None else self.not_above


class Rule(_DisputeTable):
    """One document's rule: the first pick whose condition holds. `remark`: how we interpret it, or what of it cannot be
    measured."""

    team: Annotated[Text, Field(description="who goes by it")]
    name: Annotated[Text, Field(description="what it is called here")]
    document: Annotated[Text, Field(description="the title of a document")]
    section: Annotated[Text, Field(description="the heading of a section")]
    says: Annotated[Text, Field(description="the rule in your words")]
    remark: Annotated[str, Field(description="a text")] = ""
    pick: Annotated[tuple[Pick, ...], Field(min_length=1, description="tables, each under [[rule.pick]]")]

    @model_validator(mode="after")
    def _always_picks(self) -> Self:
        if [pick.quantity is None for pick in self.pick] != [False] * (len(self.pick) - 1) + [True]:
            raise ValueError("pick: expected a condition (above or not_above) in each but the last, and none there")
        return self


class Numbers(_DisputeTable):
    """The numbers that rules ask for, in percent, in the order in which they are told."""

    shares_of: Annotated[Text, Field(description="the variant whose shares of the time the rules ask about")] = ""
    shares: Annotated[
        Mapping[str, Annotated[tuple[Text, ...], Field(min_length=1)]],
        Field(description="a table from a name to the phases whose time is added up"),
    ] = {}
    gains: Annotated[Mapping[str, Gain], Field(description="a table from a name to variant and baseline")] = {}

    def quantities(self) -> tuple[str, ...]:
        """What rules call them."""
        return (*map(SHARE_OF, self.shares), *map(GAIN_OF, self.gains))


class ProfilingForm(_DisputeTable):
    """Whose form the time shares are put into, and what it says of a phase that takes much."""

    levels_of: Annotated[str, Field(description="whose limits these are")] = ""
    remedies: Annotated[Mapping[str, Text], Field(description="a table from phases to what is then done")] = {}
    beyond: Annotated[str, Field(description="what is said of every other phase")] = ""


class LadderClaim(_DisputeTable):
    """A claim whose parts are the steps from one variant to another."""

    claim: Annotated[Text, Field(description="the id of a claim in this folder")]
    whole: Annotated[Text, Field(description="the part of it that measures all steps as one")]


class Dispute(_DisputeTable):
    """All of it; the empty one asks nothing and has no rules."""

    question: Annotated[tuple[MainQuestion, ...], Field(description="tables, each under [[question]]")] = ()
    scope: Annotated[
        Mapping[str, Text],
        Field(description='a table from a geometry, as it stands in names of workloads ("15m"), to words for it'),
    ] = {}
    headline: Annotated[tuple[Headline, ...], Field(description="tables, each under [[headline]]")] = ()
    numbers: Annotated[Numbers, Field(description="a table")] = Numbers()
    options: Annotated[Mapping[str, Text], Field(description="a table from letters to what they stand for")] = {}
    rule: Annotated[tuple[Rule, ...], Field(description="tables, each under [[rule]]")] = ()
    form: Annotated[ProfilingForm, Field(description="a table")] = ProfilingForm()
    ladder: Annotated[LadderClaim | None, Field(description="a table")] = None
    measured_by: Annotated[
        Mapping[str, Annotated[tuple[Text, ...], Field(min_length=1)]],
        Field(description="a table from what a page shows to the claims that measure it"),
    ] = {}
    engine_variants: Annotated[
        tuple[Text, ...], Field(description="variants that do the work on the dispute's own engine, best first")
    ] = ()

    @model_validator(mode="after")
    def _known(self) -> Self:
        known = self.numbers.quantities()
        for place, rule in enumerate(self.rule):
            for number, pick in enumerate(rule.pick):
                where = f"rule[{place}].pick[{number}]"
                if pick.quantity is not None and pick.quantity not in known:
                    raise ValueError(f"{where} asks about {pick.quantity!r}, expected one of {', '.join(known)}")
                if pick.option not in self.options:
                    raise ValueError(f"{where}.option = {pick.option!r}, expected one of {', '.join(self.options)}")
        if self.numbers.shares and not self.numbers.shares_of:
            raise ValueError("numbers.shares_of: expected the variant whose shares these are")
        return self

    def headlines(self) -> tuple[tuple[str, str | None], ...]:
        """The rows of the short table: claim and part of each, those of the questions first."""
        beside = [each for question in self.question for each in question.beside]
        rows: list[MainQuestion | Beside | Headline] = [*self.question, *beside, *self.headline]
        return tuple(dict.fromkeys((row.claim, row.part) for row in rows if row.claim is not None))

    def stored(self) -> dict[str, Any]:
        """What run.json holds of it."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def command(self, shown: str) -> str:
        """The command that measures what a page shows."""
        claims = ",".join(self.measured_by.get(shown, ()))
        return f"pytest --benchmark --claims {claims}" if claims else "pytest --benchmark"
