"""The experiments that run a model, as users meet them: the config that comes with kvlab, and what is refused."""

import csv
import os
import subprocess
from pathlib import Path

import pytest

HOME = Path(os.environ["KVLAB_HOME"])
PROGRAM = os.environ["KVLAB_PROGRAM"]
DATA = Path(os.environ.get("KVLAB_DATA", HOME.parent / "shared" / "data"))
TIMEOUT_S = 300  # for the sanitizers' sake
ENV = {**os.environ, "OMP_WAIT_POLICY": "passive", "KVLAB_PYTHON": ""}
CONFIG = HOME / "configs" / "quality.toml"
VARIANTS = '["contiguous","contiguous/f16","paged","contiguous/token(bits=2)","contiguous/ring(window={budget})"]'
SMALL = {
    "quality.variants": VARIANTS, "quality.budget": "16", "quality.seq_len": 40, "quality.batch": 5,
    "recall.variants": VARIANTS, "recall.budget": "16", "recall.distance": "[20,30]", "recall.passage": 16,
    "recall.batch": 5,
    "generate.variants": VARIANTS, "generate.budget": 16, "generate.seq_len": 32, "generate.batch": 2, "generate.prompt": 20,
}  # fmt: skip


def kvlab(*args, **options):
    return subprocess.run(
        [PROGRAM, *map(str, args)],
        **{"capture_output": True, "text": True, "timeout": TIMEOUT_S, "env": ENV, **options},
    )


def settings(changed):
    return [word for key, value in {**SMALL, **changed}.items() for word in ("--set", f"{key}={value}")]


def run(out, *args, **changed):
    changed = {key.replace("__", "."): value for key, value in changed.items()}
    return kvlab("run", CONFIG, "--out", out, "--no-plots", *settings(changed), *args, cwd="/")


def table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("quality") / "out"
    done = run(out)
    assert done.returncode == 0, done.stderr
    return out


def rows_of(results, experiment):
    return [row for row in table(results / "cells.csv") if row["experiment"] == experiment]


def test_every_cell_has_its_numbers(results):
    rows = rows_of(results, "quality")
    assert [row["variant"] for row in rows] == [
        "contiguous", "contiguous/f16", "paged", "contiguous/token(bits=2)", "contiguous/ring(window=16)",
    ]  # fmt: skip
    for row in rows:
        assert row["status"] == "ok" and row["predictions"] == "200" and row["versus"] == "contiguous"
        assert row["forward_device"] == "cpu"
        for column in """loss loss_se perplexity perplexity_se loss_change loss_change_ci_low loss_change_ci_high kl_mean
            kl_mean_ci_low kl_mean_ci_high kl_median kl_p99 kl_max top1_agreement p_change_rms held_bytes_per_token
            peak_bytes tokens_per_s bytes_payload""".split():
            assert row[column] != "", column
        low, change, high = (float(row["loss_change" + end]) for end in ("_ci_low", "", "_ci_high"))
        assert low <= change <= high
        assert float(row["kl_median"]) <= float(row["kl_p99"]) <= float(row["kl_max"])
        assert int(row["peak_bytes"]) >= int(row["bytes_payload"])


def test_verdicts_say_what_intervals_say(results):
    by_variant = {row["variant"]: row for row in rows_of(results, "quality")}
    assert by_variant["contiguous"]["verdict"] == "baseline"
    assert by_variant["paged"]["verdict"] == "identical" and float(by_variant["paged"]["kl_max"]) == 0
    assert by_variant["contiguous/f16"]["verdict"] in ("ambiguous", "negligible")
    assert by_variant["contiguous/token(bits=2)"]["verdict"] == "worse"
    assert float(by_variant["contiguous/token(bits=2)"]["loss_change_ci_low"]) > 0


def beside(tmp_path, baseline, **changed):
    """The quality cells by variant, and the buckets of positions, of a run that names a baseline."""
    done = run(tmp_path, experiment='["quality"]', quality__baseline=f'"{baseline}"', **changed)
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path, "quality")
    assert rows[0]["variant"] == baseline
    return {row["variant"]: row for row in rows}, table(tmp_path / "positions.csv")


