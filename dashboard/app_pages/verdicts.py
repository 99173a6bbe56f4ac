"""Verdicts: choose a run and a claim; see what was claimed, what was measured, and the evidence.

The URL holds every choice (`?run=…&claim=…&part=…&row=…`), so that a link leads to the same picture: each run of the
script first sets the widgets from the URL, and a widget that changes writes itself there.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import streamlit as st

from llama_workbench.dashboard import data, figures, frames, words
from llama_workbench.harness.environment import one_line
from llama_workbench.harness.report import duration_text
from llama_workbench.harness.store import RunError

PLOT = {"displayModeBar": False, "scrollZoom": False}
PROFILE_COMMAND = "pytest --benchmark --profile"


@st.cache_data(max_entries=16, show_spinner="Reading the list of runs …")
def entries(results: Path, stamp: data.Stamp) -> list[data.Entry]:
    """All runs; `stamp` changes with the files, so that a run shows up while the page is open."""
    return data.entries(results)


@st.cache_data(max_entries=32, show_spinner="Reading the run …")
def read_run(path: Path, stamp: data.Stamp) -> data.Run:
    return data.read_run(path)


@st.cache_data(max_entries=64, show_spinner="Reading the profile …")
def read_profile(path: Path, stamp: data.Stamp, workload: str, variant: str) -> data.Profile | None:
    return data.read_profile(read_run(path, stamp), workload, variant)


def main() -> None:
    results = data.results_folder(sys.argv[1:])
    found = entries(results, data.stamp_of_results(results))
    runs = [entry for entry in found if entry.summary.problem is None]
    skipped = [entry for entry in found if entry.summary.problem is not None]
    entry = choose_run(runs, skipped)
    if entry is not None:
        show_entry(entry)
    else:
        show_first_run(results)
    show_skipped(skipped, len(found))


def show_entry(entry: data.Entry) -> None:
    stamp = data.stamp_of_run(entry.summary.path)
    try:
        run = read_run(entry.summary.path, stamp)
    except RunError as error:
        if error.path.name == "verdicts.json" and not error.path.exists():
            st.info(
                "This run has no verdicts: it still goes on, or was killed. What it finished can be judged:",
                icon=":material/hourglass:",
            )
            st.code(shlex.join(["workbench", "judge", str(entry.summary.path)]), language="bash", wrap_lines=True)
        else:
            st.error("This run cannot be read.", icon=":material/error:")
            st.text(f"{error.path.name}: {error.problem}. {error.fix}")
        return
    show_run(run)
    if not run.claims:
        st.info("This run was made without claims, so there is no verdict.", icon=":material/info:")
        return
    left, right = st.columns([4, 7], gap="large")
    with left:
        claim = choose_claim(run.claims)
    with right:
        show_claim(run, claim)
    if claim.effects:
        show_evidence(run, claim, stamp)
    show_how(run, claim)


# -- choosing ----------------------------------------------------------------------------------------------------


def choose_run(runs: Sequence[data.Entry], skipped: Sequence[data.Entry]) -> data.Entry | None:
    """The run of `?run=`, else the newest; None where there is none."""
    title, box = st.columns([4, 7], gap="large", vertical_alignment="bottom")
    title.title("Verdicts", anchor=False)
    if not runs:
        return None
    by_name = {entry.name: entry for entry in runs}
    wanted = st.query_params.get("run")
    if wanted is not None and wanted not in by_name:
        problem = next((entry.summary.problem for entry in skipped if entry.name == wanted), "there is no such run")
        st.warning(
            f"Run {words.markdown(wanted)} cannot be shown: {words.markdown(problem)}. Below is the newest one.",
            icon=":material/warning:",
        )
        wanted = None
    st.session_state["run"] = wanted or runs[0].name

    def follow() -> None:
        st.query_params.from_dict({"run": st.session_state["run"]})  # claims and rows of another run mean nothing

    name = box.selectbox(
        "Run", list(by_name), key="run", format_func=lambda name: run_label(by_name[name]), on_change=follow
    )
    return by_name.get(name, runs[0])


def run_label(entry: data.Entry) -> str:
    """What a run is, on one line. A select box shows text as it is."""
    summary = entry.summary
    when = f"{summary.started[:16].replace('T', ' ')} UTC" if summary.started else "no date"
    count = sum(summary.verdicts.values())
    verdicts = f"{count} verdict{'' if count == 1 else 's'}" if count else "no verdicts"
    state = "" if summary.status == "complete" else f" · {summary.status}"
    return f"{when}{state} · {verdicts} · {entry.name}"


def choose_claim(claims: Sequence[data.Claim]) -> data.Claim:
    """The claim of `?claim=` (and `?part=`), else the first."""
    wanted, part = st.query_params.get("claim"), st.query_params.get("part", "")
    same_id = [index for index, claim in enumerate(claims) if claim.id == wanted]
    if wanted is not None and not same_id:
        st.warning(f"This run has no claim {words.markdown(wanted)}.", icon=":material/warning:")
    st.session_state["claim"] = next(
        (index for index in same_id if claims[index].part == part), same_id[0] if same_id else 0
    )

    def follow() -> None:
        claim = claims[st.session_state["claim"]]
        st.query_params["claim"] = claim.id
        for name in ("part", "row"):
            st.query_params.pop(name, None)
        if claim.part:
            st.query_params["part"] = claim.part

    names = claim_names(claims)
    index = st.radio(
        counts(claims),
        range(len(claims)),
        key="claim",
        format_func=lambda index: f"{verdict_word(claims[index].verdict)} {names[index]}",
        captions=[claim_caption(claim) for claim in claims],
        on_change=follow,
        width="stretch",
    )
    return claims[index if index is not None else 0]


def counts(claims: Sequence[data.Claim]) -> str:
    """How many of each verdict, as Markdown, in the fixed order of `words.LOOKS`."""
    found = [claim.verdict for claim in claims]
    order = [*words.LOOKS, *found]
    kinds = sorted(set(found), key=order.index)
    return "Claims: " + " · ".join(
        f":{words.look(kind).colour}[{found.count(kind)} {words.markdown(words.look(kind).word.lower())}]"
        for kind in kinds
    )


def claim_names(claims: Sequence[data.Claim]) -> list[str]:
    """A different name for each claim: Streamlit tells options apart by what they show."""
    names: list[str] = []
    for claim in claims:
        name = words.markdown(words.clip(f"{claim.title} ({claim.part})" if claim.part else claim.title, 140))
        names.append(name if name not in names else f"{name} {words.markdown(f'[{claim.id} {len(names) + 1}]')}")
    return names


def claim_caption(claim: data.Claim) -> str:
    """Under a claim in the list: who claimed what, and what was measured."""
    who = ", ".join(claim.who)
    said = words.clip(f"{who} claimed {claim.claimed}" if who and claim.claimed else who, 100)
    return words.markdown(" · ".join(part for part in (said, data.measured(claim)) if part))


def verdict_word(verdict: str) -> str:
    """Icon and word in the verdict's colour, as Markdown."""
    shown = words.look(verdict)
    return f":{shown.colour}[:material/{shown.icon}: **{words.markdown(shown.word)}**]"


