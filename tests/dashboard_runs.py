"""What the dashboard must survive: names that try to be markup, foreign folders, damaged runs. Beside `runs.py`."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.passes import PHASES as PHASES_FILE

HOSTILE = "<script>alert(1)</script>"
MARKUP = (
    "<b>bold</b> **stars** _under_ `code` :red[red] :tada: :material/home: $x^2$ $$y$$ [link](https://example.com) "
    "https://example.com www.example.com a@example.com ![](x.png) # -> %{x} &amp; <img src=x onerror=alert(1)>"
)
"""What Markdown, Streamlit's directives, LaTeX, HTML and plotly would each turn into something else."""


def deface(run: RunFolder) -> None:
    """Put HOSTILE and MARKUP in place of every name and text of a run, and into its profiles."""
    verdicts = run.records("verdicts.json")
    variants = {effect["variant"] for verdict in verdicts for effect in verdict["effects"]}

    def renamed(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: renamed(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [renamed(item, key) for item in value]
        if key == "variant" and value in variants:
            return HOSTILE
        if key in {"title", "statement", "reason", "claimed", "document", "who", "line", "decided_by", "detail"}:
            return f"{HOSTILE} {MARKUP}" if value else value
        return value

    for verdict in verdicts:
        for effect in verdict["effects"]:
            effect["reason"], effect["notes"] = MARKUP, [MARKUP]
            if effect["workload"] == "prefill-15m-t128":
                effect["workload"] = f"{HOSTILE}{MARKUP}"
    profiles = run.records("profiles.json")
    for row in [*profiles, *(memory := run.records("memory.json"))]:
        if row["workload"] == "prefill-15m-t128":
            row["workload"] = f"{HOSTILE}{MARKUP}"
    for row in profiles:
        if row["path"]:
            stacks = f"run (worker.py:1);{HOSTILE} (variants/{HOSTILE}.py:2) 40\nrun (worker.py:1);$x^2$ %{{y}} 50\n"
            (run.path / row["path"]).write_text(stacks, encoding="utf-8")
    run.write_json("run.json", renamed(run.read_manifest()))
    run.write_json("verdicts.json", renamed(verdicts))
    run.write_json("claims.json", renamed(run.records("claims.json")))
    run.write_json("profiles.json", renamed(profiles))
    run.write_json("memory.json", renamed(memory))


def add_broken(home: Path) -> None:
    """Two folders that are no runs: a manifest cut off in the middle, and somebody's photos."""
    (home / "cut-off").mkdir(parents=True)
    (home / "cut-off" / "run.json").write_text('{"format": 1, "id": "cu')
    (home / "photos").mkdir()
    (home / "photos" / "beach.jpg").write_bytes(b"\xff\xd8")


def wide(towers: int = 480, levels: int = 41) -> str:
    """Stacks of nearly 20,000 boxes that are all large enough to be drawn; the first ones bear HOSTILE as name."""
    frames = [
        [f"{HOSTILE if not k else f'f{k}'} (variants/v{level}.py:1)" for level in range(levels)] for k in range(towers)
    ]
    return "".join(f"run (worker.py:1);{';'.join(tower)} {2 if k else 20}\n" for k, tower in enumerate(frames))


def folded(seed: int = 0, layers: int = 2) -> str:
    """Stacks such as py-spy writes for a small Llama: the worker's loop, dispatch frames, layers, leaves by line."""
    rng = random.Random(seed)
    module = "torch/nn/modules/module.py"
    call = f"Module._wrapped_call_impl ({module}:1775);Module._call_impl ({module}:1786)"
    shell = "<module> (worker.py:9);main (harness/worker/main.py:210);loop (harness/worker/main.py:160)"
    model = f"{shell};Llama.forward (variants/modular/model.py:88)"
    lines = [f"<module> (worker.py:3) {rng.randint(1, 2)}"]
    for layer in range(layers):
        block = f"{model};{call};Block.forward (variants/modular/block.py:{40 + layer})"
        attention = f"{block};{call};Attention.forward (variants/modular/attention.py:"
        for line, weight in ((61, 60), (62, 50), (70, 210), (74, 90), (81, 60)):
            lines.append(f"{attention}{line}) {weight + rng.randint(0, 20)}")
        rope = f"{attention}66);{call};Rope.forward (variants/modular/rope.py:31)"
        lines.append(f"{rope};stack (torch/functional.py:12) {80 + rng.randint(0, 30)}")
        mask = f"{attention}68);MaskCache.get (variants/modular/mask.py:22)"
        lines.append(f"{mask};full (torch/_refs.py:5) {rng.randint(10, 40)}")
        mlp = f"{block};{call};FeedForward.forward (variants/modular/mlp.py:"
        lines.append(f"{mlp}20);{call};Linear.forward (torch/nn/modules/linear.py:134) {310 + rng.randint(0, 40)}")
        lines.append(f"{mlp}21);silu (torch/nn/functional.py:2380) {40 + rng.randint(0, 10)}")
        lines.append(f"{block};{call};RMSNorm.forward (torch/nn/modules/normalization.py:402) {30 + rng.randint(0, 9)}")
    lines.append(f"{model};{call};Linear.forward (torch/nn/modules/linear.py:134) {260 + rng.randint(0, 30)}")
    lines.append(f"{model};rare (variants/modular/model.py:99) 1")
    return "\n".join(lines) + "\n"


SHORT, LONG = "prefill-15m-t128", "prefill-7b-1layer-t128"
BEFORE = "team006_before"

SPENT = {"qkv": 200, "rope": 100, "scores": 40, "mask_create": 10, "mask_apply": 10, "softmax": 30, "output": 10}
REST = {"mlp": 400, "lm_head": 100, "o_proj": 60, "norm": 30, "cache": 10}
"""Microseconds of a call by phase; a call has 1000."""


def add_phases(run: RunFolder, *, swing: int = 10) -> None:
    """Phases of one variant on two workloads, twelve rounds; `swing` moves microseconds between QKV and the MLP."""
    rows = []
    for workload in (SHORT, LONG):
        for number in range(12):
            moved = swing if number % 2 else -swing
            spent = SPENT | REST | {"qkv": 200 + moved, "mlp": 400 - moved}
            rows += [[workload, BEFORE, 0, number, 0, 128, p, 1000 * us, 990_000] for p, us in spent.items()]
    run.write_table(PHASES_FILE, rows)
    lines = {"modular/model.py": {"88": [["qkv"], []], "90": [["mlp"], []]}}
    facts = [
        {"workload": name, "variant": BEFORE, "rounds": 12, "reason": None, "lines": lines, "clock": "thread CPU"}
        for name in (SHORT, LONG)
    ]
    run.write_json("phases.json", facts)
    stacks = "f (modular/model.py:88) 80\nf (modular/model.py:90) 160\ng (elsewhere.py:1) 160\n"
    (run.path / f"profiles/{SHORT}/{BEFORE}.folded").write_text(stacks)


def a_sweep(variant: str, mask: int, **more: Any) -> dict[str, Any]:
    """A record of memory_sweep.json whose masks double from `mask` bytes on, with 1, 2 and 4 lengths."""
    steps: list[dict[str, Any]] = [{"lengths": [], "held": {}, "computed": None}]
    for power in range(3):
        held = {"kv": 1_000_000, "rope": 10_000, "mask": mask << power, "repacked": 0, "other": 0}
        steps.append({"lengths": list(range(1 << power)), "held": held, "computed": {"held": held}})
    record = {
        "workload": "prefill-15m-t128",
        "variant": variant,
        "reason": None,
        "served": [32, 64, 96, 128],
        "steps": steps,
    }
    return record | {"weights_bytes": 50_000_000} | more
