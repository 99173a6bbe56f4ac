"""Workloads, geometries and trace lengths: the shipped data is what it should be, mistakes in data are named."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from llama_workbench import ROOT
from llama_workbench.datasets import geometries, workloads
from llama_workbench.datasets.geometries import DataError, parameter_count
from llama_workbench.datasets.lengths import call_lengths, longest_call, pieces, warmup_length
from llama_workbench.datasets.workloads import Workload
from llama_workbench.harness.claims.reading import load_claims, published

DISTINCT = workloads.get("prefill-15m-t128-distinct")
TRACE = workloads.get("prefill-15m-trace")


def test_the_shipped_workloads() -> None:
    known = workloads.workloads()
    for name, workload in known.items():
        assert workload.name == name
        assert name.startswith(workload.component or f"{workload.kind}-{workload.geometry}-")
        assert "{" not in workload.description
        room = geometries.get(workload.geometry).config.max_position_embeddings
        assert workload.context + longest_call(workload) <= room
    decode = known["decode-15m-c512"]
    shape = (decode.kind, decode.tokens, decode.context, decode.threads, decode.dtype)
    assert shape == ("decode", 1, 512, 1, "float32")
    assert (known["rope-t32"].component, known["rope-t32"].tokens) == ("rope", 32)
    generation = known["generate-tiny-t8-n6-b3"]
    assert (generation.tokens, generation.new_tokens, generation.batch) == (8, 6, 3)
    assert known["decode-15m-c64-threads2"].threads == 2 and known["decode-15m-c64-bfloat16"].dtype == "bfloat16"


@pytest.mark.whole
def test_every_shipped_workload_and_geometry_is_of_use() -> None:
    """To a claim, or beside a number that the dispute published; those called tiny are for tests."""
    folders = (ROOT / "claims", ROOT / "claims" / "public", ROOT / "claims" / "versions")
    used = {name for folder in folders for claim in load_claims(folder) for name in claim.workloads()}
    known = workloads.workloads()
    needed = used | published().keys()
    assert not [name for name, work in known.items() if name not in needed and work.geometry != "tiny"]
    assert {work.geometry for work in known.values()} == geometries.geometries().keys() - {"tiny-gqa"}


def test_workloads_survive_json() -> None:
    for workload in workloads.workloads().values():
        assert Workload.model_validate_json(workload.model_dump_json()) == workload
        assert Workload(**workload.model_dump()) == workload
    with pytest.raises(ValidationError):
        TRACE.tokens = 1


# Millions of parameters of the models these shapes are taken from, and the width of heads.
@pytest.mark.parametrize(
    ("name", "millions", "head_dim"),
    [("tiny", 0.1662, 16), ("15m", 15.2, 48), ("110m", 109.5, 64), ("gqa", 93.0, 64), ("7b-1layer", 235.9, 128)],
)
def test_the_shipped_geometries(name: str, millions: float, head_dim: int) -> None:
    config = geometries.get(name).config
    assert parameter_count(config) / 1e6 == pytest.approx(millions, rel=0.01)
    assert config.head_dim == head_dim


def test_the_geometries_of_a_family_differ_in_one_thing() -> None:
    plain, grouped = geometries.get("tiny").config, geometries.get("tiny-gqa").config
    assert {key for key, value in vars(plain).items() if vars(grouped)[key] != value} == {"num_key_value_heads"}


def test_the_width_sweep_changes_the_width_alone() -> None:
    last = geometries.get("7b-1layer").config
    for width in (256, 512, 1024, 2048):
        config = geometries.get(f"width-{width}").config
        assert config.hidden_size == width
        assert (config.head_dim, config.num_hidden_layers) == (last.head_dim, last.num_hidden_layers)
        assert config.intermediate_size / width == last.intermediate_size / last.hidden_size
        head = config.vocab_size * width
        assert head / (parameter_count(config) - head) < 0.085  # the LM head does not dominate


def test_a_prefill_comes_whole_or_in_chunks() -> None:
    whole = workloads.get("prefill-tiny-t16")
    assert pieces(whole, 16) == [16]
    assert pieces(workloads.get("prefill-tiny-t16-chunk6"), 16) == [6, 6, 4]
    values = whole.model_dump() | {"chunk": 8, "lengths": "distinct"}
    assert pieces(Workload(**values), 20) == [8, 8, 4]


def test_nothing_here_imports_torch() -> None:
    code = "import sys; from llama_workbench.datasets import geometries, workloads; print('torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout == "False\n"


# --- lengths ---


def test_repeated_lengths() -> None:
    workload = workloads.get("prefill-15m-t512")
    assert call_lengths(workload, round_index=3, count=4, seed=0) == [512] * 4
    assert warmup_length(workload, lengths=[512] * 4) == 512


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 65), st.integers(0, 2**32))
def test_distinct_lengths_never_repeat_within_a_round(round_index: int, count: int, seed: int) -> None:
    lengths = call_lengths(DISTINCT, round_index=round_index, count=count, seed=seed)
    assert len(set(lengths)) == len(lengths) == count
    assert all(96 <= length <= 160 for length in lengths)
    warmup = warmup_length(DISTINCT, lengths=lengths)
    assert warmup not in lengths
    assert 1 <= warmup <= longest_call(DISTINCT)


def test_distinct_lengths_cover_their_range_evenly() -> None:
    drawn = [length for index in range(400) for length in call_lengths(DISTINCT, round_index=index, count=8, seed=0)]
    assert set(drawn) == set(range(96, 161))
    assert statistics.fmean(drawn) == pytest.approx(128, abs=1.5)


def test_more_distinct_lengths_than_there_are_is_an_error() -> None:
    with pytest.raises(DataError, match=r"t128-distinct: 66 distinct lengths asked for, expected at most 65"):
        call_lengths(DISTINCT, round_index=0, count=66, seed=0)


@pytest.mark.parametrize("workload", [DISTINCT, TRACE], ids=lambda workload: workload.lengths)
def test_lengths_follow_seed_and_round(workload: Workload) -> None:
    def lengths(round_index: int, seed: int) -> list[int]:
        return call_lengths(workload, round_index=round_index, count=6, seed=seed)

    assert lengths(0, 0) == lengths(0, 0)
    assert len({tuple(lengths(round_index, seed)) for round_index in range(5) for seed in range(5)}) == 25


def test_trace_quantiles_are_the_published_ones() -> None:
    """Fractions as vllm-project/semantic-router, src/fleet-sim/data/azure_cdf.json has them, to all digits."""
    published = {
        64: 0.00837324818165691,
        128: 0.02817101295015079,
        256: 0.06758914316125599,
        512: 0.2886287032109278,
        768: 0.36427177576725206,
        1024: 0.40447046301224054,
        1536: 0.6568742238779492,
        2048: 0.779847436579741,
        3072: 0.8686535391165514,
        4096: 0.8982082668085861,
        6144: 0.9758027319496186,
        8192: 0.9999645201348235,
        12288: 0.9999645201348235,
        16384: 1.0,
    }
    trace = workloads.traces()["azure-2023"]
    assert trace.at_most == sorted(trace.at_most) and trace.at_most[-1][1] == trace.requests
    assert {tokens: count / trace.requests for tokens, count in trace.at_most} == published
    for tokens, fraction in published.items():
        assert trace.length_at(fraction) == pytest.approx(tokens if tokens != 12288 else 8192)
    assert trace.length_at(0.0) == 0
    quantiles = [trace.length_at(step / 1000) for step in range(1001)]
    assert quantiles == sorted(quantiles)


def test_trace_draws_have_the_trace_s_distribution() -> None:
    drawn = [length for index in range(2500) for length in call_lengths(TRACE, round_index=index, count=4, seed=7)]
    trace = workloads.traces()["azure-2023"]
    for tokens, count in trace.at_most:
        limit = tokens / TRACE.length_divisor + 0.5  # lengths are rounded
        share = sum(length <= limit for length in drawn) / len(drawn)
        expected = count / trace.requests
        four_errors = 4 * (expected * (1 - expected) / len(drawn)) ** 0.5
        slack = 0.012  # of rounding: a length near a row may fall on its other side
        assert abs(share - expected) <= four_errors + slack, tokens
    assert 128 <= statistics.fmean(drawn) <= 200
    assert statistics.fmean(drawn) == pytest.approx(TRACE.tokens, rel=0.05)
    assert min(drawn) >= 1
    assert max(drawn) <= longest_call(TRACE) == 1638


def test_a_round_of_the_trace_is_spread_over_the_distribution() -> None:
    """Sums over rounds vary less than independent draws' would."""
    trace = workloads.traces()["azure-2023"]
    sums = [sum(call_lengths(TRACE, round_index=index, count=8, seed=0)) for index in range(500)]
    rng = random.Random(0)
    independent = [sum(trace.length_at(rng.random()) / 10 for _ in range(8)) for _ in range(500)]
    assert statistics.stdev(sums) < 0.7 * statistics.stdev(independent)
    first = [call_lengths(TRACE, round_index=index, count=8, seed=0)[0] for index in range(500)]
    assert statistics.fmean(first) == pytest.approx(TRACE.tokens, rel=0.2)  # in random order