# -- the first screen ----------------------------------------------------------------------------------------------


def show_run(run: data.Run) -> None:
    """One quiet line about machine and noise; loud only where something is wrong."""
    environment = run.manifest.get("environment")
    lines = [one_line(environment)] if isinstance(environment, dict) else []
    lines += [run.noise] if run.noise else []
    st.caption(words.markdown(" · ".join(lines)))
    status = run.manifest.get("status")
    if status != "complete":
        st.warning(
            f"This run is {words.markdown(status or 'of unknown status')}: what it had measured by then is shown.",
            icon=":material/hourglass:",
        )
    fired = [name for name, floor in run.floors.items() if floor.fired]
    if fired:
        st.warning(
            "The machine told identical code apart on "
            f"{words.markdown(words.listing(fired))}: a verdict there stands only if it survives a bias of that size.",
            icon=":material/warning:",
        )
    for problem in run.problems:
        st.warning(f"Left out: {words.markdown(problem)}", icon=":material/warning:")


def show_claim(run: data.Run, claim: data.Claim) -> None:
    st.header(words.markdown(claim.title), anchor=False)
    if claim.statement and claim.statement != claim.title:
        st.text(claim.statement)
    said = [f"Said by {', '.join(claim.who)}" if claim.who else "", claim.source, claim.part and f"part: {claim.part}"]
    if any(said):
        st.caption(words.markdown(" · ".join(part for part in said if part)))
    with st.container(border=True, gap="xsmall"):
        meaning = data.sentence(claim)
        st.markdown(f"{verdict_word(claim.verdict)}{': ' if meaning else ''}{words.markdown(meaning)}.")
        if claim.reason:
            st.caption(words.markdown(claim.reason))
    if not claim.effects:
        return
    sides = {(effect.variant, effect.baseline) for effect in claim.effects}
    if len(sides) == 1:
        st.caption(words.markdown(claim.effects[0].sides))
    st.plotly_chart(
        figures.forest(claim, run.floors, colours()),
        config=PLOT,
        alt=figures.forest_text(claim, run.floors),
        key="forest",
    )
    if claim.unit:
        st.caption("Blue is the claimed range. What was counted or tried is exact and has no interval.")
        return
    region = "the margin within which two variants count as the same" if claim.is_comparison else "the claimed range"
    floor = (
        "Grey is the A/A floor: what this machine made of identical code on that workload."
        if any(effect.workload in run.floors for effect in claim.effects)
        else "This run has no A/A control on these workloads, so no floor is drawn."
    )
    together = f" With {words.percent(1 - run.alpha)} confidence all of this run hold at once." if run.alpha else ""
    st.caption(f"Blue is {region}. {floor} Intervals keep their confidence however often one looks at them.{together}")


