"""The wheel in someone else's environment: one import name, which hides nothing and is hidden by nothing.

Each environment here is a real one (`venv`, pip, console script, entry points). Only the libraries are borrowed from
the environment that runs the tests, by a `.pth` line, for installing torch again would take a minute.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from email import message_from_string
from importlib import metadata as installed_metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import llama_workbench
from tests.house.test_light_core import without_extras

pytestmark = pytest.mark.covers(
    "hatch_build.py", "harness/machine", "harness/plugin", "harness/session", "harness/worker", "llama_workbench"
)

REPOSITORY = Path(__file__).resolve().parents[2]
OURS = ("variants", "harness", "dashboard", "claims", "datasets")


def run(command: list[str | Path], cwd: Path) -> str:
    """Standard output of a command that must succeed, without what would tell Python of this checkout."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{command} exited {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "Error processing line" not in done.stderr, "a .pth file of the environment failed"
    return done.stdout


def build(kind: str, source: Path, folder: Path) -> Path:
    run([sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder], cwd=source)
    [built] = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", REPOSITORY, tmp_path_factory.mktemp("wheel"))


@dataclass(frozen=True)
class Environment:
    """Someone's virtual environment with the workbench in it, and an empty folder to stand in."""

    kind: str
    root: Path
    empty: Path

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    def python(self, code: str, cwd: Path) -> str:
        return run([self.bin / "python", "-c", code], cwd)


@pytest.fixture(scope="module", params=["wheel", "editable"])
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    root = tmp_path_factory.mktemp(request.param) / "venv"
    venv.create(root, with_pip=False, symlinks=True)
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    [site] = root.glob("lib/python*/site-packages")
    (site / "00_libraries.pth").write_text("\n".join(sorted(libraries)) + "\n")
    what: list[str | Path] = ["--no-build-isolation", "--editable", REPOSITORY]
    if request.param == "wheel":
        what = [wheel]
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", root / "bin" / "python", "install", "--quiet"]
    run(
        [*pip, "--disable-pip-version-check", "--no-deps", "--no-index", "--no-compile", "--ignore-installed", *what],
        cwd=root,
    )
    return Environment(request.param, root, tmp_path_factory.mktemp("empty"))


def foreign(folder: Path, body: str) -> Path:
    """A repository of someone else whose packages have the names of our folders."""
    for name in OURS:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(body)
    return folder


def test_the_citation_names_the_version() -> None:
    assert f"\nversion: {llama_workbench.__version__}\n" in (llama_workbench.ROOT / "CITATION.cff").read_text(
        encoding="utf-8"
    )


