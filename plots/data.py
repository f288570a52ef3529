"""Reads results folders into tables. Knows the CSV columns and what a broken file looks like; draws nothing.

An empty CSV field means "not measured" and becomes null, so that no figure shows a zero nobody measured.
"""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import dataclass
from pathlib import Path

import polars as pl

CELL_TEXT = "cell variant device experiment phase workload status reason kernel versus verdict".split()
CELL_NUMBERS = """
    threads layers q_heads kv_heads head_dim batch seq_len
    bytes_payload bytes_metadata bytes_slack bytes_workspace_peak bytes_copied bytes_predicted
    step_p50_us step_p90_us step_p99_us step_max_us step_ci_low_us step_ci_high_us cold_attend_p50_us
    read_gbps ceiling_gbps ceiling_share cold_read_gbps cold_ceiling_gbps cold_ceiling_share
    err_max_abs err_rel_l2 err_cosine err_attn_kl ratio_p50 ratio_ci_low ratio_ci_high
""".split()
# Of experiments that older folders do not know: all null there.
LATER_TEXT = ["series", "arm", "lengths", "bound", "cold_bound"]
LATER_NUMBERS = """
    attend_p50_us cold_ci_low_us cold_ci_high_us err_kernel_rel_l2
    multiply_add_peak_per_s bound_us bound_share cold_bound_us cold_bound_share
    cold_ratio_p50 cold_ratio_ci_low cold_ratio_ci_high
    held_bytes_per_token kept_tokens err_positions
    save_p50_us load_p50_us freeze_p50_us unfreeze_p50_us fork_p50_us saved_bytes fork_bytes
    chunk_tokens waste_share prefill_p50_us prefill_ci_low_us prefill_ci_high_us
    predictions perplexity perplexity_se loss_change loss_change_ci_low loss_change_ci_high kl_median kl_max
    top1_agreement top1_agreement_ci_low top1_agreement_ci_high p_change_rms peak_bytes tokens_per_s
    loss loss_se kl_mean kl_mean_ci_low kl_mean_ci_high kl_p99 distance passage_tokens trained_tokens
    temperature generated_tokens common_tokens_p50 common_tokens_min same_texts
""".split()
GROWTH_TEXT = ["cell", "variant"]
GROWTH_NUMBERS = ["repetition", "token", "append_us", "view_us", "step_us"]
POSITION_TEXT = ["cell", "variant"]
POSITION_NUMBERS = """
    seq_len position_first position_last predictions loss loss_se kl_mean kl_mean_ci_low kl_mean_ci_high top1_agreement
""".split()
TEXTS_TEXT = ["cell", "variant", "prompt", "text", "full_text"]
TEXTS_NUMBERS = ["temperature", "sequence", "common_tokens"]


class BadResults(Exception):
    """The user's results cannot be read; the message is one line: what is wrong, and where."""


@dataclass
class Run:
    name: str
    folder: Path
    cells: pl.DataFrame  # one row a cell, with the derived columns of `with_memory`
    growth: pl.DataFrame  # one row a step; no rows where the run has no growth experiment
    positions: pl.DataFrame  # one row a bucket of positions of a quality experiment, likewise
    texts: pl.DataFrame  # one row a text of a generate experiment
    env: dict
    config: str  # the TOML as run, or ""


def load_runs(folders: list[Path]) -> list[Run]:
    """Reads every folder; runs are named by folder, and by parent/folder where that is ambiguous."""
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = ["/".join(folder.resolve().parts[-2:]) for folder in folders]
    if len(set(names)) < len(names):
        raise BadResults(f"{folders[0]}: two of the folders carry the same name, or one was given twice")
    return [load_run(folder, name) for folder, name in zip(folders, names)]


