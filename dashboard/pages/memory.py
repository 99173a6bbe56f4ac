"""Memory: time against memory, and what caching policies hold on to."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import streamlit as st

from llama_workbench.dashboard import state as parts
from llama_workbench.dashboard import words
from llama_workbench.dashboard.figures import forest, memory_bars, memory_time
from llama_workbench.dashboard.views import data, timings
from llama_workbench.dashboard.views import forest as forest_rows
from llama_workbench.dashboard.views import memory as sweeps
from llama_workbench.harness.metrics.loading.loading import LEAST_ROUNDS
from llama_workbench.harness.store.folder import RunError

SWEEP_COMMAND = "pytest --benchmark --claims mask-memory"
LOADING_COMMAND = "pytest --benchmark --claims weight-loading-bottleneck"


@st.cache_data(max_entries=32, show_spinner="Reading the samples …")
def read_tradeoff(path: Path, stamp: data.Stamp, workload: str, field: str) -> tuple[list[sweeps.Spot], list[str], str]:
    """Spots, who is missing, and the problem with the samples if there is one."""
    run, problem, evidence = parts.read_run(path, stamp), "", None
    try:
        evidence = timings.read_evidence(run)
    except (RunError, ValueError) as error:
        problem = timings.problem_of(error)
    return *sweeps.tradeoff(run, evidence, workload, field), problem


@st.cache_data(max_entries=32, show_spinner="Reading the sweeps …")
def read_policies(path: Path, stamp: data.Stamp) -> tuple[list[sweeps.Policy], str]:
    return sweeps.read_policies(parts.read_run(path, stamp))


@st.cache_data(max_entries=32, show_spinner="Reading the loads …")
def read_loads(path: Path, stamp: data.Stamp) -> tuple[list[sweeps.Load], str]:
    return sweeps.read_loads(parts.read_run(path, stamp))


def main() -> None:
    opened = parts.open_run("Memory")
    if opened is None:
        return
    policies, problem = read_policies(opened.run.path, opened.stamp)
    profiled = [workload for workload, _ in opened.run.memory]
    workloads = list(dict.fromkeys([*profiled, *(one.workload for one in policies)]))
    workload = parts.choose("Workload", workloads, "workload") if workloads else ""
    st.header("Time against memory", anchor="tradeoff")
    if workload in profiled:
        show_tradeoff(opened, workload)
    else:
        where = f" --workloads {shlex.quote(workload)}" if workload else ""
        parts.show_missing("memory of single calls here", parts.PROFILE_COMMAND + where)
    st.header("What caching policies hold", anchor="policies")
    if problem:
        st.warning(f"Left out: {words.markdown(problem)}", icon=":material/warning:")
    here = [one for one in policies if one.workload == workload]
    if here:
        show_policies(here)
    else:
        parts.show_missing("sweep over the number of lengths here", SWEEP_COMMAND)
    st.header("Loading the weights", anchor="loading")
    show_loading(opened)


# -- time against memory ---------------------------------------------------------------------------------------------


def show_tradeoff(opened: parts.Opened, workload: str) -> None:
    run = opened.run
    amounts = {field.removesuffix("_bytes"): title for field, title in memory_bars.AMOUNTS.items()}
    field = parts.choose("Memory counted", amounts, "amount") + "_bytes"
    title = memory_bars.AMOUNTS[field]
    spots, missing, problem = read_tradeoff(run.path, opened.stamp, workload, field)
    if problem:
        st.warning(f"Only judged effects are shown: {words.markdown(problem)}", icon=":material/warning:")
    if spots:
        baseline = str(data.experiment(run, workload).get("baseline", ""))
        st.plotly_chart(
            memory_time.tradeoff(spots, title, baseline, parts.colours()),
            config=parts.PLOT,
            alt=memory_time.tradeoff_text(spots, title, baseline),
            key="tradeoff",
        )
        st.markdown(words.markdown(_front_sentence(spots, title)))
        st.caption(
            "Up and to the left is better. The front: no other variant is faster without needing more memory. "
            '"Beaten" means that the intervals do not even touch; "not settled", that the order may be the other way. '
            "Dots that would cover each other stand side by side. "
            "Numbers are those of the table, where the confidence of each interval stands."
        )
        st.dataframe(
            pd.DataFrame([_spot_row(number, spot) for number, spot in enumerate(spots, 1)]),
            hide_index=True,
            row_height=30,
            alt="Variants by speed-up, with memory and standing",
        )
    parts.show_list("Not placed", missing)


def _front_sentence(spots: Sequence[sweeps.Spot], title: str) -> str:
    front = [spot for spot in spots if spot.standing == sweeps.FRONT]
    told = words.listing([f"{spot.variant} ({words.size(spot.amount)})" for spot in front])
    beaten = [spot.variant for spot in spots if spot.standing.startswith("beaten")]
    rest = len(spots) - len(front) - len(beaten)
    text = f"Best speed-up for its memory ({title.lower()}): {told}."
    if beaten:
        text += f" Beaten, with intervals that do not touch: {words.listing(beaten)}."
    return text + (f" For {rest} more the data cannot tell." if rest else "")


def _spot_row(number: int, spot: sweeps.Spot) -> dict[str, object]:
    timing = spot.timing
    if timing.alpha:
        speed = words.effect(timing.ratio, timing.low, timing.high)
        sure = f"{words.percent(1 - timing.alpha)}, {'all of the run at once' if timing.judged else 'this one alone'}"
    else:
        speed, sure = "1× (baseline)", "–"
    return {
        "no.": number,
        "variant": spot.variant,
        "speed-up [interval]": speed,
        "confidence": sure,
        "rounds": str(timing.rounds) if timing.alpha else "–",
        "memory": words.size(spot.amount),
        "standing": spot.standing,
        "note": timing.warning if timing.alpha else "",
    }


# -- policies ----------------------------------------------------------------------------------------------------------


def show_policies(here: Sequence[sweeps.Policy]) -> None:
    kind = parts.choose("Held", sweeps.HELD, "held")
    shown = [one for one in here if any(kind in step.measured for step in one.steps)]
    if shown:
        st.plotly_chart(
            memory_time.policies(shown, kind, parts.colours()),
            config=parts.PLOT,
            alt=memory_time.policies_text(shown, kind),
            key="policies",
        )
        longest = max(one.longest for one in shown)
        counted = (
            "Resident memory takes in all that a process touches, so no policy computes it; it includes the copies of "
            "weights that building makes."
            if kind == "resident"
            else "Dots are tensors found in the running model; lines are computed from the policy alone. Where dots "
            "lie on their line, the policy explains every byte."
        )
        st.caption(
            f"After serving 1, 2, 4, … prompts of different length, evenly spread up to {longest:,} tokens. "
            f"{counted} Counted once, exactly: no interval."
        )
        st.markdown(words.markdown(_policy_sentence(shown, kind)))
    rows = [_policy_row(one) for one in here if one.steps]
    if rows:
        st.caption("After the most lengths: measured, and computed from the policy")
        st.dataframe(
            pd.DataFrame(rows), hide_index=True, row_height=30, alt="Bytes held by each variant after the most lengths"
        )
    parts.show_list("Not swept to the end", [f"{one.variant}: {one.reason}" for one in here if one.reason])


def _policy_sentence(shown: Sequence[sweeps.Policy], kind: str) -> str:
    told = []
    for one in shown:
        steps = [step for step in one.steps if kind in step.measured]
        first, last = steps[0], steps[-1]
        share = memory_time.percent_of(last.measured[kind], one.weights_bytes)
        start = first.measured[kind]
        grown = f", {last.measured[kind] / start:.3g} times what one length needs" if start > 0 else ""
        told.append(f"{one.variant} {words.size(last.measured[kind])} ({share}{grown})")
    return f"{sweeps.HELD[kind]} after {max(one.steps[-1].lengths for one in shown)} lengths: {'; '.join(told)}."


def _policy_row(one: sweeps.Policy) -> dict[str, object]:
    last = one.steps[-1]

    def cell(kind: str) -> str:
        measured, computed = last.measured.get(kind), last.computed.get(kind)
        if measured is None:
            return "not measured"
        beside = (
            "" if computed is None else " = computed" if computed == measured else f", computed {words.size(computed)}"
        )
        return words.size(measured) + beside

    total = last.measured.get("caches")
    return {
        "variant": one.variant,
        "lengths": last.lengths,
        "masks": cell("mask"),
        "keys and values": cell("kv"),
        "RoPE tables": cell("rope"),
        "together, of the weights": memory_time.percent_of(total, one.weights_bytes).removesuffix(" of the weights"),
        "peak resident": words.size(last.measured.get("resident")),
        "weights": words.size(one.weights_bytes),
    }


# -- loading -----------------------------------------------------------------------------------------------------------


def show_loading(opened: parts.Opened) -> None:
    run = opened.run
    loads, problem = read_loads(run.path, opened.stamp)
    if problem:
        st.warning(f"Left out: {words.markdown(problem)}", icon=":material/warning:")
    if not loads:
        parts.show_missing("measured loads", LOADING_COMMAND)
        return
    geometry = parts.choose("Checkpoint", list(dict.fromkeys(load.checkpoint for load in loads)), "geometry")
    here = [load for load in loads if load.checkpoint == geometry]
    shares = _shares(run, geometry, here)
    if shares.effects:
        st.plotly_chart(
            forest.forest(shares, {}, parts.colours()),
            config=parts.PLOT,
            alt=forest_rows.in_words(shares, {}),
            key="loading",
        )
    tokens = max(load.prompt_tokens for load in here)
    blue = f" Blue: what is claimed ({shares.claimed})." if shares.claimed else ""
    st.caption(
        words.markdown(
            "Share of the time to the first token that goes if the weights are in memory already, after a prompt of "
            f"{tokens} tokens. Cold: the file was dropped from the page cache before each load.{blue} "
            f"{_rounds_note(here)}"
        )
    )
    st.dataframe(
        pd.DataFrame([_load_row(load) for load in here]),
        hide_index=True,
        row_height=30,
        alt="Time and peak memory of each loader with cold and warm page cache",
    )
    st.caption(
        "Times are wall time, the geometric mean of the loads with its interval. A mapped file is opened at once and "
        "read later, which is why reading every byte stands beside opening. The last column is the time of mapped "
        "safetensors over the loader's, until every byte was read: above 1 the loader is faster. '@aa' is that one "
        "once more: its ratio is the pass's own noise. Peak memory is resident memory above what there was before, "
        "pages of the file included."
    )
    parts.show_list(
        "Not measured", [f"{load.loader}, {load.cache} page cache: {load.reason}" for load in here if load.reason]
    )


def _rounds_note(here: Sequence[sweeps.Load]) -> str:
    """Says plainly where there are too few rounds."""
    fewest = min(load.share.rounds for load in here)
    if fewest < 2:
        return f"Too few rounds for an interval ({fewest} of about {LEAST_ROUNDS}) where the ends are open."
    return f"At least {fewest} rounds each."


def _shares(run: data.Run, geometry: str, here: Sequence[sweeps.Load]) -> data.Claim:
    """The shares as rows of a forest plot: as judged where a claim asked, else with the page's own interval."""
    judged: dict[str, tuple[data.Claim, data.Effect]] = {}
    for claim in run.claims:
        for effect in claim.effects:
            workload = data.experiment(run, effect.workload).get("workload")
            if effect.unit and isinstance(workload, dict) and workload.get("geometry") == geometry:
                judged.setdefault(effect.metric, (claim, effect))
    found: data.Claim | None = None
    rows = []
    for load in here:
        metric = f"share of the time to first token: {load.loader}, {load.cache} page cache"
        name = f"{load.loader}, {load.cache}"
        if metric in judged:
            claim, effect = judged[metric]
            found = found or claim
            rows.append(
                replace(effect, workload=name, variant="", baseline="", metric="share of the time to first token")
            )
        elif load.share.rounds:
            value, low, high = (
                100 * end if math.isfinite(end) else None for end in (load.share.share, load.share.low, load.share.high)
            )
            rows.append(
                data.Effect(
                    workload=name,
                    variant="",
                    baseline="",
                    metric="share of the time to first token",
                    unit="%",
                    value=value,
                    low=low,
                    high=high,
                    rounds=load.share.rounds,
                    seconds=None,
                    verdict="not asked",
                    warnings=(),
                )
            )
    return data.Claim(
        id="loading",
        title="Loading",
        alpha=run.alpha or 0.01,
        claimed=found.claimed if found else "",
        low=found.low if found else None,
        high=found.high if found else None,
        effects=tuple(rows),
    )


