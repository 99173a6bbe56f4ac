"""Colours of the figures, one palette for each appearance.

They are Okabe and Ito's, which people with any of the common colour-vision deficiencies can tell apart, and no meaning
rests on colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Palette:
    """Colours of one appearance; `verdict` follows the theme's green, red, ... of the same names."""

    verdict: Mapping[str, str]
    region: str
    region_edge: str
    band: str
    page: str
    text: str
    muted: str
    rule: str
    track: str
    frames: Mapping[str, str]
    frame_text: str
    difference: tuple[str, ...]  # of a flamegraph: most time saved (blue), ..., none, ..., most time added (red)
    sides: tuple[str, str]


STEPS = 5
"""Shades of each of the two colours of a difference."""


def _diverging(low: str, middle: str, high: str) -> tuple[str, ...]:
    """2 × STEPS + 1 colours from `low` over `middle` to `high`, evenly mixed."""

    def mixed(end: str, share: float) -> str:
        pairs = zip(bytes.fromhex(middle[1:]), bytes.fromhex(end[1:]), strict=True)
        return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in pairs)

    shares = [step / STEPS for step in range(1, STEPS + 1)]
    return (*(mixed(low, s) for s in reversed(shares)), middle, *(mixed(high, s) for s in shares))


def _verdicts(inks: str) -> dict[str, str]:
    return dict(zip(("green", "red", "violet", "gray", "orange", "blue"), inks.split(), strict=True))


LIGHT = Palette(
    verdict=_verdicts("#007A5A #C04A00 #A8447C #5F6B7A #9A6700 #0072B2"),
    region="rgba(86,180,233,0.30)",
    region_edge="rgba(0,114,178,0.75)",
    band="rgba(95,107,122,0.32)",
    page="#FFFFFF",
    text="#0B1016",
    muted="#5F6B7A",
    rule="rgba(95,107,122,0.18)",
    track="rgba(95,107,122,0.07)",
    frames={"variant": "#A9D3EE", "torch": "#F3CF8E", "library": "#DDB5CC", "other": "#D5DAE0"},
    frame_text="#17212B",
    difference=_diverging("#5AA5DA", "#E6E9ED", "#E67E57"),
    sides=("#7A8794", "#0072B2"),
)
DARK = Palette(
    verdict=_verdicts("#2FC49A #F08A4B #DF9CC2 #A3AEBB #E6B450 #6BB8EC"),
    region="rgba(86,180,233,0.26)",
    region_edge="rgba(107,184,236,0.80)",
    band="rgba(163,174,187,0.30)",
    page="#12171D",
    text="#E6EBF0",
    muted="#A3AEBB",
    rule="rgba(163,174,187,0.18)",
    track="rgba(163,174,187,0.09)",
    frames={"variant": "#2B6A92", "torch": "#7F6119", "library": "#7B4767", "other": "#4A545F"},
    frame_text="#F2F5F8",
    difference=_diverging("#1F6FA8", "#343D47", "#A84E28"),
    sides=("#8B97A3", "#6BB8EC"),
)
