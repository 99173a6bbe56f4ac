"""The user's code that a run measured, given again so that the run can go on: runs keep no paths, and nothing of a run
is executed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

from llama_workbench.datasets.lengths import Statistic
from llama_workbench.variants.outside import OutsideVariantError

from ..calls.revisions import parse_at
from ..calls.source import Source, is_command
from ..claims.model import Claim
from ..claims.reading import load_claims
from ..plan.functions import Functions, functions_of
from ..plan.options import ADD, CALL, CHECK, COMPARE, SIDE_ENV, PlanError, Request
from ..plan.selection import added_sources
from ..report.further import brought_models, compared_again
from ..report.text import environments_text
from ..spec.comparison import sides_of
from ..store.errors import RunError
from ..store.folder import RunFolder
from ..store.schema import Manifest
from ..store.sitting_schema import SideEnvironment

ANEW = "Start a new run."


def models_again(folder: RunFolder, known: Manifest, texts: Sequence[str | Source]) -> dict[str, Source]:
    """The source of each variant from outside. Raises RunError where one is missing, and PlanError."""
    added, brought = added_sources(texts), brought_models(known)
    if not texts:
        with suppress(OutsideVariantError):  # they may still be where this command is given; digests are compared
            here = added_sources([text if "=" in text else f"{name}={text}" for name, text in brought.items()])
            added = here if all(map(_is_here, here.values())) else {}
    if unknown := [name for name in added if name not in brought]:
        raise PlanError(f"{ADD} {unknown[0]}: {folder.path} has no such variant; leave it out")
    if lacking := [word for name, text in brought.items() if name not in added for word in (ADD, text)]:
        raise _lacks(folder, f"its variants from files {NOT_HERE}", lacking)
    return added


def functions_again(
    folder: RunFolder, known: Manifest, again: Request, claims: Sequence[Claim], claims_folder: Path
) -> Functions:
    """The functions that a run compares: of a comparison those that are given again, else those that its claims name
    today. Raises RunError where they are missing or others, PlanError and SourceError."""
    assert known.sources is not None
    asked = compared_again(known)
    if not asked:
        for option, given in ((COMPARE, again.compare), (CALL, again.calls), (CHECK, again.check)):
            if given:
                raise PlanError(f"{option}: {folder.path} keeps its own plan; leave it out")
        today = {claim.id: claim for claim in load_claims(claims_folder)} if any(c.function for c in claims) else {}
        if gone := [claim.id for claim in claims if claim.function and claim.id not in today]:
            problem = f"cannot resume: claim {gone[0]} names functions and is not in {claims_folder.name}/"
            raise RunError(folder.path, problem, "Pass the folder of its claims: --claims-dir FOLDER")
        return functions_of(Request(), [today[claim.id] for claim in claims if claim.function or claim.call])[1]
    if again == Request(of_sides=again.of_sides):
        again = replace(_here(asked), of_sides=again.of_sides)
    if not again.compare or (not again.calls and CALL in asked):
        if not again.compare and any(map(is_command, asked)):
            problem = (
                "cannot resume by itself: it measured commands or imports, which are not run because a run names them"
            )
            raise RunError(folder.path, problem, f"Pass them again: {shlex.join(asked)}")
        raise _lacks(folder, f"its functions {NOT_HERE}", asked)
    threads = max(entry.workload.threads or 1 for entry in known.experiments)
    [(statistic, calm)] = {(entry.workload.statistic, entry.workload.calm) for entry in known.experiments}
    sizes = tuple(sorted({entry.workload.size for entry in known.experiments if entry.workload.size}))
    again = replace(again, threads=threads, statistic=cast(Statistic, statistic), calm=calm, sizes=sizes)
    request, functions = functions_of(again, [])
    if request.compare != sides_of(known.ad_hoc) or functions.made_by.keys() != known.sources.calls.keys():
        raise _lacks(folder, "it measured other functions, or under other names", asked)
    before, now = known.environments, functions.environment_facts
    if before != now:
        problem = f"cannot resume: it measured with: {_own(before)}; given now: {_own(now)}"
        raise RunError(folder.path, problem, f"Pass it as it was: {shlex.join(asked)}")
    return functions


def _own(environments: Mapping[str, SideEnvironment]) -> str:
    return environments_text(environments).removesuffix(".") or "no variables or options of its own"


def _here(options: Sequence[str]) -> Request:
    """What these options give, if all of it lies where this command is given; digests are compared later. A
    command or an installed module is never taken from a run: a run that is not ours could name any."""
    by_option = dict[str, list[Source]]()
    try:
        for word in options:
            if word.startswith("--"):
                option = word
            elif option != SIDE_ENV:  # nor is this: what is loaded when a program begins can be named by a variable
                by_option.setdefault(option, []).append(parse_at(word, option=option))
    except OutsideVariantError:
        return Request()
    if (
        not all(_is_here(source) for sources in by_option.values() for source in sources)
        or len(by_option.get(COMPARE, ())) < 2
    ):
        return Request()
    return Request(
        compare=tuple(by_option[COMPARE]),
        calls=tuple(by_option.get(CALL, ())),
        check=next(iter(by_option.get(CHECK, ())), None),
    )


def _is_here(source: Source) -> bool:
    """Whether a source is a file, or a module that lies where this command is given."""
    top = Path(source.where.partition(".")[0])
    return source.is_file or (not source.command and (top.is_dir() or top.with_suffix(".py").is_file()))


NOT_HERE = "were not found in this folder (runs do not store paths)"


def _lacks(folder: RunFolder, problem: str, options: Sequence[str]) -> RunError:
    return RunError(folder.path, f"cannot resume: {problem}", f"Pass them again: {shlex.join(options)}")
