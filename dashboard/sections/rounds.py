"""The part of a page that shows two variants round by round."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from llama_workbench.dashboard import state as parts
from llama_workbench.dashboard import words
from llama_workbench.dashboard.figures import rounds as paired_rounds
from llama_workbench.dashboard.views import data
from llama_workbench.dashboard.views import samples as rounds
from llama_workbench.harness.store.folder import RunError, RunFolder


@st.cache_data(max_entries=64, show_spinner="Pairing the rounds …")
def read_pair(
    path: Path, stamp: data.Stamp, workload: str, variant: str, baseline: str, metric: str, alpha: float
) -> rounds.Paired:
    """The rounds of one comparison, kept by the stamp of the run's files. Raises RunError."""
    return rounds.pair(RunFolder(path), workload, variant, baseline, metric, alpha)


@st.cache_data(max_entries=32, show_spinner="Pairing the rounds …")
def read_versus(path: Path, stamp: data.Stamp, baseline: str, variant: str) -> rounds.Versus:
    """Any two variants on all workloads that have both. Raises RunError."""
    return rounds.versus(RunFolder(path), baseline, variant)


@st.cache_data(max_entries=32, show_spinner="Reading the run …")
def read_timed(path: Path, stamp: data.Stamp) -> dict[str, tuple[str, ...]]:
    """Workload → variants that were timed on it. Raises RunError."""
    return RunFolder(path).timed()


def show_error(error: RunError) -> None:
    """Samples that cannot be read: which file, what is wrong with it, what to do."""
    st.warning("The rounds cannot be shown: the samples of this run cannot be read.", icon=":material/warning:")
    st.text(f"{error.path.name}: {error.problem}. {error.fix}")


def show_of_claim(opened: parts.Opened, claim: data.Claim, effect: data.Effect) -> None:
    """The rounds behind one effect of a claim, with what was claimed where that is a ratio of times."""
    metric, alpha = rounds.metric_of(effect), claim.alpha
    try:
        paired = read_pair(
            opened.run.path, opened.stamp, effect.workload, effect.variant, effect.baseline, metric, alpha
        )
    except RunError as error:
        show_error(error)
        return
    show(paired, claim, effect)


def show(paired: rounds.Paired, claim: data.Claim, effect: data.Effect) -> None:
    """One comparison round by round, against the region of `claim` where that is one of ratios."""
    if not len(paired.ratios):
        st.text("No round has both sides.")
        return
    ratio = not claim.unit and claim.kind == "time"
    st.plotly_chart(
        paired_rounds.paired_rounds(
            paired,
            verdict=effect.verdict,
            claimed=f"{'margin' if claim.is_comparison else 'claimed'}: {claim.claimed}",
            low=claim.low if ratio else None,
            high=claim.high if ratio else None,
            colours=parts.colours(),
        ),
        config=parts.PLOT,
        alt=paired_rounds.in_words(paired, effect.baseline, effect.variant, effect.workload),
        key="rounds",
    )
    left_out = (
        f" {words.percent(paired.invalid_share)} of the rounds had no valid time." if paired.invalid_share else ""
    )
    st.caption(
        "A dot is one round: both sides built anew and timed by turns, and of its turns the median of t_baseline / "
        "t_variant. Above 1 the variant was faster. The grey band is the interval as it closed in on the estimate, at "
        f"{words.percent(1 - paired.alpha)} confidence over all looks at it; the mark at the right is where it "
        f"ended. Dots that wander or jump mean that the machine changed while it measured.{left_out}"
    )
    facts = {
        f"{paired.metric.replace('_', ' ')}, {paired.clock} clock": "typical, on this machine only",
        effect.baseline: words.milliseconds(paired.baseline_ns),
        effect.variant: words.milliseconds(paired.variant_ns),
    }
    st.caption(words.markdown(" · ".join(f"{name}: {value}" for name, value in facts.items())))
