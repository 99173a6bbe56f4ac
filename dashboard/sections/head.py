"""What is around every page: its style and contents, its title, the choice of a run, what to know of that run first,
and what is below."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlencode

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from llama_workbench.harness.machine.environment import one_line
from llama_workbench.harness.machine.lifeline import is_held
from llama_workbench.harness.report.outcome import trust_of
from llama_workbench.harness.report.text import environments_text
from llama_workbench.harness.store.files import RunError

from .. import state, words
from ..export.evidence import STYLE
from ..views import data, entries, samples
from . import blocks, measuring

REFRESH_SECONDS = 5.0
"""Between two looks at runs that are being measured."""

FEWEST = 4  # headings, from which on a page has contents


def begin() -> DeltaGenerator:
    """The page's style, and the place of its contents."""
    st.html(Path(__file__).with_name("page.css"))
    st.html(STYLE)
    if state.TALK in st.query_params:
        st.html(Path(__file__).with_name("talk.css"))
    return st.container(key="contents")


def show_contents(place: DeltaGenerator) -> None:
    """A link to each heading of the page."""
    headings = state.headings()
    if len(headings) >= FEWEST:
        links = " · ".join(f"[{words.markdown(title)}](#{anchor})" for anchor, title in headings.items())
        place.markdown(f"On this page: {links}")


def open_run(title: str, *, over_machines: bool = False) -> state.Opened | None:
    """The run that the page shows. Returns None where there is none; the page has then said why, and what to do.

    over_machines: whether the page can show a run of several machines, which has verdicts and no samples.
    """
    show_going_on()
    below, entry = _choose_run(title, state.all_entries())
    if entry is None:
        show_first_run(state.results())
        return None
    path = entry.summary.path
    try:
        path = state.folder_of(entry)
        stamp = entries.stamp_of_run(path)
        run = state.read_run(path, stamp)
    except RunError as error:
        if error.path.name == "verdicts.json" and not error.path.exists():
            word = "goes on" if is_held(path) else "was killed"
            text = f"This run {word} and has no verdicts yet. This command judges what it finished:"
            st.info(text, icon=":material/hourglass:")
            blocks.command(shlex.join(["workbench", "judge", entry.url or str(path)]))
        else:
            st.error("This run cannot be read.", icon=":material/error:")
            st.text(words.problem(error))
        return None
    _show_run(entry.name, run, below)
    opened = state.Opened(entry.name, run, stamp)
    if run.manifest.machines and not over_machines:
        st.info("This run is of several machines. What this page shows is in the run of each:", icon=":material/dns:")
        show_machines(opened, title.lower(), _view())
        return None
    return opened


@st.fragment(run_every=REFRESH_SECONDS)
def show_going_on() -> None:
    """A line for each run that is being measured now, which keeps itself up to date; other runs are shown meanwhile."""
    measuring.show()
    if isinstance(state.results(), Path):
        for run in entries.going_on(state.all_entries()):
            intervals = [
                f"{words.told(effect)} {effect.sides} on {effect.where}" for effect in samples.so_far(run.entry)
            ]
            so_far = f" So far: {'; '.join(intervals)}." if intervals else ""
            st.info(words.markdown(f"{run}{so_far}"), icon=":material/hourglass_top:")


def _choose_run(title: str, listed: Sequence[entries.Entry]) -> tuple[DeltaGenerator, entries.Entry | None]:
    """The place below the title, and the run of `?run=`, else `entries.first_shown`; None where there is none."""
    left, box = st.columns([3, 4], gap="medium", vertical_alignment="center")
    left = left.container(horizontal=True, vertical_alignment="bottom")
    left.title(title, anchor=False, width="content")
    blocks.name_tab(title)
    by_name = {entry.name: entry for entry in listed if entry.summary.problem is None}
    if not by_name:
        return left, None
    shown = entries.first_shown(list(by_name.values()))
    wanted = st.query_params.get("run") or None
    if wanted and (named := entries.asked_for(wanted, by_name)) and named != wanted:
        wanted = st.query_params["run"] = named
    if wanted is not None and wanted not in by_name:
        problem = next((entry.summary.problem for entry in listed if entry.name == wanted), "there is no such run")
        there = words.some([*by_name])
        blocks.warn(f"Run {wanted} cannot be shown: {problem}. There is: {there}. Shown instead: {shown.name}.")
        wanted = None
    st.session_state["run"] = wanted or shown.name
    if wanted is None:
        st.query_params["run"] = shown.name  # so that a copied address leads here, whatever is measured after this

    def follow() -> None:
        st.query_params.from_dict({"run": st.session_state["run"], **_view()})  # claims of another run mean nothing

    with box.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox(
            "Run",
            list(by_name),
            key="run",
            format_func=lambda name: entries.label(by_name[name]),
            on_change=follow,
            label_visibility="collapsed",
        )
        _show_address()
    return left, by_name.get(name, shown)


