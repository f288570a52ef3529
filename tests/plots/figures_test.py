"""Computations of the charts that their drawn data do not show, panels and styles, folders of earlier versions, and what is committed."""

import dataclasses
import re

import polars as pl
import pytest
from data import load_run
from families import VariantStyle
from figures.budget import best_policies
from figures.growth import against_baseline, growth_totals, longest_growth, median_steps, thin
from figures.list import FIGURES
from figures.models import by_kept_tokens, warning_if_tiny
from figures.prefill import prefill_arms
from figures.recall import by_budget
from figures.roofline import roofline_table, time_table
from pictures import to_svg
from planted import MODEL_SERIES
from prepare import NoData, measured, of_experiment, title_of, with_panel
from report import specification, tables_of
from style import bytes_text, natural_order
from support import left_out, specifications
from synthetic import HOME, LATER, MANY, SYNTHETIC, learn_names, rows_of, synthetic_run


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    return load_run(synthetic_run(tmp_path_factory.mktemp("grown") / "run", lengths=(), growth_to=1024), "run")


@pytest.fixture(scope="module")
def later(tmp_path_factory):
    return load_run(synthetic_run(tmp_path_factory.mktemp("later") / "run", lengths=(256, 1024), also=LATER, one_thread=True), "run")


def test_thinning_keeps_every_spike(grown):
    steps = median_steps(grown.growth.with_columns(panel=grown.growth["cell"], length=grown.growth["token"]))
    kept = thin(steps, 600)
    assert 300 < kept.height <= 600
    doubling = steps.filter(steps["variant"] == "doubling/f32/full")
    spikes = doubling.filter(doubling["step_us"] > 80)
    assert sorted(spikes["length"].unique()) == [256, 512, 1024]
    assert spikes.join(kept, on=["variant", "length"], how="anti").is_empty()
    assert kept.join(steps, on=["variant", "length", "step_us"], how="anti").is_empty()


def test_appends_that_take_longer_are_named_before_those_that_are_tied(grown):
    totals = growth_totals(measured(grown.cells))
    said = against_baseline(totals, "contiguous/f32/full")
    assert re.search(r"contiguous f32, all 1,024 appends take (\d+) times \(\d+–\d+\) as long with concat f32, \d+ times .* doubling\(read=copy\) f32", said), said
    over = pl.col("append_total_ratio_p50") / pl.col("append_total_ratio_p50").max().over("seq_len")
    near = totals.with_columns(append_total_ratio_p50=over, append_total_ratio_ci_low=0.5 * over, append_total_ratio_ci_high=1.5 * over)
    assert re.search("they are statistically tied with .*concat f32", against_baseline(near, "contiguous/f32/full"))
    apart = totals.with_columns(append_total_ratio_p50=pl.lit(1.6), append_total_ratio_ci_low=pl.lit(1.3), append_total_ratio_ci_high=pl.lit(2.0))
    assert "1.6 times (1.3–2.0)" in (said := against_baseline(apart, "contiguous/f32/full")) and "tied" not in said


def test_a_run_whose_steps_are_not_there_is_no_run_that_was_not_made(tmp_path):
    """Committed folders leave growth.csv out."""
    folder = synthetic_run(tmp_path / "run", lengths=(), growth_to=256)
    (folder / "growth.csv").unlink()
    reasons = left_out(folder)
    assert "growth_total" not in reasons
    assert reasons["growth"] == reasons["reallocations"] == "growth.csv, which has every step, is not in the folder"


def test_tokens_may_count_from_zero(grown):
    from_zero = grown.growth.with_columns(token=grown.growth["token"] - 1)
    for growth in (grown.growth, from_zero):
        lengths = longest_growth(growth, measured(grown.cells))["length"]
        assert (lengths.min(), lengths.max()) == (1, 1024)


def test_shapes_of_older_folders_have_no_roofline(later):
    older = measured(later.cells).with_columns(
        **{column: pl.lit(None, later.cells.schema[column]) for column in later.cells.columns if "bound" in column},
        **{column: pl.lit(None, pl.Float64) for column in ("ratio_p50", "cold_ratio_p50")},
    )
    drawn = roofline_table(older, natural_order(SYNTHETIC)).data
    assert {kind.split()[0] for kind in drawn["kind"]} == {"memory"}
    with pytest.raises(NoData, match="compared with a baseline"):
        time_table(older, natural_order(SYNTHETIC))


def test_later_experiments_do_not_disturb_the_others(tmp_path):
    """Their cells are in figures of their own; and a folder from before them says so."""
    before, after = (synthetic_run(tmp_path / name, lengths=(256, 512), also=also) for name, also in (("before", ()), ("after", LATER)))
    (drawn, reasons), (drawn_after, _) = map(specifications, (before, after))
    own = [figure.name for figure in FIGURES if set(figure.experiments) & set(LATER) and figure.name != "loss_baseline"]
    assert len(own) > 15 and set(own) <= set(reasons) and set(own) <= set(drawn_after)
    for name in ("memory", "bytes", "latency"):
        assert drawn[name] == drawn_after[name]


def test_a_prompts_arms_are_lines_of_one_panel(later):
    arms = prefill_arms(measured(later.cells), "prefill_p50_us")
    assert arms["panel"].n_unique() == 1 and arms["arm_text"].n_unique() == 5


