"""A variant's stages, its panel, its name there, and the place of that name."""

import json

import polars as pl
import pytest
from families import MOST_IN_A_PANEL, VariantStyle, baseline_of, fitting, groups, labelled, swept_parameter
from known import called, label_of, parameters
from labels import spread, with_point_labels
from marks import in_families
from messages import count_of_verdicts, times
from style import HUES, INK, log_axis, shades
from synthetic import MANY, SWEPT, learn_names
import altair as alt

BASELINE = "contiguous/f32/full"
EXCEPT = ["contiguous/f16/quest(top=0.06) + 0-1:contiguous/f16", "contiguous/f16/quest(top=0.25) + 0-1:contiguous/f16"]
MIXED = "paged/f16/snapkv(budget=128) + 1:paged/f16/snapkv(budget=96) + 2,4:paged/f16/snapkv"


@pytest.fixture(autouse=True)
def names_known():
    tiers = [f"tiered(hot=2048,warm=4096{rest})/f16" for rest in ("", ",io=direct", ",io=direct,link_gbps=1")]
    blocks = [f"paged(block={block})/{codec}" for block in (1, 8, 64) for codec in ("kivi(bits=2)", "kivi(bits=4)", "kivi(bits=8)")]
    others = ["contiguous/f16", "contiguous/q8_0/full", "paged/q8_0/full", "doubling", "doubling(read=copy)", "tiered(hot=128)"]
    families = [f"paged(block={block})/q4_0/full" for block in range(100, 110)]
    learn_names([*MANY, *SWEPT, *EXCEPT, MIXED, *tiers, *blocks, *others, *families, "paged/f16/unheard_of(rows=3)"])


def test_stages_decide_the_panel_not_the_form_of_a_name():
    names = [*MANY, *EXCEPT, "paged/f16/unheard_of(rows=3)"]
    panels = {name: title for title, members in groups(names, BASELINE).items() for name in members}
    assert panels["paged/f16/unheard_of(rows=3)"].startswith("retention: ") and "unheard_of" in panels["paged/f16/unheard_of(rows=3)"]
    assert {panels[name] for name in EXCEPT} == {"selection: quest"}


def test_a_splits_codecs_keep_their_parameters():
    assert parameters("split(k=kivi(bits=2,group=64),v=turbo)") == {"k": "kivi(bits=2,group=64)", "v": "turbo"}
    assert parameters("split(k=f16,v=turbo(bits=3,norm=on))") == {"k": "f16", "v": "turbo(bits=3,norm=on)"}


def test_names_are_the_labels_that_the_program_wrote():
    by_budget = {"contiguous/h2o(heavy=8,recent=8)": "f32 h2o 8+8", "contiguous/h2o(heavy=16,recent=16)": "f32 h2o 16+16"}
    rings = {"contiguous/ring(window=60,sinks=4)": "f32 ring 60 sinks 4", "contiguous/ring(window=124,sinks=4)": "f32 ring 124 sinks 4"}
    series = ["contiguous/h2o(heavy={budget/2},recent={budget/2})", "contiguous/ring(window={budget-4},sinks=4)"]
    learn_names([*by_budget, *rings], labels={**by_budget, **rings}, series=dict(zip([*by_budget, *rings], [series[0]] * 2 + [series[1]] * 2)))
    assert [label_of(name) for name in (*by_budget, *series)] == ["f32 h2o 8+8", "f32 h2o 16+16", "f32 h2o", "f32 ring sinks 4"]
    assert label_of(MIXED) == MIXED  # an earlier version wrote no labels
    assert "{budget" not in labelled(series, 48).replace(json.dumps(series[0]), "").replace(json.dumps(series[1]), "")
    assert called({"variant": "contiguous/ring(window=60,sinks=4)", "batching": "128", "chunk_tokens": 64.0}) == "f32 ring 60 sinks 4, batching 128 by 64 tokens"


def test_labels_that_are_cut_still_differ():
    names = {str(at): f"tiered(chunk=1024,io=direct,warm={at}0000)/f16" for at in (1, 2, 3)} | {"4": "short"}
    labels = fitting(names, 20)
    assert len(set(labels.values())) == 4
    assert max(map(len, labels.values())) == 20
    assert labels["4"] == "short"


def test_panels_hold_every_variant_once_and_at_most_six_beside_the_baseline():
    variants = [*MANY, *(f"paged(block={block})/q4_0/full" for block in range(100, 110))]
    panels = groups(variants, BASELINE)
    assert sorted(name for members in panels.values() for name in members) == sorted(variants)
    assert max(len([m for m in members if m != BASELINE]) for members in panels.values()) == MOST_IN_A_PANEL
    assert {title.split(":")[0] for title in panels} == {"placement", "codec", "retention"}
    assert groups(variants[:6], BASELINE) == {"": variants[:6]}


