"""A part of the page Explore: flamegraphs of variants, and of two sides on each other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import streamlit as st

from llama_workbench.dashboard import state, words
from llama_workbench.dashboard.export import viewer
from llama_workbench.dashboard.sections import blocks
from llama_workbench.dashboard.views import data, outcomes, samples

from ...report.causes import Explanation, Key, explanations_in
from ...store.folder import RunFolder
from ...store.passes import CAUSES
from ...store.verdict_schema import Effect
from .flames import (
    PairedTimes,
    PairOfProfiles,
    Picture,
    Times,
    aligned,
    alone,
    difference,
    flamegraph,
    paired_times,
    payload,
    read_pair,
    timed,
)
from .tree import PRUNE_BELOW, ProfileTree, StackError, profile_text, read_profile

PAGE, KEY, TITLE, PLACE = "explore", "flamegraphs", "Flamegraphs", 1
MEASURED_BY = "--profile"

WAYS = {"side": "Side by side", "difference": "Difference"}
"""What `?flame=` may say."""

SPEEDSCOPE_PX = 560

_CANVAS = blocks.component("flames", Path(__file__).with_name("flames.js"))


def is_there(run: data.Run) -> bool:
    """Whether the run has profiles, or samples of both sides."""
    return bool(run.profiles) or RunFolder(run.path).has(CAUSES)


@st.fragment  # what is chosen in it changes nothing else on the page
def _show_profiles(opened: state.Opened, workload: str, sides: Sequence[str], baseline: str) -> None:
    """Flamegraphs of `sides` (variants) on one workload, to one scale, and where there are two their difference."""
    profiles = {side: state.computed(opened, read_profile, workload, side) for side in sides}
    if not any(profiles.values()):
        blocks.missing("profiles here", outcomes.with_profile(opened.run, workload))
        return
    for side, profile in profiles.items():
        _show_side(side, profile, "baseline" if side == baseline else "variant")
    known = [side for side, profile in profiles.items() if profile is not None and profile.root is not None]
    known.sort(key=lambda side: side != baseline)
    if not known:
        return
    times: list[Times | None] = [None] * len(known)
    if len(known) == 2:
        way = state.choose("Flamegraphs", WAYS, "flame", widget=partial(st.segmented_control, required=True))
        if way == "difference":
            _show_difference(opened, workload, *known)
            _show_raw(opened.run, workload, known)
            return
        if paired := state.computed(opened, paired_times, workload, *known):
            times = [*paired[1:]]
    elif ns := state.computed(opened, samples.call_ns, workload, known[0]):
        times = [(ns, None)]
    _show_sides(opened, workload, known, times)
    _show_raw(opened.run, workload, known)


def show(opened: state.Opened) -> None:
    """Of one workload: both sides of a comparison on each other where they were sampled, and the profile of each."""
    run = opened.run
    explained = blocks.computed("The samples of both sides cannot be read.", opened, read_explained) or {}
    names = dict.fromkeys([*(workload for workload, _ in run.profiles), *(key[0] for key in explained)])
    if not names:
        blocks.missing("profiles", outcomes.with_profile(run, ""))
        return
    left, middle, right = st.columns([2, 1, 1])
    with left:
        workload = blocks.choose_workload(run, list(names))
    pairs_here = {f"{key[1]} against {key[2]}": each for key, each in explained.items() if key[0] == workload}
    profiled = [variant for where, variant in run.profiles if where == workload]
    if pairs_here:
        with middle:
            pair = state.choose("Both sides on each other", list(pairs_here), "pair")
        show_aligned(pairs_here[pair], with_sides=True)
        if profiled:
            _show_raw(run, workload, profiled)
    elif profiled:
        first = data.experiment(run, workload).baseline or ""
        with middle:
            baseline = state.choose("Baseline", profiled, "baseline", default=first if first in profiled else None)
        others = [name for name in profiled if name != baseline]
        with right:
            variant = state.choose("Variant", others, "variant") if others else baseline
        _show_profiles(opened, workload, list(dict.fromkeys([baseline, variant])), baseline)


def heading(run: data.Run, *, is_seen: bool) -> tuple[str, str] | None:
    """Profiles are shown of two variants where their samples on each other are not."""
    return None if is_seen else ("Where the time goes", "time")


def show_sides(opened: state.Opened, effect: Effect, sides: Sequence[str], of: str) -> None:
    """The profiles of both sides of an effect."""
    _show_profiles(opened, effect.workload, sides, effect.baseline)


def read_explained(run: data.Run) -> Mapping[Key, Explanation]:
    """What was sampled of both sides, by comparison. Raises RunError."""
    return explanations_in(RunFolder(run.path))


def show_aligned(explained: Explanation, *, with_sides: bool = False) -> None:
    """Both sides on each other, out of the samples of their ten processes, `with_sides` each for itself too; nothing
    where none were taken."""
    drawn = aligned(explained)
    if drawn is not None:
        _draw([drawn, *(alone(explained) if with_sides else ())])
        processes = len(explained.sampled.samples["baseline"])
        blocks.caption(
            "Functions of both sides on each other by name, then lines by their code. Blue takes less time in "
            f"{explained.sampled.variant}, red more, where that is proven (99 %, over {processes} processes)."
        )


def _show_sides(opened: state.Opened, workload: str, sides: Sequence[str], times: Sequence[Times | None]) -> None:
    """A flamegraph a side. `times`: of a call of each in the rounds, None where the profile's own is to be taken."""
    widest = max(time[0] for time in times if time) if all(times) else None
    asked = zip(sides, times, strict=True)
    _draw([state.computed(opened, _flamegraph, workload, side, time, widest) for side, time in asked])
    source = "measured in the rounds" if widest else "its median under the profiler"
    scale = " A millisecond is as wide on both sides." if widest and len(sides) > 1 else ""
    frames = " Left out are the two frames that torch.nn.Module puts around every call."
    frames = "" if opened.run.is_of_functions else frames
    st.caption(
        "Each box is a function; below it is what it called, and at the bottom the lines that were running. Its width "
        f"is time: share of samples × time of a call, {source}.{scale} ± holds with 99 %.{frames}"
    )