def test_the_wheel_holds_one_package_and_all_of_it(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    metadata = f"llama_workbench-{llama_workbench.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"llama_workbench", metadata}

    def content(folder: str) -> set[str]:
        paths = (path.relative_to(REPOSITORY) for path in (REPOSITORY / folder).rglob("*") if path.is_file())
        return {path.as_posix() for path in paths if "__pycache__" not in path.parts}

    expected = {f"llama_workbench/{path}" for folder in OURS for path in content(folder)} | content("llama_workbench")
    assert {name for name in names if not name.startswith(metadata)} == expected


def test_a_wheel_from_the_sdist_is_the_same(wheel: Path, tmp_path: Path) -> None:
    sdist = build("sdist", REPOSITORY, tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    [source] = (tmp_path / "source").iterdir()
    again = build("wheel", source, tmp_path / "again")
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_metadata(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    folder = f"llama_workbench-{llama_workbench.__version__}.dist-info"
    metadata = message_from_string(archive.read(f"{folder}/METADATA").decode())
    assert (metadata["Name"], metadata["Version"]) == ("llama-workbench", llama_workbench.__version__)
    assert metadata["Requires-Python"] == ">=3.11"
    extras = {"all", "dashboard", "engines", "export", "fleet", "models", "notebook", "profile", "remote"}
    assert set(metadata.get_all("Provides-Extra", [])) == extras
    torch = [line for line in metadata.get_all("Requires-Dist", []) if line.startswith("torch")]
    assert all(line.startswith("torch>=2.9;") for line in torch) and torch, (
        "a machine with a GPU brings its own torch: no upper bound, no pin"
    )
    core = {line.split(">=")[0] for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line}
    assert core == {
        "duckdb", "fsspec", "numpy", "packaging", "platformdirs", "psutil", "pydantic", "pytest", "pytest-benchmark",
        "rich", "typer",
    }  # fmt: skip


def test_the_core_is_small() -> None:
    """All that it brings, without byte code: at most 25 packages and 250 MB. (Byte code is some 40 MB more.)"""
    core: dict[str, int] = {}
    wanted = ["llama-workbench"]
    while wanted:
        distribution = installed_metadata.distribution(wanted.pop())
        name = distribution.metadata["Name"].lower().replace("_", "-")
        if name not in core:
            files = [Path(str(distribution.locate_file(file))) for file in distribution.files or ()]
            core[name] = sum(file.stat().st_size for file in files if file.suffix != ".pyc" and file.exists())
            needed = map(Requirement, distribution.requires or ())
            wanted += [each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    assert {"duckdb", "numpy", "pydantic-core"} <= core.keys() and len(core) <= 25, sorted(core)
    assert 100e6 < sum(core.values()) < 250e6, core


def test_constraints_pin_every_requirement(wheel: Path) -> None:
    pins = [line for line in (REPOSITORY / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(line.count("==") == 1 and "+" not in line for line in pins)
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in pins}
    archive = zipfile.ZipFile(wheel)
    [name] = [name for name in archive.namelist() if name.endswith("METADATA")]
    required = message_from_string(archive.read(name).decode()).get_all("Requires-Dist", [])
    others = ("engines", "llama-workbench")  # what `all` is made of
    ours = {line.split(">=")[0].lower() for line in required if not any(each in line for each in others)}
    groups = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["dependency-groups"]
    assert ours | {line.split(">=")[0].lower() for line in groups["dev"]} <= pinned


def test_only_one_name_becomes_importable(installed: Environment) -> None:
    code = f"""
import importlib.util
names = {(*OURS, "studies", "tests", "conftest", "hatch_build")!r}
specs = [importlib.util.find_spec(name) for name in ("llama_workbench", *names)]
print([spec.origin for spec in specs if spec])
"""
    origins = json.loads(installed.python(code, installed.empty).replace("'", '"'))
    home = REPOSITORY if installed.kind == "editable" else installed.root
    assert len(origins) == 1
    assert Path(origins[0]).is_relative_to(home)


def test_their_folders_and_ours_side_by_side(installed: Environment, tmp_path: Path) -> None:
    theirs = foreign(tmp_path, "OWNER = 'theirs'\n")
    code = f"""
import sys
import variants, harness, dashboard, claims, datasets
for module in (variants, harness, dashboard, claims, datasets):
    assert module.OWNER == "theirs", module
import llama_workbench, llama_workbench.variants, llama_workbench.harness.judge, llama_workbench.dashboard
assert llama_workbench.variants.names()
assert (llama_workbench.ROOT / "claims").is_dir() and (llama_workbench.ROOT / "datasets").is_dir()
home = {str(REPOSITORY if installed.kind == "editable" else installed.root)!r}
for name, module in sys.modules.items():
    if name.startswith("llama_workbench") and getattr(module, "__file__", None):
        assert module.__file__.startswith(home), module.__file__
print(sys.modules["variants"].__file__)
"""
    assert installed.python(code, theirs).strip() == str(theirs / "variants" / "__init__.py")


def test_the_commands_do_not_touch_their_folders(installed: Environment, tmp_path: Path) -> None:
    theirs = foreign(tmp_path, "raise ImportError('not for the workbench')\n")
    assert json.loads(run([installed.bin / "workbench", "variants", "--json"], theirs))
    assert run([installed.bin / "python", "-P", "-m", "llama_workbench.harness.worker.main", "--help"], theirs)


def test_their_tests_run_with_our_plugin_loaded(installed: Environment, tmp_path: Path) -> None:
    """Also where their conftest.py asks for the plugin that the entry point has loaded already, and so does -p."""
    theirs = foreign(tmp_path, "OWNER = 'theirs'\n")
    (theirs / "conftest.py").write_text('pytest_plugins = ["llama_workbench.harness.plugin.plugin"]\n')
    (theirs / "test_theirs.py").write_text(
        "import variants\n\n"
        "def test_variants(pytestconfig):\n"
        "    assert variants.OWNER == 'theirs'\n"
        "    assert pytestconfig.pluginmanager.has_plugin('llama_workbench.harness.plugin.plugin')\n"
        "    assert pytestconfig.getoption('workbench_add_variant') == []\n"
    )
    more = ["-p", "llama_workbench.harness.plugin.plugin"] if installed.kind == "editable" else []
    assert "1 passed" in run([installed.bin / "python", "-m", "pytest", "-q", *more], theirs)


@pytest.mark.parametrize("installed", ["wheel"], indirect=True)
def test_measuring_in_their_repository(installed: Environment, tmp_path: Path) -> None:
    """The fresh processes that measure start in their folder too. (Editable, `python -P -m` above stands for them.)"""
    theirs = foreign(tmp_path, "raise ImportError('not for the workbench')\n")
    select = ["--compare", "fast", "yardstick", "--workloads", "prefill-tiny-t16", "--budget", "30", "--no-causes"]
    words: list[str | Path] = [installed.bin / "python", "-m", "pytest", "--benchmark", *select, "--run-dir", "run"]
    run(words, theirs)
    [verdict] = json.loads((theirs / "run" / "verdicts.json").read_text())
    assert [effect["rounds"] > 0 for effect in verdict["effects"]] == [True]


@pytest.mark.long
@pytest.mark.parametrize("installed", ["wheel"], indirect=True)
@pytest.mark.whole
def test_a_stranger_gets_through_the_first_hours(installed: Environment, tmp_path: Path) -> None:
    """The wheel with its core alone; the script checks what each of its steps comes to."""
    for name in ("site", "empty"):
        (tmp_path / name).mkdir()
    script = installed.bin / "pytest"  # as pip would have made it, were the libraries not borrowed
    script.write_text(
        f"#!{installed.bin / 'python'}\nfrom pytest import console_main\nraise SystemExit(console_main())\n"
    )
    script.chmod(0o755)
    command: list[str | Path] = ["bash", REPOSITORY / "tests/stranger.sh", installed.bin, tmp_path / "empty"]
    done = subprocess.run(command, env=without_extras(tmp_path / "site"), capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.endswith(" steps\n"), done.stdout + done.stderr
    [verdict] = json.loads((tmp_path / "empty" / "results" / "runs" / "first" / "verdicts.json").read_text())
    assert verdict["verdict"] in ("slower", "inconclusive") and verdict["effects"][0]["ratio"] < 1
