"""What is left to gain, step by step: each step of a ladder of variants with its gain and what it holds in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llama_workbench import variants
from llama_workbench.datasets import geometries
from llama_workbench.datasets.geometries import DataError, Geometry
from llama_workbench.variants.changes import CHANGES, CodeChange
from llama_workbench.variants.config import LlamaConfig
from llama_workbench.variants.memory_policy import expected

from ..spec.dispute import Dispute
from ..store.schema import Manifest
from ..store.verdict_schema import Effect, Verdict
from .answer import LONGEST, Line, answer
from .markdown import markdown_cell, markdown_rows, markdown_text
from .text import effect_text
from .workload_names import told_apart

LENGTH, ITEM_BYTES = 128, 4
"""Tokens of the prompt after which memory is compared, and the bytes of a weight."""

OPEN = "?"
"""A gain that has no interval."""

WORTH, MOST_STEPS = 1.01, 3
"""A step that gains no more than this is not worth a word; of those that do so many have a row of the short table."""


@dataclass(frozen=True)
class LadderStep:
    """One step: the part of the claim that measured it, its effects by workload, and what it adds to what the model
    holds, in percent of the weights, by workload (what is not known is left out). one_layer: workloads of models of one
    layer, of which a gain is told only where there are no others; all_of_it: those of them on which it gains by the
    last layer, which is all of the model."""

    name: str
    baseline: str
    variant: str
    effects: Mapping[str, Effect]
    memory: Mapping[str, float]
    one_layer: frozenset[str] = frozenset()
    all_of_it: frozenset[str] = frozenset()

    @property
    def change(self) -> CodeChange:
        """What to write in code of one's own; of a variant that nothing is known of, the step's name alone."""
        return CHANGES.get(self.variant, CodeChange(self.name, ""))

    @property
    def proven(self) -> float:
        """The largest ratio that an interval proves."""
        return max((effect.low for effect in self.bounded), default=0.0)

    @property
    def least(self) -> float:
        """The most that an interval allows, where that is least."""
        return min((effect.high for effect in self.bounded), default=math.inf)

    @property
    def bounded(self) -> list[Effect]:
        """The effects that have an interval: those of whole models, if there are any."""
        known = [each for each in self.effects.values() if each.lower is not None and each.upper is not None]
        return [each for each in known if each.workload not in self.one_layer] or known


@dataclass(frozen=True)
class Ladder:
    """The steps from the first variant to the last, what lies beyond, and all steps measured as one."""

    steps: tuple[LadderStep, ...]
    beyond: tuple[LadderStep, ...]
    whole: LadderStep
    workloads: Mapping[str, str]  # name → in words

    @property
    def names(self) -> list[str]:
        """Of its variants, from the first on."""
        return [self.whole.baseline, *(step.variant for step in (*self.steps, *self.beyond))]

    def product(self, workload: str) -> tuple[float, float, float] | None:
        """The steps' ratios multiplied, with the least and the largest that their intervals allow; None where one has
        no interval."""
        effects = [step.effects.get(workload) for step in self.steps]
        if not effects or any(each is None or each.lower is None or each.upper is None for each in effects):
            return None
        bounded = [effect for effect in effects if effect is not None]
        ratio, low, high = (math.prod(getattr(effect, end) for effect in bounded) for end in ("ratio", "low", "high"))
        return ratio, low, high


def ladder_of(verdicts: Sequence[Verdict], dispute: Dispute, manifest: Manifest) -> Ladder | None:
    """The ladder that a run measured; None where its dispute has none, or the run lacks it."""
    asked = dispute.ladder
    if asked is None:
        return None
    weights = {one.workload.name: one.workload.geometry or "" for one in manifest.experiments}
    measured = [_step(each, weights) for each in verdicts if each.claim == asked.claim and each.effects]
    whole = next((step for step in measured if step.name == asked.whole), None)
    if whole is None:
        return None
    after = {step.baseline: step for step in measured if step is not whole}
    steps, beyond, at = list[LadderStep](), list[LadderStep](), whole.baseline
    while at in after:
        step = after.pop(at)
        (steps if not steps or steps[-1].variant != whole.variant else beyond).append(step)
        at = step.variant
    names = {workload: effect.named or workload for workload, effect in whole.effects.items()}
    return Ladder(tuple(steps), tuple(beyond), whole, names)


def _step(verdict: Verdict, geometry_of: Mapping[str, str]) -> LadderStep:
    effects = {effect.workload: effect for effect in verdict.effects}
    first = verdict.effects[0]
    models = {workload: _geometry(geometry_of.get(workload, "")) for workload in effects}
    more = {workload: _more_memory(first.baseline, first.variant, model) for workload, model in models.items()}
    memory = {workload: percent for workload, percent in more.items() if percent is not None}
    one_layer = frozenset(
        workload for workload, model in models.items() if model and model.config.num_hidden_layers == 1
    )
    change = CHANGES.get(first.variant)
    gains = frozenset(workload for workload in one_layer if effects[workload].low > 1)
    all_of_it = gains if change and change.is_of_last_layer else frozenset()
    return LadderStep(verdict.part, first.baseline, first.variant, effects, memory, one_layer, all_of_it)


def _geometry(name: str) -> Geometry | None:
    try:
        return geometries.get(name)
    except DataError:
        return None


def _more_memory(baseline: str, variant: str, geometry: Geometry | None) -> float | None:
    """By how many percent of the weights the variant holds more; None where a side's policy is not known."""
    if geometry is None:
        return None
    before, after = (_held(name, geometry.config) for name in (baseline, variant))
    if before is None or after is None:
        return None
    return 100 * (after - before) / (ITEM_BYTES * geometries.parameter_count(geometry.config))