def colours() -> figures.Palette:
    return figures.palette(st.context.theme.type)


# -- evidence ----------------------------------------------------------------------------------------------------


def show_evidence(run: data.Run, claim: data.Claim, stamp: data.Stamp) -> None:
    st.header("Evidence", anchor="evidence")
    show_numbers(run, claim)
    if not any(effect.workload for effect in claim.effects):
        return  # what was counted or tried has no time and no memory
    effect = choose_effect(run, claim)
    sides = [side for side in dict.fromkeys([effect.baseline, effect.variant]) if side]
    profiles = {side: read_profile(run.path, stamp, effect.workload, side) for side in sides}
    st.subheader("Where the time goes", anchor="time")
    show_flamegraphs(profiles, effect)
    st.subheader("Memory", anchor="memory")
    show_memory(run, effect)


def show_numbers(run: data.Run, claim: data.Claim) -> None:
    table = pd.DataFrame(
        [
            {
                "workload": effect.workload,
                "variant": effect.variant,
                "baseline": effect.baseline,
                "verdict": words.look(effect.verdict).word,
                "clock": effect.metric,
                claim.unit or "speed-up": effect.value,
                "low": effect.low,
                "high": effect.high,
                "A/A floor": f"{floor.low:.4f} – {floor.high:.4f}"
                if (floor := run.floors.get(effect.workload))
                else "–",
                "rounds": effect.rounds,
                "seconds": effect.seconds,
            }
            for effect in claim.effects
        ]
    )
    number = st.column_config.NumberColumn(format="%.4g" if claim.unit else "%.4f×")
    st.dataframe(
        table,
        hide_index=True,
        row_height=30,
        column_config={
            claim.unit or "speed-up": number,
            "low": number,
            "high": number,
            "seconds": st.column_config.NumberColumn(format="%.1f s"),
        },
        alt="Effects of the claim, one row for each workload and baseline",
    )
    notes: dict[str, list[str]] = {}
    for effect in claim.effects:
        for note in effect.warnings:
            notes.setdefault(note, []).append(effect.where)
    show_list("Notes", [f"{words.listing(list(dict.fromkeys(where)))}: {note}" for note, where in notes.items()])


