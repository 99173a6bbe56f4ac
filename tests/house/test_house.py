"""The rules of the house that are no imports: sizes, and that a metric, a claim or a team is known by name in its own
place only."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import cast

import pytest

from llama_workbench import variants
from llama_workbench.harness.claims.reading import SHIPPED, load_folder
from llama_workbench.harness.metrics.registry import metrics
from llama_workbench.harness.spec.comparison import TIMES
from llama_workbench.variants.spelling import did_you_mean
from tests.house.test_imports import (
    PACKAGES,
    REPOSITORY,
    _nodes_are_forgotten,  # noqa: F401 (a fixture)
    imports_of,
    module_name,
    nodes_of,
    package_of,
    sources,
)

THE_SUBJECT = ("variants/modular/", "variants/inline.py", "variants/single_file.py", "variants/components.py")
"""What is compared: how long a function is there is what the claims are about."""

LINES_OF_A_FILE = 800
"""A file is one thought that reads from top to bottom. Lower limits, and limits of functions and classes, cut thoughts
into pieces; what a folder may have in all is held by `make lines`."""


READ = [
    path
    for path in sources(*PACKAGES, "llama_workbench")
    if not path.relative_to(REPOSITORY).as_posix().startswith(THE_SUBJECT)
]


def test_files_are_of_a_size_to_read() -> None:
    assert [path for path in READ if len(path.read_text(encoding="utf-8").splitlines()) > LINES_OF_A_FILE] == []


def test_names_of_controls_are_put_together_and_taken_apart_at_one_place() -> None:
    found = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno}"
        for path in sources(*PACKAGES, "llama_workbench")
        if module_name(path)
        not in ("llama_workbench.harness.spec.comparison", "llama_workbench.harness.calls.revisions")
        for node in nodes_of(path)
        if isinstance(node, ast.expr) and _handles_controls(node)
    ]
    assert not found, "\n".join(found)


def _handles_controls(node: ast.AST) -> bool:
    """`name.partition("@")` and other methods, `"@" in name`, `f"{name}@aa"`."""
    match node:
        case ast.Call(func=ast.Attribute(), args=[ast.Constant(value=str(text)), *_]):
            return text in ("@", "@aa", "@copy")
        case ast.Compare(left=ast.Constant(value="@"), ops=[ast.In() | ast.NotIn()]):
            return True
        case ast.JoinedStr():
            return any(isinstance(part, ast.Constant) and part.value in ("@aa", "@copy") for part in node.values)
    return False


@pytest.mark.parametrize(
    "code", ['name.partition("@")[0]', '"@" in name', '"@" not in key[1]', 'name.endswith("@aa")', 'f"{name}@copy"']
)
def test_code_that_handles_controls_is_seen(code: str) -> None:
    assert any(_handles_controls(node) for node in ast.walk(ast.parse(code)))


@pytest.mark.parametrize(
    ("written", "where"),
    [
        (r"get_close_matches\(", ["variants/spelling.py"]),
        (r"^ALPHA = ", ["harness/evidence/effect.py"]),
        (r"^\w+ = \"yardstick\"", ["variants/__init__.py"]),
        (r"<line x1=", ["dashboard/export/svg.py"]),
    ],
)
def test_what_is_written_once_stays_so(written: str, where: list[str]) -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sources(*PACKAGES, "llama_workbench")}
    files = [path for path, text in texts.items() if re.search(written, text, re.MULTILINE)]
    assert [path.relative_to(REPOSITORY).as_posix() for path in files] == where


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("time_", ["memory", "Time"], "did you mean 'Time'?"),
        ("fats", ["fast", "slow"], "did you mean 'fast'?"),
        ("zzz", ["fast", ""], "ask again"),
    ],
)
def test_the_nearest_name_is_suggested(name: str, known: list[str], said: str) -> None:
    assert did_you_mean(name, known, "ask again") == said


def test_plan_run_judge_report_and_dashboard_name_no_metric() -> None:
    """Its own module, the schema of the files, and texts do. Names of a column or a page's anchor are no metrics."""
    names = {name for metric in metrics() for name in metric.names} - {*TIMES, "none"}
    compared = re.compile(
        rf"(metric|kind)\)? (==|!=|in|not in) [({{\[]?[\"']({'|'.join(names)})[\"']|case [\"']({'|'.join(names)})"
    )
    keyed = re.compile(rf"^\s*[\"']({'|'.join(names)})[\"']: [A-Z]")
    found = [
        f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()}"
        for path in sources("harness", "dashboard", "llama_workbench")
        if not {"metrics", "slices", "store"} & {*path.parts}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if compared.search(line) or keyed.search(line)
    ]
    assert not found, "\n".join(found)


