"""The experiments that run a model, as users meet them: the config that comes with kvlab, and what is refused."""

import json
import math

import pytest
from program import ENV, HOME, assert_refused, by_variant, kvlab, results_of, succeeded, table
from program import run as run_config

CONFIG = HOME / "configs" / "quality.toml"
MODEL = HOME / "configs/models/kvlab-recall-1m"
VARIANTS = '["contiguous","contiguous/f16","paged","contiguous/token(bits=2)","contiguous/ring(window={budget})"]'
SMALL = {
    "quality.variants": VARIANTS, "quality.budget": "16", "quality.seq_len": 40, "quality.batch": 5, "quality.stated_context": 40,
    "recall.variants": VARIANTS, "recall.budget": "16", "recall.distance": "[20,30]", "recall.passage": 16,
    "recall.batch": 5,
    "generate.variants": VARIANTS, "generate.budget": 16, "generate.seq_len": 32, "generate.batch": 2, "generate.prompt": 20,
}  # fmt: skip


def run(out, *args, **changed):
    changed = {key.replace("__", "."): value for key, value in changed.items()}
    return run_config(CONFIG, out, {**SMALL, **changed}, *args, cwd="/")


def cells_of(out, *args, **changed):
    succeeded(run(out, *args, **changed))
    return table(out / "cells.csv")


results = results_of(CONFIG, SMALL, cwd="/")


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
            kl_mean_ci_low kl_mean_ci_high kl_median kl_p99 kl_p999 kl_max top1_agreement p_change_rms held_bytes_per_token
            peak_bytes tokens_per_s cache_seconds shared_seconds bytes_payload""".split():
            assert row[column] != "", column
        low, change, high = (float(row["loss_change" + end]) for end in ("_ci_low", "", "_ci_high"))
        assert low <= change <= high
        assert float(row["kl_median"]) <= float(row["kl_p99"]) <= float(row["kl_p999"]) <= float(row["kl_max"])
        assert int(row["peak_bytes"]) >= int(row["bytes_payload"])
        seconds = float(row["cache_seconds"]) + float(row["shared_seconds"])
        assert float(row["cache_seconds"]) > 0 and float(row["tokens_per_s"]) == pytest.approx(200 / seconds, rel=1e-4)
    assert len({row["shared_seconds"] for row in rows}) == 1


def test_verdicts_say_what_intervals_say(results):
    rows = by_variant(rows_of(results, "quality"))
    assert rows["contiguous"]["verdict"] == "baseline"
    assert rows["paged"]["verdict"] == "identical" and float(rows["paged"]["kl_max"]) == 0
    assert rows["contiguous/f16"]["verdict"] in ("ambiguous", "negligible")
    assert rows["contiguous/token(bits=2)"]["verdict"] == "worse"
    assert float(rows["contiguous/token(bits=2)"]["loss_change_ci_low"]) > 0


def test_what_a_text_is_too_short_for_is_untested(tmp_path):
    variants = ["contiguous", "contiguous/f16", "contiguous/kivi(bits=2)", "contiguous/ring(window=64)", "contiguous/topk(rows=64)"]
    done = succeeded(run(tmp_path, experiment="quality", quality__variants=json.dumps(variants), quality__stated_context=512))
    rows = by_variant(table(tmp_path / "cells.csv"))
    verdicts = {variant: row["verdict"] for variant, row in rows.items()}
    assert verdicts.pop("contiguous/f16") in ("ambiguous", "negligible")
    assert verdicts == {"contiguous": "baseline", **dict.fromkeys(variants[2:], "untested")}
    shares = "encoded_share dropped_share stated_context context_encoded_share context_dropped_share".split()
    assert [rows["contiguous/f16"][name] for name in shares] == ["1", "0", "512", "1", "0"]
    kivi, ring = ([float(rows[variant][name]) for name in shares] for variant in variants[2:4])
    assert kivi[:4] == [0, 0, 512, pytest.approx(0.36, abs=0.005)] and ring[:2] == [0, 0] and ring[4] > 0.6
    said = " ".join(done.stdout.split())
    assert "Untested: 3 of 5 cells, such as kivi 2-bit residual 128 not put to the test at 40 tokens: 0 % of its tokens were encoded, at 512 tokens 36 %" in said
    assert "smallest contiguous f16" in said  # of those put to the test: the window is smaller


def beside(tmp_path, baseline, **changed):
    """The quality cells by variant, and the buckets of positions, of a run that names a baseline."""
    rows = cells_of(tmp_path, experiment="quality", quality__baseline=f'"{baseline}"', **changed)
    assert rows[0]["variant"] == baseline
    return by_variant(rows), table(tmp_path / "positions.csv")


def test_losses_are_compared_with_the_baseline_that_a_config_names(results, tmp_path):
    coarse = "contiguous/token(bits=2)"
    full = by_variant(rows_of(results, "quality"))
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
    full = by_variant(rows_of(results, "quality"))
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


def assert_buckets_add_up(folder, cells, firsts, columns):
    """A cell's means are those of its buckets of positions, of which each begins behind the one before."""
    buckets = table(folder / "positions.csv")
    for cell in cells:
        own = [row for row in buckets if row["cell"] == cell["cell"]]
        assert [int(row["position_first"]) for row in own] == list(firsts)
        for column in columns:
            mean = sum(float(row[column]) * int(row["predictions"]) for row in own) / int(cell["predictions"])
            assert mean == pytest.approx(float(cell[column]), rel=1e-6, abs=1e-12)


