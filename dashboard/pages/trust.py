"""Trust: how far the numbers of one run can be trusted (`?run=…`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from llama_workbench.dashboard import state as parts
from llama_workbench.dashboard import words
from llama_workbench.dashboard.figures import noise as charts
from llama_workbench.dashboard.views import data, noise, values

CONTROLS_COMMAND = "pytest --benchmark"
MOST_NAMED = 4

NUMBER = re.compile(r"\d[\d.,]*( (?:ms|s|min|h)\b)?")


def main() -> None:
    opened = parts.open_run("Trust")
    if opened is None:
        return
    run = opened.run
    measured = parts.read_noise(run.path, opened.stamp)
    if measured.problem:
        st.warning(f"Left out: {words.markdown(measured.problem)}", icon=":material/warning:")
    show_controls(run)
    show_drift(run, measured)
    show_places(measured)
    show_gates(run)
    show_traces(run)
    parts.show_list("Left out of this run", run.left_out)
    show_warnings(run)
    show_environment(run)
    st.caption(
        "How often the rules here give a wrong verdict on identical code and on planted differences stands in "
        "METHODOLOGY.md, with how that was found out."
    )


# -- controls ------------------------------------------------------------------------------------------------------


def show_controls(run: data.Run) -> None:
    found = noise.controls(run)
    if not found:
        parts.show_missing("controls (identical code timed against itself)", CONTROLS_COMMAND)
        return
    with st.container(border=True):
        st.markdown(words.markdown(noise.could_see(found)))
    st.header("Identical code against itself", anchor="controls")
    st.plotly_chart(
        charts.controls_forest(found, parts.colours()),
        config=parts.PLOT,
        alt=charts.controls_text(found),
        key="controls",
    )
    confidence = f" With {words.percent(1 - run.alpha)} confidence all of them hold at once." if run.alpha else ""
    st.caption(
        "A row has the baseline entered twice, or an identical copy of another variant, timed in the same rounds as "
        "all else. An interval that leaves out 1 means that the control fired. The figure at the right is half the "
        "width of the wider one: a smaller difference could not have been told apart there, in as many rounds. "
        f"{open_ones(found)}"
        f"{confidence}"
    )
    with st.expander("The same as a table"):
        st.dataframe(
            pd.DataFrame(
                {
                    "workload": [one.workload for one in found],
                    "control": [charts.KINDS.get(one.kind, (one.kind, ""))[0] for one in found],
                    "variant": [one.variant for one in found],
                    "ratio": [one.ratio for one in found],
                    "low": [one.low for one in found],
                    "high": [one.high for one in found],
                    "smallest difference": [None if one.smallest is None else 100 * one.smallest for one in found],
                    "rounds": [one.rounds for one in found],
                    "fired": ["fired" if one.fired else "no" for one in found],
                }
            ),
            hide_index=True,
            row_height=28,
            column_config={
                **{name: st.column_config.NumberColumn(format="%.4f×") for name in ("ratio", "low", "high")},
                "smallest difference": st.column_config.NumberColumn(format="±%.2g %%"),
            },
            alt="Controls of this run with their intervals",
        )


def open_ones(found: list[noise.Control]) -> str:
    """What is not in the figure."""
    names = dict.fromkeys(one.workload for one in found if one.smallest is None)
    return f"Not drawn, for want of rounds: {words.markdown(words.listing(list(names)))}." if names else ""


# -- noise ---------------------------------------------------------------------------------------------------------


def show_drift(run: data.Run, measured: noise.Noise) -> None:
    st.header("Noise over the run", anchor="noise")
    baselines = {
        values.text(values.mapping(entry.get("workload")).get("name")): values.text(entry.get("baseline"))
        for entry in values.records(run.manifest.get("experiments"))
    }
    frame = noise.drift(measured, baselines)
    if frame.empty:
        parts.show_missing("timed rounds", CONTROLS_COMMAND)
        return
    st.plotly_chart(charts.drift(frame, parts.colours()), config=parts.PLOT, alt=charts.drift_text(frame), key="drift")
    st.caption(
        words.markdown(
            f"{charts.drift_text(frame)} A point is one round: the median time of a call of the yardstick (of the "
            "baseline where a workload has none) over its own median. A step is a machine that changed its speed, a "
            "cloud of high points a busy neighbour. Both sides of a comparison share a round, so most of it cancels. "
            f"All in all there are {measured.samples:,} samples."
        )
    )


def show_places(measured: noise.Noise) -> None:
    if not measured.places:
        return
    st.header("Places and page faults", anchor="places")
    apart = [
        name
        for name, spans in measured.places.items()
        if any(span.rounds > 1 and not span.low <= 1 <= span.high for span in spans)
    ]
    count = len(measured.places)
    expected = count * 2 * (1 - noise.LEVEL)
    listed = f": {words.listing(apart[:MOST_NAMED])}" if apart else ""
    st.markdown(
        words.markdown(
            f"On {len(apart)} of {count} workloads the place within a round shows{listed}; {expected:.1f} would be "
            "expected by chance alone. Order is random, so that a place favours nobody: it adds noise, not bias."
        )
    )
    faults = noise.faults(measured).set_index("workload")
    first = [spans[0] for spans in measured.places.values()]
    slope = [spans[1] for spans in measured.places.values()]
    st.dataframe(
        pd.DataFrame(
            {
                "workload": list(measured.places),
                "first against the others": [ratio(span) for span in first],
                "last against the first": [ratio(span) for span in slope],
                "rounds": [span.rounds for span in first],
                "page faults a call, least": [fault(faults, name, "fewest faults") for name in measured.places],
                "most": [fault(faults, name, "most faults") for name in measured.places],
                "most in": [str(faults.loc[name, "most"]) if name in faults.index else "" for name in measured.places],
            }
        ),
        hide_index=True,
        row_height=28,
        alt="Effect of the place within a sub-round, and page faults a call, by workload",
    )
    st.caption(
        "Time of the first sample of a sub-round over that of the others, and of the last over the first by a straight "
        "line through all; 99 % t intervals over rounds, each for itself. Page faults a call are medians over rounds; "
        "where two sides of a comparison differ in them, the judge says so."
    )


def ratio(span: noise.Span) -> str:
    return words.effect(span.value, span.low or None, span.high) if span.rounds > 1 else "too few rounds"


def fault(faults: pd.DataFrame, workload: str, column: str) -> float | None:
    found = faults[column].to_dict().get(workload)
    return None if found is None else float(found)


# -- gates ---------------------------------------------------------------------------------------------------------


def show_gates(run: data.Run) -> None:
    st.header("Logits gates", anchor="gates")
    worst: dict[str, dict[str, Any]] = {}
    for workload, variant, gate in gates(run):
        error, tolerance = values.number(gate.get("max_error")), values.positive(gate.get("tolerance"))
        row = worst.setdefault(
            variant,
            {
                "variant": variant,
                "passed": 0,
                "of": 0,
                "cases": 0,
                "worst error": None,
                "tolerance": None,
                "of tolerance": None,
                "on": "",
            },
        )
        row["of"] += 1
        row["passed"] += gate.get("passed") is True
        row["cases"] += int(values.number(gate.get("cases")) or 0)
        if error is not None and tolerance is not None and error / tolerance >= (row["of tolerance"] or 0) / 100:
            row |= {"worst error": error, "tolerance": tolerance, "of tolerance": 100 * error / tolerance}
            row["on"] = workload
    if not worst:
        parts.show_missing("gates", CONTROLS_COMMAND)
        return
    failed = [name for name, row in worst.items() if row["passed"] < row["of"]]
    known = [row for row in worst.values() if row["of tolerance"] is not None]
    most = max(known, key=lambda row: float(row["of tolerance"]), default=None)
    said = f"{len(worst) - len(failed)} of {len(worst)} variants passed on every workload they ran"
    said += f"; failed: {words.listing(failed[:MOST_NAMED])}" if failed else ""
    if most:
        where = f"{most['variant']} on {most['on']}"
        said += f". The largest error used {most['of tolerance']:.2g} % of its tolerance ({where})"
    st.markdown(words.markdown(f"{said}."))
    table: list[dict[str, Any]] = sorted(worst.values(), key=lambda row: row["of tolerance"] or 0, reverse=True)
    st.dataframe(
        pd.DataFrame(table),
        hide_index=True,
        row_height=28,
        column_config={
            "worst error": st.column_config.NumberColumn(format="%.2e"),
            "tolerance": st.column_config.NumberColumn(format="%.1e"),
            "of tolerance": st.column_config.NumberColumn(format="%.3g %%"),
        },
        alt=f"Worst error of the logits by variant. {said}",
    )
    st.caption(
        "Largest difference of a variant's logits (of a part: its output) from the reference's, over all workloads of "
        "the run; a variant that fails is not timed."
    )


def gates(run: data.Run) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Workload, variant and what its gate found."""
    return [
        (values.text(values.mapping(entry.get("workload")).get("name")), values.text(variant), values.mapping(gate))
        for entry in values.records(run.manifest.get("experiments"))
        for variant, gate in values.mapping(entry.get("gates")).items()
    ]


