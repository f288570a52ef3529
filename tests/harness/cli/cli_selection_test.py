"""Selections: what a run says of rows that are kept but not read, against formulas of this file's own."""

import pytest
from program import CONFIG, by_variant, kvlab, results_of, succeeded, table

HEADS, DIM, TOKENS = 2, 32, 320
SELECTED = {
    "experiment": "decode", "model.kv_heads": HEADS, "model.head_dim": DIM, "sweep.seq_len": TOKENS,
    "sweep.variants": ["contiguous/f16", "contiguous/f16/quest(top=0.25)", "paged/f16/quest(top=0.01,least=3)", "contiguous/f16/topk(rows=32)",
                       "tiered/f16/topk"],
    "measure.repetitions": 3, "measure.steps": 2, "measure.cold_steps": 2,
}  # fmt: skip
ROW = 2 * DIM * 2  # bytes of K and V of one head
BOUNDS = TOKENS // 16 * 2 * DIM * 2

folder = results_of(CONFIG, SELECTED)


@pytest.fixture(scope="module")
def cells(folder):
    return by_variant(table(folder / "cells.csv"))


@pytest.mark.parametrize(("variant", "rows", "choosing", "choices"), [
    ("contiguous/f16", TOKENS, 0, 0),
    ("contiguous/f16/quest(top=0.25)", 5 * 16, BOUNDS, 5),
    ("paged/f16/quest(top=0.01,least=3)", 3 * 16, BOUNDS, 3),
    ("contiguous/f16/topk(rows=32)", 32, TOKENS * ROW, 32),
])
def test_bytes_read_are_those_of_the_rows_chosen_and_of_choosing(cells, variant, rows, choosing, choices):
    row = cells[variant]
    assert row["status"] == "ok", row["reason"]
    assert int(row["bytes_read"]) == HEADS * (rows * ROW + choosing)
    assert int(row["bytes_payload"]) == HEADS * TOKENS * ROW
    multiply_adds = 2 * HEADS * 2 * DIM * (rows + (TOKENS if "topk" in variant else 0))
    assert int(row["multiply_adds"]) == multiply_adds + (HEADS * BOUNDS // 2 if "quest" in variant else 0)
    assert row["selection_check"] == ("fp64" if choices else "")
    assert row["selection_choices"] == (str(HEADS * choices) if choices else "")


def test_what_is_not_read_is_an_error_of_the_selection(cells):
    for variant, row in cells.items():
        if row["status"] != "ok":
            continue
        if variant == "contiguous/f16":
            assert row["err_selection_rel_l2"] == "" and float(row["err_attn_mass"]) == pytest.approx(1)
            continue
        assert float(row["err_selection_rel_l2"]) == pytest.approx(float(row["err_rel_l2"]), rel=0.05)
        assert float(row["err_selection_rel_l2"]) > 0.05 and float(row["err_kernel_rel_l2"]) < 1e-5
        assert 0 < float(row["err_attn_mass"]) < 1 and 0 < float(row["err_attn_recall"]) < 1
    oracle, quest = cells["contiguous/f16/topk(rows=32)"], cells["paged/f16/quest(top=0.01,least=3)"]
    assert float(oracle["err_attn_recall"]) > float(quest["err_attn_recall"])


def test_a_selection_is_refused_where_files_are(cells):
    row = cells["tiered/f16/topk"]
    assert row["status"] == "unsupported" and "is read a chunk at a time" in row["reason"]


def test_the_list_has_the_stage():
    listed = kvlab("list").stdout
    assert "placement[/codec][/retention][/selection]" in listed
    assert "  quest  " in listed.partition("selections\n")[2]
    assert [line.split()[0] for line in listed.splitlines() if "an oracle, which reads every row to choose: no answer" in line] == ["topk"]


def test_an_oracle_is_measured_and_not_recommended(cells):
    assert {row["variant"].partition("(")[0]: row["oracle"] for row in cells.values() if row["oracle"]} == {
        "contiguous/f16/topk": "reads every row to choose", "tiered/f16/topk": "reads every row to choose"}
    others = [float(row["err_rel_l2"]) for name, row in cells.items() if "/quest" in name]
    assert float(cells["contiguous/f16/topk(rows=32)"]["err_rel_l2"]) < min(others)
    few = "contiguous/f16/topk(rows=8);paged(block=16)/q8_0"
    planned = succeeded(kvlab("plan", "--model", "llama-3.1-8b", "--memory", "24GB", "--context", "1K", "--users", "1", "--variants", few)).stdout
    assert "1 of 1 cache serves 1 user of 1,024 tokens" in " ".join(planned.split()) and planned.count("topk") == 1


def test_stages_are_columns_with_their_defaults(cells):
    row = cells["paged/f16/quest(top=0.01,least=3)"]
    stages = [row[name] for name in ("label", "placement", "codec", "retention", "selection", "layer_specs", "bits_per_value")]
    assert stages == ["paged f16 quest top 0.01 least 3", "paged", "f16", "full", "quest(top=0.01,least=3)", "", "16"]
