"""The files of a run folder: with checksums, as runs leave them, and without, as older runs are.

With checksums no change may be silent. Without, another number is another run's, and nobody can know; but whatever
such a file holds must end in one line that names it.
"""

from __future__ import annotations

import functools
import random
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from llama_workbench.dashboard.export import evidence as export
from llama_workbench.dashboard.sections import trust
from llama_workbench.dashboard.views import data, outcomes, samples
from llama_workbench.harness.baselines.regressions import compare_standings
from llama_workbench.harness.baselines.text import to_markdown
from llama_workbench.harness.claims.model import ClaimError
from llama_workbench.harness.claims.reading import check_claim, load_dispute
from llama_workbench.harness.report.answer import decisions_of
from llama_workbench.harness.report.markdown import markdown_table
from llama_workbench.harness.report.standings import read_standings, write_standings
from llama_workbench.harness.report.terminal import verdict_report
from llama_workbench.harness.session.judging import judge_run, rejudge
from llama_workbench.harness.store.files import RunError
from llama_workbench.harness.store.folder import RunFolder, describe
from llama_workbench.harness.store.passes import MEMORY_SWEEP, PHASE_FACTS, PHASES, PROFILES
from llama_workbench.harness.store.schema import Manifest
from llama_workbench.variants import phase_map
from tests import runs

from . import BYTES, Damage, Kind, digit, json_value

WORKLOAD = "prefill-15m-t128"
BEFORE, AFTER = "team006_before", "team006_after"

JSON_DAMAGE: tuple[Damage, ...] = (json_value, digit, *BYTES)


# --- a run that has every file ----------------------------------------------------------------------------------------


def claims() -> list[dict[str, Any]]:
    """One of each metric whose file is damaged here."""
    return [
        runs.a_claim("a-time", {"workloads": [WORKLOAD], "faster_than_percent": 1}),
        _reading("share", phases=["qkv"], of="layer", range=[10, 60], variant=AFTER),
        _reading("roofline", above=1, variant=AFTER),
        _reading("memory", quantity="masks_of_weights", at_most=50, variant=AFTER),
        _reading("instructions", above=1, variant=AFTER, baseline=BEFORE),
    ]


def _reading(metric: str, **keys: Any) -> dict[str, Any]:
    return runs.a_claim(f"a-{metric}") | {"hypothesis": [{"metric": metric, "workloads": [WORKLOAD], **keys}]}


def roofline() -> list[dict[str, Any]]:
    """One variant beside both roofs."""
    return [
        {
            "workload": WORKLOAD,
            "reason": None,
            "cache_bytes": 1 << 25,
            "rounds": 6,
            "roofs": {"matmul": {"kernel": "square", "amount": 10**9}, "memory": {"kernel": "sum", "amount": 10**8}},
            "weight_bytes": 6 * 10**7,
            "work": {"128": [[10**9, 10**7]]},
            "roof_samples": [[name, i, 0, 1, 10**7 + i, 10**7] for i in range(6) for name in ("matmul", "memory")],
            "samples": [[AFTER, i, 0, 128, 1, 2 * 10**7 + i, 2 * 10**7] for i in range(6)],
            "variants": {AFTER: {"clock": "cpu", "reason": None}},
        }
    ]


def instructions() -> list[dict[str, Any]]:
    """The work of both variants, counted twice."""
    same = {"workload": WORKLOAD, "calls": 2, "capability": "AVX2", "versions": {"torch": "2.13.0"}}
    parts = {"by": {"python": 10**6, "kernels": 10**9}}
    return [
        same | parts | {"variant": name, "instructions": count, "again": count + 1000}
        for name, count in ((AFTER, 1_001_000_000), (BEFORE, 1_001_900_000))
    ]


def sweep() -> dict[str, Any]:
    """What a variant holds after 1 and 2 lengths."""
    held = {"kv": 10**6, "rope": 10**4, "mask": 10**5, "repacked": 0, "other": 0}
    steps = [
        {"lengths": lengths, "held": held, "kept": held, "computed": {"held": held, "kept": held}}
        for lengths in ([], [128], [64, 128])
    ]
    sizes = {"kv_bytes": 10**6, "weights_bytes": 6 * 10**7}
    record = {"workload": WORKLOAD, "variant": AFTER, "reason": None, "served": [64, 128], "planned_lengths": 2}
    return record | sizes | {"steps": steps, "seconds": 1.5}