def _held(name: str, config: LlamaConfig) -> int | None:
    if name not in variants.names() or (policy := variants.get(name).memory) is None:
        return None
    return sum(expected(policy, config, [LENGTH], max_length=LENGTH, item_bytes=ITEM_BYTES)["held"].values())


@dataclass(frozen=True)
class LadderAdvice:
    """What to change, by the rule in docs/concepts/verdicts.md: the steps to take, those that gain most first, and
    those to leave out. steps: how many the ladder has."""

    whole: LadderStep
    take: tuple[LadderStep, ...]
    leave: tuple[LadderStep, ...]
    steps: int

    @property
    def together(self) -> str:
        """What all steps of the ladder come to."""
        sides = f"from {self.whole.baseline} to {self.whole.variant}"
        models = " in whole models" if self.whole.one_layer and {*self.whole.effects} - self.whole.one_layer else ""
        return f"All steps together, {sides}: {_times(self.whole)} as fast{models}."

    @property
    def all_of_it(self) -> frozenset[str]:
        """Workloads of models of one layer on which a step that saves work in the last layer gains."""
        return frozenset().union(*(step.all_of_it for step in self.take))

    @property
    def to_take(self) -> str:
        """The steps that gain, in a sentence."""
        text = "; ".join(f"{step.change.told} ({_times(step)}{_price(step)})" for step in self.take)
        return f"{text[:1].upper()}{text[1:]}."

    @property
    def not_to_take(self) -> str:
        """The steps to leave out, in a sentence; empty where there are none."""
        lost = [f"{step.change.told} ({_times(step)} as fast{_price(step)})" for step in self.leave]
        return f"Do not: {'; '.join(lost)}." if lost else ""

    def rows(self) -> list[dict[str, str]]:
        """A row of a table for each step to take, and one for all steps together: what it is, how many times as fast it
        is on each workload, and what it costs in memory. In brackets where it gains by the last layer, and the model
        has no other."""
        steps = [(step.change.told, step) for step in self.take[:MOST_STEPS]]
        last = [step for step in self.take if step.all_of_it]
        workloads = [
            workload
            for workload in self.whole.effects
            if any(_times_on(step.effects.get(workload)) != OPEN for _, step in (*steps, ("", self.whole)))
        ]
        places = dict(zip(workloads, told_apart(workloads), strict=True))
        others = self.steps - len(steps)
        together = f"these and {others} other step{'s' * (others != 1)} together" if others else "all these together"
        return [
            {
                "times as fast": change,
                **{
                    place: f"({times})" if workload in self.all_of_it and step in (self.whole, *last) else times
                    for workload, place in places.items()
                    for times in [_times_on(step.effects.get(workload))]
                },
                "memory": f"up to +{most:.0f} %" if (most := _most_memory(step)) >= 1 else "+0 %",
            }
            for change, step in [*steps, (together, self.whole)]
        ]


def ladder_advice(ladder: Ladder) -> LadderAdvice | None:
    """What to change; None where no step is proven to gain more than 1 % on some workload. Left out are steps that gain
    so much nowhere and lose it somewhere."""
    steps = [step for step in ladder.steps if step.effects]
    take = sorted((step for step in steps if step.proven > WORTH), key=lambda step: -step.proven)
    leave = [step for step in steps if step not in take and step.least < 1 / WORTH]
    return LadderAdvice(ladder.whole, tuple(take), tuple(leave), len(ladder.steps)) if take else None


