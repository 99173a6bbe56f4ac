"""Flamegraphs of one workload on a page: side by side, or one less the other."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import streamlit as st

from .. import state, words
from ..sections import blocks
from ..views import data
from . import picture, viewer
from .tree import StackError, merge

WAYS = {"side": "Side by side", "difference": "Difference"}
"""What `?flame=` may say."""

ROWS = 15  # of the table
SPEEDSCOPE_PX = 560

Drawn = tuple[picture.Picture, list[dict[str, object]]]
"""A picture, and its functions as the rows of a table."""

_HERE = Path(__file__).parent
_CANVAS = st.components.v2.component(
    "llama_workbench_flames",
    html='<div class="flames"></div>',
    css=(_HERE / "flame.css").read_text(encoding="utf-8"),
    js=(_HERE / "flame.js").read_text(encoding="utf-8"),
)


@st.fragment  # what is chosen in it changes nothing else on the page
def show(opened: state.Opened, workload: str, sides: Sequence[str], baseline: str) -> None:
    """Flamegraphs of `sides` (variants) on one workload, to one scale, and where there are two their difference."""
    profiles = {side: state.computed(opened, data.read_profile, workload, side) for side in sides}
    if not any(profiles.values()):
        blocks.missing("profiles", f"{state.PROFILE_COMMAND} --workloads {shlex.quote(workload)}")
        return
    for side, profile in profiles.items():
        _show_side(side, profile, "baseline" if side == baseline else "variant")
    known = {side: profile for side, profile in profiles.items() if profile is not None and profile.root is not None}
    if not known:
        return
    baseline_first = sorted(known.values(), key=lambda profile: profile.row.variant != baseline)
    way = "side"
    if len(known) == 2:
        way = state.choose("Flamegraphs", WAYS, "flame", widget=partial(st.segmented_control, required=True))
    reason = picture.reason_against([profile.row for profile in baseline_first]) if way == "difference" else ""
    if reason:
        st.text(f"No difference can be drawn: {reason}. Below are both sides.")
    if way == "difference" and not reason:
        _show_difference(opened, workload, *baseline_first)
    else:
        _show_sides(opened, workload, known)
    _show_raw(opened.run, workload, list(known))


def _show_sides(opened: state.Opened, workload: str, known: Mapping[str, data.Profile]) -> None:
    medians = [profile.row.median_ns or 0.0 for profile in known.values()]
    widest = max(medians) if all(medians) else None
    drawn = {side: state.computed(opened, _flamegraph, workload, side, widest) for side in known}
    _draw([shown for shown, _ in drawn.values()])
    scale = " A millisecond is as wide on both sides." if widest and len(known) > 1 else ""
    st.caption(
        "Each box is a function; below it is what it called, and at the bottom the lines that were running. Its "
        f"width is time: share of samples × median time of a call.{scale} ± is one standard error. Left out are "
        "the two frames that torch.nn.Module puts around every call."
    )
    formats = dict.fromkeys(("own time", "± time"), "%.3f ms") | dict.fromkeys(("share", "± share"), "%.1f %%")
    for side, (_, functions) in drawn.items():
        with st.expander(f"{words.markdown(side)} as a table"):
            alt = f"Functions of {side} with the most time of their own; ± is one standard error"
            blocks.table(functions, alt, formats)


def _show_difference(opened: state.Opened, workload: str, before: data.Profile, after: data.Profile) -> None:
    sides = before.row.variant, after.row.variant
    shown, functions = state.computed(opened, _difference, workload, *sides)
    _draw([shown])
    blocks.caption(_difference_caption(before, after))
    with st.expander("The difference as a table"):
        formats = dict.fromkeys((*(f"own time, {side}" for side in sides), "± (SE)"), "%.3f ms")
        formats["difference"] = "%+.3f ms"
        alt = f"Functions by how much their own time differs between {sides[0]} and {sides[1]}"
        blocks.table(functions, alt, formats)


def _show_side(side: str, profile: data.Profile | None, role: str) -> None:
    """One line: how many samples at which rate, and the time of a call; or why there is no profile."""
    if profile is None or profile.root is None:
        reason = profile.reason if profile else "the profiling pass left this variant out"
        st.markdown(f"**{words.markdown(side)}** :gray[{role}]")
        st.text(f"No profile: {reason}.")
        return
    row = profile.row
    rate = f" at {row.rate_hz:g} Hz" if row.rate_hz else " at a rate that was not recorded"
    error = f" ± {words.milliseconds(row.median_error_ns)}" if row.median_error_ns else ""
    time = f", {words.milliseconds(row.median_ns)}{error} a call" if row.median_ns else ""
    native = ", with native frames" if row.native else ""
    line = f"{role}: {profile.root.samples} samples{rate}{native}{time}"
    st.markdown(f"**{words.markdown(side)}** :gray[{words.markdown(line)}]")
    if row.native_reason:
        st.text(f"Without native frames: {row.native_reason}.")


def _flamegraph(run: data.Run, workload: str, side: str, widest_ns: float | None) -> Drawn:
    """One profile, and the functions with the most time of their own."""
    profile = data.read_profile(run, workload, side)
    assert profile is not None and profile.root is not None
    total, scale = profile.root.samples, profile.scale
    functions: list[dict[str, object]] = [
        {
            "function": name,
            "file": file,
            "own time": scale.time_ns(count) / 1e6 if scale else None,
            "± time": scale.error_ns(count) / 1e6 if scale else None,
            "share": 100 * count / total,
            "± share": 100 * (count / total * (1 - count / total) / total) ** 0.5,
        }
        for name, file, (count,) in profile.root.by_own_time[:ROWS]
    ]
    return picture.flamegraph(profile, widest_ns), functions


def _difference(run: data.Run, workload: str, *sides: str) -> Drawn:
    """The second profile less the first, and the functions whose own time differs, the surest large ones first."""
    before, after = (data.read_profile(run, workload, side) for side in sides)
    assert before is not None and after is not None
    merged, scales = merge(before.root, after.root), picture.scales_of(before, after)
    changes = [(*function, picture.delta(function[-1], scales)) for function in merged.by_own_time]
    changes.sort(key=lambda row: (not row[-1].sure, -abs(row[-1].ns)))
    functions: list[dict[str, object]] = [
        {
            "function": name,
            "file": file,
            **{f"own time, {sides[k]}": scales[k].time_ns(counts[k]) / 1e6 for k in (0, 1)},
            "difference": change.ns / 1e6,
            "± (SE)": change.error_ns / 1e6,
            "beyond chance": "yes" if change.sure else "no",
            "only in": "both" if change.only is None else sides[change.only],
        }
        for name, file, counts, change in changes[:ROWS]
    ]
    return picture.difference(before, after, merged), functions


def _draw(pictures: Sequence[picture.Picture]) -> None:
    """The pictures on one canvas; what is searched for in them is kept in the URL."""

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


def _difference_caption(before: data.Profile, after: data.Profile) -> str:
    first, second = picture.scales_of(before, after)
    change = picture.signed(second.median_ns - first.median_ns)
    if first.median_error_ns and second.median_error_ns:
        sure = "± is one standard error, of the samples and of the median time of a call on both sides."
    else:
        sure = (
            "± is one standard error of the samples of both sides; that of the median time of a call was not recorded "
            "and is left out, so that the outermost boxes look surer than they are."
        )
    return (
        f"Red boxes with + take more milliseconds in {after.row.variant}, blue ones with − fewer; together "
        f"{change} a call. A box is as wide as the mean of both sides, so that what one of them "
        "lacks is seen too (striped). The colour is strongest at the largest difference of a box that calls nothing. "
        f"{sure} Grey (≈) differs by less than two of them; of identical code one box in twenty would be coloured. "
        "The sides were profiled one after the other: whether the whole is faster is said by the verdict, which was "
        "measured in turns and without a profiler."
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