def finding() -> dict[str, Any]:
    """A value in percent."""
    names = {"metric": "memory", "quantity": "masks_of_weights", "workload": WORKLOAD, "variant": AFTER, "baseline": ""}
    return names | {"value": 7.25, "count": 2, "detail": "so many bytes", "reason": "", "seconds": 1.5}


def _add_passes(run: RunFolder) -> None:
    pair = {"workload": WORKLOAD, "variant": AFTER}
    rng = random.Random(0)
    rows = [
        [WORKLOAD, variant, 1, number, call, 128, phase, 10**5 + rng.randint(0, 10**4), 2 * 10**6]
        for variant in (AFTER, BEFORE)
        for number in range(4)
        for call in range(2)
        for phase in phase_map.PHASES
        if phase != "attention_fused"
    ]
    run.write_table(PHASES, rows)
    lines = {"variants/modular/model.py": {"88": [["qkv"], ["other"]], "90": [[], ["mlp"]]}}
    run.write_json("phases.json", [pair | {"rounds": 4, "reason": None, "clock": "thread CPU", "lines": lines}])
    run.write_json("roofline.json", roofline())
    run.write_json("instructions.json", instructions())
    run.write_json("memory_sweep.json", [sweep()])
    run.write_json("findings.json", [finding()])
    sizes = {"peak_transient_bytes": 3 * 10**6, "parameter_bytes": 6 * 10**7, "cache_bytes": 7 * 10**6, "reason": None}
    run.write_json("memory.json", [pair | sizes, pair | sizes | {"variant": BEFORE}])
    stacks = run.path / "profiles" / "a.folded"
    stacks.parent.mkdir()
    stacks.write_text(runs.FOLDED.format(attention=300, mask=20))
    sampled = {"path": "profiles/a.folded", "rate_hz": 250, "samples": 740}
    timed = {"calls": 19, "median_ns": 9 * 10**6, "median_error_ns": 1e4, "reason": None}
    run.write_json("profiles.json", [pair | sampled | timed])


@functools.cache
def _content(sealed: bool, killed: bool = False) -> Mapping[str, bytes]:
    """The files of the run, made once."""
    with tempfile.TemporaryDirectory() as folder:
        without = [name for name in runs.FACTORS if name not in (BEFORE, AFTER, f"{BEFORE}@aa", "yardstick")]
        made: dict[str, Any] = {
            "only": [WORKLOAD],
            "rounds": 14,
            "without": without,
            "claims": claims(),
            "judged": False,
        }
        run = runs.write_run(Path(folder) / "run", killed=killed, **made)
        if killed:
            journal = run.path / "samples.jsonl"
            whole = journal.read_bytes()
            journal.write_bytes(whole[: whole.rindex(b"\n") + 1])
            run.write_json("run.json", _with_rounds(run.read_manifest(), whole.count(b"\n")))
        else:
            _add_passes(run)
            claims_there = [check_claim(claim, "claims") for claim in run.records("claims.json")]
            found, manifest = judge_run(run.manifest(), claims_there, run)
            run.write_json("verdicts.json", found)
            (run.seal if sealed else functools.partial(run.write_json, "run.json"))(manifest)
            write_standings(run)
        files = (path for path in run.path.rglob("*") if path.is_file())
        return {path.relative_to(run.path).as_posix(): path.read_bytes() for path in files}


def _with_rounds(manifest: dict[str, Any], count: int) -> dict[str, Any]:
    return manifest | {"experiments": [entry | {"rounds": count} for entry in manifest["experiments"]]}


def write_whole_run(folder: Path, *, sealed: bool = True) -> RunFolder:
    """A judged run with every file that there may be; a second one costs nothing but the writing."""
    return RunFolder(_writer("run.json", sealed=sealed)(folder).parent)


def _writer(name: str, **how: bool) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        for file, content in _content(**how).items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder / name

    return write


# --- as the workbench reads them --------------------------------------------------------------------------------------


def _judged(run: RunFolder) -> list[object]:
    """`workbench judge`."""
    try:
        verdicts, manifest = rejudge(run)
    except ClaimError as error:
        raise RunError(run.path / "claims.json", error.problems[0].removeprefix(f"{run.path}/"), "") from error
    verdict_report(verdicts, manifest)
    return [verdicts, manifest.noise, markdown_table(verdicts, manifest)]