def test_positions_add_up_to_the_cell(results):
    assert_buckets_add_up(results, rows_of(results, "quality"), [0, 16, 32], ["loss", "kl_mean", "top1_agreement"])
    ring = [row for row in table(results / "positions.csv") if row["variant"] == "contiguous/ring(window=16)"]
    assert [row["position_last"] for row in ring] == ["15", "31", "39"]
    assert float(ring[0]["kl_max"]) == 0 < float(ring[1]["kl_mean"])


def test_recall_has_a_row_a_distance(results):
    rows = rows_of(results, "recall")
    assert [(row["distance"], row["seq_len"]) for row in rows] == [("20", "75")] * 5 + [("30", "85")] * 5
    assert {row["passage_tokens"] for row in rows} == {"16"} and {row["predictions"] for row in rows} == {"35"}


def test_texts_are_the_same_up_to_where_they_leave(results):
    cells = {row["cell"]: row for row in rows_of(results, "generate")}
    texts = table(results / "texts.csv")
    assert len(cells) == 5 * 2 and len(texts) == 5 * 2 * 2
    said = (MODEL / "sample.txt").read_text()
    for row in texts:
        assert len(row["prompt"]) > 25 and row["prompt"].strip() in said
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
    cells = by_variant(cells_of(tmp_path / "forked", "--seed", 7, **few, generate__samples=3))
    key = lambda row: (row["variant"], row["sequence"])  # noqa: E731
    forked = table(tmp_path / "forked" / "texts.csv")
    assert len(forked) == 4 * 2 * 3
    for sample in range(3):
        alone = tmp_path / f"alone{sample}"
        succeeded(run(alone, "--seed", 7 + sample, **few))
        own = {key(row): row["text"] for row in table(alone / "texts.csv")}
        assert own == {key(row): row["text"] for row in forked if row["sample"] == str(sample)}
    assert len({row["text"] for row in forked if row["variant"] == "contiguous/f16"}) > 2, "seeds make no difference"
    alone = by_variant(table(tmp_path / "alone0" / "cells.csv"))
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
    again = cells_of(tmp_path / "again", "--threads", 3)
    timed = {"tokens_per_s", "cache_seconds", "shared_seconds", "rss_peak_bytes", "threads"}
    plain = lambda rows: [{c: v for c, v in row.items() if c not in timed} for row in rows]  # noqa: E731
    assert plain(table(results / "cells.csv")) == plain(again)
    for name in ("positions.csv", "texts.csv"):
        assert (results / name).read_text() == (tmp_path / "again" / name).read_text()


def test_the_config_as_run_names_the_projects_files_as_the_project_does(results):
    assert str(HOME) not in (results / "config.toml").read_text()


def test_chunks_say_so_and_prove_it(results, tmp_path):
    for decode, chunked in zip(rows_of(results, "quality"), cells_of(tmp_path / "out", experiment="quality", quality__step_tokens=8), strict=True):
        assert decode["arm"] == decode["chunk_max_diff"] == ""
        assert chunked["arm"] == "chunked" and chunked["chunk_tokens"] == "8"
        assert float(chunked["chunk_max_diff"]) == 0 and chunked["chunk_check"] == "losses"
        assert float(chunked["loss"]) == pytest.approx(float(decode["loss"]), abs=1e-4)


def test_chunks_decide_as_single_tokens_do(tmp_path):
    """The keys of one word have one norm: which of them goes is decided by the last bit of a matrix product, which no chunk changes."""
    knorm, kivi = cells_of(tmp_path / "out", experiment="quality", quality__step_tokens=16, quality__seq_len=256, quality__budget=32,
                           quality__variants=["contiguous/knorm(budget={budget})", "contiguous/kivi(bits=2,residual=0)"])  # fmt: skip
    assert knorm["status"] == kivi["status"] == "ok", knorm["reason"] + kivi["reason"]
    assert knorm["chunk_check"] == "losses" and float(knorm["chunk_max_diff"]) < 2e-3
    assert kivi["chunk_check"] == "by_design"


