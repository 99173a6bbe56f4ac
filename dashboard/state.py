"""What the pages share: reading with a cache, the choice of a run, and choices that live in the URL.

The URL holds every choice (`?run=…&claim=…`), so that a link leads to the same picture: each run of the script first
sets the widgets from the URL, and a widget that changes writes itself there.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pandas as pd
import streamlit as st

from llama_workbench.dashboard import words
from llama_workbench.dashboard.figures import colours as palettes
from llama_workbench.dashboard.views import breakdown as phase_shares
from llama_workbench.dashboard.views import data, noise
from llama_workbench.harness.machine.environment import one_line
from llama_workbench.harness.store.folder import RunError

PLOT = {"displayModeBar": False, "scrollZoom": False}
"""`config` of every plotly chart."""

PROFILE_COMMAND = "pytest --benchmark --profile"

_REMEMBERED = "chosen run"  # the menu of pages drops the URL's choices; the run is the one that all pages share


@st.cache_resource(max_entries=4, show_spinner="Reading the list of runs …")
def run_list(results: Path) -> data.RunList:
    """The runs under `results`, read once; the list itself sees what changes, so that a new run shows up."""
    found = data.RunList(results)
    found.entries()
    return found


def key_of(stamps: object) -> str:
    """One word for many stamps: Streamlit takes longer to look into those of two hundred runs than to draw a page."""
    return sha256(repr(stamps).encode()).hexdigest()


@st.cache_data(max_entries=32, show_spinner="Reading the run …")
def read_run(path: Path, stamp: data.Stamp) -> data.Run:
    """One run. Raises RunError."""
    return data.read_run(path)


@st.cache_resource(max_entries=64, show_spinner="Reading the profile …")  # never changed; a copy of its tree takes long
def read_profile(path: Path, stamp: data.Stamp, workload: str, variant: str) -> data.Profile | None:
    """One profile of a run; None where it has none."""
    return data.read_profile(read_run(path, stamp), workload, variant)


@st.cache_data(max_entries=16, show_spinner="Reading the phases …")
def read_phases(path: Path, stamp: data.Stamp) -> phase_shares.Phases:
    """The phase pass of a run."""
    return phase_shares.read(path)


@st.cache_data(max_entries=16, show_spinner="Reading the samples …")
def read_noise(path: Path, stamp: data.Stamp) -> noise.Noise:
    """Aggregates of a run's samples. The samples themselves are not kept."""
    return noise.read(read_run(path, stamp))


@dataclass(frozen=True)
class Opened:
    """The run that the page shows. `name` is its name in links, `stamp` the key of everything cached about it."""

    name: str
    run: data.Run
    stamp: data.Stamp


def all_entries() -> Sequence[data.Entry]:
    """Every folder that might be a run, newest first."""
    return run_list(data.results_folder(sys.argv[1:])).entries()


def open_run(title: str) -> Opened | None:
    """The page's head: its title, the choice of a run, and what must be known of that run before anything else.

    Returns None where there is no run to show; the page has then said why, and what to do.
    """
    found = all_entries()
    runs = [entry for entry in found if entry.summary.problem is None]
    entry = _choose_run(title, runs, [entry for entry in found if entry.summary.problem is not None])
    if entry is None:
        show_first_run(data.results_folder(sys.argv[1:]))
        return None
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
        return None
    _show_run(run)
    return Opened(entry.name, run, stamp)


def _choose_run(title: str, runs: Sequence[data.Entry], skipped: Sequence[data.Entry]) -> data.Entry | None:
    """The run of `?run=`, else the one chosen before on another page, else `first_shown`; None where there is none."""
    head, box = st.columns([4, 7], gap="large", vertical_alignment="bottom")
    head.title(title, anchor=False)
    if not runs:
        return None
    by_name = {entry.name: entry for entry in runs}
    wanted = st.query_params.get("run") or st.session_state.get(_REMEMBERED)
    if wanted is not None and wanted not in by_name:
        problem = next((entry.summary.problem for entry in skipped if entry.name == wanted), "there is no such run")
        st.warning(
            f"Run {words.markdown(wanted)} cannot be shown: {words.markdown(problem)}. Below is another one.",
            icon=":material/warning:",
        )
        wanted = None
    shown = first_shown(runs)
    st.session_state["run"] = wanted or shown.name
    if wanted is not None:
        st.session_state[_REMEMBERED] = wanted
        if st.query_params.get("run") != wanted:
            st.query_params["run"] = wanted

    def follow() -> None:
        st.session_state[_REMEMBERED] = st.session_state["run"]
        st.query_params.from_dict({"run": st.session_state["run"]})  # claims and rows of another run mean nothing

    name = box.selectbox(
        "Run", list(by_name), key="run", format_func=lambda name: run_label(by_name[name]), on_change=follow
    )
    return by_name.get(name, shown)


