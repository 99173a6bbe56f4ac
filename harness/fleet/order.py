"""What is sent to a node: a part of a plan as text, and the files that it needs. No code objects, no pickles.

A node makes the plan anew from the same request with its own copy of the workbench, which must be the same version, and
measures the part that it was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator

from llama_workbench.variants.digests import written_in

from ..calls.source import Source
from ..claims.model import Claim
from ..plan.experiments import Plan
from ..plan.options import Options, PlanError, Request, received, sent


class _Sent(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Files(_Sent):
    """Files by their content. claims: name → text of the claim files. others: path → text, of the rest. added:
    NAME=PATH:FUNCTION of each variant among these, and workloads: the path of the workloads."""

    claims: dict[str, str]
    others: dict[str, str] = {}
    added: tuple[str, ...] = ()
    workloads: str | None = None

    @classmethod
    def read(cls, claims_folder: Path, added: Mapping[str, Source], workloads_file: Path | None) -> Self:
        """added: variants from outside, by name. Raises PlanError where one is in no file of today, or a file cannot be
        read."""
        others: dict[str, str] = {}
        names, homes = [], list[Path]()
        try:
            claims = {path.name: path.read_text("utf-8") for path in sorted(claims_folder.glob("*.toml"))}
            for name, source in added.items():
                if not source.is_file or source.revision:
                    what = f"{'a file of a revision' if source.revision else 'a module'} is not sent to nodes"
                    raise PlanError(f"{source.shown}: {what}: give FILE:FUNCTION, or leave out --on")
                file, home = source.where, Path(source.where).parent
                homes += [home] * (home not in homes)
                place = f"added-{homes.index(home)}"
                beside = (each for each in written_in(Path(file), home) if each.is_relative_to(home))
                others |= {f"{place}/{each.relative_to(home).as_posix()}": each.read_text("utf-8") for each in beside}
                names.append(f"{name}={place}/{Path(file).name}:{source.function}")
            if workloads_file is not None:
                others["workloads.toml"] = workloads_file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PlanError(f"cannot send a file to the nodes: {error}") from error
        own = "workloads.toml" if workloads_file is not None else None
        return cls(claims=claims, others=others, added=tuple(names), workloads=own)

    def added_in(self, folder: Path) -> list[str]:
        """NAME=FILE:FUNCTION of each variant from outside, of files that were written below `folder`."""
        pairs = (each.partition("=") for each in self.added)
        return [f"{name}={folder / place}" for name, _, place in pairs]

    def write(self, folder: Path) -> None:
        """Write all below a folder of this machine. Raises ValueError for a path that leads out of it."""
        claims = {f"claims/{name}": text for name, text in self.claims.items()}
        for name, text in (claims | self.others).items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise ValueError(f"{name}: leads out of the folder")
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")


class Order(_Sent):
    """One stretch of work for a node, which becomes one run folder.

    name: of the run folder. select: workload → variants that are measured there. entered: the same with controls, as
    the sender's plan has them. rest: whether parts of claims without workloads are looked at too. sources: digests of
    the code, by the sender. command: that of the whole run. request, options: what of these is `sent`.
    """

    name: str
    request: Annotated[Any, PlainValidator(partial(received, Request)), PlainSerializer(sent)]
    options: Annotated[Any, PlainValidator(partial(received, Options)), PlainSerializer(sent)]
    files: Files
    select: dict[str, list[str]]
    entered: dict[str, list[str]]
    rest: bool
    sources: dict[str, Any]
    command: list[str]


def portion(plan: Plan, select: Mapping[str, Sequence[str]], *, rest: bool) -> Plan:
    """The part of a plan on some workloads: their experiments, and of the claims what is about them.

    rest: whether parts of claims that name no workload are among it.
    """
    chosen = {(workload, variant) for workload, names in select.items() for variant in names}
    claims = (_cut(claim, select, rest) for claim in plan.claims)
    experiments = tuple(each for each in plan.restricted(chosen).experiments if each.workload.name in select)
    return replace(plan, experiments=experiments, claims=tuple(claim for claim in claims if claim is not None))


def _cut(claim: Claim, select: Mapping[str, Sequence[str]], rest: bool) -> Claim | None:
    parts = []
    for part in claim.hypothesis:
        if not (names := part.workload_names()):
            parts += [part] * rest
        elif kept := tuple(name for name in names if name in select):
            known = part.as_a_whole().selected((), kept, anywhere=False)
            parts += [] if known is None else [known]
    return claim.model_copy(update={"hypothesis": tuple(parts)}) if parts else None
