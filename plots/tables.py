"""The report's tables, as printed: what was measured, what models predict, and the texts that they write."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import groupby

import polars as pl
from data import Run
from columns import Column
from known import name_of, spec_of
from prepare import is_aa_test, with_panel
from style import bytes_text, length_text, microseconds_text

CELL = "cell_index"  # of a row: its place among the cells of the report


# A table is of the experiments that write this column; the summary is of all others.
PREDICTIONS, TEXTS, REPLAYS = "perplexity", "common_tokens_p50", "running_p50"


def writers(columns: Mapping[str, Column], *names: str) -> list[str]:
    """The experiments that write one of the columns."""
    return [experiment for name in names if name in columns for experiment in columns[name].experiments]


def summary(cells: pl.DataFrame, columns: Mapping[str, Column]) -> Iterator[tuple[str, list[dict]]]:
    """The table's groups, one a panel and length: (heading, rows)."""
    cells = cells.filter(~pl.col("experiment").is_in(writers(columns, PREDICTIONS, TEXTS, REPLAYS)))
    rows = with_panel(cells).with_columns(aa_test=is_aa_test(), first=pl.col(CELL).min().over("panel"))
    rows = rows.sort("first", "seq_len", maintain_order=True)
    for (panel, length), group in groupby(named_rows(rows), key=lambda row: (row["panel"], row["seq_len"])):
        heading = f"{length_text(length)} tokens" if length is not None else "length not recorded"
        yield " · ".join(part for part in (heading, panel) if part), [summary_row(row) for row in group]


def named_rows(rows: pl.DataFrame) -> Iterator[Mapping]:
    """With None in the columns that folders of earlier versions lack."""
    return (defaultdict(lambda: None, row) for row in rows.iter_rows(named=True))


def common(row: Mapping) -> dict:
    """What a row of any table has; one that is not `ok` shows its reason in place of numbers."""
    spec = spec_of(row["variant"] or "")
    return {
        "cell": row[CELL],
        "variant": row["variant"] or "no variant",
        "keeps_all": row["keeps_all"] == 1,
        **{stage: name_of(getattr(spec, stage)) for stage in ("placement", "codec", "retention", "selection")},
        "status": (row["status"] or "no status").replace("_", " "),
        "ok": row["status"] == "ok",
        "reason": row["reason"] or "no reason recorded",
    }


def summary_row(row: Mapping) -> dict:
    return {
        **common(row),
        "memory": bytes_text(row["bytes_peak"]),
        "per_token": bytes_text(row["bytes_per_token"]),
        "versus_f32": number(row["memory_vs_f32"], ".3f", "×"),
        "step": microseconds_text(row["step_p50_us"]),
        "step_interval": span(row["step_ci_low_us"], row["step_ci_high_us"], microseconds_text),
        "cold": microseconds_text(row["cold_attend_p50_us"]),
        "share": number(row["ceiling_share"], ".0%"),
        "ratio": number(row["ratio_p50"], ".3f", "×"),
        "ratio_interval": span(row["ratio_ci_low"], row["ratio_ci_high"], lambda v: f"{v:.3f}"),
        "versus": row["versus"] or "",
        "verdict": "A/A test" if row["aa_test"] else row["verdict"] or "–",
        "noise": row["noise"] or "",
        "error": number(row["err_rel_l2"], ".2e"),
        "max_abs": number(row["err_max_abs"], ".2e"),
        "cosine": number(row["err_cosine"], ".6f"),
        "kl": number(row["err_attn_kl"], ".2e"),
        "kernel": row["kernel"] or "–",
    }


def tiers(cells: pl.DataFrame) -> Iterator[tuple[str, list[dict]]]:
    """The groups of the table of placements with several tiers: (heading, rows)."""
    if "bytes_warm" not in cells.columns:
        return
    rows = cells.filter(pl.col("bytes_warm").is_not_null() & (pl.col("status") == "ok"))
    if rows.is_empty():
        return
    rows = with_panel(rows).sort("experiment", "panel", "seq_len", maintain_order=True)
    keys = ("experiment", "panel", "seq_len")
    for key, group in groupby(named_rows(rows), key=lambda row: tuple(row[k] for k in keys)):
        experiment, panel, length = key
        heading = " · ".join(part for part in (experiment, f"{length_text(length)} tokens", panel) if part)
        yield heading, [tiers_row(row) for row in group]


def tiers_row(row: Mapping) -> dict:
    one = lambda tier: {  # noqa: E731
        "held": bytes_text(row[f"bytes_{tier}"]),
        "read": bytes_text(row[f"read_{tier}_bytes"]),
        "gbps": number(row[f"{tier}_read_gbps"], ".3g"),
        "share": number(row[f"{tier}_ceiling_share"], ".0%"),
    }
    return {
        **common(row),
        **{tier: one(tier) for tier in ("hot", "warm", "disk")},
        "device": number(row["disk_device_share"], ".0%"),
        "bound": microseconds_text(row["tier_bound_us"]),
        "limit": row["tier_bound"] or "",
        "attend": microseconds_text(row["attend_p50_us"]),
    }


