"""The rules of the house about who may import or call what, read off the source."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.unchanged import helpers

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ("variants", "datasets", "harness", "dashboard")

SLICES = sorted(path.parent.name for path in (REPOSITORY / "harness" / "slices").glob("*/__init__.py"))
"""May import all else; nothing else imports them by name (see `harness.slices`)."""

AWAY, ENGINES = ("slices", "engines"), "llama_workbench.variants.engines"
"""Folders of tests that go with what they test; and what no other code names."""

# Each package imports from itself and from those above it only. Names are those below `llama_workbench`.
ORDER = (
    "harness.slices",
    "variants",
    "datasets",
    "harness.machine",
    "harness.spec",
    "harness.calls",
    "harness.stats",
    "harness.store",
    "harness.evidence",
    "harness.worker",
    "harness.examiner",
    "harness.measure",
    "harness.metrics",
    "harness.worker.main",
    "harness.claims",
    "harness.plan",
    "harness.judge",
    "harness.report",
    "harness.baselines",
    "harness.session",
    "harness.suites",
    "harness.plugin",
    "harness",
    "dashboard",
    "templates",
    "commands",
    *(f"harness.slices.{name}" for name in SLICES),
)
WHOLE = {"llama_workbench", "llama_workbench.harness"}
"""Packages of packages: who imports from them imports a module."""

PURE = ("harness.spec", "harness.stats", "harness.evidence", "harness.judge")
"""Packages that touch no files."""

WITH_TORCH = re.compile(
    r"llama_workbench\.(datasets\.checkpoints\b.*|harness\.(worker\.(?!channel).*|examiner\..+|metrics\..*|slices\.\w+\.(worker|checkpoint|cases|models)))"
)

FILE_MODULES = {"glob", "io", "os", "pathlib", "pyarrow", "shutil", "socket", "sqlite3", "subprocess", "tempfile"}
FILE_CALL = re.compile(r"open|(read|write)_(text|bytes)|(read|to)_(parquet|csv|feather)|unlink|mkdir|savetxt|loadtxt")


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((REPOSITORY / folder).rglob("*.py"))]


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a source, its module first: of the whole house it takes seconds, and a dozen tests read them."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@pytest.fixture(autouse=True, scope="module")
def _nodes_are_forgotten() -> Iterator[None]:
    """Else each garbage collection of the tests that follow would walk them."""
    yield
    nodes_of.cache_clear()


def module_name(path: Path) -> str:
    """`harness/session/run.py` → `llama_workbench.harness.session.run`; the name of a package is that of its folder."""
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    parts = parts[1:] if parts[0] == "llama_workbench" else parts
    return ".".join(("llama_workbench", *(part for part in parts if part != "__init__")))


def imported(source: str, module: str, is_package: bool = False) -> set[str]:
    """Full names of all modules that a source imports anywhere, also inside functions and for types only.

    `from a import b` gives `a` and `a.b`, for b may be a module.
    """
    return imported_by(ast.walk(ast.parse(source)), module, is_package)


def imported_by(nodes: Iterable[ast.AST], module: str, is_package: bool) -> set[str]:
    """The same, of the nodes of a source."""
    found: set[str] = set()
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            found |= {name, *(f"{name}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and called(node) in {"import_module", "__import__"} and node.args:
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                level = len(argument.value) - len(argument.value.lstrip("."))
                base = package[: len(package) + 1 - level] if level else []
                found.add(".".join([*base, argument.value[level:]]))
    return found


def called(node: ast.Call) -> str:
    """Last name of what is called: `open` of `open(x)` and of `path.open()`."""
    target = node.func
    return target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""


@cache
def imports_of(path: Path) -> set[str]:
    return imported_by(nodes_of(path), module_name(path), path.name == "__init__.py")


def within(name: str, parents: set[str]) -> bool:
    return any(name == parent or name.startswith(parent + ".") for parent in parents)


def offences(paths: list[Path], forbidden: set[str]) -> list[str]:
    return [
        f"{path.relative_to(REPOSITORY)} imports {name}"
        for path in paths
        for name in sorted(imports_of(path))
        if within(name, forbidden)
    ]


def repository_files() -> Iterator[Path]:
    """What git tracks or would track; in an unpacked archive, everything outside hidden folders."""
    command = ["git", "-C", str(REPOSITORY), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (REPOSITORY / ".git").exists():
        listing = subprocess.run(command, capture_output=True, check=True, text=True).stdout
        names = [name for name in listing.split("\0") if name]
    else:
        found = (path.relative_to(REPOSITORY) for path in REPOSITORY.rglob("*"))
        names = [str(path) for path in found if not any(part.startswith((".", "__pycache__")) for part in path.parts)]
    return (REPOSITORY / name for name in names if (REPOSITORY / name).is_file())


def test_imports_are_found_wherever_they_stand() -> None:
    source = """
import a.b
from .judge import Effect
from .. import variants
from llama_workbench.harness import store
def lazily():
    import torch
    import_module(".worker", __package__)
    importlib.import_module("pickle")
