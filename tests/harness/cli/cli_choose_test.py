"""`kvlab choose`: the caches for a model, a context and a memory, by measurement."""

import json

import pytest
from program import HOME, assert_refused, kvlab, succeeded, table

MODEL = HOME / "configs/models/kvlab-recall-1m"
ASKED = {"model": MODEL, "text": MODEL / "sample.txt", "context": "1K",
         "memory": "1MiB", "max-loss": "0.02", "window": 128, "windows": 8}  # fmt: skip


def choose(runs, *flags, **changed):
    asked = {**ASKED, **{name.replace("_", "-"): value for name, value in changed.items()}, "runs": runs}
    return kvlab("choose", *(word for name, value in asked.items() if value is not None for word in ("--" + name, value)), *flags)


def layers_bytes(bits):
    """Of 6 layers with 2 KV heads of 32 and 1,024 tokens."""
    return int(6 * 2 * 2 * 32 * 1024 * bits / 8)


def test_a_choice_fits_keeps_the_limit_and_was_confirmed_elsewhere(tmp_path):
    done = succeeded(choose(tmp_path / "runs", format="json"))
    rows = {row["variant"]: row for row in json.loads(done.stdout)}
    assert rows["contiguous/f16"]["bytes"] == layers_bytes(16) and rows["contiguous/f16"]["answer"] == "too_large"
    assert rows["contiguous/q8_0"]["bytes"] == layers_bytes(8.5)
    best = [row for row in rows.values() if row["answer"] == "best"]
    confirmed = [row for row in rows.values() if "held_out" in row]
    assert best and len(confirmed) <= 6
    least = min(confirmed, key=lambda row: row["held_out"])
    assert least["answer"] == "best"
    for row in best:
        assert row["bytes"] <= 1 << 20 and row["held_out"] < row["held_out_bound"] <= 0.02
        assert row["held_out_ci_low"] <= least["held_out_ci_high"]
        assert 0 < row["user_tokens_per_s_ci_low"] <= row["user_tokens_per_s"] <= row["user_tokens_per_s_ci_high"]
    timed = table(tmp_path / "runs" / "speed" / "cells.csv")
    assert {row["variant"] for row in timed} == {row["variant"] for row in rows.values() if "user_tokens_per_s" in row}
    assert {(row["seq_len"], row["batch"], row["context"]) for row in timed} == {("1024", "1", "synthetic")}
    # Both readings are of the same caches and length, the second behind the first.
    calibration, confirmation = (table(tmp_path / "runs" / name / "cells.csv") for name in ("calibration", "confirmation"))
    untested = {variant: row for variant, row in rows.items() if row["answer"] == "untested"}
    assert {row["variant"] for row in calibration} == {*rows, "contiguous"} - untested.keys()
    # With residual=128 nothing is encoded in windows of 128 tokens: such caches are neither measured nor named.
    assert {*untested} > {"contiguous/kivi(bits=2)", "contiguous/kivi"} and "calibrated" not in untested["contiguous/kivi(bits=2)"]
    for row in rows.values():
        assert (row["window"], row["stated_context"]) == (128, 1024)
        assert (row["answer"] == "untested") == (row["encoded_share"] < 0.9 * row["context_encoded_share"])
    assert {row["variant"] for row in confirmation} == {*(row["variant"] for row in confirmed), "contiguous"}
    assert calibration[0]["loss"] != confirmation[0]["loss"]
    for row in calibration[1:]:
        assert float(row["loss_change"]) == pytest.approx(rows[row["variant"]]["calibrated"], abs=1e-12)
    assert "text_from = 1024" in (tmp_path / "runs" / "confirmation" / "config.toml").read_text()


def test_a_mixture_by_layer_is_measured_like_the_others(tmp_path):
    done = succeeded(choose(tmp_path / "runs", "--mixture", memory="500KiB", format="json", window=1024, windows=1))
    *_, mixture = json.loads(done.stdout)
    assert " + " in mixture["variant"] and "f16" not in mixture["variant"].split(" + ")[0]
    # The solver spends what a uniform format leaves, and sees what each codec does in each layer's K and V.
    assert layers_bytes(4.5) < mixture["bytes"] <= 500 << 10
    layers = table(tmp_path / "runs" / "layers" / "cells.csv")
    alone = [row for row in layers if row["sensitive_layer"]]
    assert len(alone) == 6 * 2 * 4 and {row["seq_len"] for row in layers} == {"256"}


def test_the_answer_is_its_first_line(tmp_path):
    done = succeeded(choose(tmp_path / "runs", memory="2MiB", users=2))
    text = " ".join(done.stdout.split())
    assert "keeps kvlab-recall-1m within 0.02 nats of the full f32 cache at 128 tokens, in" in text
    assert "Left out: contiguous/kivi(bits=2), not put to the test at 128 tokens: 0 % of its tokens were encoded, at 1,024 tokens 58 %" in text
    assert "for 2 users of 1,024 tokens" in text and "the best again on as many that follow" in text
    assert "Each user gets" in text and "tokens per second on this machine" in text and "Left out because" not in text


def test_too_few_minutes_are_refused_after_one_window(tmp_path):
    assert_refused(choose(tmp_path / "runs", minutes="1e-6"), "--minutes 1e-06 is too short for 8 windows of 128 tokens", "give --minutes", out=tmp_path / "runs")


def test_where_nothing_keeps_the_limit_the_line_says_what_would(tmp_path):
    done = choose(tmp_path / "runs", memory="500KiB", max_loss="1e-9")
    assert_refused(done, "no cache loses at most 1e-09 nats in 500KiB for 1 user of 1,024 tokens", "loses", "or a larger --max-loss")


def test_a_rate_that_no_cache_reaches_is_refused_with_the_fastest(tmp_path):
    done = choose(tmp_path / "runs", tokens_per_second=1e9)
    assert_refused(done, "gives 1 user of 1,024 tokens 1e+09 tokens per second each: the fastest, contiguous/", "Give a smaller --tokens-per-second")


def test_a_time_that_has_room_for_all_changes_nothing(tmp_path):
    whole, timed = (succeeded(choose(tmp_path / name, format="json", **more)) for name, more in (("a", {}), ("b", {"minutes": 10})))
    losses = [{row["variant"]: row.get("held_out") for row in json.loads(done.stdout)} for done in (whole, timed)]
    assert losses[0] == losses[1] and len(table(tmp_path / "b" / "first_window_128" / "cells.csv")) == 1 + len(losses[0])


def test_windows_are_as_long_as_the_context_and_all_is_put_to_the_test(tmp_path):
    rows = json.loads(succeeded(choose(tmp_path / "runs", window=None, windows=2, context="512", format="json")).stdout)
    assert {(row["window"], row["stated_context"]) for row in rows} == {(512, 512)}
    assert all(row["answer"] != "untested" and row["encoded_share"] == row["context_encoded_share"] for row in rows)
    assert {row["seq_len"] for row in table(tmp_path / "runs" / "calibration" / "cells.csv")} == {"512"}


def test_a_folder_with_other_files_is_kept(tmp_path):
    (tmp_path / "mine").write_text("here")
    assert_refused(choose(tmp_path), "holds other files")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
