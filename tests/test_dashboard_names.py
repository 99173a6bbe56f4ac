"""Names in words: what pages call a workload, and the cards that say what a workload or a variant is."""

from __future__ import annotations

import pytest

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
pytest.importorskip("plotly", reason="the dashboard's packages are not installed")

from llama_workbench.dashboard.views import workloads
from llama_workbench.dashboard.views.workloads import card, differing
from llama_workbench.datasets.workloads import workloads as shipped
from llama_workbench.harness.store.schema import Workload


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("prefill-7b-1layer-t8", "prefill, 8 tokens, one 7B layer"),
        ("prefill-15m-t2048", "prefill, 2,048 tokens, 15M"),
        ("prefill-15m-t128-distinct", "prefill, about 128 tokens, all lengths different, 15M"),
        ("prefill-15m-trace", "prefill, lengths of a trace, 15M"),
        ("prefill-15m-t512-chunk128", "prefill, 512 tokens in chunks of 128, 15M"),
        ("prefill-15m-t128-b4", "prefill, 4 × 128 tokens, 15M"),
        ("decode-width-256-c1", "decode, after 1 token, width 256"),
        ("decode-15m-c64-b16", "decode, 16 × after 64 tokens, 15M"),
        ("generate-15m-t32-n32", "generate, 32 after 32, 15M"),
        ("decode-7b-1layer-c64-threads2", "decode, after 64 tokens, one 7B layer, 2 threads"),
        ("prefill-15m-t128-bfloat16", "prefill, 128 tokens, 15M, bfloat16"),
        ("mask-get-t128", "get a mask, 128 tokens"),
        ("rope-t128", "RoPE, 128 tokens"),
    ],
)
def test_a_workload_in_words(name: str, said: str) -> None:
    assert workloads.named(shipped()[name]) == said
    assert workloads.shipped_named([name, "mine"]) == {name: said, "mine": "mine"}


def test_no_two_shipped_workloads_have_the_same_words() -> None:
    names = workloads.shipped_named(shipped())
    assert len({*names.values()}) == len(names)
    assert not [said for name, said in names.items() if said.endswith(f"({name})")], "and none needs its name for it"


def test_what_is_not_a_task_for_a_model_keeps_its_name() -> None:
    call = Workload(name="texts", kind="call", payload="mine.py:texts", tokens=1)
    assert workloads.named(call) == "texts" and workloads.named(Workload(name="old")) == "old"
    assert workloads.distinct({"a": "x", "b": "x", "c": "y"}) == {"a": "x (a)", "b": "x (b)", "c": "y"}


def test_a_card_says_what_a_variant_is_and_how_it_is_built() -> None:
    one = card("team005_hybrid")
    assert one.told.startswith("Layered files, but one Cache for KV") and "cache: unified" in one.axes and one.source
    assert "a control" in card("fast@aa").told and "a control" in card("fast@copy").told
    assert card("old.total").axes == "" and "Named on the command line" in card("old.total").told


def test_cards_of_several_name_only_what_differs() -> None:
    pair = ["team005_hybrid", "team006_before", "llama_cpp"]
    assert differing(pair) == ["cache", "mask"]
    assert card(pair[0], differing(pair)).axes == "cache: unified, mask: per model"
    assert "attention" in differing(["fast", "team006_before"]), "one alone is told whole"
