"""The report page: one HTML file with the charts, the summary table, the environment and the config inside."""

from __future__ import annotations

import json
import os
from collections import ChainMap, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import jinja2
import polars as pl
from columns import Column
from data import Run
from figures.figure import Figure
from marks import fields_of
from markupsafe import Markup
from prepare import MODEL_EXPERIMENTS, is_aa_test, with_panel
from style import bytes_text, length_text, microseconds_text

HERE = Path(__file__).parent


@dataclass
class Drawn:
    figure: Figure
    spec: dict | None  # Vega-Lite; None where the figure is left out
    left_out: str  # the reason, where it is


def write_page(path: Path, runs: list[Run], drawn: list[Drawn], libraries: str) -> Path:
    """Everything in one file that opens without a network; the template escapes every value from the results."""
    cells = pl.concat([run.cells for run in runs], how="diagonal_relaxed")
    columns = ChainMap(*(run.columns for run in runs))
    template = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True
    ).get_template("page.html")
    page = template.render(
        title=", ".join(run.name for run in runs),
        runs=[(run, run_line(run), list(flatten(run.env))) for run in runs],
        counts=status_counts(cells),
        drawn=drawn,
        columns_drawn=lambda spec: columns_drawn(spec, columns),
        meaning=lambda *names: meaning(columns, *names),
        groups=list(summary(cells.filter(~of_models()))),
        predictions=list(predictions(cells)),
        generated=list(generated(runs)),
        specs=script_json({d.figure.name: d.spec for d in drawn if d.spec}),
        libraries=Markup(libraries.replace("</script", "<\\/script")),
    )
    path.write_text(page, encoding="utf-8")
    return path


def columns_drawn(spec: dict, columns: Mapping[str, Column]) -> list[str]:
    """The columns of cells.csv in a chart whose meaning is known; COLUMN_text is a column as a tooltip writes it."""
    named = {field.removesuffix("_text") for field in fields_of(spec)}
    return [name for name in sorted(named) if name in columns and columns[name].meaning]


def meaning(columns: Mapping[str, Column], *names: str) -> str:
    """A line a column; empty where no columns.json has it."""
    known = [columns[name] for name in names if name in columns and columns[name].meaning]
    return "\n".join(f"{c.name}{f' [{c.unit}]' if c.unit else ''}: {c.meaning}" for c in known)


def script_json(value) -> Markup:
    """JSON that no string inside can end the <script> of."""
    return Markup(json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"))


def run_line(run: Run) -> str:
    """What a figure's title says: machine · model · config."""
    first = run.cells.row(0, named=True)
    machine = nested(run.env, "cpu", "model") or "machine not recorded"
    model = nested(run.env, "model", "name") or geometry(first)
    config = nested(run.env, "config", "name") or nested(run.env, "config", "path") or run.name
    same_threads = run.cells["threads"].n_unique() == 1 and first["threads"]
    threads = f"{first['threads']:.0f} thread{'s' * (first['threads'] != 1)}" if same_threads else ""
    return " · ".join(part for part in (machine, threads, model, f"config {config}") if part)


def geometry(cell: dict) -> str:
    counts = [
        (cell[c], name)
        for c, name in (("layers", "layers"), ("q_heads", "query heads"), ("kv_heads", "KV heads"))
    ]
    shape = [f"{count:.0f} {name}" for count, name in counts if count is not None]
    return ", ".join(shape + ([f"head dim {cell['head_dim']:.0f}"] if cell["head_dim"] else []))


def nested(env: dict, *keys: str):
    for key in keys:
        env = env.get(key) if isinstance(env, dict) else None
    return env


def flatten(value, name: str = "") -> Iterator[tuple[str, str]]:
    """{"cpu": {"cores": 2}} -> ("cpu.cores", "2"); byte counts are written in binary units."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flatten(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        yield name, ", ".join(str(item) for item in value)
    elif value is not None:
        sized = name.endswith("bytes") and isinstance(value, (int, float)) and not isinstance(value, bool)
        yield name, bytes_text(value) if sized else str(value)


def status_counts(cells: pl.DataFrame) -> list[tuple[str, int]]:
    counts = cells["status"].fill_null("no status").value_counts(sort=True)
    return [(status.replace("_", " "), count) for status, count in counts.iter_rows()]


def summary(cells: pl.DataFrame) -> Iterator[tuple[str, list[dict]]]:
    """The table's groups, one a panel and length: (heading, rows)."""
    rows = with_panel(cells).with_columns(aa_test=is_aa_test()).sort("panel", "seq_len", maintain_order=True)
    for (panel, length), group in groupby(named_rows(rows), key=lambda row: (row["panel"], row["seq_len"])):
        heading = f"{length_text(length)} tokens" if length is not None else "length not recorded"
        yield " · ".join(part for part in (heading, panel) if part), [summary_row(row) for row in group]


def named_rows(rows: pl.DataFrame) -> Iterator[Mapping]:
    """With None in the columns that folders of earlier versions lack."""
    return (defaultdict(lambda: None, row) for row in rows.iter_rows(named=True))


def summary_row(row: Mapping) -> dict:
    """One row as it is printed; one that is not `ok` shows its reason in place of numbers."""
    return {
        "variant": row["variant"],
        "status": (row["status"] or "no status").replace("_", " "),
        "ok": row["status"] == "ok",
        "reason": row["reason"] or "no reason recorded",
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


def of_models() -> pl.Expr:
    return pl.col("experiment").is_in(MODEL_EXPERIMENTS)


def predictions(cells: pl.DataFrame) -> Iterator[tuple[str, list[dict]]]:
    """The groups of the table of what models predict with the caches: (heading, rows)."""
    for experiment in ("quality", "recall", "stream"):
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
        "variant": row["variant"],
        "status": (row["status"] or "no status").replace("_", " "),
        "ok": row["status"] == "ok",
        "reason": row["reason"] or "no reason recorded",
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