def choose_effect(run: data.Run, claim: data.Claim) -> data.Effect:
    """The row of `?row=` (from 1), else the first of which there is a profile, else the first."""
    effects = claim.effects
    if len(effects) == 1:
        return effects[0]
    profiled = {key for key, row in run.profiles.items() if row.get("path")}
    default = next((i for i, effect in enumerate(effects) if (effect.workload, effect.variant) in profiled), 0)
    wanted = st.query_params.get("row", "")
    chosen = int(wanted) - 1 if wanted.isdecimal() and 1 <= int(wanted) <= len(effects) else default
    st.session_state["row"] = chosen

    def follow() -> None:
        st.query_params["row"] = str(st.session_state["row"] + 1)

    index = st.selectbox(
        "Look inside",
        range(len(effects)),
        key="row",
        format_func=lambda i: f"{effects[i].where}: {effects[i].sides}",
        on_change=follow,
    )
    return effects[index if index is not None else default]


def show_flamegraphs(profiles: dict[str, data.Profile | None], effect: data.Effect) -> None:
    if not any(profiles.values()):
        st.text("This run has no profiles. This command makes a run with them:")
        st.code(f"{PROFILE_COMMAND} --workloads {shlex.quote(effect.workload)}", language="bash")
        return
    known = [profile for profile in profiles.values() if profile and profile.shown]
    medians = [profile.median_ns for profile in known if profile.median_ns]
    widest = max(medians) if medians and len(medians) == len(known) else None
    ink, fills = colours().frame_text, colours().frames
    st.markdown(
        " ".join(
            f':color[{figures.KINDS[name]}]{{foreground="{ink}" background="{fills[name]}"}}'
            for name in figures.kinds(known)
        )
    )
    for column, (side, profile) in zip(st.columns(len(profiles), gap="medium"), profiles.items(), strict=True):
        with column:
            role = "baseline" if side == effect.baseline else "variant"
            time = f", {words.milliseconds(profile.median_ns)} a call" if profile and profile.median_ns else ""
            st.markdown(f"**{words.markdown(side)}** :gray[{role}{time}]")
            show_flamegraph(side, profile, widest)
    scale = "A millisecond is as wide on both sides. " if widest and len(known) > 1 else ""
    st.caption(
        f"Box width is time: share of samples × median time of a call. {scale}Click a box to enlarge it. "
        "Left out are the two frames that torch.nn.Module puts around every call."
    )


def show_flamegraph(side: str, profile: data.Profile | None, widest_ns: float | None) -> None:
    if profile is None or profile.root is None or profile.shown is None:
        st.text(f"No profile: {profile.reason if profile else 'the profiling pass left this variant out'}.")
        return
    st.plotly_chart(
        figures.flamegraph(profile, widest_ns, colours()),
        config=PLOT,
        alt=figures.flamegraph_text(profile),
        key=f"flame {side}",
    )
    total = profile.root.samples
    rate = f" at {profile.rate_hz:g} Hz" if profile.rate_hz else ""
    small = f" Boxes below {words.percent(profile.least_share)} are not drawn."
    shell = f" Nor are the outer frames {' › '.join(profile.shell)}." if profile.shell else ""
    st.caption(words.markdown(f"{total} samples{rate}.{small}{shell}"))
    with st.expander("The same as a table"):
        own = frames.by_own_time(profile.root)[:15]
        per_sample_ms = (profile.median_ns or 0) / total / 1e6
        st.dataframe(
            pd.DataFrame(
                {
                    "function": [name for name, _, _ in own],
                    "file": ["/".join(file.split("/")[-3:]) for _, file, _ in own],
                    "own time": [samples * per_sample_ms if per_sample_ms else None for _, _, samples in own],
                    "share": [100 * samples / total for _, _, samples in own],
                    "± (SE)": [100 * (s / total * (1 - s / total) / total) ** 0.5 for _, _, s in own],
                }
            ),
            hide_index=True,
            row_height=28,
            column_config={
                "own time": st.column_config.NumberColumn(format="%.3f ms"),
                "share": st.column_config.NumberColumn(format="%.1f %%"),
                "± (SE)": st.column_config.NumberColumn(format="%.1f %%"),
            },
            alt=f"Functions of {side} with the most time of their own",
        )