def first_shown(runs: Sequence[data.Entry]) -> data.Entry:
    """The run that a reader sees first: the newest of their own; where all are baselines, that with most verdicts."""
    own = [entry for entry in runs if not entry.name.startswith(data.BASELINES)]
    return own[0] if own else max(runs, key=lambda entry: sum(entry.summary.verdicts.values()))


def run_label(entry: data.Entry) -> str:
    """What a run is, on one line. A select box shows text as it is."""
    summary = entry.summary
    when = f"{summary.started[:16].replace('T', ' ')} UTC" if summary.started else "no date"
    count = sum(summary.verdicts.values())
    verdicts = f"{count} verdict{'' if count == 1 else 's'}" if count else "no verdicts"
    state = "" if summary.status == "complete" else f" · {summary.status}"
    return f"{when}{state} · {verdicts} · {entry.name}"


def _show_run(run: data.Run) -> None:
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


def choose(title: str, options: Mapping[str, str] | Sequence[str], key: str, *, default: str | None = None) -> str:
    """A select box whose choice is `?key=` in the URL. `options` maps what the URL holds to what the reader sees.

    What the URL asks for and the run does not have is said, and the default (the first) taken. A select box shows
    text as it is, so nothing is escaped. Raises ValueError where there is nothing to choose from.
    """
    shown = dict(options) if isinstance(options, Mapping) else {name: name for name in options}
    if not shown:
        raise ValueError(f"nothing to choose from for {title!r}")
    wanted = st.query_params.get(key)
    if wanted is not None and wanted not in shown:
        st.warning(f"{title} {words.markdown(wanted)} is not in this run.", icon=":material/warning:")
        wanted = None
    first = default if default in shown else next(iter(shown))
    st.session_state[key] = wanted if wanted is not None else first

    def follow() -> None:
        st.query_params[key] = st.session_state[key]

    name = st.selectbox(title, list(shown), key=key, format_func=lambda name: shown.get(name, name), on_change=follow)
    return name if name in shown else first


def colours() -> palettes.Palette:
    """The colours of the appearance that the reader has chosen."""
    return palettes.palette(st.context.theme.type)


def verdict_word(verdict: str) -> str:
    """Icon and word in the verdict's colour, as Markdown."""
    shown = words.look(verdict)
    return f":{shown.colour}[:material/{shown.icon}: **{words.markdown(shown.word)}**]"


def show_list(title: str, notes: Sequence[str]) -> None:
    """Each different note once, as plain text."""
    if notes:
        with st.container(gap="xsmall"):
            st.caption(title)
            for note in dict.fromkeys(notes):
                st.text(note)


def show_missing(what: str, command: str) -> None:
    """Says that the run did not measure something, and the command of a run that does."""
    st.text(f"This run has no {what}. This command makes a run with them:")
    st.code(command, language="bash", wrap_lines=True)


def show_first_run(results: Path) -> None:
    """An empty results folder shows how to make the first run."""
    st.markdown("There is no run to show yet. Make the first one (about ten minutes on two cores):")
    st.code("make bench", language="bash")
    st.markdown("or, in an environment that has the workbench:")
    st.code("pytest --benchmark", language="bash")
    st.caption(f"Looked in {words.markdown(results)}. To look elsewhere: set WORKBENCH\\_RESULTS or pass")
    st.code("streamlit run dashboard/app.py -- --results PATH", language="bash")


def show_skipped() -> None:
    """Folders that are no runs, or damaged, with the reason: below every page."""
    found = all_entries()
    skipped = [entry for entry in found if entry.summary.problem is not None]
    if not skipped:
        return
    with st.expander(f"{len(skipped)} of {len(found)} folders are not shown"):
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