def texts(path: Path) -> dict[int, str]:
    """The strings of a source by line, without docstrings and other bare strings."""
    bare = {id(node.value) for node in nodes_of(path) if isinstance(node, ast.Expr)}
    constants = [node for node in nodes_of(path) if isinstance(node, ast.Constant) and id(node) not in bare]
    return {node.lineno: node.value for node in constants if isinstance(node.value, str)}


def test_what_measures_judges_and_shows_names_nothing_of_the_dispute() -> None:
    """No claim, no team and none of its presets: all that is the dispute's stands in the folder of claims. A check may
    be called as the claim that asks for it, and we are no team of it."""
    claims, dispute = load_folder(SHIPPED)
    parts = [part for claim in claims for part in claim.hypothesis]
    checks = {getattr(part, "quantity", "") for part in parts if part.metric == "check"}
    ids = {claim.id for claim in claims} - checks
    teams = {name for claim in claims for name in claim.who} - {"this workbench"}
    gains = dispute.numbers.gains.values()
    presets = {name for gain in gains for name in (gain.variant, gain.baseline)} | {*dispute.engine_variants}
    presets |= {name for name in variants.names() if name.startswith(("team", "grid_"))}
    said = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, {*ids, *teams}))})(?![\w-])|\bteam\d+_\w+")
    assert (
        said.search("pytest --claims rope-3x-5x")
        and said.search("TEAM-006's plan")
        and len(teams) > 1
        and len(presets) > 20
    )
    found = [
        f"{path.relative_to(REPOSITORY)}:{line}: {text.strip()[:80]}"
        for path in sources("harness", "dashboard")
        for line, text in texts(path).items()
        if said.search(text) or text in presets
    ]
    assert not found, "\n".join(found)


OF_NOTHING = {"each": 15, "found": 3, "known": 76, "one": 8, "said": 16, "told": 1}
"""Names that do not say what a variable holds → how many are left. These numbers only ever fall."""

IN_ONE_LINE = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)


def names_of_nothing(nodes: Sequence[ast.AST]) -> list[str]:
    """The variables and parameters of a module that have one of these names; not those of a comprehension, or lambda,
    in one line."""
    short = [node for node in nodes if isinstance(node, IN_ONE_LINE) and node.lineno == node.end_lineno]
    allowed = {id(node) for outer in short for node in ast.walk(outer)}
    names = []
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in allowed:
            names.append(node.id)
        elif isinstance(node, ast.arg) and id(node) not in allowed:
            names.append(node.arg)
        elif isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and node.name:
            names.append(node.name)
    return [name for name in names if name in OF_NOTHING]


def test_variables_are_named_after_what_they_hold() -> None:
    paths = sources("harness", "dashboard", "llama_workbench")
    counted = Counter(name for path in paths for name in names_of_nothing(nodes_of(path)))
    more = {name: f"{counted[name]} against {most}" for name, most in OF_NOTHING.items() if counted[name] > most}
    assert not more, f"name these after what they hold: {more}"


def test_a_name_of_nothing_counts_unless_it_lives_in_one_line() -> None:
    text = "def f(one, rows):\n  for each in rows:\n    said = [known for known in rows]\n"
    text += "  return {\n    found: told.x\n    for found, told in rows\n  }, sorted(rows, key=lambda each: each.x)\n"
    assert sorted(names_of_nothing([*ast.walk(ast.parse(text))])) == ["each", "found", "one", "said", "told"]