def test_warmup_avoids_the_lengths_of_the_round() -> None:
    assert warmup_length(TRACE, lengths=[10, 20]) == TRACE.tokens
    around = list(range(TRACE.tokens - 3, TRACE.tokens + 3))
    assert warmup_length(TRACE, lengths=around) == TRACE.tokens + 3


def test_a_limit_cuts_the_tail() -> None:
    values = TRACE.model_dump() | {"length_limit": 400}
    with pytest.raises(ValidationError) as caught:
        Workload(**values)
    mean = int(str(caught.value.errors()[0]["ctx"]["expected"]).rsplit(" ", 1)[1])
    assert 130 < mean < TRACE.tokens  # the mean follows the cut
    cut = Workload(**values | {"tokens": mean})
    assert longest_call(cut) == 400
    drawn = [length for index in range(200) for length in call_lengths(cut, round_index=index, count=4, seed=0)]
    assert max(drawn) == 400


# --- mistakes ---

GOOD = """
[[workload]]
name = "p-t{tokens}"
kind = "prefill"
geometry = "tiny"
tokens = [8, 16]
context = 4
description = "{tokens} tokens"
"""


PREFILL = GOOD[GOOD.index("kind") : GOOD.index("description")].rstrip()
GENERATES = PREFILL.replace("prefill", "generate").removesuffix("context = 4")
COMPONENT = PREFILL.replace("prefill", "component").replace("context = 4", 'component = "rope"\n')


