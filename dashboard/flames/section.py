"""Flamegraphs of one workload on a page: side by side, or one less the other."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import streamlit as st

from llama_workbench.dashboard.flames import viewer as installed

from .. import state, words
from ..sections import blocks
from ..views import data
from . import picture, speedscope
from .tree import Frame, Scale, StackError, merge

WAYS = {"side": "Side by side", "difference": "Difference"}
"""What `?flame=` may say."""

ROWS = 15  # of the table
SPEEDSCOPE_PX = 560


@dataclass(frozen=True)
class _Both:
    """Two profiles of a workload, and one laid over the other."""

    before: data.Profile
    after: data.Profile
    scales: tuple[Scale, Scale]
    merged: Frame

    @cached_property
    def picture(self) -> picture.Picture:
        """One less the other."""
        return picture.difference(self.before, self.after, self.merged)

    @cached_property
    def changes(self) -> list[dict[str, object]]:
        """Functions whose own time differs, the surest large ones first."""
        deltas = [(*each, picture.delta(each[2], self.scales)) for each in self.merged.by_own_time]
        deltas = sorted(deltas, key=lambda row: (not row[3].sure, -abs(row[3].ns)))[:ROWS]
        sides = (self.before.row.variant, self.after.row.variant)
        return [
            {
                "function": name,
                "file": file,
                **{f"own time, {sides[k]}": self.scales[k].time_ns(counts[k]) / 1e6 for k in (0, 1)},
                "difference": delta.ns / 1e6,
                "± (SE)": delta.error_ns / 1e6,
                "beyond chance": "yes" if delta.sure else "no",
                "only in": "both" if delta.only is None else sides[delta.only],
            }
            for name, file, counts, delta in deltas
        ]


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
    pair = _pair(known, baseline)
    way = _choose_way() if pair else "side"
    reason = picture.reason_against([profile.row for profile in pair]) if pair else ""
    if pair and way == "difference" and not reason:
        _show_difference(opened, workload, *pair)
    else:
        if way == "difference":
            st.text(f"No difference can be drawn: {reason}. Below are both sides.")
        _show_sides(opened, workload, known)
    _show_raw(opened.run, workload, list(known))


def _show_sides(opened: state.Opened, workload: str, known: Mapping[str, data.Profile]) -> None:
    medians = [profile.row.median_ns for profile in known.values() if profile.row.median_ns]
    widest = max(medians) if len(medians) == len(known) else None
    _draw([state.computed(opened, _flamegraph, workload, side, widest) for side in known])
    scale = " A millisecond is as wide on both sides." if widest and len(known) > 1 else ""
    st.caption(
        "Each box is a function; below it is what it called, and at the bottom the lines that were running. Its "
        f"width is time: share of samples × median time of a call.{scale} ± is one standard error. Left out are "
        "the two frames that torch.nn.Module puts around every call."
    )
    for side in known:
        with st.expander(f"{words.markdown(side)} as a table"):
            formats = dict.fromkeys(("own time", "± time"), "%.3f ms") | dict.fromkeys(("share", "± share"), "%.1f %%")
            alt = f"Functions of {side} with the most time of their own; ± is one standard error"
            blocks.low_table(state.computed(opened, _own, workload, side), alt, formats)


def _show_difference(opened: state.Opened, workload: str, before: data.Profile, after: data.Profile) -> None:
    sides = before.row.variant, after.row.variant
    both = state.computed(opened, _both, workload, *sides)
    _draw([both.picture])
    blocks.caption(_difference_caption(before, after))
    with st.expander("The difference as a table"):
        formats = dict.fromkeys((*(f"own time, {side}" for side in sides), "± (SE)"), "%.3f ms")
        formats["difference"] = "%+.3f ms"
        alt = f"Functions by how much their own time differs between {sides[0]} and {sides[1]}"
        blocks.low_table(both.changes, alt, formats)


def _pair(known: Mapping[str, data.Profile], baseline: str) -> tuple[data.Profile, data.Profile] | None:
    """The two sides, the baseline first; None where there are not two."""
    if len(known) != 2:
        return None
    before, after = sorted(known.values(), key=lambda profile: profile.row.variant != baseline)
    return before, after


def _choose_way() -> str:
    """`?flame=`, else side by side."""
    wanted = st.query_params.get("flame")
    st.session_state["flame"] = wanted if wanted in WAYS else "side"

    def follow() -> None:
        st.query_params["flame"] = st.session_state["flame"] or "side"

    way = st.segmented_control(
        "Flamegraphs", list(WAYS), key="flame", format_func=WAYS.__getitem__, on_change=follow, required=True
    )
    return way or "side"


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


def _read(run: data.Run, workload: str, side: str) -> data.Profile:
    profile = data.read_profile(run, workload, side)
    assert profile is not None
    return profile


def _flamegraph(run: data.Run, workload: str, side: str, widest_ns: float | None) -> picture.Picture:
    return picture.flamegraph(_read(run, workload, side), widest_ns)


def _both(run: data.Run, workload: str, before: str, after: str) -> _Both:
    first, second = _read(run, workload, before), _read(run, workload, after)
    assert first.root is not None and first.scale is not None
    assert second.root is not None and second.scale is not None
    return _Both(first, second, (first.scale, second.scale), merge(first.root, second.root))


def _draw(pictures: Sequence[picture.Picture]) -> None:
    def keep(text: str) -> None:
        if text:
            st.query_params["find"] = text
        else:
            st.query_params.pop("find", None)

    draw_canvas(picture.payload(pictures, st.query_params.get("find", "")), "flames", keep)
    shares = dict.fromkeys(words.percent(each.least_share) for each in pictures)
    shells = dict.fromkeys(" › ".join(each.shell) for each in pictures if each.shell)
    shell = f" Nor are the outer frames {', '.join(shells)}." if shells else ""
    blocks.caption(f"Boxes below {' or '.join(shares)} of the time are not drawn.{shell}")


def _difference_caption(before: data.Profile, after: data.Profile) -> str:
    medians = before.row.median_ns, after.row.median_ns
    change = medians[1] - medians[0] if medians[0] and medians[1] else 0.0
    errors = [profile.row.median_error_ns for profile in (before, after)]
    if all(errors):
        sure = "± is one standard error, of the samples and of the median time of a call on both sides."
    else:
        sure = (
            "± is one standard error of the samples of both sides; that of the median time of a call was not recorded "
            "and is left out, so that the outermost boxes look surer than they are."
        )
    return (
        f"Red boxes with + take more milliseconds in {after.row.variant}, blue ones with − fewer; together "
        f"{picture.signed(change)} a call. A box is as wide as the mean of both sides, so that what one of them "
        "lacks is seen too (striped). The colour is strongest at the largest difference of a box that calls nothing. "
        f"{sure} Grey (≈) differs by less than two of them; of identical code one box in twenty would be coloured. "
        "The sides were profiled one after the other: whether the whole is faster is said by the verdict, which was "
        "measured in turns and without a profiler."
    )


def _own(run: data.Run, workload: str, side: str) -> list[dict[str, object]]:
    """Functions with the most time of their own."""
    profile = _read(run, workload, side)
    assert profile.root is not None
    total, scale = profile.root.samples, profile.scale
    return [
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
        folder = installed.installed_folder()
        if folder is None:
            st.text("speedscope, which opens such a file here in the page, is not installed. This command installs it:")
            st.code("workbench speedscope", language="bash")
            return
        try:
            page = speedscope.document(folder, text, name)
        except (OSError, speedscope.RawProfileError) as error:
            st.text(f"speedscope cannot be shown: {error}. Remove {folder.name} from the cache and install it again.")
            return
        st.iframe(page, height=SPEEDSCOPE_PX, alt=f"speedscope with the profile of {side} on {workload}")
        st.caption(
            "speedscope, with every sample as py-spy recorded it. Left Heavy is sorted by time; the order under Time "
            "Order is that of the file and means nothing, for folded stacks have none."
        )


# -- the canvas that draws up to 20,000 boxes --------------------------------------------------------------------------


_HERE = Path(__file__).parent

_MOUNT = st.components.v2.component(
    "llama_workbench_flames",
    html='<div class="flames"></div>',
    css=(_HERE / "flame.css").read_text(encoding="utf-8"),
    js=(_HERE / "flame.js").read_text(encoding="utf-8"),
)


def draw_canvas(data: dict[str, Any], key: str, on_find: Callable[[str], None]) -> None:
    """Draw what `figures.flamegraphs.payload` gives; `on_find` hears what was searched for, once it was entered."""

    def follow() -> None:
        on_find(str(st.session_state[key].find or ""))

    _MOUNT(data=data, key=key, on_find_change=follow, height="content")