"""
    found = imported(source, "llama_workbench.harness.plan")
    assert found >= {"a.b", "torch", "pickle", "llama_workbench.variants", "llama_workbench.harness.store"}
    assert found >= {"llama_workbench.harness.judge", "llama_workbench.harness.worker"}
    assert "llama_workbench.harness.judge" in imported(
        "from . import judge", "llama_workbench.harness", is_package=True
    )


def package_of(module: str) -> str:
    """The package of ORDER that a module belongs to: the longest name that it begins with."""
    name = module.removeprefix("llama_workbench.")
    return max((each for each in ORDER if within(name, {each})), key=len, default="")


@pytest.mark.parametrize("package", ORDER)
def test_packages_import_one_way(package: str) -> None:
    later = ORDER[ORDER.index(package) + 1 :]
    paths = [path for path in sources(*PACKAGES, "llama_workbench") if module_name(path) not in WHOLE]
    found = [
        f"{path.relative_to(REPOSITORY)} imports {name}"
        for path in paths
        if package_of(module_name(path)) == package
        for name in sorted(imports_of(path))
        if name.startswith("llama_workbench.") and name not in WHOLE and package_of(name) in later
    ]
    assert not found


def test_the_packages_go_by_their_one_import_name() -> None:
    assert not offences(sources(*PACKAGES, "llama_workbench", "studies", "tests"), set(PACKAGES))


def test_tests_of_the_core_name_no_slice() -> None:
    """A slice goes with its tests in `tests/slices`, and all others are collected as before."""
    tests = [path for path in sources("tests") if path.name.startswith("test_") and path.parent.name not in AWAY]
    named = helpers(REPOSITORY / "conftest.py", *tests)
    slices = {"tests.slices", *(f"llama_workbench.harness.slices.{name}" for name in SLICES)}
    assert not offences(sorted(named), slices | {"tests.engines", ENGINES})


def test_engines_are_named_by_nobody_else() -> None:
    """`variants/engines` can be taken away, with its tests in `tests/engines`."""
    paths = sources(*PACKAGES, "llama_workbench")
    assert not offences([path for path in paths if not within(module_name(path), {ENGINES})], {ENGINES})


@pytest.mark.parametrize("package", PURE)
def test_pure_packages_touch_no_files(package: str) -> None:
    for path in sources(package.replace(".", "/")):
        assert not offences([path], {*FILE_MODULES, "llama_workbench.harness.store.folder"})
        calls = [node for node in nodes_of(path) if isinstance(node, ast.Call)]
        assert not [f"{path.name}:{call.lineno}: {called(call)}" for call in calls if FILE_CALL.fullmatch(called(call))]


def test_the_dashboard_names_no_torch() -> None:
    assert not offences(sources("dashboard"), {"torch", "transformers"})


def test_torch_is_not_imported_by_what_only_plans_judges_and_shows() -> None:
    harness = [name for name in map(module_name, sources("harness", "datasets")) if not WITH_TORCH.fullmatch(name)]
    shown = [name for name in map(module_name, sources("llama_workbench", "dashboard")) if ".templates." not in name]
    modules = ["llama_workbench.variants", *harness, *shown]
    script = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    if "torch" in sys.modules:
        sys.exit(name + " imports torch")
"""
    command = [sys.executable, "-c", script, *modules]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-2000:]


def test_no_code_from_data_and_no_raw_html() -> None:
    """Run folders, claims and checkpoints may come from strangers: nothing is unpickled, evaluated or shown raw."""
    paths = sources(*PACKAGES, "llama_workbench")
    assert not offences(paths, {"pickle", "cloudpickle", "dill", "joblib"})
    copies = REPOSITORY / "harness/calls/inputs.py"  # of what the same process made, in memory
    assert not offences([path for path in paths if path != copies], {"marshal"})
    assert not [f"{path.relative_to(REPOSITORY)} {what}" for path in paths for what in runs_or_shows_data(path)]


def runs_or_shows_data(path: Path) -> Iterator[str]:
    # One loader is compared with others; it must be told to take tensors alone, at the call itself.
    tensors_only = {
        id(node.func)
        for node in nodes_of(path)
        if isinstance(node, ast.Call)
        for word in node.keywords
        if word.arg == "weights_only" and isinstance(word.value, ast.Constant) and word.value.value is True
    }
    for node in nodes_of(path):
        match node:
            case ast.Call(func=ast.Name(id="eval" | "exec" as name)):
                yield f"line {node.lineno}: {name}"
            case ast.Attribute(attr="read_pickle" | "to_pickle" as name):
                yield f"line {node.lineno}: {name}"
            case ast.Attribute(value=ast.Name(id="torch"), attr="load") if id(node) not in tensors_only:
                yield f"line {node.lineno}: torch.load"
            case ast.keyword(arg="allow_pickle", value=value) if not isinstance(value, ast.Constant) or value.value:
                yield f"line {node.lineno}: allow_pickle"
            case ast.keyword(arg="unsafe_allow_html") | ast.Constant(value="unsafe_allow_html"):
                yield f"line {node.lineno}: unsafe_allow_html"


def test_no_file_names_a_machine_or_a_registry() -> None:
    machine = re.compile(r"(?<![\w./~-])/(?:" + "|".join(("work", "root", "home", "opt/pypi", "opt/wheels")) + r")\b")
    registry = re.compile(
        "|".join(name.replace("_", r"\.") for name in ("pypi_org", "pythonhosted_", "npmjs_", "deb_debian"))
    )
    found = []
    for path in repository_files():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue  # a picture, a parquet file
        for number, line in enumerate(lines, 1):
            if machine.search(line) or registry.search(line):
                found.append(f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()[:120]}")
    assert not found


def test_a_trace_does_not_import_the_compiler() -> None:
    """torch's own way to record operations does: 1.7 s of a processor in every measuring process."""
    code = (
        "import sys, torch; from llama_workbench.harness.worker.correctness import trace; "
        "print(trace(lambda: torch.ones(2) + 1).ops[-1], 'torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert done.stdout.startswith("aten.add.Tensor(") and done.stdout.endswith(" False\n")