def load(tmp_path: Path, text: str) -> dict[str, Workload]:
    path = tmp_path / "workloads.toml"
    path.write_text(text)
    return workloads.workloads(path)


def test_families_expand(tmp_path: Path) -> None:
    found = load(
        tmp_path, GOOD.replace("p-t{tokens}", "p-t{tokens}-c{context}").replace("context = 4", "context = [0, 4]")
    )
    assert list(found) == ["p-t8-c0", "p-t8-c4", "p-t16-c0", "p-t16-c4"]
    assert [found[name].context for name in found] == [0, 4, 0, 4]
    assert found["p-t16-c4"].description == "16 tokens"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('kind = "prefill"', 'kind = "prefil"', r"kind = 'prefil', expected 'prefill', .*did you mean 'prefill'\?"),
        ('kind = "prefill"', 'kind = "component"', r"component = None, expected the name of a part"),
        ('kind = "prefill"', 'kind = "decode"', r"tokens = 8, expected 1, because kind = \"decode\""),
        ('kind = "prefill"', 'kind = "prefill"\ncomponent = "rope"', r"component = 'rope', expected none"),
        ('kind = "prefill"', 'kind = "component"\ncomponent = "rope"', r"context = 4, expected 0"),
        ('geometry = "tiny"', 'geometry = "tinny"', r"geometry = 'tinny', .*did you mean 'tiny'\?"),
        ('geometry = "tiny"\n', "", r"geometry is missing"),
        ('kind = "prefill"', 'kind = "generate"', r"context = 4, expected 0, because kind = \"generate\""),
        ("context = 4", "new_tokens = 4", r"new_tokens = 4, expected none, because kind = \"prefill\""),
        ("context = 4", "chunk = 8", r"chunk = 8, expected fewer than tokens = 8, and kind = \"prefill\""),
        ("context = 4", "batch = 0", r"batch = 0, expected greater than 0"),
        ("context = 4", "context = -1", r"context = -1, expected greater than or equal to 0"),
        ("context = 4", "context = 200", r"context = 200, expected .* max_position_embeddings = 128 of 'tiny'"),
        ("context = 4", "contxt = 4", r"contxt = 4: unknown key; did you mean 'context'\?"),
        ("context = 4", 'threads = "2"', r"threads = '2', expected a valid integer"),
        ("context = 4", "threads = true", r"threads = True, expected a valid integer"),
        ("context = 4", 'dtype = "float31"', r"dtype = 'float31', .*did you mean 'float32'\?"),
        ("context = 4", "length_divisor = 2", r"length_divisor = 2\.0, expected none, because lengths = \"repeated\""),
        (
            "context = 4",
            'lengths = "trace"\ntrace = "azure-2032"',
            r"trace = 'azure-2032', .*did you mean 'azure-2023'\?",
        ),
        ("context = 4", 'lengths = "trace"', r"trace = None, expected a trace"),
        (
            "context = 4",
            'lengths = "trace"\ntrace = "azure-2023"',
            r"tokens = 8, expected the mean of the lengths, 16\d\d",
        ),
        (
            "tokens = [8, 16]",
            "tokens = [8, 125]",
            r"tokens = 125, expected context 4 and calls of up to 125 tokens to fit",
        ),
        ("tokens = [8, 16]", "tokens = []", r"tokens = \[\], expected a valid integer"),
        ("tokens = [8, 16]", "tokens = [8, 8]", r"name = 'p-t8' occurs twice"),
        ("tokens = [8, 16]", 'tokens = 2\nlengths = "distinct"', r"tokens = 2, expected at least 4"),
        (
            "tokens = [8, 16]",
            'tokens = 104\nlengths = "distinct"',
            r"tokens = 104, expected .*calls of up to 130 tokens",
        ),
        ("p-t{tokens}", "p-{tokes}", r"name = 'p-\{tokes\}', expected"),
        ("p-t{tokens}", "p", r"name = 'p' occurs twice, .*a list of tokens needs \{tokens\} in the name"),
        ("p-t{tokens}", "../p-t{tokens}", r"name = '\.\./p-t8'"),
        (PREFILL, f"{GENERATES}new_tokens = 1", r"new_tokens = 1, expected at least 2"),
        (PREFILL, GENERATES, r"new_tokens = None, expected at least 2"),
        (PREFILL, f"{GENERATES}new_tokens = 113", r"tokens = 16, expected .* calls of up to 129 tokens to fit"),
        (PREFILL, f'{GENERATES}new_tokens = 4\nlengths = "distinct"', r"lengths = 'distinct', expected \"repeated\""),
        (PREFILL, f"{GENERATES}new_tokens = 4\nchunk = 3", r"chunk = 3, expected .*kind = \"prefill\""),
        (PREFILL, f"{COMPONENT}batch = 2",
         r"batch = 2, expected none, because kind = \"component\" is one sequence in float32"),
        (PREFILL, f'{COMPONENT}dtype = "float16"', r"dtype = 'float16', expected none"),
        (PREFILL, PREFILL.replace("prefill", "decode").replace("[8, 16]", "1").replace("context = 4", "context = 65"),
         r"context = 65, expected context 65 and decode calls over 64 tokens to fit"),
    ],
)  # fmt: skip
def test_mistakes_in_a_workload_are_named(old: str, new: str, expected: str, tmp_path: Path) -> None:
    assert len(load(tmp_path, GOOD)) == 2
    assert old in GOOD
    with pytest.raises(DataError, match=rf"workloads\.toml: \[\[workload\]\] 1 \(.*\): {expected}"):
        load(tmp_path, GOOD.replace(old, new))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[workload]", r"workloads\.toml:1:11: not valid TOML"),
        ("[[worklaod]]", r"workloads\.toml: \[worklaod\]: no such table; did you mean 'workload'\?"),
        ("[workload]\nname = 'a'", r"workloads\.toml: workload = .*expected tables with the heading \[\[workload\]\]"),
        ("workload = [1]", r"workloads\.toml: workload = \[1\], expected tables"),
        ("[[workload]]", r"workloads\.toml: \[\[workload\]\] 1: name is missing"),
    ],
)
def test_mistakes_in_a_workload_file_are_named(text: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=expected):
        load(tmp_path, text)