def open_run(run: RunFolder) -> data.Run:
    """What every page of the dashboard opens; a problem is shown as a warning."""
    opened = data.read_run(run.path)
    for problem in opened.problems:
        warnings.warn(problem, stacklevel=2)
    return opened


def _shown(run: RunFolder) -> list[object]:
    """The pages that show a run's claims, the list of runs, and the exported page."""
    summary = describe(run, whole=True)
    if summary.problem:
        warnings.warn(summary.problem, stacklevel=2)
    opened = open_run(run)
    told: list[object] = [summary.claims, summary.machine, summary.noise, opened.claims, opened.floors, opened.left_out]
    for claim in opened.claims:
        told += [outcomes.how(opened, claim), outcomes.meaning(claim), outcomes.sentence(claim)]
        told += [outcomes.gates_row(opened, effect) for effect in claim.effects]
        told += [outcomes.reproduce(opened, claim), export.evidence_html(opened, claim)]
    return told


def read_manifest(run: RunFolder) -> list[object]:
    """run.json is behind everything."""
    told = [*_judged(run), *_shown(run)]
    opened = open_run(run)
    told += [
        samples.read_evidence(opened).noise,
        samples.pair(opened, WORKLOAD, AFTER, BEFORE, "time", 0.01).effect.value,
        *read_ratios(run),
    ]
    return told


def read_claims(run: RunFolder) -> list[object]:
    """claims.json, by the judge and on the pages."""
    return [*_judged(run), *_shown(run)]


def read_ratios(run: RunFolder) -> list[object]:
    """standings.json, in a history."""
    standings = read_standings(run)
    return [standings, to_markdown(compare_standings(standings, standings))]


def read_memory(run: RunFolder) -> list[object]:
    """memory.json, as pages have it."""
    return [open_run(run).memory]


def read_samples(run: RunFolder) -> list[object]:
    """The samples, by the judge and on the pages."""
    bare = data.Run(run.path, Manifest(), (), {}, {}, {}, (), ())
    told = [*_judged(run), run.timed_together(), samples.pair(bare, WORKLOAD, AFTER, BEFORE, "time", 0.01)]
    return [*told, trust.read_noise(open_run(run)).samples if (run.path / "verdicts.json").exists() else None]


def reader(read: Callable[[RunFolder], list[object]], name: str) -> Callable[[Path], str]:
    def told(file: Path) -> str:
        shown = repr(read(RunFolder(file.parents[name.count("/")])))
        return shown.replace(str(file.parents[name.count("/")]), "")  # each try lies in another folder

    return told


READERS: Mapping[str, Callable[[RunFolder], list[object]]] = {
    "run.json": read_manifest,
    "claims.json": read_claims,
    "verdicts.json": _shown,
    "standings.json": read_ratios,
    "findings.json": lambda run: [_judged(run), run.records("findings.json")],
    "roofline.json": _judged,
    "instructions.json": _judged,
    "memory.json": read_memory,
    "memory_sweep.json": lambda run: [run.read(MEMORY_SWEEP)],
    "phases.json": lambda run: [run.read(PHASE_FACTS)],
    "phases.parquet": lambda run: [_judged(run), decisions_of(load_dispute(), run.read_table(PHASES), [], 0.01)],
    "samples.parquet": read_samples,
    "profiles.json": lambda run: [run.read(PROFILES)],
}


def kind(name: str, read: Callable[[RunFolder], list[object]], *, sealed: bool) -> Kind:
    """Of a file of a run, and what is read from it."""
    return Kind(
        name=name if sealed else f"{name}, no checksum",
        write=_writer(name, sealed=sealed),
        read=reader(read, name),
        errors=(RunError,),
        damages=JSON_DAMAGE if name.endswith(".json") else BYTES,
        silent_is_failure=sealed,
    )


JOURNAL = Kind(
    name="samples.jsonl",
    write=_writer("samples.jsonl", sealed=False, killed=True),
    read=reader(_judged, "samples.jsonl"),
    errors=(RunError,),
    damages=(digit, *BYTES),
)

SUMS = Kind(
    name="SHA256SUMS",
    write=_writer("SHA256SUMS", sealed=True),
    read=reader(_shown, "SHA256SUMS"),
    errors=(RunError,),
    damages=BYTES,
    silent_is_failure=True,
)

KINDS: tuple[Kind, ...] = (
    *(kind(name, read, sealed=sealed) for sealed in (True, False) for name, read in READERS.items()),
    JOURNAL,
    SUMS,
)
