"""Begin a module of the workbench in an interpreter that may have nothing of it: run as a file, by its path.

`python bootstrap.py harness.worker.main` runs that module of the workbench to which this file belongs. Nothing is put
on the import path: code of that environment finds there what it always finds. All that a process of functions imports
of ours is written for Python 3.9 and for the standard library alone, as this file is.

A run begins many such processes. So the module itself asks to end with its parent (`tied`): `lifeline.tied`
would start one more interpreter each time.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import runpy
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

BARE_OBJECTS = len(gc.get_objects())
"""How many objects the collector of garbage walks in an interpreter with nothing of the workbench in it."""

OLDEST = (3, 9)  # the oldest Python in which functions are measured

PACKAGE, TIED = "llama_workbench", "--tied"


def tied(interpreter: Sequence[str], module: str, *, lifeline: int) -> list[str]:
    """The command line that runs a module of the workbench for as long as this process lives; see `machine.lifeline`.
    interpreter: its path and options. Where the parent dies while it starts, the module ends as soon as it asks."""
    return [*interpreter, __file__, TIED, str(os.getpid()), str(lifeline), module]


def provide() -> None:
    """Let this workbench be imported, whatever is installed under its name."""
    harness = Path(__file__).resolve().parents[1]
    inside = harness.parent / "__init__.py"  # in a wheel the harness lies in the package, in a checkout beside it
    file = inside if inside.is_file() else harness.parent / PACKAGE / "__init__.py"
    spec = importlib.util.spec_from_file_location(PACKAGE, file, submodule_search_locations=[str(file.parent)])
    assert spec is not None and spec.loader is not None
    sys.modules[PACKAGE] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module).update(MEASURES=True, BARE_OBJECTS=BARE_OBJECTS)


if __name__ == "__main__":
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        del sys.path[0]  # the folder of this file
    # Ours are compiled once and kept, also where Python is told to keep nothing: a run begins many such processes, and
    # each would compile them anew. `worker.main` puts this back before foreign code comes.
    sys.dont_write_bytecode = False
    provide()
    if sys.argv[1] == TIED:
        import_module(f"{PACKAGE}.harness.machine.lifeline").tie(*sys.argv[2:4])
        del sys.argv[1:4]
    name = f"{PACKAGE}.{sys.argv.pop(1)}"
    runpy.run_module(name, run_name="__main__", alter_sys=True)