def _view() -> dict[str, str]:
    """What the page shows of a run, where it has several views."""
    return {"show": st.query_params["show"]} if "show" in st.query_params else {}


def _show_address() -> None:
    """What leads here again, to copy: page, run, and what was chosen on it."""
    if page := st.context.url:
        with st.popover("", icon=":material/link:", help="A link to what this page shows"):
            chosen = [(name, value) for name in st.query_params for value in st.query_params.get_all(name)]
            blocks.command(f"{page}?{urlencode(chosen)}")
            st.session_state[state.TALK] = state.TALK in st.query_params
            st.toggle("For a talk: larger, without menu and small print", key=state.TALK, on_change=_turn_talk)


def _turn_talk() -> None:
    if st.session_state[state.TALK]:
        st.query_params[state.TALK] = "on"
    else:
        st.query_params.pop(state.TALK, None)


def _show_run(name: str, run: data.Run, place: DeltaGenerator) -> None:
    """One quiet line about the machine, and whether the run can be trusted; loud only where something is wrong."""
    machine = one_line(run.environment) if run.environment else _kinds_of(run)
    sides = environments_text(run.manifest.environments)
    with place:
        if not run.manifest.machines:
            trust = trust_of(run.noise)
            icon = "verified" if trust.is_whole else "error"
            blocks.link("runs", trust.word, icon, {"run": name, "show": "trust"})
            if reason := trust.short or trust.means:
                st.caption(words.markdown(reason), width="content")
        st.caption(words.markdown(" · ".join(filter(None, (machine, sides)))), width="content")
    if run.unfinished:
        st.warning(words.markdown(run.unfinished), icon=":material/hourglass:")
    for line in run.doubts:
        st.warning(words.markdown(line), icon=":material/warning:")


def show_first_run(results: Path | str) -> None:
    """An empty results folder shows how to make the first run."""
    blocks.say("There is no run to show yet. Make the first one (about ten minutes on two cores):")
    blocks.command("make bench")
    blocks.say("or, in an environment that has the workbench:")
    measuring.command("pytest --benchmark")
    blocks.caption(f"Looked in {results}. To look elsewhere: set WORKBENCH_RESULTS or pass")
    blocks.command("streamlit run dashboard/app.py -- --results PATH")


def show_skipped() -> None:
    """Folders that are no runs, or damaged, with the reason: below every page."""
    listed = state.all_entries()
    rows = [
        {"folder": entry.name, "what it is": entry.summary.status, "reason": entry.summary.problem}
        for entry in listed
        if entry.summary.problem is not None
    ]
    if rows:
        with st.expander(f"{len(rows)} of {len(listed)} folders are not shown"):
            blocks.table(rows, "Folders that are not runs or cannot be read, with the reason")


def _kinds_of(run: data.Run) -> str:
    """The machines of the run in one line; empty where it is of one."""
    kinds = [machine.kind or machine.name for machine in run.manifest.machines if machine.folder]
    return f"{len(kinds)} machines: {', '.join(kinds)}" if kinds else ""


def show_machines(opened: state.Opened, page: str, query: Mapping[str, str] | None = None) -> None:
    """Links to the runs of the machines on a page, with choices made; below them who was left out."""
    for machine in opened.run.manifest.machines:
        name = machine.kind or machine.name
        if machine.folder is None:
            blocks.caption(f"{name}: left out. {machine.reason}")
        else:
            place = {**(query or {}), "run": f"{opened.name}/{machine.name}"}
            blocks.link(page, words.markdown(name), "dns", place)