def show_memory(run: data.Run, effect: data.Effect) -> None:
    names = [name for name in dict.fromkeys([effect.baseline, effect.variant]) if name]
    rows = [run.memory[effect.workload, name] for name in names if (effect.workload, name) in run.memory]
    if not rows:
        st.text("This run has no memory measurements. This command makes a run with them:")
        st.code(f"{PROFILE_COMMAND} --workloads {shlex.quote(effect.workload)}", language="bash")
        return
    for column, (field, title) in zip(st.columns(len(figures.AMOUNTS)), figures.AMOUNTS.items(), strict=True):
        with column:
            st.markdown(f"**{title}**")
            st.plotly_chart(
                figures.memory(rows, field, effect.baseline, colours()),
                config=PLOT,
                alt=f"{title}. {figures.memory_text(rows, field)}",
                key=field,
            )
    for row in rows:
        if row.reason:
            st.text(f"{row.variant}: {row.reason}")
    st.caption(
        "Peak transient is the most that one call had allocated at a time, above the weights, after warming up. "
        "Parameters and caches are counted from their shapes. Each panel has a scale of its own."
    )


# -- how it was measured -------------------------------------------------------------------------------------------


def show_how(run: data.Run, claim: data.Claim) -> None:
    st.header("How it was measured", anchor="how")
    left, right = st.columns(2, gap="large")
    with left:
        st.caption("Measure this claim again")
        st.code(data.reproduce(run, claim), language="bash", wrap_lines=True)
        command = run.manifest.get("command")
        if isinstance(command, list):
            st.caption("This run was made by")
            st.code(shlex.join(str(part) for part in command), language="bash", wrap_lines=True)
    with right:
        seconds = sum(effect.seconds or 0 for effect in claim.effects)
        facts = {
            "Decided by": claim.decided_by,
            "Error rate": f"{words.percent(claim.alpha)} for each comparison, over all rounds and all looks at them",
            "Rounds": f"{sum(effect.rounds for effect in claim.effects)} over {len(claim.effects)} comparisons",
            "Time spent": duration_text(seconds),
            "Noise": run.noise or "no controls in this run",
            "Seed": str(run.manifest.get("seed", "not recorded")),
        }
        st.table({name: words.markdown(value) for name, value in facts.items() if value}, border="horizontal")
    if any(effect.workload for effect in claim.effects):
        st.caption("Checks before timing")
        st.dataframe(
            pd.DataFrame([data.checks(run, effect) for effect in claim.effects]),
            hide_index=True,
            row_height=30,
            alt="Logits gates and operation traces of both sides, one row for each comparison",
        )
    show_list("Left out of this run", run.left_out)
    environment = run.manifest.get("environment")
    if isinstance(environment, dict):
        with st.expander("Environment"):
            st.json(environment, expanded=1)


def show_list(title: str, notes: Sequence[str]) -> None:
    """Each different note once, as plain text."""
    if notes:
        with st.container(gap="xsmall"):
            st.caption(title)
            for note in dict.fromkeys(notes):
                st.text(note)


# -- when there is little to show --------------------------------------------------------------------------------


def show_first_run(results: Path) -> None:
    st.markdown("There is no run to show yet. Make the first one (about ten minutes on two cores):")
    st.code("make bench", language="bash")
    st.markdown("or, in an environment that has the workbench:")
    st.code("pytest --benchmark", language="bash")
    st.caption(f"Looked in {words.markdown(results)}. To look elsewhere: set WORKBENCH\\_RESULTS or pass")
    st.code("streamlit run dashboard/app.py -- --results PATH", language="bash")


def show_skipped(skipped: Sequence[data.Entry], found: int) -> None:
    if not skipped:
        return
    with st.expander(f"{len(skipped)} of {found} folders are not shown"):
        st.dataframe(
            pd.DataFrame(
                {
                    "folder": [entry.name for entry in skipped],
                    "what it is": [entry.summary.status for entry in skipped],
                    "reason": [entry.summary.problem for entry in skipped],
                }
            ),
            hide_index=True,
            alt="Folders that are not runs or cannot be read, with the reason",
        )


main()