def test_losses_are_compared_with_the_baseline_that_a_config_names(results, tmp_path):
    coarse = "contiguous/token(bits=2)"
    full = {row["variant"]: row for row in rows_of(results, "quality")}
    named, buckets = beside(tmp_path, coarse)
    assert named.keys() == full.keys() and {row["versus"] for row in named.values()} == {coarse}
    for variant, row in named.items():
        for column in row:  # divergence stays that from the full f32 cache
            if column.startswith(("kl_", "top1", "p_change")) or column in ("loss", "loss_se", "predictions"):
                assert row[column] == full[variant][column], column
        assert float(row["loss_change"]) == pytest.approx(float(row["loss"]) - float(named[coarse]["loss"]), abs=1e-6)
        low, high = float(row["loss_change_ci_low"]), float(row["loss_change_ci_high"])
        assert low == high == 0 if variant == coarse else low < float(row["loss_change"]) < high
    assert {variant: row["verdict"] for variant, row in named.items()} == {
        coarse: "baseline", "contiguous": "better", "contiguous/f16": "better", "paged": "better",
        "contiguous/ring(window=16)": "better",
    }  # fmt: skip
    losses = {(row["variant"], row["position_first"]): float(row["loss"]) for row in buckets}
    for row in buckets:
        change = losses[row["variant"], row["position_first"]] - losses[coarse, row["position_first"]]
        assert float(row["loss_change"]) == pytest.approx(change, abs=1e-6)


def test_the_full_cache_as_a_named_baseline_is_what_it_is_without_one(results, tmp_path):
    full = {row["variant"]: row for row in rows_of(results, "quality")}
    named, _ = beside(tmp_path, "contiguous")
    compared = [column for column in full["paged"] if column.startswith(("loss", "kl_", "versus"))]
    assert len(compared) > 8
    for variant, row in named.items():
        assert [row[column] for column in compared] == [full[variant][column] for column in compared]
    assert (named["paged"]["verdict"], full["paged"]["verdict"]) == ("negligible", "identical")  # to another's predictions


def test_a_baseline_that_cannot_run_leaves_losses_uncompared(tmp_path):
    named, buckets = beside(tmp_path, "tiered/ring(window=16)", quality__variants='["contiguous/f16","tiered/ring(window=16)"]')
    row = named["contiguous/f16"]
    assert named["tiered/ring(window=16)"]["status"] == "unsupported" and row["status"] == "ok"
    assert [row[column] for column in ("versus", "verdict", "loss_change", "loss_change_ci_low", "loss_change_ci_high")] == [""] * 5
    assert float(row["kl_mean"]) > 0 and buckets and all(bucket["loss_change"] == "" for bucket in buckets)


def test_positions_add_up_to_the_cell(results):
    buckets = table(results / "positions.csv")
    for cell in rows_of(results, "quality"):
        own = [row for row in buckets if row["cell"] == cell["cell"]]
        assert [(row["position_first"], row["position_last"]) for row in own] == [("0", "15"), ("16", "31"), ("32", "39")]
        for column in ("loss", "kl_mean", "top1_agreement"):
            mean = sum(float(row[column]) * int(row["predictions"]) for row in own) / 200
            assert mean == pytest.approx(float(cell[column]), rel=1e-6, abs=1e-12)
    ring = [row for row in buckets if row["variant"] == "contiguous/ring(window=16)"]
    assert float(ring[0]["kl_max"]) == 0 < float(ring[1]["kl_mean"])


def test_recall_has_a_row_a_distance(results):
    rows = rows_of(results, "recall")
    assert [(row["distance"], row["seq_len"]) for row in rows] == [("20", "75")] * 5 + [("30", "85")] * 5
    assert {row["passage_tokens"] for row in rows} == {"16"} and {row["predictions"] for row in rows} == {"35"}