def show_traces(run: data.Run) -> None:
    st.header("Operation traces", anchor="traces")
    rows = [
        {
            "workload": values.text(values.mapping(entry.get("workload")).get("name")),
            "baseline": values.text(row.get("baseline")),
            "variant": values.text(row.get("variant")),
            "operations": "the same" if row.get("same") is True else "differ",
            "first difference": values.text(row.get("detail")),
        }
        for entry in values.records(run.manifest.get("experiments"))
        for row in values.records(entry.get("trace_differences"))
    ]
    if not rows:
        st.text("No two variants were compared by their operations in this run.")
        return
    same = sum(row["operations"] == "the same" for row in rows)
    st.markdown(
        f"{same} of {len(rows)} compared pairs ran the same operations. Only those can speak about architecture alone."
    )
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        row_height=28,
        alt="Pairs of variants whose operation traces were compared",
    )


# -- warnings and environment --------------------------------------------------------------------------------------


def show_warnings(run: data.Run) -> None:
    st.header("Notes on the effects", anchor="notes")
    groups: dict[str, list[tuple[str, data.Effect]]] = {}
    for claim in run.claims:
        for effect in claim.effects:
            for note in effect.warnings:
                groups.setdefault(NUMBER.sub("…", note), []).append((note, effect))
    if not groups:
        st.text("No effect of this run has a note: nothing voided or widened anything.")
        return
    table = []
    for found in sorted(groups.values(), key=len, reverse=True):
        where = list(dict.fromkeys(effect.where for _, effect in found))
        verdicts = dict.fromkeys(words.look(effect.verdict).word.lower() for _, effect in found)
        more = f" and {len(where) - MOST_NAMED} more" if len(where) > MOST_NAMED else ""
        table.append(
            {
                "effects": len(found),
                "note, as on the first": found[0][0],
                "their verdicts": ", ".join(verdicts),
                "where": ", ".join(where[:MOST_NAMED]) + more,
            }
        )
    st.dataframe(
        pd.DataFrame(table), hide_index=True, row_height=28, alt="Notes on effects, those of one kind together"
    )
    st.caption("What the judge noted, with notes that differ in their numbers alone counted as one.")


FACTS = {
    "cpu_model": "CPU",
    "cores": "cores",
    "cgroup_quota_cores": "cores allowed",
    "governor": "CPU governor",
    "threads": "threads",
    "load_average": "load average before",
    "torch": "torch",
    "malloc": "malloc settings",
    "transparent_huge_pages": "huge pages",
    "memory_bytes": "memory",
    "kernel": "kernel",
    "libc": "C library",
    "python": "Python",
    "commit": "commit",
}


def show_environment(run: data.Run) -> None:
    st.header("Environment", anchor="environment")
    environment = values.mapping(run.manifest.get("environment"))
    st.table(
        {title: words.markdown(fact(key, environment.get(key))) for key, title in FACTS.items()}, border="horizontal"
    )
    with st.expander("All that was recorded"):
        st.json(dict(environment), expanded=1)


def fact(key: str, value: Any) -> str:
    """A fact about the machine on one line."""
    if value is None or value in ({}, []):
        return "cannot be read here"
    if key == "memory_bytes":
        return words.size(values.number(value))
    if isinstance(value, dict):
        return ", ".join(f"{name} = {values.text(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(values.text(item) for item in value)
    return values.text(value)


main()