def test_a_prompt_is_not_scored(tmp_path):
    full, cut = cells_of(tmp_path / "out", experiment="quality", quality__prompt=30,
                         quality__variants=["contiguous", "segmented(rows=16)/snapkv(budget=12,window=4)"])  # fmt: skip
    buckets = [(row["position_first"], row["position_last"]) for row in table(tmp_path / "out" / "positions.csv")]
    assert buckets == [("30", "31"), ("32", "39")] * 2
    assert full["predictions"] == "50" and cut["kept_tokens"] == "22" and float(cut["kl_mean"]) > 0


def test_windows_of_a_text_give_a_models_errors_their_interval(tmp_path):
    """Five windows of 40 tokens, which differ. A pyramid's layers keep what their budgets say."""
    windows = {"experiment": "budget", "budget__workload": "model"}
    rows = cells_of(tmp_path / "out", **windows, budget__seq_len=40, budget__batch=5, measure__steps=4,
                    budget__variants=["contiguous/q4_0", "segmented(rows=4)/f16/pyramid(budget=12,window=4,beta=2)"])  # fmt: skip
    for row in rows:
        assert row["status"] == "ok", row["reason"]
        low, error, high = (float(row[name]) for name in ("err_ci_low", "err_rel_l2", "err_ci_high"))
        assert 0 < low < error < high < 3 * low
    # Six layers keep 16, 14.4, 12.8, 11.2, 9.6 and 8 rows of a prompt of 36, and the four that follow: 16 on average.
    assert [row[name] for name in ("kept_tokens", "kept_tokens_min", "kept_tokens_max")] == ["16", "12", "20"]
    assert row["eviction_check"] == "fp64" and int(row["policy_choices"]) > 0
    refused = run(tmp_path / "no", **windows, budget__seq_len=1000, budget__batch=99, budget__variants=["contiguous"])
    assert_refused(refused, "99 windows of 1000 need 99001")


def test_windows_begin_where_a_config_says(tmp_path):
    one = {"experiment": '"quality"', "quality.variants": '["contiguous"]', "quality.seq_len": 40}
    losses = []
    for name, batch, from_token in (("both", 2, 0), ("first", 1, 0), ("second", 1, 40)):
        (row,) = cells_of(tmp_path / name, **one, quality__batch=batch, workload__text_from=from_token)
        losses.append(float(row["loss"]))
    assert losses[1] != losses[2] and losses[0] == pytest.approx((losses[1] + losses[2]) / 2, rel=1e-6)