def _times(step: LadderStep) -> str:
    """From the least to the most that the intervals of its workloads allow."""
    if not step.bounded:
        return "not yet known how many times"
    return (
        f"{min(effect.low for effect in step.bounded):.2f} to {max(effect.high for effect in step.bounded):.2f} times"
    )


def _times_on(effect: Effect | None) -> str:
    """The ratio where its interval leaves out 1; where it is open, or was not measured, a sign for that."""
    if effect is None or not effect.low > 0:
        return OPEN
    return f"{effect.ratio:.2f}" if effect.low > 1 or effect.high < 1 else "~1"


def _most_memory(step: LadderStep) -> float:
    return max(step.memory.values(), default=0.0)


def _price(step: LadderStep) -> str:
    most = _most_memory(step)
    return f", up to {most:.0f} % more memory" if most >= 1 else ""


def ladder_rows(ladder: Ladder) -> list[dict[str, str]]:
    """Rows of the table: the steps, all of them together, and what lies beyond."""
    rows = [_row(ladder, step, f"{number}. {_told(step)}") for number, step in enumerate(ladder.steps, 1)]
    products = {name: ladder.product(workload) for workload, name in ladder.workloads.items()}
    together = {name: f"{each[0]:.3f}× [{each[1]:.3f}, {each[2]:.3f}]" for name, each in products.items() if each}
    whole = _row(ladder, ladder.whole, f"measured as one: {ladder.whole.name}")
    rows += [dict.fromkeys(whole, "") | {"step": "these multiplied"} | together, whole]
    return rows + [_row(ladder, step, f"beyond: {_told(step)}") for step in ladder.beyond]


def _told(step: LadderStep) -> str:
    return step.name if step.change.told == step.name else f"{step.name}: {step.change.told}"


def _row(ladder: Ladder, step: LadderStep, name: str) -> dict[str, str]:
    gains = {w: effect_text(step.effects[w]) if w in step.effects else "" for w in ladder.workloads}
    prices = dict.fromkeys(f"{end(step.memory.values()):+.3g} %" for end in (min, max) if step.memory)
    return {
        "step": name,
        "from → to": f"{step.baseline} → {step.variant}",
        **{ladder.workloads[workload]: gain for workload, gain in gains.items()},
        "memory, of the weights": " to ".join(prices),
    }


def ladder_markdown(ladder: Ladder) -> str:
    """The same as a table in Markdown."""
    rows = ladder_rows(ladder)
    return markdown_rows([*map(markdown_cell, rows[0])], ([*map(markdown_cell, row.values())] for row in rows)) + "\n"


def advice_markdown(ladder: Ladder) -> str:
    """What to change, as Markdown; that nothing gains, where no step does."""
    if (advice := ladder_advice(ladder)) is None:
        return "No step is shown to gain more than 1 %.\n"
    said = (advice.to_take, advice.not_to_take, advice.together)
    return " ".join(markdown_text(each, LONGEST) for each in said if each) + "\n"


# The three cards of a run's first screen: the answers to the two questions that its dispute puts there, and what to
# change. Pure functions.


@dataclass(frozen=True)
class Cards:
    """answers: of the questions that have a card, in their order; where none has one, of the first two. change: what to
    change, where the run has measured that; command: what measures it."""

    answers: tuple[Line, ...]
    change: LadderAdvice | None
    command: str

    @property
    def to_change(self) -> str:
        """What to change, in a sentence or two; empty where the dispute has no such steps."""
        if self.change is None:
            return f"This run has not measured what to change: {self.command}" if self.command else ""
        return " ".join(filter(None, (self.change.together, self.change.to_take, self.change.not_to_take)))


def cards_of(verdicts: Sequence[Verdict], dispute: Dispute, manifest: Manifest) -> Cards:
    """The cards of a run, of one session or over both."""
    asked = {question.claim for question in dispute.question}
    lines = tuple(line for line in answer(verdicts, dispute).lines if line.verdict.claim in asked)
    ladder = ladder_of(verdicts, dispute, manifest)
    command = f"pytest --benchmark --claims {dispute.ladder.claim}" if dispute.ladder else ""
    with_card = tuple(line for line in lines if line.card)
    return Cards(with_card or lines[:2], ladder_advice(ladder) if ladder else None, command)