def test_texts_are_the_same_up_to_where_they_leave(results):
    cells = {row["cell"]: row for row in rows_of(results, "generate")}
    texts = table(results / "texts.csv")
    assert len(cells) == 5 * 2 and len(texts) == 5 * 2 * 2
    for row in texts:
        if row["common_tokens"] == "":
            assert row["text"] == row["full_text"]
        else:
            assert row["text"] != row["full_text"] and 0 <= int(row["common_tokens"]) < 12
    for variant in ("contiguous", "paged"):
        assert {row["common_tokens"] for row in texts if row["variant"] == variant} == {""}
    for key, cell in cells.items():
        left = [row for row in texts if row["cell"] == key and row["common_tokens"]]
        assert int(cell["same_texts"]) == 2 - len(left)
        assert float(cell["common_tokens_min"]) == min([12, *(int(row["common_tokens"]) for row in left)])


def test_samples_are_runs_of_their_own_that_share_the_prompts_rows(tmp_path):
    few = {
        "experiment": "generate", "generate__temperature": "[0.8]",
        "generate__variants": '["contiguous/f16","paged/f16","segmented(rows=16)/q8_0","doubling(read=copy)"]',
    }  # fmt: skip
    done = run(tmp_path / "forked", "--seed", 7, **few, generate__samples=3)
    assert done.returncode == 0, done.stderr
    key = lambda row: (row["variant"], row["sequence"])  # noqa: E731
    forked = table(tmp_path / "forked" / "texts.csv")
    assert len(forked) == 4 * 2 * 3
    for sample in range(3):
        alone = tmp_path / f"alone{sample}"
        assert run(alone, "--seed", 7 + sample, **few).returncode == 0
        own = {key(row): row["text"] for row in table(alone / "texts.csv")}
        assert own == {key(row): row["text"] for row in forked if row["sample"] == str(sample)}
    assert len({row["text"] for row in forked if row["variant"] == "contiguous/f16"}) > 2, "seeds make no difference"
    cells = {row["variant"]: row for row in table(tmp_path / "forked" / "cells.csv")}
    alone = {row["variant"]: row for row in table(tmp_path / "alone0" / "cells.csv")}
    assert {row["samples_per_prompt"] for row in cells.values()} == {"3"}
    assert {row["samples_held_bytes"] for row in alone.values()} == {""}
    held = lambda row: sum(int(row[f"bytes_{kind}"]) for kind in ("payload", "metadata", "slack"))  # noqa: E731
    # All read 31 of 32 tokens, and 16 of the prompt's 20 fill a block or chunk: two samples of three share them.
    assert int(cells["contiguous/f16"]["samples_shared_bytes"]) == 0
    assert int(cells["contiguous/f16"]["samples_held_bytes"]) == 3 * held(alone["contiguous/f16"])
    per_token = int(alone["contiguous/f16"]["bytes_payload"]) // 31
    assert int(cells["paged/f16"]["samples_shared_bytes"]) == 2 * 16 * per_token
    assert int(cells["segmented(rows=16)/q8_0"]["samples_shared_bytes"]) > 0
    assert int(cells["segmented(rows=16)/q8_0"]["samples_held_bytes"]) == 2 * held(alone["segmented(rows=16)/q8_0"])
    assert cells["doubling(read=copy)"]["samples_shared_bytes"] == ""


def test_the_same_again_with_any_number_of_threads(results, tmp_path):
    assert run(tmp_path / "again", "--threads", 3).returncode == 0
    timed = {"tokens_per_s", "rss_peak_bytes", "threads"}
    plain = lambda rows: [{c: v for c, v in row.items() if c not in timed} for row in rows]  # noqa: E731
    assert plain(table(results / "cells.csv")) == plain(table(tmp_path / "again" / "cells.csv"))
    for name in ("positions.csv", "texts.csv"):
        assert (results / name).read_text() == (tmp_path / "again" / name).read_text()


def test_the_config_as_run_names_the_projects_files_as_the_project_does(results):
    assert str(HOME) not in (results / "config.toml").read_text()


