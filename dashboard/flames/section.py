"""The part of a page that shows flamegraphs of one workload: side by side, or one less the other."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import streamlit as st

from llama_workbench.dashboard import state as parts
from llama_workbench.dashboard import words
from llama_workbench.dashboard.flames import (
    canvas as flame_canvas,
)
from llama_workbench.dashboard.flames import (
    difference as frame_difference,
)
from llama_workbench.dashboard.flames import picture as flamegraphs
from llama_workbench.dashboard.flames import (
    speedscope as raw_profile,
)
from llama_workbench.dashboard.flames.tree import Frame, Scale, StackError, merge
from llama_workbench.dashboard.views import data
from llama_workbench.harness import speedscope

WAYS = {"side": "Side by side", "difference": "Difference"}
"""What `?flame=` may say."""

ROWS = 15  # of the table
SPEEDSCOPE_PX = 560


class _Both(NamedTuple):
    """Two profiles of a workload, and one laid over the other."""

    before: data.Profile
    after: data.Profile
    scales: tuple[Scale, Scale]
    merged: Frame


@st.fragment  # what is chosen in it changes nothing else on the page
def show(run: data.Run, stamp: data.Stamp, workload: str, sides: Sequence[str], baseline: str) -> None:
    """Flamegraphs of `sides` (variants) on one workload, to one scale, and where there are two their difference."""
    profiles = {side: parts.read_profile(run.path, stamp, workload, side) for side in sides}
    if not any(profiles.values()):
        parts.show_missing("profiles", f"{parts.PROFILE_COMMAND} --workloads {shlex.quote(workload)}")
        return
    for side, profile in profiles.items():
        _show_side(side, profile, "baseline" if side == baseline else "variant")
    known = {side: profile for side, profile in profiles.items() if profile is not None and profile.root is not None}
    if not known:
        return
    pair = _pair(known, baseline)
    way = _choose_way() if pair else "side"
    if pair and way == "difference":
        reason = frame_difference.reason_against(
            [profile.rate_hz for profile in pair],
            [profile.native for profile in pair],
            [profile.median_ns for profile in pair],
        )
        if reason:
            st.text(f"No difference can be drawn: {reason}. Below are both sides.")
            way = "side"
        else:
            before, after = pair
            asked = run.path, stamp, workload, before.variant, after.variant
            _draw([_difference(*asked)])
            st.caption(words.markdown(_difference_caption(before, after)))
            _show_changes(_changes(*asked), before.variant, after.variant)
    if way == "side":
        medians = [profile.median_ns for profile in known.values() if profile.median_ns]
        widest = max(medians) if len(medians) == len(known) else None
        _draw([_flamegraph(run.path, stamp, workload, side, widest) for side in known])
        scale = " A millisecond is as wide on both sides." if widest and len(known) > 1 else ""
        st.caption(
            "Each box is a function; below it is what it called, and at the bottom the lines that were running. Its "
            f"width is time: share of samples × median time of a call.{scale} ± is one standard error. Left out are "
            "the two frames that torch.nn.Module puts around every call."
        )
        for side in known:
            with st.expander(f"{words.markdown(side)} as a table"):
                _show_own(_own(run.path, stamp, workload, side), side)
    _show_raw(run, workload, list(known))


def _pair(known: Mapping[str, data.Profile], baseline: str) -> tuple[data.Profile, data.Profile] | None:
    """The two sides, the baseline first; None where there are not two."""
    if len(known) != 2:
        return None
    before, after = sorted(known.values(), key=lambda profile: profile.variant != baseline)
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
    rate = f" at {profile.rate_hz:g} Hz" if profile.rate_hz else " at a rate that was not recorded"
    error = f" ± {words.milliseconds(profile.median_error_ns)}" if profile.median_error_ns else ""
    time = f", {words.milliseconds(profile.median_ns)}{error} a call" if profile.median_ns else ""
    native = ", with native frames" if profile.native else ""
    said = f"{role}: {profile.root.samples} samples{rate}{native}{time}"
    st.markdown(f"**{words.markdown(side)}** :gray[{words.markdown(said)}]")
    if profile.native_reason:
        st.text(f"Without native frames: {profile.native_reason}.")


# Pictures are never changed, and copies of 20,000 boxes would take long.
@st.cache_resource(max_entries=64, show_spinner="Drawing the profile …")
def _flamegraph(
    path: Path, stamp: data.Stamp, workload: str, side: str, widest_ns: float | None
) -> flamegraphs.Picture:
    profile = parts.read_profile(path, stamp, workload, side)
    assert profile is not None
    return flamegraphs.flamegraph(profile, widest_ns)


@st.cache_resource(max_entries=16, show_spinner="Comparing the profiles …")
def _both(path: Path, stamp: data.Stamp, workload: str, before: str, after: str) -> _Both:
    first, second = (parts.read_profile(path, stamp, workload, side) for side in (before, after))
    assert first is not None and first.root is not None and first.scale is not None
    assert second is not None and second.root is not None and second.scale is not None
    return _Both(first, second, (first.scale, second.scale), merge(first.root, second.root))


@st.cache_resource(max_entries=64, show_spinner="Comparing the profiles …")
def _difference(path: Path, stamp: data.Stamp, workload: str, before: str, after: str) -> flamegraphs.Picture:
    both = _both(path, stamp, workload, before, after)
    return flamegraphs.difference(both.before, both.after, both.merged)


def _draw(pictures: Sequence[flamegraphs.Picture]) -> None:
    def keep(text: str) -> None:
        if text:
            st.query_params["find"] = text
        else:
            st.query_params.pop("find", None)

    flame_canvas.draw(flamegraphs.payload(pictures, st.query_params.get("find", "")), "flames", keep)
    shares = dict.fromkeys(words.percent(picture.least_share) for picture in pictures)
    shells = dict.fromkeys(" › ".join(picture.shell) for picture in pictures if picture.shell)
    shell = f" Nor are the outer frames {', '.join(shells)}." if shells else ""
    st.caption(words.markdown(f"Boxes below {' or '.join(shares)} of the time are not drawn.{shell}"))


def _difference_caption(before: data.Profile, after: data.Profile) -> str:
    change = after.median_ns - before.median_ns if before.median_ns and after.median_ns else 0.0
    errors = [profile.median_error_ns for profile in (before, after)]
    if all(errors):
        sure = "± is one standard error, of the samples and of the median time of a call on both sides."
    else:
        sure = (
            "± is one standard error of the samples of both sides; that of the median time of a call was not recorded "
            "and is left out, so that the outermost boxes look surer than they are."
        )
    return (
        f"Red boxes with + take more milliseconds in {after.variant}, blue ones with − fewer; together "
        f"{flamegraphs.signed(change)} a call. A box is as wide as the mean of both sides, so that what one of them "
        "lacks is seen too (striped). The colour is strongest at the largest difference of a box that calls nothing. "
        f"{sure} Grey (≈) differs by less than two of them; of identical code one box in twenty would be coloured. "
        "The sides were profiled one after the other: whether the whole is faster is said by the verdict, which was "
        "measured in turns and without a profiler."
    )


@st.cache_data(max_entries=64, show_spinner=False)
def _own(path: Path, stamp: data.Stamp, workload: str, side: str) -> pd.DataFrame:
    """Functions with the most time of their own."""
    profile = parts.read_profile(path, stamp, workload, side)
    assert profile is not None and profile.root is not None
    total = profile.root.samples
    scale = profile.scale
    own = [(name, file, count) for name, file, (count,) in profile.root.by_own_time[:ROWS]]
    shares = [count / total for _, _, count in own]
    return pd.DataFrame(
        {
            "function": [name for name, _, _ in own],
            "file": [file for _, file, _ in own],
            "own time": [scale.time_ns(count) / 1e6 if scale else None for _, _, count in own],
            "± time": [scale.error_ns(count) / 1e6 if scale else None for _, _, count in own],
            "share": [100 * share for share in shares],
            "± share": [100 * (share * (1 - share) / total) ** 0.5 for share in shares],
        }
    )


def _show_own(own: pd.DataFrame, side: str) -> None:
    st.dataframe(
        own,
        hide_index=True,
        row_height=28,
        column_config={
            **{name: st.column_config.NumberColumn(format="%.3f ms") for name in ("own time", "± time")},
            **{name: st.column_config.NumberColumn(format="%.1f %%") for name in ("share", "± share")},
        },
        alt=f"Functions of {side} with the most time of their own; ± is one standard error",
    )


@st.cache_data(max_entries=64, show_spinner=False)
def _changes(path: Path, stamp: data.Stamp, workload: str, before: str, after: str) -> pd.DataFrame:
    """Functions whose own time differs, the surest large ones first."""
    both = _both(path, stamp, workload, before, after)
    scales, own = both.scales, both.merged.by_own_time
    rows = [(name, file, counts, frame_difference.delta(counts, scales)) for name, file, counts in own]
    rows = sorted(rows, key=lambda row: (not row[3].sure, -abs(row[3].ns)))[:ROWS]
    only = {None: "both", 0: before, 1: after}
    return pd.DataFrame(
        {
            "function": [row[0] for row in rows],
            "file": [row[1] for row in rows],
            "before": [scales[0].time_ns(row[2][0]) / 1e6 for row in rows],
            "after": [scales[1].time_ns(row[2][1]) / 1e6 for row in rows],
            "difference": [row[3].ns / 1e6 for row in rows],
            "± (SE)": [row[3].error_ns / 1e6 for row in rows],
            "beyond chance": ["yes" if row[3].sure else "no" for row in rows],
            "only in": [only[row[3].only] for row in rows],
        }
    )


def _show_changes(changes: pd.DataFrame, before: str, after: str) -> None:
    with st.expander("The difference as a table"):
        st.dataframe(
            changes,
            hide_index=True,
            row_height=28,
            column_config={
                "before": st.column_config.NumberColumn(f"own time, {before}", format="%.3f ms"),
                "after": st.column_config.NumberColumn(f"own time, {after}", format="%.3f ms"),
                "difference": st.column_config.NumberColumn(format="%+.3f ms"),
                "± (SE)": st.column_config.NumberColumn(format="%.3f ms"),
            },
            alt=f"Functions by how much their own time differs between {before} and {after}",
        )


def _show_raw(run: data.Run, workload: str, sides: Sequence[str]) -> None:
    """The profile as it was recorded: to keep, or in speedscope where that is installed."""
    with st.expander(
        "Open the raw profile", expanded="raw" in st.query_params, key="raw profile", on_change="rerun"
    ) as box:
        if not box.open:
            return
        side = parts.choose("Profile of", sides, "raw")
        try:
            text = data.profile_text(run, workload, side)
        except (OSError, UnicodeDecodeError, StackError) as error:
            st.text(f"The profile cannot be read: {error}.")
            return
        name = re.sub(r"[^A-Za-z0-9._@+-]+", "_", f"{workload}-{side}") + ".folded"
        st.download_button("Download the folded stacks", text, file_name=name, mime="text/plain", on_click="ignore")
        folder = speedscope.installed_folder()
        if folder is None:
            st.text("speedscope, which opens such a file here in the page, is not installed. This command installs it:")
            st.code("workbench speedscope", language="bash")
            return
        try:
            page = raw_profile.document(folder, text, name)
        except (OSError, raw_profile.RawProfileError) as error:
            st.text(f"speedscope cannot be shown: {error}. Remove {folder.name} from the cache and install it again.")
            return
        st.iframe(page, height=SPEEDSCOPE_PX, alt=f"speedscope with the profile of {side} on {workload}")
        st.caption(
            "speedscope, with every sample as py-spy recorded it. Left Heavy is sorted by time; the order under Time "
            "Order is that of the file and means nothing, for folded stacks have none."
        )