def load_run(folder: Path, name: str) -> Run:
    if not folder.is_dir():
        raise BadResults(f"{folder}: no such folder; give a results folder, one that holds cells.csv")
    cells = read_csv(folder / "cells.csv", CELL_TEXT, CELL_NUMBERS, LATER_TEXT, LATER_NUMBERS)
    if cells.is_empty():
        raise BadResults(f"{folder / 'cells.csv'}: a header and no rows; the run has not finished a cell yet")
    run = pl.lit(name).alias("run")
    return Run(
        name,
        folder,
        with_memory(cells.with_columns(run)),
        read_if_there(folder / "growth.csv", GROWTH_TEXT, GROWTH_NUMBERS).with_columns(run),
        read_if_there(folder / "positions.csv", POSITION_TEXT, POSITION_NUMBERS).with_columns(run),
        read_if_there(folder / "texts.csv", TEXTS_TEXT, TEXTS_NUMBERS).with_columns(run),
        read_env(folder / "env.json"),
        read_text(folder / "config.toml") if (folder / "config.toml").exists() else "",
    )


def read_if_there(path: Path, text: list[str], numbers: list[str]) -> pl.DataFrame:
    return read_csv(path, text, numbers) if path.exists() else empty_table(text, numbers)


def read_csv(path: Path, text: list[str], numbers: list[str], later_text=(), later_numbers=()) -> pl.DataFrame:
    """The named columns of a CSV file with a header; others are ignored, and the `later` ones may be missing. Throws
    BadResults naming file and line."""
    content = read_text(path)
    if not content.strip():
        raise BadResults(f"{path}: the file is empty; it needs a header line and one row a cell")
    if not content.endswith("\n"):
        last = content.count("\n") + 1
        raise BadResults(f"{path}:{last}: the last line is torn (no line end); finish the run with --resume")
    reader = csv.reader(io.StringIO(content, newline=""))
    header = next(reader)
    missing = [column for column in text + numbers if column not in header]
    if missing:
        raise BadResults(f"{path}: missing column{'s' * (len(missing) > 1)} {', '.join(missing)}")
    text = [*text, *later_text]
    numbers = [*numbers, *later_numbers]
    absent = [column for column in text + numbers if column not in header]
    wanted = [(header.index(column), column, column in numbers) for column in text + numbers if column in header]
    table: dict[str, list] = {column: [] for column in text + numbers}
    for row in reader:
        if len(row) != len(header):
            raise BadResults(
                f"{path}:{reader.line_num}: {len(row)} fields where the header has {len(header)}"
            )
        for index, column, is_number in wanted:
            value = (
                parse_number(row[index], column, path, reader.line_num) if is_number else row[index] or None
            )
            table[column].append(value)
    for column in absent:
        table[column] = [None] * len(table[text[0]])
    return pl.DataFrame(table, schema=empty_table(text, numbers).schema)


def parse_number(field: str, column: str, path: Path, line: int) -> float | None:
    if not field:
        return None
    try:
        value = float(field)
    except ValueError:
        raise BadResults(f"{path}:{line}: {column} is '{field[:40]}', which is not a number") from None
    return value if math.isfinite(value) else None


def empty_table(text: list[str], numbers: list[str]) -> pl.DataFrame:
    return pl.DataFrame(schema={**{c: pl.String for c in text}, **{c: pl.Float64 for c in numbers}})


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadResults(f"{path}: no such file; a results folder holds cells.csv") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadResults(f"{path}: cannot be read ({error})") from None


def read_env(path: Path) -> dict:
    if not path.exists():
        return {}
    try:
        env = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise BadResults(f"{path}:{error.lineno}: not valid JSON ({error.msg})") from None
    if not isinstance(env, dict):
        raise BadResults(f"{path}: holds a JSON {type(env).__name__} where an object is expected")
    return env


def with_memory(cells: pl.DataFrame) -> pl.DataFrame:
    """Adds bytes_peak (held + workspace), bytes_per_token, and its ratio to a contiguous f32 cache's payload."""
    held = (
        pl.col("bytes_payload") + pl.col("bytes_metadata").fill_null(0) + pl.col("bytes_slack").fill_null(0)
    )
    f32_per_token = 2 * pl.col("layers") * pl.col("kv_heads") * pl.col("head_dim") * 4  # K and V
    tokens = pl.col("batch") * pl.col("seq_len")
    tokens = pl.when(tokens > 0).then(tokens)
    return (
        cells.with_columns(bytes_peak=held + pl.col("bytes_workspace_peak").fill_null(0))
        .with_columns(bytes_per_token=pl.col("bytes_peak") / tokens)
        .with_columns(memory_vs_f32=pl.col("bytes_per_token") / f32_per_token)
    )
