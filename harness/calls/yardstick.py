"""What takes part beside the functions that are compared: the frozen yardstick and controls."""

from __future__ import annotations

from llama_workbench import ROOT
from llama_workbench.variants import FUNCTION_YARDSTICK, YARDSTICKS

from ..spec.entered import EnteredName
from .source import Source

_FILE = str(ROOT / "variants" / f"{FUNCTION_YARDSTICK}.py")

WORK = Source(FUNCTION_YARDSTICK, _FILE, "work")
INPUTS = Source("inputs", _FILE, "inputs")

SELDOM = 4
"""In one of so many sub-rounds it is sampled; a control in the first of so many parts of them, or in one of so many
rounds where each side has a process. The time is for what is compared."""


def is_beside(name: str) -> bool:
    """Whether it is a yardstick or a control: not itself what is compared."""
    return name in YARDSTICKS or EnteredName(name).is_control