def replays(cells: pl.DataFrame, columns: Mapping[str, Column]) -> Iterator[tuple[str, list[dict]]]:
    """The groups of the table of replays, one a sweep point: (heading, rows)."""
    rows = cells.filter(pl.col("experiment").is_in(writers(columns, REPLAYS)))
    if rows.is_empty():
        return
    rows = with_panel(rows).sort("panel", maintain_order=True)
    for panel, group in groupby(named_rows(rows), key=lambda row: row["panel"]):
        found = list(group)
        yield panel or found[0]["workload"] or "", [replay_row(row) for row in found]


def replay_row(row: Mapping) -> dict:
    seconds = lambda value: f"{value:.3g}"  # noqa: E731
    return {
        **common(row),
        "running": number(row["running_p50"], ",.0f"),
        "running_most": number(row["running_peak"], ",.0f"),
        "waiting": number(row["waiting_p50"], ",.0f"),
        "waiting_most": number(row["waiting_peak"], ",.0f"),
        "held": bytes_text(row["held_peak_bytes"]),
        "fragmentation": number(row["fragmentation_share"], ".1%"),
        "preempted": number(row["preemptions_per_1000"], ",.1f"),
        "refused": number(row["refused"], ",.0f"),
        "hit_rate": number(row["hit_rate"], ".1%"),
        "curve": number(row["hit_rate_curve"], ".1%"),
        "ttft": number(row["ttft_p99_s"], ".3g", " s"),
        "ttft_interval": span(row["ttft_p99_s_ci_low"], row["ttft_p99_s_ci_high"], seconds),
        "tpot": number(row["tpot_p99_ms"], ".3g", " ms"),
        "good": number(row["good_share"], ".1%"),
        "good_interval": span(row["good_share_ci_low"], row["good_share_ci_high"], lambda v: f"{v:.1%}"),
        "times_from": row["times_from"] or "",
    }


def predictions(cells: pl.DataFrame, columns: Mapping[str, Column]) -> Iterator[tuple[str, list[dict]]]:
    """The groups of the table of what models predict with the caches: (heading, rows)."""
    for experiment in writers(columns, PREDICTIONS):
        rows = cells.filter(pl.col("experiment") == experiment)
        if rows.is_empty():
            continue
        rows = with_panel(rows).sort("panel", "seq_len", maintain_order=True)
        keys = ("panel", "seq_len", "distance")
        for key, group in groupby(named_rows(rows), key=lambda row: tuple(row[k] for k in keys)):
            panel, length, distance = key
            place = f"distance {distance:.0f}" if distance is not None else f"{length_text(length)} tokens"
            heading = " · ".join(part for part in (experiment, place, panel) if part)
            yield heading, [prediction_row(row) for row in group]


def prediction_row(row: Mapping) -> dict:
    change = lambda value: f"{value:+.2g}"  # noqa: E731
    return {
        **common(row),
        "per_token": bytes_text(row["held_bytes_per_token"]),
        "peak": bytes_text(row["peak_bytes"]),
        "perplexity": number(row["perplexity"], ".4g"),
        "perplexity_error": "" if row["perplexity_se"] is None else f"± {row['perplexity_se']:.2g}",
        "change": number(row["loss_change"], "+.2g"),
        "change_interval": span(row["loss_change_ci_low"], row["loss_change_ci_high"], change),
        "kl": number(row["kl_mean"], ".2e"),
        "kl_p50": number(row["kl_median"], ".1e"),
        "kl_p99": number(row["kl_p99"], ".1e"),
        "kl_max": number(row["kl_max"], ".1e"),
        "top1": number(row["top1_agreement"], ".2%"),
        "p_change": number(row["p_change_rms"], ".2%"),
        "tokens_per_s": number(row["tokens_per_s"], ".0f"),
        "verdict": row["verdict"] or "–",
    }


def generated(runs: list[Run]) -> Iterator[tuple[str, list[dict]]]:
    """Texts side by side with the full f32 cache's, a group a prompt and temperature: (heading, rows)."""
    for run in runs:
        order = ["temperature", "sequence"]
        rows = run.texts.sort(order, maintain_order=True).iter_rows(named=True)
        for (temperature, sequence), group in groupby(rows, key=lambda row: tuple(row[k] for k in order)):
            texts = list(group)
            how = "greedy" if temperature == 0 else f"temperature {temperature:g}"
            named = f"{run.name} · " if len(runs) > 1 else ""
            yield f"{named}{how} · prompt {sequence + 1:.0f}", [text_row(row) for row in texts]


def text_row(row: dict) -> dict:
    """The two texts, each split where they begin to differ."""
    text, full = row["text"] or "", row["full_text"] or ""
    common = os.path.commonprefix([text, full])
    common_tokens = row["common_tokens"]
    return {
        "variant": row["variant"],
        "prompt": row["prompt"] or "",
        "differs": "never" if common_tokens is None else f"after {common_tokens:.0f} token{'s' * (common_tokens != 1)}",
        "common": common,
        "rest": text[len(common) :],
        "full_rest": full[len(common) :],
    }


def number(value: float | None, form: str, unit: str = "") -> str:
    return "–" if value is None else f"{value:{form}}{unit}"


def span(low: float | None, high: float | None, write) -> str:
    return "" if low is None or high is None else f"{write(low)} – {write(high)}"