def _load_row(load: sweeps.Load) -> dict[str, object]:
    touched = load.against.get("touched")
    if touched is None:
        ratio = "–"
    elif not touched.rounds:
        ratio = "not measured"
    elif math.isinf(touched.high):
        ratio = f"{touched.ratio:.3g}× (too few rounds: {touched.rounds})"
    else:
        ratio = words.effect(touched.ratio, touched.low, touched.high)
    return {
        "loader": load.loader,
        "page cache": load.cache,
        "open": _time_text(load.times.get("open")),
        "read every byte": _time_text(load.times.get("touched")),
        "first token": _time_text(load.times.get("first_token")),
        "peak memory": words.size(load.peak_bytes),
        "file": words.size(load.file_bytes),
        "loads": load.loads,
        "first tokens": load.share.rounds,
        "against mapped safetensors": ratio,
    }


def _time_text(time: sweeps.Time | None) -> str:
    if time is None:
        return "not measured"
    if time.low is None or time.high is None:
        return f"{time.value:,.3g} ms (too few rounds for an interval: {time.count} of about {LEAST_ROUNDS})"
    low, middle, high = (f"{end:,.0f}" if end >= 100 else f"{end:.3g}" for end in (time.low, time.value, time.high))
    return f"{middle} ms [{low}, {high}]"


main()
