"""The frozen yardstick of functions as a side of a comparison, with inputs of its own."""

from __future__ import annotations

from llama_workbench import ROOT
from llama_workbench.variants import FUNCTION_YARDSTICK

from .source import Source

_FILE = str(ROOT / "variants" / f"{FUNCTION_YARDSTICK}.py")

WORK = Source(FUNCTION_YARDSTICK, _FILE, "work")
INPUTS = Source("inputs", _FILE, "inputs")