SENTENCES = {"reason", "note", "warning", "title", "statement", "sentence", "headline", "action", "detail", "outcome"}
TOLD = SENTENCES | {"reasons", "notes", "warnings", "titles", "actions", "said", "claimed"}
"""Names of what is written for people; of `reasons` and the like one is a table that code may look into."""

TAKES_APART = {"startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "split", "rsplit"}

ONLY_TOLD = {"harness/report/answer.py": 1, "harness/report/terminal.py": 1}
"""Files → how often they look into a sentence only to print it: without its full stop, or not a second time."""


def name_of(node: ast.expr) -> str:
    """The last name of what an expression reads, through what leaves the words as they are: "reason" of
    `str(verdict.get("reason") or "").strip()`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), *_]):
            return name
        case ast.Call(func=ast.Name(id="str" | "one_text_line"), args=[inner, *_]):
            return name_of(inner)
        case ast.Call(func=ast.Attribute(value=inner, attr="strip" | "lower" | "capitalize")):
            return name_of(inner)
        case ast.BoolOp(values=[inner, *_]) | ast.Subscript(value=inner) | ast.Call(func=inner):
            return name_of(inner)
    return ""


def taken_apart(nodes: Iterable[ast.AST]) -> list[int]:
    """Lines that take a sentence for people apart, ask how it begins or what stands in it, or take one by its place."""
    lines = []
    for node in (node for node in nodes if isinstance(node, ast.expr)):
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=method)):
                hangs = method in TAKES_APART and name_of(value) in TOLD
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[value]):
                hangs = name_of(value) in SENTENCES
            case ast.Subscript(value=value, slice=ast.Slice(lower=ast.expr()) | ast.Constant(value=int())):
                hangs = name_of(value) in TOLD - {"actions", "claimed"}
            case _:
                hangs = False
        lines += [node.lineno] * hangs
    return lines


@pytest.mark.parametrize(
    ("code", "hangs"),
    [
        ('any(note.startswith("confounded") for note in effect.warnings)', True),
        ('str(verdict.get("reason")).strip().removesuffix(".")', True),
        ('choice.action.partition(" (")[0]', True),
        ('"timeout" in found.reason', True),
        ("effect.warnings[0]", True),
        ("line.sentence[len(word) :]", True),
        ("outcome(verdict).partition(': ')", True),
        ("key in standings.reasons", False),
        ('row["title"]', False),
        ("cause is Cause.UNSTABLE and verdict.reason", False),
        ("reason[:160]", False),
        ("text.split(',')", False),
    ],
)
def test_code_that_hangs_on_a_sentence_is_seen(code: str, hangs: bool) -> None:
    assert bool(taken_apart(ast.walk(ast.parse(code)))) is hangs


def test_no_code_hangs_on_a_sentence() -> None:
    """What a program asks for is a field, such as `cause`: a reason and a note may be reworded at any time."""
    found = Counter(
        path.relative_to(REPOSITORY).as_posix()
        for path in sources("harness", "dashboard", "llama_workbench")
        for _ in taken_apart(nodes_of(path))
    )
    assert found == ONLY_TOLD


UNTYPED = re.compile(r"\b(?:dict|Mapping|MutableMapping)\[str, (?:Any|object)\]")

AS_WRITTEN = {
    "what a machine is, as the operating system and each library say it": """
        harness.calls.environments.facts_of
        harness.machine.environment.changed_since harness.machine.environment.comparable
        harness.machine.environment.device_differences harness.machine.environment.device_kind
        harness.machine.environment.fingerprint harness.machine.environment.one_line""",
    "a file that a user or another program wrote, before it is checked": """
        datasets.geometries.read_toml variants.config.config_json""",
    "what goes to a measuring process, or comes from one": """
        harness.measure.passes.ask_about harness.measure.passes.ask_in_processes
        harness.worker.channel.serve harness.worker.functions.open_functions harness.worker.correctness.noting
        harness.worker.gating.admit harness.worker.gating.gate harness.worker.looks.loop
        harness.worker.torch_verbs.open_workload
        harness.worker.looks.answers""",
    "options as they are typed, kept in run.json, or sent to a machine of a cluster": """
        commands.compare_revisions.inputs_of harness.plan.options.kept harness.plan.options.sent
        harness.plan.options.typed""",
    "a row of a table on a page": "dashboard.sections.blocks.table",
    "what each pass left, which its own metric alone knows": "harness.evidence.evidence.evidence_from_manifest",
}
"""Why public functions hand tables without a type from one package to another → which. The list only ever shrinks."""


def aliases(source: ast.Module) -> list[str]:
    """What a module calls a table of anything: `Json = dict[str, Any]`."""
    return [
        target.id
        for node in source.body
        if isinstance(node, ast.Assign) and UNTYPED.fullmatch(ast.unparse(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    ]


def untyped(source: ast.Module, called: Collection[str] = ()) -> list[str]:
    """The public functions of a module whose signature has a table of anything, also by one of these names for it."""
    table = re.compile("|".join([UNTYPED.pattern, *(rf"\b{re.escape(name)}\b" for name in called)]))
    functions = [node for node in source.body if isinstance(node, ast.FunctionDef)]
    return [
        function.name
        for function in functions
        if not function.name.startswith("_")
        and table.search(f"{ast.unparse(function.args)} -> {function.returns and ast.unparse(function.returns)}")
    ]


@pytest.mark.whole
def test_a_fact_has_a_type_on_its_way_from_one_package_to_another() -> None:
    text = "Json = dict[str, Any]\ndef f(a: dict[str, Any]) -> int: ...\ndef g() -> list[Json]: ...\ndef h(a: int): ..."
    assert untyped(ast.parse(text), aliases(ast.parse(text))) == ["f", "g"]
    paths = {module_name(path): path for path in sources(*PACKAGES, "llama_workbench")}
    imports = {module: imports_of(path) for module, path in paths.items()}
    texts = {module: path.read_text(encoding="utf-8") for module, path in paths.items()}

    modules = {module: cast(ast.Module, nodes_of(path)[0]) for module, path in paths.items()}
    named = {f"{module}.{name}": name for module, tree in modules.items() for name in aliases(tree)}

    def called(module: str) -> list[str]:
        return [name for full, name in named.items() if full in imports[module] or full == f"{module}.{name}"]

    def is_used_elsewhere(module: str, name: str) -> bool:
        called = re.compile(rf"\b{module.rpartition('.')[2]}\.{name}\b")
        return any(
            f"{module}.{name}" in names or (module in names and called.search(texts[other]))
            for other, names in imports.items()
            if package_of(other) != package_of(module)
        )

    found = {
        f"{module}.{name}".removeprefix("llama_workbench.")
        for module, tree in modules.items()
        if package_of(module) != "harness.store"
        for name in untyped(tree, called(module))
        if is_used_elsewhere(module, name)
    }
    assert found == {name for names in AS_WRITTEN.values() for name in names.split()}


TABLE_OF_A_RUN = {
    "llama_workbench/notebook.py": 1,
}
"""Files outside the store → how often they read run.json as a table, not as a `Manifest`: whoever opens a run in
a notebook gets the file. These numbers only ever fall."""


def test_run_json_is_a_value_from_the_store_on() -> None:
    asked = Counter[str]()
    for path in sources("harness", "dashboard", "llama_workbench"):
        text, name = path.read_text(encoding="utf-8"), path.relative_to(REPOSITORY).as_posix()
        if not name.startswith("harness/store/"):
            asked[name] += text.count(".read_manifest()") + text.count("read_json(MANIFEST)")
    assert +asked == TABLE_OF_A_RUN


def test_a_class_name_stands_for_one_thing() -> None:
    """In all of the harness, so that a name in a traceback, a search or a talk needs no file beside it."""
    places: dict[str, list[str]] = {}
    for path in sources("harness"):
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{path.relative_to(REPOSITORY)}:{node.lineno}")
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_every_file_of_the_harness_lies_in_a_room() -> None:
    """One package a stage: nothing lies loose beside them."""
    assert [path.name for path in (REPOSITORY / "harness").glob("*.py")] == ["__init__.py"]