def test_every_mistake_is_listed(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load(tmp_path, GOOD.replace("context = 4", "batch = 0\nthreads = 0"))
    assert [line.split(": ")[-1] for line in str(caught.value).splitlines()] == [
        "batch = 0, expected greater than 0",
        "threads = 0, expected greater than 0",
    ]


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(DataError, match=r"no workload 'prefil-15m-t8'; did you mean 'prefill-15m-t8'\?"):
        workloads.get("prefil-15m-t8")
    with pytest.raises(DataError, match=r"no geometry '7b-1layers'; did you mean '7b-1layer'\?"):
        geometries.get("7b-1layers")
    with pytest.raises(DataError, match=r"no geometry 'zzz'; there are 'tiny', 'tiny-gqa', '15m'"):
        geometries.get("zzz")
    with pytest.raises(DataError, match=r"nothing\.toml: cannot be read \(No such file or directory\)"):
        workloads.workloads(Path("nothing.toml"))


def test_the_same_workload_on_another_model() -> None:
    moved = workloads.on_geometry(workloads.get("decode-15m-c64"), geometries.get("tiny"))
    assert (moved.geometry, moved.context) == ("tiny", 64)
    with pytest.raises(DataError, match=r"decode-15m-c512: context = 512, expected .*max_position_embeddings = 128"):
        workloads.on_geometry(workloads.get("decode-15m-c512"), geometries.get("tiny"))


SHAPE = """
[mine]
description = "mine"
source = "me"
vocab_size = 512
hidden_size = 64
intermediate_size = 176
num_hidden_layers = 2
num_attention_heads = 4
max_position_embeddings = 128
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("vocab_size = 512", 'vocab_size = "512"', r"vocab_size = '512', expected a valid integer"),
        ("vocab_size = 512", "vocab_size = 0", r"vocab_size = 0, expected greater than 0"),
        ("vocab_size = 512\n", "", r"vocab_size is missing"),
        ("hidden_size = 64", "hiden_size = 64", r"hiden_size = 64: unknown key; did you mean 'hidden_size'\?"),
        (
            "num_attention_heads = 4",
            "num_attention_heads = 5",
            r"num_attention_heads = 5, expected a divisor of hidden_size = 64",
        ),
        ("num_attention_heads = 4", "num_attention_heads = 64", r"head_dim = 1, expected an even number"),
        (
            "vocab_size",
            "num_key_value_heads = 3\nvocab_size",
            r"num_key_value_heads = 3, expected a divisor of num_attention_heads = 4",
        ),
        (
            "vocab_size",
            "rope_scaling = {factr = 8.0}\nvocab_size",
            r"rope_scaling\.factr = 8\.0: unknown key; did you mean 'factor'\?",
        ),
        ("vocab_size", "rope_scaling = {factor = 8.0}\nvocab_size", r"rope_scaling\.low_freq_factor is missing"),
        ('"me"', '""', r"source = '', expected"),
    ],
)
def test_mistakes_in_a_geometry_are_named(old: str, new: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "geometries.toml"
    path.write_text(SHAPE)
    assert geometries.geometries(path)["mine"].config.num_key_value_heads == 4
    path.write_text(SHAPE.replace(old, new, 1))
    with pytest.raises(DataError, match=rf"geometries\.toml: \[mine\]: {expected}"):
        geometries.geometries(path)


def test_a_geometry_that_is_no_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "geometries.toml"
    path.write_text("tiny = 3")
    with pytest.raises(DataError, match=r"geometries\.toml: \[tiny\] = 3, expected a table"):
        geometries.geometries(path)
