"""Work for nodes without any: how it is divided, what is sent, and how a run folder is copied while it grows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import llama_workbench
from llama_workbench.harness.calls.digest import digest_of
from llama_workbench.harness.calls.source import Source, parse
from llama_workbench.harness.claims.reading import load_claims
from llama_workbench.harness.fleet import session as fleet_session
from llama_workbench.harness.fleet.cluster import check_address
from llama_workbench.harness.fleet.mirror import FilePart, Incoming, Outgoing, is_a_run_file
from llama_workbench.harness.fleet.order import Files, portion
from llama_workbench.harness.fleet.work import LEAST_SECONDS, MOST_TRIES, Piece, Work, pieces_of, units_of
from llama_workbench.harness.fleet.worker import TOLD, Told
from llama_workbench.harness.machine.places import published
from llama_workbench.harness.plan.experiments import Plan, make_plan
from llama_workbench.harness.plan.options import Options, PlanError, Request, received, sent
from llama_workbench.harness.spec.sample import Round, Sample
from llama_workbench.harness.store.folder import RunFolder
from studies.fleet_costs import on_paper

CLAIMS = llama_workbench.ROOT / "claims"


@pytest.fixture(scope="module")
def register() -> Plan:
    return make_plan(Request(everything=True), load_claims(CLAIMS))


# -- dividing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [1, 2, 5, 100])
def test_pieces_hold_every_experiment_once(register: Plan, nodes: int) -> None:
    pieces = pieces_of(register, nodes)
    names = [name for piece in pieces for name in piece.workloads]
    assert sorted(names) == sorted(each.workload.name for each in register.experiments)
    units = units_of(register)
    assert len(units) < len(names) and len(pieces) >= min(3 * nodes, len(units))
    for part in register.hypotheses():  # what is one value of several workloads is measured by one machine
        if part.least_workloads > 1:
            assert sum(bool({*part.workload_names()} & {*piece.workloads}) for piece in pieces) <= 1, part
    assert [piece.workloads for piece in pieces if piece.rest] == [()]  # what needs no workload: the source, checks
    headlines = [piece.headline for piece in pieces]
    assert headlines == sorted(headlines, reverse=True)


def test_what_is_measured_already_is_in_no_piece(register: Plan) -> None:
    done = [each.workload.name for each in register.experiments][::2]
    names = {name for piece in pieces_of(register, 2, without=done, rest=False) for name in piece.workloads}
    assert names == {each.workload.name for each in register.experiments} - {*done}


def test_parts_of_a_plan_ask_together_what_the_whole_does(register: Plan) -> None:
    """Each pass looks at every (workload, variant) once, and each effect is settled once."""
    parts = [portion(register, piece.select, rest=piece.rest) for piece in pieces_of(register, 3)]
    experiments = [each for part in parts for each in part.experiments]
    assert {each.workload.name: each for each in experiments} == {
        each.workload.name: each for each in register.experiments
    }
    subjects = [pair for part in parts for each in part.hypotheses() for pair in set(each.subjects())]
    assert {*subjects} == {pair for each in register.hypotheses() for pair in each.subjects()}
    without = [each.title() for each in register.hypotheses() if not each.workload_names()]
    assert without and without == [
        each.title() for part in parts for each in part.hypotheses() if not each.workload_names()
    ]


def test_seconds_are_shared_by_weight_and_what_is_not_needed_goes_to_others(register: Plan) -> None:
    pieces = pieces_of(register, 2)
    work = Work(list(pieces), 100.0, 200.0)
    given = []
    while work.waiting:
        piece, seconds = work.take()
        given.append(seconds)
        work.done(piece, 0.0)
    assert work.is_done
    assert sum(given) <= 200 + LEAST_SECONDS * len(given) and sum(given) > 150
    assert min(given) >= LEAST_SECONDS and max(given) <= 100

    work = Work(list(pieces), 100.0, 200.0)
    piece, seconds = work.take()
    work.done(piece, unspent_seconds=seconds - 1.0)
    assert work.pool_seconds == pytest.approx(199.0)


def test_a_piece_that_no_machine_can_do_is_given_up() -> None:
    work = Work([Piece((), rest=True)], 10.0, 10.0)
    for _ in range(10):  # lost nodes say nothing of the piece
        work.failed(work.take()[0], 0.0, counts=False)
    for _ in range(MOST_TRIES):
        work.failed(work.take()[0], 0.0, counts=True)
    assert work.is_done and work.given_up == [Piece((), rest=True)]


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_a_request_and_its_files_arrive_as_text(tmp_path: Path) -> None:
    home = tmp_path / "secret-place"
    (home / "beside").mkdir(parents=True)
    (home / "mine.py").write_text("from beside import parts\ndef mine(): ...\n", encoding="utf-8")
    (home / "beside" / "__init__.py").write_text("", encoding="utf-8")
    (home / "beside" / "parts.py").write_text("x = 1\n", encoding="utf-8")
    added = {"mine": parse(f"{home}/mine.py:mine", option="--add-variant")}
    request = Request(variants=("fast", "mine"), added=(added["mine"],), threads=2)
    files = Files.read(CLAIMS, added, None)
    text = json.dumps([sent(request), files.model_dump(mode="json")])
    assert "secret-place" not in text

    there = tmp_path / "there"
    one, other = json.loads(text)
    asked, arrived = received(Request, one), Files.model_validate(other)
    arrived.write(there)
    assert [claim.id for claim in load_claims(there / "claims")] == [claim.id for claim in load_claims(CLAIMS)]
    [place] = arrived.added_in(there)
    assert asked == Request(variants=("fast", "mine"), threads=2)
    again = parse(place, option="--add-variant")
    assert again.name == "mine" and digest_of(again) == digest_of(added["mine"])


def test_what_lies_in_no_file_of_today_is_not_sent(tmp_path: Path) -> None:
    for source, what in (
        (Source("mine", "package.model", "build"), "a module is not sent"),
        (Source("mine", str(tmp_path / "mine.py"), "build", revision="v1", commit="0" * 40), "a file of a revision"),
    ):
        with pytest.raises(PlanError, match=what):
            Files.read(CLAIMS, {"mine": source}, None)


@pytest.mark.parametrize("name", ["../x.py", "/x.py", "a/../../x.py"])
def test_files_that_lead_out_of_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="leads out"):
        Files(claims={}, others={name: "text"}).write(tmp_path / "there")
    assert not (tmp_path / "x.py").exists()


def test_functions_are_not_sent() -> None:
    with pytest.raises(PlanError, match=r"--call mine\.py:texts: functions are compared on one machine"):
        request = Request(compare=("a.py:f", "b.py:f"), calls=("mine.py:texts",))
        fleet_session.spread(request, Options(), on="ray", on_each_kind=False)


@pytest.mark.parametrize("address", ["", "localhost", "ray:/x", "ray://", "http://x"])
def test_an_address_that_is_none_is_named(address: str) -> None:
    with pytest.raises(PlanError, match=r"expected ray \(inside a cluster\) or ray://HEAD"):
        check_address(address)


def test_a_run_tells_of_no_host() -> None:
    assert published("--on=ray://head.example.org:10001") == "--on=ray"
    assert published("lost (node 10.0.0.7:6379, see /tmp/ray/x.log)") == "lost (node ADDRESS, see x.log)"


# -- a run folder that grows -------------------------------------------------------------------------------------------

WORKLOAD = {"name": "prefill-tiny-t16"}
MANIFEST = {
    "format": 1,
    "unit": "life",
    "status": "running",
    "experiments": [{"workload": WORKLOAD, "variants": ["a"], "rounds": 0}],
}


def a_round(number: int) -> Round:
    return Round("prefill-tiny-t16", 1, number, (Sample("a", 0, 0, 16, 1, 10, 11, 0),))


def copied(source: Outgoing, target: Incoming, *, ended: bool = False) -> list[str]:
    parts = list(source.parts(ended=ended))
    for part in TOLD.validate_json(TOLD.dump_json(Told([], parts, ""))).parts:
        target.take(part)
    return [part.name for part in parts]


def test_a_run_that_grows_is_copied_and_is_the_same_in_the_end(tmp_path: Path) -> None:
    here, there = RunFolder.create(tmp_path / "here"), RunFolder(tmp_path / "there")
    outgoing, incoming = Outgoing(here.path), Incoming(there.path)
    assert copied(outgoing, incoming) == []
    here.write_json("run.json", MANIFEST)
    here.write_json("claims.json", [])
    here.append_round(a_round(0))
    assert copied(outgoing, incoming) == ["run.json", "samples.jsonl", "claims.json"]
    assert there.finished_rounds() == {"prefill-tiny-t16": 1}
    assert copied(outgoing, incoming) == []
    here.append_round(a_round(1))
    with (here.path / "samples.jsonl").open("ab") as file:
        file.write(b'{"workload": "half a li')
    assert copied(outgoing, incoming) == ["samples.jsonl"]
    assert there.finished_rounds() == {"prefill-tiny-t16": 2}  # as after a loss: no half line came

    here.append_round(a_round(2))
    (here.path / "log").mkdir()
    (here.path / "log" / "worker-1.log").write_text("said\n", encoding="utf-8")
    here.finish()
    here.seal(MANIFEST | {"status": "complete"})
    assert copied(outgoing, incoming, ended=True) == ["samples.parquet", "SHA256SUMS", "log/worker-1.log", "run.json"]
    assert there.changed() == [] and there.read_manifest() == here.read_manifest()
    assert there.finished_rounds() == {"prefill-tiny-t16": 3}


@pytest.mark.parametrize("ended", [True, False])
def test_a_run_that_ends_while_it_is_looked_at_leaves_no_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    here, there = RunFolder.create(tmp_path / "here"), RunFolder(tmp_path / "there")
    here.write_json("run.json", MANIFEST)
    here.append_round(a_round(0))
    rounds_of = Outgoing._rounds

    def just_before_the_end(outgoing: Outgoing) -> list[FilePart]:
        rounds = rounds_of(outgoing)
        here.finish()
        here.seal(MANIFEST | {"status": "complete"})
        return rounds

    monkeypatch.setattr(Outgoing, "_rounds", just_before_the_end)
    assert copied(Outgoing(here.path), Incoming(there.path), ended=ended) == [
        "samples.parquet",
        "SHA256SUMS",
        "run.json",
    ]
    assert there.changed() == [] and there.finished_rounds() == {"prefill-tiny-t16": 1}


def test_a_run_that_was_killed_comes_with_its_journal(tmp_path: Path) -> None:
    here = RunFolder.create(tmp_path / "here")
    here.write_json("run.json", MANIFEST)
    here.append_round(a_round(0))
    here.snapshot()
    assert copied(Outgoing(here.path), Incoming(tmp_path / "there"), ended=True) == ["run.json", "samples.jsonl"]
    assert RunFolder(tmp_path / "there").finished_rounds() == {"prefill-tiny-t16": 1}


@pytest.mark.parametrize(
    "name", ["../run.json", "/etc/passwd", "log/../../x.log", "x.py", "profiles/../../x.folded", ".lock", "log/.log/x"]
)
def test_a_file_that_no_run_has_is_refused(tmp_path: Path, name: str) -> None:
    assert not is_a_run_file(name)
    with pytest.raises(ValueError, match="no run has"):
        Incoming(tmp_path).take(FilePart(name, 0, b"x", True))
    assert not list(tmp_path.iterdir())


def test_a_part_that_is_missing_is_noticed(tmp_path: Path) -> None:
    incoming = Incoming(tmp_path)
    incoming.take(FilePart("samples.jsonl", 0, b"12345\n", False))
    with pytest.raises(ValueError, match="missing before byte 9"):
        incoming.take(FilePart("samples.jsonl", 9, b"x\n", False))
    incoming.take(FilePart("findings.json", 0, b"[", False))
    incoming.take(FilePart("findings.json", 0, b"[]", True))  # a newer one begins anew
    assert (tmp_path / "findings.json").read_bytes() == b"[]"


def test_a_claim_about_functions_is_not_spread(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def old(x): ...\ndef new(x): ...\ndef made(seed): ...\n", encoding="utf-8")
    claim = (CLAIMS / "single-file-faster.toml").read_text(encoding="utf-8").partition("[[hypothesis]]")[0]
    claim += '[[hypothesis]]\nvariant = "new"\nbaseline = "old"\nworkloads = ["made"]\nmetric = "time"\n'
    claim += 'evidence = "operations"\nfaster_than_percent = 1\n[[call]]\nname = "made"\npayload = "mine.py:made"\n'
    claim += "".join(f'[[function]]\nname = "{name}"\nsource = "mine.py:{name}"\n' for name in ("old", "new"))
    (tmp_path / "single-file-faster.toml").write_text(claim, encoding="utf-8")
    options = Options(claims_folder=tmp_path)
    with pytest.raises(PlanError, match=r"--on ray: a claim is about the function old, .* on one machine only"):
        fleet_session.spread(Request(), options, on="ray", on_each_kind=False)


def test_the_plan_on_paper_is_that_of_the_reference_run() -> None:
    assert on_paper() in (llama_workbench.ROOT / "docs/reference/cluster.md").read_text(encoding="utf-8")
