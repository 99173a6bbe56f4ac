"""The part of a page that shows flamegraphs of one workload."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import pandas as pd
import streamlit as st

from . import data, frames, parts, words
from .figures import flamegraphs


def show(run: data.Run, stamp: data.Stamp, workload: str, sides: Sequence[str], baseline: str) -> None:
    """Flamegraphs of `sides` (variants) on one workload, next to each other and to one scale."""
    profiles = {side: parts.read_profile(run.path, stamp, workload, side) for side in sides}
    if not any(profiles.values()):
        parts.show_missing("profiles", f"{parts.PROFILE_COMMAND} --workloads {shlex.quote(workload)}")
        return
    known = [profile for profile in profiles.values() if profile and profile.shown]
    medians = [profile.median_ns for profile in known if profile.median_ns]
    widest = max(medians) if medians and len(medians) == len(known) else None
    ink, fills = parts.colours().frame_text, parts.colours().frames
    st.markdown(
        " ".join(
            f':color[{flamegraphs.KINDS[name]}]{{foreground="{ink}" background="{fills[name]}"}}'
            for name in flamegraphs.kinds(known)
        )
    )
    for column, (side, profile) in zip(st.columns(len(profiles), gap="medium"), profiles.items(), strict=True):
        with column:
            role = "baseline" if side == baseline else "variant"
            time = f", {words.milliseconds(profile.median_ns)} a call" if profile and profile.median_ns else ""
            st.markdown(f"**{words.markdown(side)}** :gray[{role}{time}]")
            _show_one(side, profile, widest)
    scale = "A millisecond is as wide on both sides. " if widest and len(known) > 1 else ""
    st.caption(
        f"Box width is time: share of samples × median time of a call. {scale}Click a box to enlarge it. "
        "Left out are the two frames that torch.nn.Module puts around every call."
    )


def _show_one(side: str, profile: data.Profile | None, widest_ns: float | None) -> None:
    if profile is None or profile.root is None or profile.shown is None:
        st.text(f"No profile: {profile.reason if profile else 'the profiling pass left this variant out'}.")
        return
    st.plotly_chart(
        flamegraphs.flamegraph(profile, widest_ns, parts.colours()),
        config=parts.PLOT,
        alt=flamegraphs.flamegraph_text(profile),
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
