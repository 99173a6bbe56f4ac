"""Two variants round by round."""

from __future__ import annotations

import streamlit as st

from llama_workbench.harness.store.errors import RunError

from .. import state, words
from ..figures import rounds as figures
from ..views import data, samples
from . import blocks

UNREADABLE = "The rounds cannot be shown: the samples of this run cannot be read."


def show_of_claim(opened: state.Opened, claim: data.Claim, effect: data.Effect) -> None:
    """The rounds behind one effect of a claim, with what was claimed where that is a ratio of times."""
    asked = effect.workload, effect.variant, effect.baseline, samples.metric_of(effect), claim.alpha
    try:
        show(state.computed(opened, samples.pair, *asked), claim, effect)
    except RunError as error:
        blocks.unreadable(UNREADABLE, error)


def show(paired: samples.Paired, claim: data.Claim, effect: data.Effect) -> None:
    """One comparison round by round, against the region of `claim` where that is one of ratios."""
    if not len(paired.ratios):
        st.text("No round has both sides.")
        return
    ratio = not claim.unit and claim.kind == "time"
    drawn = figures.paired_rounds(
        paired,
        verdict=effect.verdict,
        claimed=f"{'margin' if claim.is_comparison else 'claimed'}: {claim.claimed}",
        low=claim.low if ratio else None,
        high=claim.high if ratio else None,
        colours=state.colours(),
    )
    blocks.plot(drawn, figures.in_words(paired, effect.baseline, effect.variant, effect.workload), "rounds")
    invalid = f" {words.percent(paired.invalid_share)} of the rounds had no valid time." if paired.invalid_share else ""
    st.caption(
        "Each dot is one round. A round builds both sides anew and times them by turns; the dot is the median of "
        "t_baseline / t_variant over its turns. Above 1 the variant was faster. The grey band is the interval as it "
        f"closed in on the estimate, at {words.percent(1 - paired.alpha)} confidence over all looks at it; the mark at "
        f"the right is where it ended. Dots that wander or jump mean that the machine changed during the run.{invalid}"
    )
    facts = {
        f"{paired.metric.replace('_', ' ')}, {paired.clock} clock": "typical, on this machine only",
        effect.baseline: words.milliseconds(paired.baseline_ns),
        effect.variant: words.milliseconds(paired.variant_ns),
    }
    st.caption(words.markdown(" · ".join(f"{name}: {value}" for name, value in facts.items())))
