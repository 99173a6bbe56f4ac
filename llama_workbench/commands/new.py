"""`workbench new`: files to begin with, which pass `workbench check` as they are."""

from __future__ import annotations

import ast
import keyword
import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from .shared import MODELS, Failure, Listed, write

TEMPLATES = "llama_workbench.templates"
BUILD = "build_mine"
"""What the template calls its function."""

Folder = Annotated[Path, typer.Option("--folder", help="Folder for the file; it is created if it is missing.")]
CLAIMS = Path("claims")

LISTED = Listed(17, MODELS, {"new variant build_mine": "write a first version to edit"})

command = typer.Typer(
    help="Write a first version of a file: a variant, a claim, a workload, or a test that compares two functions. The "
    "file has comments and works unchanged.",
    no_args_is_help=True,
)


@command.command("variant")
def variant(
    name: Annotated[str, typer.Argument(help="Name of the variant, of its file and of the function that builds it.")],
    folder: Folder = Path(),
    source: Annotated[
        str, typer.Option("--from", metavar="NAME", help="Copy this built-in variant, with its settings written in.")
    ] = "",
) -> None:
    """Write NAME.py: a Llama in plain PyTorch, or a copy of a built-in variant, to change as you like.

    A copy is one file that imports only `LlamaConfig` from the workbench, and computes exactly what the variant does.

    \b
    Examples:
      workbench new variant build_mine
      workbench new variant mine.py --from team005_proposal
      workbench check mine.py
    """
    from llama_workbench import variants

    folder, name = folder / Path(name).parent, Path(name).name.removesuffix(".py")
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise Failure(f"{name!r}: expected the name of a Python function without _ before it, for example build_mine")
    if name in variants.names():
        raise Failure(
            f"{name!r}: a variant of this name exists already; take another name (`workbench variants` lists them)"
        )
    path = folder / f"{name}.py"
    baseline = source or "fast"
    text = _copy(source, path) if source else _template("variant.py").replace("FILE.py", str(path))
    defined = {name for node in ast.parse(text).body for name in _names_of(node)}
    if name != BUILD and name in defined:
        raise Failure(f"{name!r}: the file has this name already; take another name")
    measure = f"pytest --benchmark --add-variant {path}:{name} --compare {baseline} {name} --workloads prefill-15m-t128"
    _write(path, re.sub(rf"\b{BUILD}\b", name, text), f"workbench check {path}", measure)


def _copy(source: str, path: Path) -> str:
    """A preset's source, whose function has the template's name. Raises Failure, and UnknownVariant."""
    from llama_workbench import variants
    from llama_workbench.variants.one_file import cannot_copy, one_file
    from llama_workbench.variants.presets import presets

    if variants.get(source).name not in presets():
        raise Failure(f"--from {source}: comes from an installed package; copy its file yourself")
    if why := cannot_copy(source):
        raise Failure(f"--from {source}: {why}")
    return one_file(source, BUILD, COPY_HEADER.format(source=source, build=BUILD, path=path))


COPY_HEADER = """\
A copy of {source}, to change as you like. It is timed only while its logits are right:

    workbench check {path}
    pytest --benchmark --add-variant {path}:{build} --compare {source} {build} --workloads prefill-15m-t128
"""


@command.command("claim")
def claim(
    name: Annotated[str, typer.Argument(metavar="ID", help="Id of the claim, for example fusing-helps.")],
    folder: Folder = CLAIMS,
) -> None:
    """Write claims/ID.toml: a claim with every key explained. A claims folder holds nothing else.

    \b
    Example:
      workbench new claim fusing-helps
      workbench check claims/fusing-helps.toml
    """
    _demand_words(name, "fusing-helps")
    path = folder / f"{name}.toml"
    text = _template("claim.toml").replace("CLAIM-ID", name).replace("THE-FOLDER", str(folder))
    _write(path, text, f"workbench check {path}", f"pytest --benchmark --claims-dir {folder} --claims {name}")


@command.command("workload")
def workload(
    name: Annotated[str, typer.Argument(help="Name of the workload, for example prefill-mine.")],
    folder: Folder = Path(),
) -> None:
    """Write NAME.toml: one workload, with every key explained. More can be added to the file.

    \b
    Example:
      workbench new workload prefill-mine
      workbench check prefill-mine.toml
    """
    from llama_workbench.datasets.workloads import workloads

    _demand_words(name, "prefill-mine")
    if name in workloads():
        raise Failure(
            f"{name!r}: a workload of this name ships already; take another name (`workbench workloads` lists them)"
        )
    path = folder / f"{name}.toml"
    text = _template("workload.toml").replace("WORKLOAD", name).replace("THE-FILE", str(path))
    measure = f"pytest --benchmark --workloads-file {path} --compare team006_before fast"
    _write(path, text, f"workbench check {path}", f"workbench workloads --file {path}", measure)


@command.command("subject")
def subject(
    name: Annotated[str, typer.Argument(help="Name of the test, for example tokenizers.")],
    folder: Folder = Path(),
) -> None:
    """Write test_NAME.py: two functions, their input generator, and a test that compares them.

    \b
    Example:
      workbench new subject tokenizers
      pytest test_tokenizers.py
      pytest --benchmark test_tokenizers.py
    """
    name = Path(name).name.removesuffix(".py").removeprefix("test_")
    if not name.isidentifier():
        raise Failure(f"{name!r}: expected letters, digits and _, for example tokenizers")
    path = folder / f"test_{name}.py"
    _write(path, _template("subject.py").replace("FILE.py", str(path)), f"pytest {path}", f"pytest --benchmark {path}")


def _names_of(node: ast.stmt) -> list[str]:
    """What a statement of a module defines or imports."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [each.asname or each.name for each in node.names]
    return [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []


def _demand_words(name: str, example: str) -> None:
    if not re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", name):
        raise Failure(f"{name!r}: expected small letters and digits with - or . between them, for example {example}")


def _template(name: str) -> str:
    return files(TEMPLATES).joinpath(name).read_text(encoding="utf-8")


def _write(path: Path, text: str, *then: str) -> None:
    """Write a file that is not there yet, and say with which commands to go on. Raises Failure."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(
            f"{path.parent}: cannot create this folder ({error.strerror}); choose another one with --folder"
        ) from error
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise Failure(f"{path}: exists already; take another name, or delete it") from error
    except OSError as error:
        raise Failure(f"{path}: cannot be written ({error.strerror})") from error
    write("\n".join([f"{path} is written. Next:", *(f"  {each}" for each in then), ""]))  # not broken into lines
