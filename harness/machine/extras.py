"""Packages that only some uses need: which they are, and the line that installs them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "models": ("torch", "transformers", "safetensors", "tokenizers", "gguf"),
    "dashboard": ("streamlit", "plotly", "jinja2", "scipy"),
    "notebook": ("pandas",),
    "profile": ("memray",),
    "export": ("resvg_py",),
    "fleet": ("ray", "grpc"),
    "remote": ("s3fs",),
}
"""By the name of the extra in pyproject.toml: the modules that it brings. (py-spy is a program, and has none.)"""


def install(extra: str) -> str:
    """The line that installs it. No package index has the name, so it is a place to be filled in, as README has it."""
    return f"pip install 'path/to/llama-workbench[{extra}]'"


def lacking(extra: str) -> str:
    """What of an extra is not installed, with the line that installs it; empty where all is there."""
    gone = [module for module in EXTRAS[extra] if find_spec(module) is None]
    return f"{', '.join(gone)} {'is' if len(gone) == 1 else 'are'} not installed: {install(extra)}" if gone else ""


def told(error: ModuleNotFoundError) -> str:
    """The same of an import that failed; empty where it is no package of an extra."""
    top = (error.name or "").partition(".")[0]
    extra = next((extra for extra, modules in EXTRAS.items() if top in modules), None)
    return f"{top} is not installed: {install(extra)}" if extra else ""