def test_a_family_has_shades_of_one_hue_and_the_baseline_is_ink():
    style = VariantStyle(MANY, baseline=BASELINE)
    assert style.looks[BASELINE][0] == INK
    kivi = [name for name in MANY if "kivi" in name and name.endswith("/full")]
    (hue,) = [hue for hue in HUES if style.looks[kivi[0]][0] in shades(hue, len(kivi))]
    assert {style.looks[name][0] for name in kivi} <= set(shades(hue, len(kivi)))


def test_every_panel_repeats_the_baseline_and_names_its_lines():
    rows = pl.DataFrame(
        [{"variant": name, "seq_len": length, "time": length * (1 + at), "panel": ""}
         for at, name in enumerate(MANY) for length in (256.0, 512.0)]
    )  # fmt: skip
    style = VariantStyle(MANY, baseline=BASELINE)
    axis = log_axis(alt.Y, "time", "time", rows["time"])
    drawn = in_families(rows, style, "seq_len", "time", axis)
    own = drawn.filter(~pl.col("reference"))
    drawn_once = ["variant", "seq_len", "time"]
    assert own.select(drawn_once).sort(drawn_once).equals(rows.select(drawn_once).sort(drawn_once))
    for panel in set(drawn["panel"]):
        here = drawn.filter(pl.col("panel") == panel)
        assert here.filter(pl.col("variant") == BASELINE).height == 2
        assert here["variant"].n_unique() == len(MANY)  # the menu can choose each of them
        assert here.filter(~pl.col("reference"))["label"].drop_nulls().len() == here.filter(~pl.col("reference"))["variant"].n_unique()


def test_identical_lines_share_a_name():
    rows = pl.DataFrame(
        [{"variant": name, "seq_len": length, "bytes": length * (1 + (name == "concat")), "panel": ""}
         for name in ("contiguous", "doubling", "concat") for length in (256.0, 512.0)]
    )  # fmt: skip
    style = VariantStyle(set(rows["variant"]), baseline="contiguous")
    drawn = in_families(rows, style, "seq_len", "bytes", log_axis(alt.Y, "bytes", "bytes", rows["bytes"]))
    assert sorted(drawn["label"].drop_nulls()) == ["concat", "contiguous = doubling"]


def test_names_are_moved_apart_and_no_further():
    assert spread([0, 100]) == [0, 100]
    assert spread([50, 50, 51], apart=10) == pytest.approx([40.33, 50.33, 60.33], abs=0.01)


def test_titles_say_what_the_intervals_allow():
    rows = pl.DataFrame({"versus": ["contiguous"] * 3, "verdict": ["ambiguous", "slower", "slower"]})
    assert count_of_verdicts(rows) == "Variants compared with contiguous: 2 are slower, 1 is statistically tied"
    assert [times(0.115), times(3.71, 3.04, 4.1), times(421.4)] == ["0.12 times", "3.7 times (3.0–4.1)", "421 times"]


def test_the_baseline_is_what_most_ratios_are_against():
    cells = pl.DataFrame({"variant": ["a", "b", "c"], "versus": [None, "a", "a"], "verdict": ["baseline", None, None]})
    assert baseline_of(cells) == "a"
    assert baseline_of(cells.with_columns(versus=pl.lit("materialised"))) == "a"
    assert baseline_of(cells.filter(pl.col("variant") != "a")) is None


def test_the_number_that_a_run_sweeps_is_found_by_itself():
    parameter = swept_parameter(SWEPT)
    assert parameter.name == "block of paged" and set(parameter.values.values()) == {1, 8, 64}
    assert set(parameter.lines.values()) == {"paged/f32/full", "paged(order=shuffled)/f32/full"}
    assert BASELINE not in parameter.values
    assert swept_parameter(MANY) is None
    two = [f"paged(block={block})/kivi(bits={bits})" for block in (1, 8, 64) for bits in (2, 4, 8)]
    assert swept_parameter(two) is None  # two axes are none


def test_names_of_points_do_not_overlap_and_equal_points_share_one():
    at = [("a", 10.0, 1.0), ("b", 10.0, 1.0), ("c", 11.0, 1.1), ("d", 100.0, 1000.0)]
    rows = pl.DataFrame(
        [{"variant": name, "short": name, "x": x, "y": y, "panel": "", "seq_len": 1, "named": name != "d", "first": 0}
         for name, x, y in at]
    )  # fmt: skip
    axes = log_axis(alt.X, "x", "x", [1, 1000]), log_axis(alt.Y, "y", "y", [0.1, 10000])
    labels = with_point_labels(rows, "x", "y", axes, (400, 300), "first")
    assert labels["label"].to_list() == ["a +1", None, "c", None]
    (first, _, second, _) = labels.select("label_dx", "label_dy").rows()
    assert first != second
