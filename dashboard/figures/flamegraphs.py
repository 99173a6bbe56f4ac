"""A sampled profile as a picture: time by frame, outermost on top."""

from __future__ import annotations

import math
from collections.abc import Iterable

import plotly.graph_objects as go

from llama_workbench.dashboard import words
from llama_workbench.dashboard.data import Profile
from llama_workbench.dashboard.frames import Frame, by_own_time

from .colours import EITHER, LIGHT, Palette
from .drawing import SMALL

LEVEL_PX = 24  # a level of a flamegraph

KINDS = {"variant": "the variant's own code", "torch": "torch", "library": "other libraries", "other": "the rest"}
TORCH_FOLDERS = {"torch", "nn", "modules", "autograd", "utils", "attention", "_ops", "_refs", "_prims", "_inductor"}


def flamegraph(profile: Profile, widest_ns: float | None = None, colours: Palette = LIGHT) -> go.Figure:
    """Icicle of one profile, outermost frame on top, box width in time: share of samples × median time of a call.

    `widest_ns` is the time that the full width stands for; give both sides of a comparison the same, and a
    millisecond is as wide on the left as on the right. Without a median time, widths are shares.
    """
    root = profile.shown
    if root is None or not root.samples:
        raise ValueError("no profile to draw")
    total_ns = profile.median_ns
    # Whole samples, never milliseconds: plotly draws nothing if rounding makes children exceed their parent.
    width = root.samples
    if total_ns and widest_ns and widest_ns > total_ns:
        width = math.ceil(root.samples * widest_ns / total_ns)
    # The root is no frame: its box, as wide as the picture, carries the scale.
    scale = f"full width = {words.milliseconds(max(total_ns, widest_ns or 0))} a call" if total_ns else ""
    ids, parents, values, texts, hovers, fills = ["0"], [""], [width], [scale], [scale], ["rgba(0,0,0,0)"]
    inks = [EITHER]
    numbers: dict[int, str] = {}
    for _, frame in root.walk():
        if frame is root:
            numbers[id(frame)] = "0"
        for child in frame.children:
            name = numbers[id(child)] = str(len(ids))
            ids.append(name)
            parents.append(numbers[id(frame)])
            values.append(child.samples)
            title = words.label(f"line {child.line}" if child.line else child.name, 60)
            texts.append(f"{title}  {_amount(child.samples, root.samples, total_ns)}")
            inks.append(colours.frame_text)
            hovers.append(_frame_text(child, root.samples, total_ns))
            fills.append(colours.frames[kind(child)])
    figure = go.Figure(
        go.Icicle(
            ids=ids,
            parents=parents,
            labels=texts,  # plotly draws nothing without labels
            values=values,
            hovertext=hovers,
            hoverinfo="text",
            branchvalues="total",
            sort=False,
            textinfo="label",
            textposition="middle left",
            textfont={"color": inks, "size": SMALL},
            leaf={"opacity": 1},
            marker={"colors": fills, "line": {"color": colours.frame_edge, "width": 1}},
            root={"color": "rgba(0,0,0,0)"},
            tiling={"orientation": "v", "pad": 0},
            pathbar={"visible": False},
        )
    )
    figure.update_layout(
        height=LEVEL_PX * (root.depth + 1) + 4,
        margin={"l": 0, "r": 0, "t": 0, "b": 4},
        uniformtext={"minsize": 10, "mode": "hide"},
    )
    return figure


def flamegraph_text(profile: Profile, most: int = 3) -> str:
    """The flamegraph in a sentence: the time of a call and the functions with the most time of their own."""
    if profile.root is None:
        return f"No profile of {profile.variant}: {profile.reason}."
    total = profile.root.samples
    largest = [
        f"{name} {_amount(samples, total, profile.median_ns)}" for name, _, samples in by_own_time(profile.root)[:most]
    ]
    return (
        f"Flamegraph of {profile.variant} on {profile.workload}, {words.milliseconds(profile.median_ns)} a call, "
        f"{total} samples. Most time of their own: {', '.join(largest)}."
    )


def kind(frame: Frame) -> str:
    """Whose code a frame is, by its file: a key of KINDS.

    A run keeps two parts of each path (`modular/attention.py`, `nn/functional.py`), so this goes by the folder's name,
    and what it does not know is "the rest".
    """
    parts = frame.file.replace("\\", "/").split("/")
    folders = set(parts[:-1])
    if folders & {"variants", "modular"}:
        return "variant"
    if folders & TORCH_FOLDERS or parts[-1].startswith(("libtorch", "libc10", "libmkl", "libgomp")):
        return "torch"
    return "library" if folders & {"transformers", "models", "llama", "integrations", "site-packages"} else "other"


def kinds(profiles: Iterable[Profile]) -> list[str]:
    """The kinds that the pictures of these profiles show, in the order of KINDS."""
    shown = {kind(frame) for profile in profiles if profile.shown for level, frame in profile.shown.walk() if level}
    return [name for name in KINDS if name in shown]


def _amount(samples: int, total: int, total_ns: float | None) -> str:
    if total_ns is None:
        return f"{100 * samples / total:.3g} %"
    return words.milliseconds(total_ns * samples / total)


def _frame_text(frame: Frame, total: int, total_ns: float | None) -> str:
    share = frame.samples / total
    error = math.sqrt(share * (1 - share) / total)
    place = f"{frame.file}:{frame.line}" if frame.line else frame.file
    lines = [f"<b>{words.label(frame.name, 90)}</b>"]
    if place:
        lines.append(words.label("/".join(place.split("/")[-4:]), 90))
    if total_ns is not None:
        lines.append(f"{words.milliseconds(total_ns * share)} a call ± {words.milliseconds(total_ns * error)}")
    lines.append(f"{100 * share:.1f} % ± {100 * error:.1f} % of {total} samples, {frame.own} its own")
    return "<br>".join(lines)
