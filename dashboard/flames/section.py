"""Flamegraphs of one workload on a page: side by side, or one less the other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import streamlit as st

from llama_workbench.harness.report.causes import Explanation, Key, explanations_in
from llama_workbench.harness.store.folder import RunFolder

from .. import state, words
from ..sections import blocks
from ..sections.named import choose_workload
from ..views import data, outcomes
from ..views.samples import call_ns
from . import pairs, picture, viewer
from .aligned import aligned, alone
from .tree import StackError, merge

WAYS = {"side": "Side by side", "difference": "Difference"}
"""What `?flame=` may say."""

ROWS = 15  # of the table
SPEEDSCOPE_PX = 560

Drawn = tuple[picture.Picture, list[dict[str, object]]]
"""A picture, and its functions as the rows of a table."""

_CANVAS = blocks.component("flames", Path(__file__).with_name("flame.js"))


@st.fragment  # what is chosen in it changes nothing else on the page
def show(opened: state.Opened, workload: str, sides: Sequence[str], baseline: str) -> None:
    """Flamegraphs of `sides` (variants) on one workload, to one scale, and where there are two their difference."""
    profiles = {side: state.computed(opened, data.read_profile, workload, side) for side in sides}
    if not any(profiles.values()):
        blocks.missing("profiles here", outcomes.with_profile(opened.run, workload))
        return
    for side, profile in profiles.items():
        _show_side(side, profile, "baseline" if side == baseline else "variant")
    known = {side: profile for side, profile in profiles.items() if profile is not None and profile.root is not None}
    if not known:
        return
    if len(known) == 2:
        _show_two(opened, workload, sorted(known, key=lambda side: side != baseline), known)
    else:
        [side] = known
        ns = state.computed(opened, call_ns, workload, side)
        source = "measured in the rounds" if ns else "its median under the profiler"
        _show_sides(opened, workload, {side: (ns, None) if ns else None}, source)
    _show_raw(opened.run, workload, list(known))


def explore(opened: state.Opened) -> None:
    """Of one workload: both sides of a comparison on each other where they were sampled, and the profile of each."""
    run = opened.run
    explained = blocks.computed("The samples of both sides cannot be read.", opened, read_explained) or {}
    names = dict.fromkeys([*(workload for workload, _ in run.profiles), *(key[0] for key in explained)])
    if not names:
        blocks.missing("profiles", outcomes.with_profile(run, ""))
        return
    left, middle, right = st.columns([2, 1, 1])
    with left:
        workload = choose_workload(run, list(names))
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
        show(opened, workload, list(dict.fromkeys([baseline, variant])), baseline)


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


def _show_two(
    opened: state.Opened, workload: str, baseline_first: Sequence[str], known: Mapping[str, data.Profile]
) -> None:
    """Both sides, or their difference, to the times that were measured in pairs where there are some."""
    way = state.choose("Flamegraphs", WAYS, "flame", widget=partial(st.segmented_control, required=True))
    paired = state.computed(opened, pairs.paired_times, workload, *baseline_first)
    rows = [known[side].row for side in baseline_first]
    if way == "difference":
        reason = picture.reason_against(rows, has_times=paired is not None)
        if not reason:
            _show_difference(opened, workload, baseline_first, paired)
            return
        st.text(f"No difference can be drawn: {reason}. Below are both sides.")
    if paired is not None:
        times: dict[str, pairs.Times | None] = dict(zip(baseline_first, paired[1:], strict=True))
        _show_sides(opened, workload, {side: times[side] for side in known}, "measured in the same rounds")
        return
    medians = {
        side: (row.median_ns, row.median_error_ns) if (row := known[side].row).median_ns else None for side in known
    }
    _show_sides(opened, workload, medians, "the median of each under the profiler")


def _show_sides(opened: state.Opened, workload: str, times: Mapping[str, pairs.Times | None], source: str) -> None:
    """A flamegraph a side. `times`: of a call of each, None as the profile has it; `source`: where they come from."""
    known = [time[0] for time in times.values() if time]
    widest = max(known) if len(known) == len(times) else None
    drawn = {side: state.computed(opened, _flamegraph, workload, side, time, widest) for side, time in times.items()}
    _draw([shown for shown, _ in drawn.values()])
    scale = " A millisecond is as wide on both sides." if widest and len(times) > 1 else ""
    frames = " Left out are the two frames that torch.nn.Module puts around every call."
    frames = "" if opened.run.is_of_functions else frames
    st.caption(
        "Each box is a function; below it is what it called, and at the bottom the lines that were running. Its width "
        f"is time: share of samples × time of a call, {source}.{scale} ± holds with 99 %.{frames}"
    )
    formats = dict.fromkeys(("own time", "± time"), "%.3f ms") | dict.fromkeys(("share", "± share"), "%.1f %%")
    for side, (_, functions) in drawn.items():
        with st.expander(f"{words.markdown(side)} as a table"):
            alt = f"Functions of {side} with the most time of their own; ± holds with 99 %"
            blocks.table(functions, alt, formats)


def _show_difference(
    opened: state.Opened, workload: str, sides: Sequence[str], paired: pairs.PairedTimes | None
) -> None:
    pair, shown, functions = state.computed(opened, _difference, workload, *sides, paired)
    blocks.say(_difference_sentence(pair))
    _draw([shown])
    blocks.caption(_difference_caption(pair))
    with st.expander("The difference as a table"):
        formats = dict.fromkeys((*(f"own time, {side}" for side in sides), "± (99 %)"), "%.3f ms")
        formats["difference"] = "%+.3f ms"
        alt = f"Functions by how much their own time differs between {sides[0]} and {sides[1]}"
        blocks.table(functions, alt, formats)


def _show_side(side: str, profile: data.Profile | None, role: str) -> None:
    """One line: how many samples at which rate; or why there is no profile."""
    if profile is None or profile.root is None:
        reason = profile.reason if profile else "the profiling pass left this variant out"
        st.markdown(f"**{words.markdown(side)}** :gray[{role}]")
        st.text(f"No profile: {reason}.")
        return
    row = profile.row
    rate = f" at {row.rate_hz:g} Hz" if row.rate_hz else " at a rate that was not recorded"
    native = ", with native frames" if row.native else ""
    line = f"{role}: {profile.root.samples} samples{rate}{native}"
    st.markdown(f"**{words.markdown(side)}** :gray[{words.markdown(line)}]")
    if row.native_reason:
        st.text(f"Without native frames: {row.native_reason}.")


def _flamegraph(run: data.Run, workload: str, side: str, times: pairs.Times | None, widest_ns: float | None) -> Drawn:
    """One profile, and the functions with the most time of their own."""
    profile = data.read_profile(run, workload, side)
    assert profile is not None
    profile = pairs.timed(profile, times) if times else profile
    assert profile.root is not None
    total, scale = profile.root.samples, profile.scale
    functions: list[dict[str, object]] = [
        {
            "function": name,
            "file": file,
            "own time": scale.time_ns(count) / 1e6 if scale else None,
            "± time": picture.REACH * scale.error_ns(count) / 1e6 if scale else None,
            "share": 100 * count / total,
            "± share": picture.REACH * 100 * (count / total * (1 - count / total) / total) ** 0.5,
        }
        for name, file, (count,) in profile.root.by_own_time[:ROWS]
    ]
    return picture.flamegraph(profile, widest_ns), functions


def _difference(
    run: data.Run, workload: str, baseline: str, variant: str, paired: pairs.PairedTimes | None
) -> tuple[pairs.Pair, picture.Picture, list[dict[str, object]]]:
    """The second profile less the first, and what of it differs in its own time, the surest large ones first."""
    sides = baseline, variant
    pair = pairs.read_pair(run, workload, baseline, variant, paired)
    before, after = pair.before, pair.after
    merged, scales = merge(before.root, after.root), picture.scales_of(before, after)
    changes = [(*function, picture.delta(function[-1], scales)) for function in merged.by_own_time]
    changes.sort(key=lambda row: (not row[-1].sure, -abs(row[-1].ns)))
    functions: list[dict[str, object]] = [
        {
            "function": name,
            "file": file,
            **{f"own time, {sides[k]}": scales[k].time_ns(counts[k]) / 1e6 for k in (0, 1)},
            "difference": change.ns / 1e6,
            "± (99 %)": picture.REACH * change.error_ns / 1e6,
            "beyond chance": "yes" if change.sure else "no",
            "only in": "both" if change.only is None else sides[change.only],
        }
        for name, file, counts, change in changes[:ROWS]
    ]
    return pair, picture.difference(before, after, merged), functions


def _draw(pictures: Sequence[picture.Picture]) -> None:
    """The pictures below each other, with one search; what is searched for in them is kept in the URL."""

    def keep_search() -> None:
        if text := st.session_state["flames"].find:
            st.query_params["find"] = str(text)
        else:
            st.query_params.pop("find", None)

    payload = picture.payload(pictures, st.query_params.get("find", ""))
    _CANVAS(data=payload, key="flames", on_find_change=keep_search, height="content")
    shares = dict.fromkeys(words.percent(each.least_share) for each in pictures)
    shells = dict.fromkeys(" › ".join(each.shell) for each in pictures if each.shell)
    shell = f" Nor are the outer frames {', '.join(shells)}." if shells else ""
    blocks.caption(f"Boxes below {' or '.join(shares)} of the time are not drawn.{shell}")


def _difference_sentence(pair: pairs.Pair) -> str:
    """What differs, as it was measured, before the picture of where."""
    if pair.paired is None:
        return (
            "This run did not time these two in the same rounds: widths are the median times under the profiler, one "
            "after the other, and their difference is no measurement."
        )
    first, second = picture.scales_of(pair.before, pair.after)
    change_ns = second.median_ns - first.median_ns
    size = (
        f"{words.milliseconds(abs(change_ns))} ± {words.milliseconds(picture.REACH * (second.median_error_ns or 0.0))}"
    )
    return (
        f"{pair.after.row.variant} takes {size} a call {'more' if change_ns > 0 else 'less'} than "
        f"{pair.before.row.variant}, measured in {pair.paired.rounds} rounds that both shared. The whole width has "
        "that difference, and the boxes divide it."
    )


def _difference_caption(pair: pairs.Pair) -> str:
    """What the legend does not say."""
    if pair.unaligned:
        boxes = (
            f"The boxes are functions: no source says which lines of {words.listing(pair.unaligned)} belong to which "
            "phase of a forward, so that boxes of different code do not lie on each other."
        )
    else:
        boxes = (
            "The outer boxes are phases of a forward, those of both variants on each other; below is what a phase "
            "called, functions of the same name on each other. Phases that one side runs together are one box."
        )
    if pair.paired is not None:
        sure = "± holds with 99 %, over the samples of both sides and the measured difference."
    elif pair.before.row.median_error_ns and pair.after.row.median_error_ns:
        sure = "± holds with 99 %, over the samples and the median time of a call on both sides."
    else:
        sure = (
            "± holds with 99 % over the samples of both sides; the error of the median time of a call was not recorded "
            "and is left out, so that the outermost boxes look surer than they are."
        )
    return (
        f"{boxes} The colour is strongest at the largest difference of a box that calls nothing. {sure} Of identical "
        "code one box in a hundred would be coloured. How the time divides is sampled, one side after the other."
    )


def _show_raw(run: data.Run, workload: str, sides: Sequence[str]) -> None:
    """The profile as it was recorded: to keep, or in speedscope where that is installed."""
    with st.expander(
        "Open the raw profile", expanded="raw" in st.query_params, key="raw profile", on_change="rerun"
    ) as box:
        if not box.open:
            return
        side = state.choose("Profile of", sides, "raw")
        try:
            text = data.profile_text(run, workload, side)
        except StackError as error:
            st.text(f"The profile cannot be read: {error}.")
            return
        name = re.sub(r"[^A-Za-z0-9._@+-]+", "_", f"{workload}-{side}") + ".folded"
        st.download_button("Download the folded stacks", text, file_name=name, mime="text/plain", on_click="ignore")
        folder = viewer.installed_folder()
        if folder is None:
            st.text("speedscope, which opens such a file here in the page, is not installed. This command installs it:")
            st.code("workbench speedscope", language="bash")
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