def test_resume_keeps_whole_blocks_and_their_texts(results, tmp_path):
    out = tmp_path / "out"
    assert run(out).returncode == 0
    cells = (out / "cells.csv").read_text().splitlines(keepends=True)
    (out / "cells.csv").write_text("".join(cells[:-3]))  # a part of the last block is lost
    done = run(out, "--resume")
    assert done.returncode == 0, done.stderr
    assert len(table(out / "cells.csv")) == len(cells) - 1
    assert (out / "texts.csv").read_text() == (results / "texts.csv").read_text()
    assert (out / "positions.csv").read_text() == (results / "positions.csv").read_text()


def test_chunks_say_so_and_prove_it(results, tmp_path):
    done = run(tmp_path / "out", experiment="quality", quality__step_tokens=8)
    assert done.returncode == 0, done.stderr
    for decode, chunked in zip(rows_of(results, "quality"), table(tmp_path / "out" / "cells.csv")):
        assert decode["arm"] == decode["chunk_max_diff"] == ""
        assert chunked["arm"] == "chunked" and chunked["chunk_tokens"] == "8"
        assert 0 < float(chunked["chunk_max_diff"]) < 2e-3 and chunked["chunk_check"] == "losses"
        assert float(chunked["loss"]) == pytest.approx(float(decode["loss"]), abs=1e-4)


def test_chunks_whose_rounding_decides_have_not_failed(tmp_path):
    """The keys of one word have one norm: which of them goes is decided by the last bit of a matrix product."""
    done = run(tmp_path / "out", experiment="quality", quality__step_tokens=16, quality__seq_len=256, quality__budget=32,
               quality__variants='["contiguous/knorm(budget={budget})","contiguous/kivi(bits=2,residual=0)"]')  # fmt: skip
    assert done.returncode == 0, done.stderr
    knorm, kivi = table(tmp_path / "out" / "cells.csv")
    assert knorm["status"] == kivi["status"] == "ok", knorm["reason"] + kivi["reason"]
    assert knorm["chunk_check"] == "answers" and float(knorm["chunk_max_diff"]) > 2e-3
    assert kivi["chunk_check"] == "by_design"


def test_a_prompt_is_not_scored(tmp_path):
    done = run(tmp_path / "out", experiment="quality", quality__prompt=30,
               quality__variants='["contiguous","segmented(rows=16)/snapkv(budget=12,window=4)"]')  # fmt: skip
    assert done.returncode == 0, done.stderr
    full, cut = table(tmp_path / "out" / "cells.csv")
    buckets = [(row["position_first"], row["position_last"]) for row in table(tmp_path / "out" / "positions.csv")]
    assert buckets == [("30", "31"), ("32", "39")] * 2
    assert full["predictions"] == "50" and cut["kept_tokens"] == "22" and float(cut["kl_mean"]) > 0


def test_windows_of_a_text_give_a_models_errors_their_interval(tmp_path):
    """Five windows of 40 tokens, which differ. A pyramid's layers keep what their budgets say."""
    variants = '["contiguous/q4_0","segmented(rows=4)/f16/pyramid(budget=12,window=4,beta=2)"]'
    done = run(tmp_path / "out", "--set", "budget.workload=model", "--set", "budget.seq_len=40", "--set", "budget.batch=5",
               "--set", "measure.steps=4", experiment="budget", budget__variants=variants)  # fmt: skip
    assert done.returncode == 0, done.stderr
    for row in table(tmp_path / "out" / "cells.csv"):
        assert row["status"] == "ok", row["reason"]
        low, error, high = (float(row[name]) for name in ("err_ci_low", "err_rel_l2", "err_ci_high"))
        assert 0 < low < error < high < 3 * low
    # Six layers keep 16, 14.4, 12.8, 11.2, 9.6 and 8 rows of a prompt of 36, and the four that follow: 16 on average.
    assert row["kept_tokens"] == "16" and row["eviction_check"] == "fp64" and int(row["policy_choices"]) > 0
    refused = run(tmp_path / "no", "--set", "budget.workload=model", "--set", "budget.seq_len=1000", "--set", "budget.batch=99",
                  experiment="budget", budget__variants='["contiguous"]')  # fmt: skip
    assert refused.returncode == 2 and "99 windows of 1000 need 99001" in refused.stderr


