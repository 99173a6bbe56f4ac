"""Places the folders of a checkout inside the one import package of the wheel.

`variants/` and the others lie beside `llama_workbench/` in the repository and inside it in a wheel. An editable
install copies nothing: it maps the single name `llama_workbench` to the checkout (`dev-mode-exact`), so that the
folders beside it do not become top-level modules of the environment either.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDERS = ("variants", "harness", "dashboard", "claims", "datasets")


class FoldersInsidePackage(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard":
            build_data["force_include"].update({folder: f"llama_workbench/{folder}" for folder in FOLDERS})
