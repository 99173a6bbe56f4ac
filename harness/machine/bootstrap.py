"""Begin a module of the workbench in an interpreter that may have nothing of it: run as a file, by its path.

`python bootstrap.py harness.worker.main` runs that module of the workbench to which this file belongs. Nothing is put
on the import path: code of that environment finds there what it always finds. All that a process of functions imports
of ours is written for Python 3.9 and for the standard library alone, as this file is.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path

OLDEST = (3, 9)
"""The oldest Python in which functions are measured."""

PACKAGE = "llama_workbench"


def command(python: str, module: str) -> list[str]:
    """What runs a module of the workbench in an interpreter."""
    return [python, __file__, module]


def provide() -> None:
    """Let this workbench be imported, whatever is installed under its name."""
    harness = Path(__file__).resolve().parents[1]
    inside = harness.parent / "__init__.py"  # in a wheel the harness lies in the package, in a checkout beside it
    file = inside if inside.is_file() else harness.parent / PACKAGE / "__init__.py"
    spec = importlib.util.spec_from_file_location(PACKAGE, file, submodule_search_locations=[str(file.parent)])
    assert spec is not None and spec.loader is not None
    sys.modules[PACKAGE] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the folder of this file
    provide()
    name = f"{PACKAGE}.{sys.argv.pop(1)}"
    runpy.run_module(name, run_name="__main__", alter_sys=True)
