"""The options of `pytest --benchmark`, by their short names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FLAG = {"action": "store_true"}
NAMES = {"metavar": "NAME,NAME", "default": ""}

# fmt: off
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "benchmark": FLAG | {"help":
        "measure the variants and judge the claims instead of running tests; with no other option: every claim"},
    "claims": NAMES | {"metavar": "ID,ID", "help": "only these claims (`workbench claims` lists them)"},
    "claims-dir": {"metavar": "FOLDER", "help": "folder of claim files (default: those that ship)"},
    "variants": NAMES | {"help": "only these variants (`workbench variants` lists them)"},
    "workloads": NAMES | {"help": "only these workloads (`workbench workloads` lists them)"},
    "workloads-file": {"metavar": "FILE", "help": "workloads of yours (`workbench new workload` writes a file)"},
    "add-variant": {"metavar": "FILE:FUNCTION", "action": "append", "default": [], "help":
        "a variant of yours, named after its build function; also NAME=FILE:FUNCTION, MODULE:FUNCTION, and @REV behind "
        "it; may be given several times"},
    "compare": {"metavar": ("A", "B"), "nargs": 2, "help":
        "no claim: is B faster or slower than A (the baseline), or the same within 1 %%?"},
    "call": {"metavar": "FILE:FUNCTION", "action": "append", "default": [], "help":
        "with --compare FILE:FUNCTION FILE:FUNCTION: compare these two, called with what this function makes"},
    "check": {"metavar": "FILE:FUNCTION", "help":
        "with --call: whether two answers agree (default: tensors and arrays within rounding, all else by ==)"},
    "env": {"metavar": "NAME=PATH", "action": "append", "default": [], "help":
        "with --call: the virtual environment in which a side runs, by the side's name (PATH alone: both sides)"},
    "fail-if": {"metavar": "WHAT:PERCENT", "action": "append", "default": [], "help":
        "with --compare, exit with 1 if B is slower:P (more than P %% slower is proven), maybe-slower:P (it is not "
        "ruled out) or not-faster:P (more than P %% faster is not proven); may be given several times"},
    "budget": {"metavar": "SECONDS", "type": float, "help":
        "stop after this many seconds of rounds, up to a tenth later where that should settle something; what is open "
        "then stays open (default 480, with --all 3600, gates included except with --compare)"},
    "continue": {"metavar": "RUN", "help":
        "go on with a run that was cut off or has open verdicts: same plan, same folder, its rounds are kept"},
    "on": {"metavar": "CLUSTER", "help":
        "measure on the nodes of a Ray cluster: ray (this machine is in it) or ray://HEAD; see FLEET.md"},
    "on-each-kind": FLAG | {"help":
        "with --on: measure everything on each kind of machine (default: everything once, on whichever is free)"},
    "all": FLAG | {"help": "settle the whole register: also the claims and parts of claims that take long"},
    "threads": {"metavar": "N", "type": int, "help": "threads of each workload (default: 1, as it says)"},
    "device": {"metavar": "KIND", "default": "cpu", "help":
        "where the models compute: cpu (default), or cuda (CUDA_VISIBLE_DEVICES says which of several)"},
    "checkpoint": {"metavar": "PATH", "help": "a real Llama (Hugging Face folder or .gguf file) for all"},
    "seed": {"metavar": "N", "type": int, "default": 0, "help": "seed of weights, prompts and orders (default 0)"},
    "run-dir": {"metavar": "FOLDER", "help": "where the run is kept (default: results/runs/<time>)"},
    "count-instructions": FLAG | {"help":
        "then count the instructions of a call of each variant, for `workbench compare` (needs valgrind; slow calls "
        "take minutes each)"},
    "profile": FLAG | {"help": "then profile each variant: py-spy stacks, memray peaks"},
    "profile-native": FLAG | {"help":
        "--profile with native frames (kernels) in the stacks; slows the profiled calls 1.5-2.5 times"},
}
# fmt: on