def test_recall_is_drawn_against_distance_and_against_budget(later):
    recalls = of_experiment(measured(later.cells), "recall", "loss", "distance")
    by_distance = by_kept_tokens(with_panel(recalls))
    panels = ["every token kept", "64 tokens kept", "256 tokens kept"]
    assert list(dict.fromkeys(by_distance["panel"])) == panels
    forgetful = by_distance.filter(by_distance["panel"] != panels[0])
    assert set(forgetful["variant"]) == {series for series in MODEL_SERIES if "{" in series}
    rows, full = by_budget(recalls)
    assert list(dict.fromkeys(rows["panel"])) == ["distance 100", "distance 200", "distance 400"]
    assert rows["kept_tokens"].to_list() == [64, 256] * 6
    assert set(full["variant"]) == {"contiguous/f32/full"} and rows["full_loss"].to_list() == [0.1] * 12


def test_charts_warn_of_tiny_models_alone():
    tiny, large = (load_run(HOME / "results/epyc-2core" / name, name) for name in ("field", "codebooks"))
    unknown = dataclasses.replace(large, cells=large.cells.drop("model_layers"))
    assert [warning_if_tiny(tables_of(runs))[:11] for runs in ([tiny], [tiny, large], [unknown], [large])] == ["Tiny models"] * 3 + [""]


def test_policies_that_are_equally_good_are_named_together():
    def rows(panel, errors):
        return [{"panel": panel, "seq_len": 512, "variant": name, "error": error * 64 / kept}
                for name, error in errors.items() for kept in (64, 128)]  # fmt: skip

    clear = rows("sinks", {"a": 1.0, "b": 1.03, "c": 2.0})
    alike = rows("gaussian", dict.fromkeys("abcde", 1.0))
    lone = [{"panel": "sinks", "seq_len": 512, "variant": "codec", "error": 0.001}]
    said = best_policies(pl.DataFrame(clear + alike + lone))
    assert said == {512: "At 512 tokens, a, b have the least error on sinks; no policy stands out on gaussian"}


def test_caches_have_one_label_each_in_all_that_is_committed():
    labels = {}
    for path in sorted((HOME / "results").glob("*/*/cells.csv")):
        for row in rows_of(path):
            if row.get("placement"):
                assert labels.setdefault(row["variant"], row["label"]) == row["label"] != "", f"{path}: {row['variant']}"
    assert len(labels) > 300 and len(set(labels.values())) == len(labels)
    assert (labels["contiguous"], labels["paged/q8_0"], labels["contiguous/kivi(bits=2,residual=0)"]) == ("contiguous f32", "paged q8_0", "kivi 2-bit")


@pytest.mark.parametrize(("folder", "name"), [("epyc-2core/budget", "budget"), ("epyc-4core/selection", "recall_budget"), ("epyc-2core/tasks", "task_bytes")])
def test_no_chart_shows_a_spec_or_a_placeholder(folder, name):
    (figure,) = [figure for figure in FIGURES if figure.name == name]
    shown = re.findall(r"<text[^>]*>([^<]*)", to_svg(specification(figure, tables_of([load_run(HOME / "results" / folder, "run")]), [])))
    assert shown and not [words for words in shown if "{" in words or "contiguous/" in words or "(budget" in words]


def test_panels_split_by_what_makes_a_difference(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run", batches=(1, 4), workloads=("gaussian", "sinks")), "run")
    cells = measured(run.cells)
    assert set(with_panel(cells)["panel"]) == {
        "gaussian · batch 1", "gaussian · batch 4", "sinks · batch 1", "sinks · batch 4"
    }  # fmt: skip
    memory = with_panel(cells, ("workload",), ("bytes_payload",))
    assert set(memory["panel"]) == {"batch 1", "batch 4"}
    assert memory.height == cells.height / 2


@pytest.mark.parametrize("value, title", [(1, "1 thread"), (2, "2 threads"), (16, "16 threads")])
def test_panel_titles_count(value, title):
    learn_names([])
    assert title_of("threads", value) == title


def test_lengths_apart_are_not_one_line(tmp_path):
    """Two experiments at lengths that they do not share cannot be seen to agree: each has a panel."""
    cells = measured(load_run(synthetic_run(tmp_path / "run", lengths=(1024,), growth_to=512), "run").cells)
    assert with_panel(cells, ("experiment", "phase"), ("bytes_payload",))["panel"].n_unique() == 2
    cells = measured(load_run(synthetic_run(tmp_path / "both", lengths=(512,), growth_to=512), "run").cells)
    assert with_panel(cells, ("experiment", "phase"), ("bytes_payload",))["panel"].n_unique() == 1


def test_variants_keep_distinct_styles():
    learn_names(MANY)
    style = VariantStyle(MANY)
    ranges = [encoding["scale"]["range"] for encoding in (style.colour().to_dict(), style.shape().to_dict())]
    assert len(set(zip(*ranges))) == len(MANY) == 30


def test_units_and_order():
    assert [bytes_text(b) for b in (0, 1023, 1536, 1 << 20, None)] == ["0 B", "1023 B", "1.5 KiB", "1 MiB", "–"]
    assert natural_order(["paged(block=16)", "paged(block=4)"]) == ["paged(block=4)", "paged(block=16)"]