def test_texts_of_a_prompt_that_is_cut(tmp_path):
    done = run(tmp_path / "out", experiment="generate",
               generate__variants='["segmented(rows=16)/snapkv(budget=12,window=4)","contiguous/kivi(bits=2,residual=0)"]')  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {row["status"] for row in table(tmp_path / "out" / "cells.csv")} == {"ok"}


@pytest.mark.parametrize(
    "changed, parts",
    [
        ({"quality.seq_len": 1025}, ["quality", "1025 tokens are past the model's rotary table of 1024 positions: give quality.seq_len at most 1024"]),
        ({"recall.distance": 1000}, ["recall", "1055 tokens", "rotary table of 1024", "recall.distance and recall.passage together at most 985"]),
        ({"quality.seq_len": 1000, "quality.batch": 11}, ["sample.txt has", "11 windows of 1000 need 11001"]),
        ({"quality.prompt": 40}, ["a prompt of 40 tokens leaves nothing of 40"]),
        ({"recall.distance": 10}, ["distance 10 is shorter than the passage of 16"]),
        ({"recall.passage": 9}, ["passage must be more than the 9 tokens that tell a copy"]),
        ({"recall.passages": '"songs"'}, ["passages must be one of random, text, not 'songs'"]),
        ({"generate.temperature": -1}, ["temperature must be a number from 0"]),
        ({"quality.step_tokens": 0}, ["step_tokens must be from 1"]),
        ({"quality.workload": '"gaussian"'}, ["'quality' runs a model, but its workload is 'gaussian'"]),
        ({"workload.text": '"nowhere.txt"'}, ["nowhere.txt", "does not exist"]),
        ({"workload.tokenizer": '"configs/quality.toml"'}, ["configs/quality.toml"]),
        ({"workload.model": '"configs/quality.toml"'}, ["configs/quality.toml"]),
    ],
)
def test_what_the_model_cannot_do_is_refused_before_anything_is_written(tmp_path, changed, parts):
    done = kvlab("run", CONFIG, "--out", tmp_path / "out", "--no-plots", *settings(changed))
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    for part in parts:
        assert part in done.stderr
    assert not (tmp_path / "out").exists()


def test_another_model_needs_its_own_text(tmp_path):
    model = HOME / "configs/models/kvlab-recall-1m/kvlab-recall-1m.bin"
    done = run(tmp_path / "out", "--model", model)
    assert done.returncode == 2 and "needs all three of model, tokenizer and text" in done.stderr


@pytest.mark.skipif(not DATA.exists(), reason=f"no models in {DATA} (set KVLAB_DATA)")
@pytest.mark.parametrize(
    "tokenizer, text, parts",
    [
        ("tok512.bin", "tinystories_1000.txt", ["tok512.bin", "105"]),
        ("tok105.bin", None, ["outside the tokenizer's vocabulary"]),
    ],
)
def test_the_wrong_tokenizer_is_refused(tmp_path, tokenizer, text, parts):
    if text is None:
        (tmp_path / "greek.txt").write_text("Μῆνιν ἄειδε θεὰ Πηληϊάδεω Ἀχιλῆος " * 100)
    path = DATA / "text" / text if text else tmp_path / "greek.txt"
    done = run(tmp_path / "out", "--model", DATA / "models/babyllama105.bin", "--tokenizer", DATA / "models" / tokenizer,
               "--text", path)  # fmt: skip
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    for part in parts:
        assert part in done.stderr


def test_sample_is_the_same_again_and_refuses_what_is_too_long():
    folder = HOME / "configs/models/kvlab-recall-1m"
    args = ["sample", "--model", folder / "kvlab-recall-1m.bin", "--tokenizer", folder / "tok512.bin"]
    first, again = (kvlab(*args, "--tokens", 20, "--documents", 2, "--seed", 3).stdout for _ in range(2))
    assert first == again and first.count("\n<|endoftext|>\n") == 2
    assert first != kvlab(*args, "--tokens", 20, "--documents", 2, "--seed", 4).stdout
    done = kvlab(*args, "--tokens", 1024)
    assert done.returncode == 2 and "past the model's 1024 positions" in done.stderr
