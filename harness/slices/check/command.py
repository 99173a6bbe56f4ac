"""`workbench check`"""

from __future__ import annotations

import ast
import tempfile
import tomllib
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from llama_workbench.commands.shared import (
    MODELS,
    AsJson,
    Failure,
    Listed,
    ends,
    print_json,
    show,
    sources_of,
    table,
    takes,
)
from llama_workbench.harness.plan.options import Request, typed
from llama_workbench.harness.spec.words import VerbExit

if TYPE_CHECKING:
    from llama_workbench.harness.calls.source import Source

DISPUTE_FILE = "dispute.toml"

WORKLOADS = ("prefill-tiny-t16", "decode-tiny-c16", "generate-tiny-t8-n6-b3")
"""Small ones, one of each kind: what a variant does on others is checked before it is timed there."""

SECONDS, COMPILE_SECONDS = 120.0, 600.0
"""For an answer; compiled code has more, which on a machine that has not seen it takes minutes."""


LISTED = Listed(18, MODELS, {"check build_mine.py": "are its outputs right, and if not, why?"})


@ends(
    {
        VerbExit.DONE: "all is right",
        VerbExit.AGAINST: "something is wrong: it is printed",
        VerbExit.COULD_NOT: "it could not be checked: the reason is printed",
    }
)
@takes({"add-variant": "A variant of your own that the claim names; repeatable."})
def command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="FILE.py, FILE.py:FUNCTION or MODULE:FUNCTION, also with @REV; FILE.toml; or the name of a variant.",
        ),
    ],
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Check that a variant computes correct logits, or that a file of claims or workloads is valid.

    A variant must give correct logits for prompts, the tokens after them, chunks, batches and the whole context, on
    two small model shapes and three small workloads. If they are wrong, a table shows in which calls, where in the
    sequence and by how much. They are then compared with those of Llamas that have one well-known mistake each, such as
    a missing mask. Nothing is timed.

    FILE.py without FUNCTION stands for its one function `(config, weights, *, max_length)`. A claim, and a file of
    workloads, is read and planned. dispute.toml is read with the claims in its folder.

    \b
    Exit codes:

    \b
    --json prints of a variant:
      {"format": 1, "variant", "right": true|false, "dtype", "tolerance", "calls": [{"geometry", "case", "number",
       "tokens", "position", "error", "fault"}], "causes": ["..."], "workloads": [{"workload", "right", "detail"}]}
    of a claim {"format": 1, "right": true, "claim", "parts", "effects"}, or {.. false, "problems": ["..."]},
    of workloads {"format": 1, "right": true, "workloads": ["name"]}, or {.. false, "problems": ["..."]},
    and of dispute.toml {"format": 1, "right": true, "questions": 1, "rules": 1}, or {.. false, "problems": ["..."]}

    \b
    Examples:
      workbench check mine.py:build_mine
      workbench check mypackage.model:build@main
      workbench check claims/mine.toml --add-variant mine.py:build_mine
    """
    if what.endswith(".toml"):
        _check_file(Path(what), typed(Request, given).added, as_json)
        return
    name, added = _named(what)
    checked = _checked(name, added)
    if as_json:
        print_json({"format": 1, "variant": name, **checked})
    else:
        show(Group(*_shown(name, checked)))
    if not checked["right"]:
        raise typer.Exit(1)


# -- a variant ---------------------------------------------------------------------------------------------------------


def _named(what: str) -> tuple[str, dict[str, Source]]:
    """The variant's name, and its name → source where it is from outside. Raises Failure."""
    from llama_workbench import variants

    if what.endswith(".py"):
        what = f"{what}:{_function_of(Path(what))}"
    if ":" not in what:
        variant = variants.get(what)
        if variant.engine is not None:
            raise Failure(f"{what} is an engine: `pytest --benchmark --benchmark-disable --variants {what}` checks it")
        if missing := variants.missing(variant.name):
            raise Failure(f"{what} cannot be built here: {missing}")
        return variant.name, {}
    added = sources_of([what])
    return next(iter(added)), added


def _function_of(path: Path) -> str:
    """The name of the file's one function that builds a model. The file is not run. Raises Failure."""
    try:
        tree = ast.parse(path.read_bytes(), path.name)
    except OSError as error:
        raise Failure(f"{path}: cannot be read ({error.strerror})") from error
    except (SyntaxError, ValueError) as error:
        raise Failure(f"{path}: not valid Python: {error}") from error
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    builds = [
        f.name for f in functions if "max_length" in [each.arg for each in (*f.args.args[2:], *f.args.kwonlyargs)]
    ]
    if len(builds) == 1:
        return builds[0]
    which = f"it has {', '.join(builds)}: name one, {path}:{builds[0]}" if builds else "it has none"
    hint = "" if builds else f"; to check whether two functions agree, run a test that uses `versus`: pytest {path}"
    raise Failure(f"{path}: expected one function build(config, weights, *, max_length); {which}{hint}")