def test_each_of_several_texts_is_read_as_if_alone(results, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text((MODEL / "sample.txt").read_text()[2000:])
    both, alone = tmp_path / "both", tmp_path / "alone"
    rows = cells_of(both, "--text", MODEL / "sample.txt", "--text", other, experiment='"quality"')
    assert [row["workload"] for row in rows] == 5 * ["sample"] + 5 * ["other"]
    assert "quality, other, batch 5" in succeeded(kvlab("summary", both)).stdout
    assert [text["name"] for text in json.loads((both / "env.json").read_text())["text"]] == ["sample.txt", "other.txt"]
    expected = rows_of(results, "quality") + cells_of(alone, experiment='"quality"', workload__text=f'"{other}"')
    for column in "variant loss kl_mean loss_change_ci_high verdict bytes_payload".split():
        assert [row[column] for row in rows] == [row[column] for row in expected]


def test_texts_of_a_prompt_that_is_cut(tmp_path):
    rows = cells_of(tmp_path / "out", experiment="generate",
                    generate__variants=["segmented(rows=16)/snapkv(budget=12,window=4)", "contiguous/kivi(bits=2,residual=0)"])  # fmt: skip
    assert {row["status"] for row in rows} == {"ok"}


def test_another_model_needs_its_own_tokenizer(tmp_path):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(MODEL / name)
    assert_refused(run(tmp_path / "out", "--model", tmp_path), "needs a tokenizer")


def test_the_config_of_a_real_model_takes_another_one():
    listed = kvlab("run", HOME / "configs/real.toml", "--model", MODEL,
                   "--text", MODEL / "sample.txt", "--list-shards", 1)  # fmt: skip
    assert "quality model b8 s512" in succeeded(listed).stdout


def test_without_a_text_pythons_documentation_is_read(tmp_path):
    from pydoc_data.topics import topics

    out = tmp_path / "out"
    cells_of(out, "--model", MODEL, experiment='"quality"')
    text = json.loads((out / "env.json").read_text())["text"]
    assert text["name"] == "pydoc_topics.txt" and len(text["hash"]) == 16
    read = max((HOME / ".models").glob("*-text-*/pydoc_topics.txt"), key=lambda path: path.stat().st_mtime)
    assert all(topic.strip() in read.read_text() for topic in topics.values())


def test_without_python_ids_are_read_and_text_is_refused(tmp_path):
    for name in ("harness", "configs"):
        (tmp_path / name).symlink_to(HOME / name)
    (tmp_path / "ids.u16").write_bytes(bytes([7, 1]) * 100)
    bare = {"env": {**ENV, "KVLAB_HOME": str(tmp_path)}}
    few = {**SMALL, "experiment": "generate"}
    succeeded(run_config(CONFIG, tmp_path / "out", {**few, "workload.text": tmp_path / "ids.u16"}, **bare))
    assert {row["prompt"] for row in table(tmp_path / "out/texts.csv")} == {" ".join(["263"] * 20)}
    for done in (run_config(CONFIG, tmp_path / "refused", few, **bare), kvlab("sample", "--model", MODEL, **bare)):
        assert_refused(done, "needs the Python environment .venv in", "which ./kvlab makes", out=tmp_path / "refused")


def test_the_wrong_tokenizer_is_refused(tmp_path):
    content = json.loads((MODEL / "tokenizer.json").read_text())
    content["model"]["vocab"]["<0x00>"] = 600
    (tmp_path / "more.json").write_text(json.dumps(content))
    (tmp_path / "zeros.txt").write_bytes(b"a\0b")
    of = ("--model", MODEL, "--tokenizer", tmp_path / "more.json", "--text")
    assert_refused(run(tmp_path / "out", *of, tmp_path / "zeros.txt"), "zeros.txt by", "more.json: id 600 at place", "vocabulary, 0 to 511")
    content["model"]["byte_fallback"] = False
    (tmp_path / "more.json").write_text(json.dumps(content))
    (tmp_path / "greek.txt").write_text("Μῆνιν ἄειδε θεὰ Πηληϊάδεω Ἀχιλῆος " * 100)
    assert_refused(run(tmp_path / "out", *of, tmp_path / "greek.txt"), "is outside the vocabulary of")


def test_sample_is_the_same_again():
    folder = HOME / "configs/models/kvlab-recall-1m"
    args = ["sample", "--model", folder]
    first, again = (kvlab(*args, "--tokens", 20, "--documents", 2, "--seed", 3).stdout for _ in range(2))
    assert first == again and first.count("\n<|endoftext|>\n") == 2
    assert first != kvlab(*args, "--tokens", 20, "--documents", 2, "--seed", 4).stdout


def test_a_summary_says_for_which_caches_a_loss_grows_with_the_position():
    said = " ".join(succeeded(kvlab("summary", HOME / "results/epyc-2core/real_long")).stdout.split())
    assert "with each doubling of the position, from 256 to 8191, the loss grows for" in said
    assert "kivi 2-bit residual 128 +0.042 nats (0.025 to 0.059)" in said
    assert "it does not surely change for q4_0" in said


STREAMED = {
    "stream.variants": ["contiguous", "contiguous/ring(window=64)", "contiguous/ring(window=60,sinks=4,positions=cache)"],
    "stream.recompute": [64], "stream.seq_len": 1280, "stream.step_tokens": 64,
}  # fmt: skip
STREAM = HOME / "configs" / "stream.toml"
streamed = results_of(STREAM, STREAMED)


def test_every_cell_of_a_stream_has_its_numbers(streamed):
    rows = table(streamed / "cells.csv")
    recomputed = "recompute(window=64,stride=32)"
    assert [row["variant"] for row in rows][-1] == recomputed and len(rows) == 4
    for row in rows:
        assert row["status"] == "ok" and row["predictions"] == "1280" and row["versus"] == recomputed
        assert row["trained_tokens"] == "1024"
        assert float(row["perplexity"]) == pytest.approx(math.exp(float(row["loss"])), rel=1e-6)
        assert (row["bytes_payload"] == "") == (row["variant"] == recomputed)
        assert (row["chunk_max_diff"] == "") == (row["variant"] == recomputed)
        assert row["variant"] == recomputed or 0 < float(row["chunk_max_diff"]) < 2e-3
    assert rows[-1]["verdict"] == "baseline" and float(rows[-1]["loss_change"]) == 0
    assert_buckets_add_up(streamed, rows, range(0, 1280, 64), ["loss"])


def test_chunks_of_a_stream_change_nothing(streamed, tmp_path):
    succeeded(run_config(STREAM, tmp_path / "out", {**STREAMED, "stream.step_tokens": 1}))
    for one, other in zip(table(streamed / "cells.csv"), table(tmp_path / "out" / "cells.csv")):
        assert abs(float(one["loss"]) - float(other["loss"])) < 1e-4