def _show_difference(opened: state.Opened, workload: str, baseline: str, variant: str) -> None:
    """The variant less the baseline, to the times that were measured in pairs where there are some."""
    paired = state.computed(opened, paired_times, workload, baseline, variant)
    try:
        pair, drawn = state.computed(opened, _difference, workload, baseline, variant, paired)
    except ValueError as error:
        st.text(f"No difference can be drawn: {error}.")
        return
    measured = "Widths are the median times under the profiler: their difference is no measurement."
    if pair.paired is not None:
        measured = f"The whole width has the difference measured in {pair.paired.rounds} rounds that both shared."
    boxes = "The outer boxes are phases of a forward; functions of the same name lie on each other."
    if pair.unaligned:
        boxes = f"The boxes are functions: of {words.listing(pair.unaligned)} the phases of its lines are not known."
    _draw([drawn])
    blocks.caption(
        f"{measured} {boxes} The colour is strongest at the largest difference of a box that calls nothing. "
        "± holds with 99 %. Of identical code one box in a hundred would be coloured."
    )


def _show_side(side: str, profile: ProfileTree | None, role: str) -> None:
    """One line: how many samples at which rate; or why there is no profile."""
    if profile is None or profile.root is None:
        reason = profile.reason if profile else "the profiling pass left this variant out"
        st.markdown(f"**{words.markdown(side)}** :gray[{role}]")
        st.text(f"No profile: {reason}.")
        return
    row = profile.row
    rate = f" at {row.rate_hz:g} Hz" if row.rate_hz else " at a rate that was not recorded"
    line = f"{role}: {profile.root.samples} samples{rate}"
    st.markdown(f"**{words.markdown(side)}** :gray[{words.markdown(line)}]")


def _flamegraph(run: data.Run, workload: str, side: str, times: Times | None, widest_ns: float | None) -> Picture:
    profile = read_profile(run, workload, side)
    assert profile is not None
    return flamegraph(timed(profile, times) if times else profile, widest_ns)


def _difference(
    run: data.Run, workload: str, baseline: str, variant: str, paired: PairedTimes | None
) -> tuple[PairOfProfiles, Picture]:
    """The second profile less the first. Raises ValueError where one has no time of a call."""
    pair = read_pair(run, workload, baseline, variant, paired)
    return pair, difference(pair.before, pair.after)


def _draw(pictures: Sequence[Picture]) -> None:
    """The pictures below each other, with one search; what is searched for in them is kept in the URL."""

    def keep_search() -> None:
        if text := st.session_state["flames"].find:
            st.query_params["find"] = str(text)
        else:
            st.query_params.pop("find", None)

    _CANVAS(
        data=payload(pictures, st.query_params.get("find", "")),
        key="flames",
        on_find_change=keep_search,
        height="content",
    )
    shells = dict.fromkeys(" › ".join(each.shell) for each in pictures if each.shell)
    shell = f" Nor are the outer frames {', '.join(shells)}." if shells else ""
    blocks.caption(f"Boxes below {words.percent(PRUNE_BELOW)} of the time are not drawn.{shell}")


def _show_raw(run: data.Run, workload: str, sides: Sequence[str]) -> None:
    """The profile as it was recorded: to keep, or in speedscope where that is installed."""
    with st.expander(
        "Open the raw profile", expanded="raw" in st.query_params, key="raw profile", on_change="rerun"
    ) as box:
        if not box.open:
            return
        side = state.choose("Profile of", sides, "raw")
        try:
            text = profile_text(run, workload, side)
        except StackError as error:
            st.text(f"The profile cannot be read: {error}.")
            return
        name = re.sub(r"[^A-Za-z0-9._@+-]+", "_", f"{workload}-{side}") + ".folded"
        st.download_button("Download the folded stacks", text, file_name=name, mime="text/plain", on_click="ignore")
        folder = viewer.installed_folder()
        if folder is None:
            st.text("speedscope, which opens such a file here in the page, is not installed. This command installs it:")
            blocks.command("workbench speedscope")
            return
        try:
            page = viewer.document(folder, text, name)
        except (OSError, viewer.SpeedscopeError) as error:
            st.text(f"speedscope cannot be shown: {error}. Remove {folder.name} from the cache and install it again.")
            return
        st.iframe(page, height=SPEEDSCOPE_PX, alt=f"speedscope with the profile of {side} on {workload}")
        st.caption(
            "speedscope, with every sample as py-spy recorded it. Left Heavy is sorted by time; the order under Time "
            "Order is that of the file and means nothing, for folded stacks have none."
        )