def _checked(name: str, added: Mapping[str, Source]) -> dict[str, Any]:
    """What came of the variant's checks. Raises Failure."""
    from llama_workbench import variants
    from llama_workbench.cache import cache_directory
    from llama_workbench.datasets import geometries, workloads
    from llama_workbench.datasets.synthetic_files import synthesize
    from llama_workbench.harness.measure.processes import WorkerFailed, WorkerProcess

    cache = cache_directory()
    limit = SECONDS + COMPILE_SECONDS * (name not in added and variants.get(name).compiled)
    with tempfile.TemporaryDirectory(prefix="workbench-check-") as folder:
        hello = {"process": 1, "added": {each: asdict(source) for each, source in added.items()}, "draw": "check"}
        process = WorkerProcess(threads=1, cache=cache, log=Path(folder, "log"), hello=hello)
        with closing(process):
            try:
                checked = process.ask("check", limit, variant=name)
                if checked["refused"]:
                    raise Failure(checked["refused"])
                right = not any(call["fault"] for call in checked["calls"])
                gates: list[dict[str, Any]] = []
                for work in map(workloads.get, WORKLOADS if right else ()):
                    source = synthesize(geometries.get(work.geometry), cache=cache)
                    process.ask("open", SECONDS, workload=work.model_dump(), folder=str(source), seed=0)
                    gate = process.ask("gate", limit, workload=work.name, variant=name)["gate"]
                    gates.append({"workload": work.name, "right": gate["passed"], "detail": gate["detail"]})
            except WorkerFailed as failure:
                said = Path(folder, "log").read_text(errors="replace").splitlines()[-3:]
                raise Failure("\n".join([f"{name}: {failure.reason}", *said])) from failure
    right = right and all(gate["right"] for gate in gates)
    kept = {key: checked[key] for key in ("dtype", "tolerance", "calls", "causes")}
    return {"right": right, **kept, "workloads": gates}


def _shown(name: str, checked: Mapping[str, Any]) -> list[RenderableType]:
    calls = checked["calls"]
    wrong = [call for call in calls if call["fault"]]
    blocks: list[RenderableType] = []
    if wrong:
        rows = table("model", "case", "first wrong call", "what is wrong")
        for names, case in ((names, [*case]) for names, case in groupby(calls, itemgetter("geometry", "case"))):
            call = next((call for call in case if call["fault"]), None)
            where, fault = "", "right"
            if call is not None:
                tokens, fault = _counted(call["tokens"], "token"), call["fault"]
                where = f"{call['number']} of {len(case)}: {tokens} at {call['position']}"
            rows.add_row(*map(Text, (*names, where, fault)))
        blocks.append(rows)
        blocks.append(Text(f"\n{name}: {len(wrong)} of {len(calls)} calls are wrong, in {checked['dtype']}."))
        blocks += [Text(f"Likely: {cause}.") for cause in checked["causes"]]
        return blocks
    worst = max(call["error"] for call in calls)
    allowed = f"off by at most {worst:.0e} of the largest logit, allowed {checked['tolerance']:.0e}"
    blocks.append(Text(f"{name}: all {len(calls)} calls are right in {checked['dtype']} ({allowed})."))
    for gate in checked["workloads"]:
        blocks.append(Text(f"{gate['workload']}: {'right' if gate['right'] else 'wrong'} ({gate['detail']})"))
    return blocks


# -- a file of tables --------------------------------------------------------------------------------------------------


def _check_file(path: Path, added: tuple[str | Source, ...], as_json: bool) -> None:
    """Read a file, and plan what a claim would measure. Raises Failure, and Exit where something is wrong."""
    from llama_workbench.harness.claims.reading import load_dispute, read_claim
    from llama_workbench.harness.plan.experiments import make_plan
    from llama_workbench.harness.plan.functions import own_workloads
    from llama_workbench.harness.session.run import USER_ERRORS

    if not path.is_file():
        raise Failure(f"{path}: no such file")
    try:
        holds_workloads = "workload" in tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # its reader says what is wrong
        holds_workloads = False
    facts: dict[str, Any]
    try:
        if path.name == DISPUTE_FILE:
            dispute = load_dispute(path.parent)
            questions, rules = len(dispute.question), len(dispute.rule)
            facts = {"questions": questions, "rules": rules}
            text = f"{path.name}: right; {_counted(questions, 'question')}, {_counted(rules, 'rule')}"
        elif holds_workloads:
            names = list(own_workloads(Request(workloads_file=path)))
            facts = {"workloads": names}
            text = f"{path}: right; {_counted(len(names), 'workload')}: {', '.join(names)}"
        else:
            claim = read_claim(path)
            plan = make_plan(Request(claims=(claim.id,), added=added, everything=True), [claim], on_paper=True)
            parts, effects = len(claim.hypothesis), len(plan.comparisons())
            facts = {"claim": claim.id, "parts": parts, "effects": effects}
            counts = f"{_counted(parts, 'part')}, {_counted(effects, 'timed effect')}"
            text = f"{claim.id}: right; {counts} on {_counted(len(plan.experiments), 'workload')}"
    except USER_ERRORS as error:
        lines = [line.removeprefix("--workloads-file ") for line in str(error).splitlines()]
        if as_json:
            print_json({"format": 1, "right": False, "problems": lines})
        else:
            show(Text("\n".join(lines)))
        raise typer.Exit(1) from error
    if as_json:
        print_json({"format": 1, "right": True, **facts})
    else:
        show(Text(text))


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"
