"""Reads results folders into tables. Knows what a broken file looks like; draws nothing.

An empty CSV field means "not measured" and becomes null, so that no figure shows a zero nobody measured.
"""

import csv
import io
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
from answers import read_answers, with_conclusions
from columns import BadResults, Column, guessed, printable, read_columns, read_json
from known import STAGE_COLUMNS, learn
from prepare import with_absent

# Written by every experiment of every version.
CELL_COLUMNS = "cell variant device experiment phase workload status threads layers q_heads kv_heads head_dim batch seq_len".split()
# Not measured where no experiment of a folder writes them.
NUMBERS = """
    bytes_payload bytes_metadata bytes_slack bytes_workspace_peak step_p50_us step_ci_low_us step_ci_high_us cold_attend_p50_us read_gbps ceiling_gbps
    ceiling_share cold_read_gbps cold_ceiling_gbps cold_ceiling_share err_rel_l2 kept_tokens
""".split()
TEXTS = "verdict versus noise".split()
# Columns that name a row or what it is compared with: at most so many characters, all of which charts measure.
NAMES = ("cell", "variant", "versus")
LONGEST_NAME = 4096
# Tables of env.json with the texts that titles are made of.
ENV_TEXTS = [("cpu", "model"), ("model", "name"), ("config", "name", "path")]
# Tables beside cells.csv, by Run's name for them: the file, and the columns that are read.
SIDE_TABLES = {
    "growth": ("growth.csv", "cell variant repetition token append_us view_us step_us"),
    "positions": (
        "positions.csv",
        "cell variant seq_len position_first position_last predictions loss loss_se kl_mean kl_mean_ci_low kl_mean_ci_high top1_agreement",
    ),
    "texts": ("texts.csv", "cell variant prompt text full_text temperature sequence common_tokens"),
    "heads": ("heads.csv", "cell variant layer q_head err_rel_l2"),
    "moments": ("replay.csv", "cell variant time_s running waiting payload_bytes slack_bytes other_bytes cached_bytes"),
    "hits": ("hits.csv", "cell variant capacity_bytes block_tokens capacity_blocks hit_rate belady_hit_rate hit_rate_at_any"),
}

JUDGED = re.compile("loss|perplexity|kl_|top1_|p_change|err_|accuracy|credit|right|difference_p")  # columns of cells.csv

HOST = "host"

csv.field_size_limit(2**31 - 1)  # the texts that models write are longer than the module's own limit


@dataclass
class Run:
    name: str
    folder: Path
    cells: pl.DataFrame  # one row a cell, with the derived columns of `with_memory`
    growth: pl.DataFrame  # one row a step; no rows where the run has no growth experiment
    positions: pl.DataFrame  # one row a bucket of positions of a quality experiment, likewise
    texts: pl.DataFrame  # one row a text of a generate experiment
    heads: pl.DataFrame  # one row a query head of an eval
    moments: pl.DataFrame  # one row a stretch of a replay's time
    hits: pl.DataFrame  # one row a capacity of a prefix cache, of a replayed trace
    answers: dict  # answers.json; `point` of a cell numbers its points
    columns: dict[str, Column]  # of cells.csv
    env: dict
    config: str  # the TOML as run, or ""
    host: str = ""  # of a merged run of several, the one whose part this is


def load_runs(folders: list[Path]) -> list[Run]:
    """Reads every folder; runs are named by folder, and by parent/folder where that is ambiguous."""
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = ["/".join(folder.resolve().parts[-2:]) for folder in folders]
    if len(set(names)) < len(names):
        raise BadResults(f"{folders[0]}: two of the folders have the same name, or one was given twice")
    return [part for folder, name in zip(folders, names) for part in by_host(load_run(folder, as_utf8(name)))]


def by_host(run: Run) -> list[Run]:
    """A merged run of several machines as a run each: times of two are never put together."""
    hosts = sorted(run.cells["host"].drop_nulls().unique()) if "host" in run.cells.columns else []
    if len(hosts) < 2:
        return [run]
    known = run.env.get("hosts") if isinstance(run.env.get("hosts"), dict) else {}
    parts = []
    for host in hosts:
        name = f"{run.name} on {host}"
        tables = {
            table: getattr(run, table).filter(pl.col("host") == host).with_columns(run=pl.lit(name))
            for table in ("cells", "growth", "positions", "texts", "moments", "hits")
        }
        env = known.get(host)
        parts.append(replace(run, **tables, name=name, host=host, env=env if isinstance(env, dict) else run.env))
    return parts


def as_utf8(name: str) -> str:
    """A folder's name may be any bytes; what is written into the report may not."""
    return printable(os.fsencode(name).decode("utf-8", "replace"))


def load_run(folder: Path, name: str) -> Run:
    if not folder.is_dir():
        raise BadResults(f"{folder}: no such folder; give a results folder, which has cells.csv")
    columns = read_columns(folder / "columns.json")
    cells = read_csv(folder / "cells.csv", CELL_COLUMNS, columns)
    if cells.is_empty():
        raise BadResults(f"{folder / 'cells.csv'}: a header and no rows; the run has not finished a cell yet")
    if not {*STAGE_COLUMNS, "bits_per_value"} <= set(cells.columns) or not any(column.is_axis for column in columns.values()):
        raise BadResults(f"{folder}: an earlier version wrote it, without columns that charts need; measure it again")
    learn(cells, columns)
    answers = read_answers(folder)
    cells = without_untested(with_conclusions(with_absent(cells, NUMBERS, TEXTS), answers))
    untested = cells.filter(is_untested())["cell"].to_list()
    run = pl.lit(name).alias("run")
    return Run(
        name,
        folder,
        with_memory(cells.with_columns(run)),
        answers=answers,
        columns=columns,
        env=read_env(folder / "env.json"),
        config=read_text(folder / "config.toml") if (folder / "config.toml").exists() else "",
        **{
            table: read_if_there(folder / file, names.split()).filter(~pl.col("cell").is_in(untested)).with_columns(run)
            for table, (file, names) in SIDE_TABLES.items()
        },
    )


def is_untested() -> pl.Expr:
    return (pl.col("verdict") == "untested").fill_null(False)


def without_untested(cells: pl.DataFrame) -> pl.DataFrame:
    """Takes the losses, errors and answers of caches that were not put to the test: no chart, title or sentence is about them."""
    judged = [name for name in cells.columns if JUDGED.match(name)]
    return cells.with_columns(pl.when(~is_untested()).then(pl.col(name)).alias(name) for name in judged)


def read_if_there(path: Path, needed: list[str]) -> pl.DataFrame:
    """With the host where the file has one."""
    if not path.exists():
        return pl.DataFrame(schema={c: dtype(guessed(c, ())) for c in [*needed, HOST]})
    with path.open(encoding="utf-8", errors="replace") as file:
        hosted = HOST in file.readline().rstrip("\r\n").split(",")
    table = read_csv(path, [*needed, HOST] if hosted else needed)
    return table if hosted else table.with_columns(pl.lit(None, pl.String).alias(HOST))


def read_csv(path: Path, needed: list[str], known: Mapping[str, Column] | None = None) -> pl.DataFrame:
    """The `needed` columns of a CSV file with a header, or all where columns are `known`, a renamed one also under its
    earlier names. Throws BadResults naming file and line."""
    header, rows, lines = read_rows(path)
    wanted = needed if known is None else header
    known = known or {}
    named = {alias for name in header if name in known for alias in known[name].aliases} | set(header)
    missing = [name for name in needed if name not in named]
    if missing:
        raise BadResults(f"{path}: missing column{'s' * (len(missing) > 1)} {', '.join(missing)}")
    table: dict[str, pl.Series] = {}
    for name in wanted:
        index = header.index(name)
        fields = [row[index] for row in rows]
        column = known.get(name) or guessed(name, fields)
        if column.is_text:
            values: list = [field or None for field in fields]
            if name in NAMES:
                check_names(fields, name, path, lines)
        else:
            values = [parse_number(field, name, path, line) for field, line in zip(fields, lines)]
        for title in (*column.aliases, name):
            table[title] = pl.Series(title, values, dtype(column))
    return pl.DataFrame(table)


def check_names(fields: list[str], column: str, path: Path, lines: list[int]) -> None:
    """Throws BadResults for a name that no chart can show."""
    for field, line in zip(fields, lines):
        if len(field) > LONGEST_NAME:
            raise BadResults(f"{path}:{line}: {column} has {len(field):,} characters; a name has at most {LONGEST_NAME:,}")
        if not field and column != "versus":
            raise BadResults(f"{path}:{line}: {column} is empty; every row needs it")


def read_rows(path: Path) -> tuple[list[str], list[list[str]], list[int]]:
    """The header, the rows, and the line of the file at which each row ends. Throws BadResults."""
    content = read_text(path).removeprefix("\ufeff")  # spreadsheets begin a CSV file with this mark
    if not content.strip():
        raise BadResults(f"{path}: the file is empty; it needs a header line and one row per cell")
    if not content.endswith("\n"):
        last = content.count("\n") + 1
        raise BadResults(f"{path}:{last}: the last line is incomplete (no line end); finish the run with --resume")
    reader = csv.reader(io.StringIO(content, newline=""))
    rows, lines = [], []
    try:
        header = next(reader)
        for row in filter(None, reader):  # a blank line is no row
            if len(row) != len(header):
                raise BadResults(
                    f"{path}:{reader.line_num}: {len(row)} fields where the header has {len(header)}"
                )
            rows.append(row)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise BadResults(f"{path}:{reader.line_num}: not a CSV file ({error})") from None
    return header, rows, lines


def dtype(column: Column) -> type[pl.DataType]:
    """Integers are floats here too: older folders do not say which columns are, and runs are drawn together."""
    return pl.String if column.is_text else pl.Float64


def parse_number(field: str, column: str, path: Path, line: int) -> float | None:
    if not field:
        return None
    try:
        value = float(field)
    except ValueError:
        raise BadResults(f"{path}:{line}: {column} is '{field[:40]}', which is not a number") from None
    return value if math.isfinite(value) else None


def read_text(path: Path) -> str:
    try:
        return printable(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadResults(f"{path}: no such file; a results folder holds cells.csv") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadResults(f"{path}: cannot be read ({error})") from None


def read_env(path: Path) -> dict:
    """What a run says of its machine and its config; a fact may be missing, but is of its kind. Throws BadResults."""
    if not path.exists():
        return {}
    env = read_json(path)
    if not isinstance(env, dict):
        raise BadResults(f"{path}: holds a JSON {type(env).__name__} where an object is expected")
    for table, *keys in ENV_TEXTS:
        if not isinstance(env.get(table, {}), dict):
            raise BadResults(f"{path}: {table} must be an object")
        for key in keys:
            if not isinstance(env.get(table, {}).get(key, ""), str):
                raise BadResults(f"{path}: {table}.{key} must be text in quotes")
    return env


def with_memory(cells: pl.DataFrame) -> pl.DataFrame:
    """Adds bytes_held, files included, the same per token given, its ratio to a contiguous f32 cache's payload, and bytes_peak:
    the ledger's, or in folders of earlier versions, which lack it, what a step holds (`peak_is_measured` is false)."""
    cells = with_absent(cells, ["peak_bytes", "held_bytes_per_token", "bytes_disk", "model_layers", "model_bytes"])
    held = pl.col("bytes_payload") + pl.sum_horizontal(pl.col("bytes_metadata", "bytes_slack").fill_null(0))
    f32_per_token = 2 * pl.col("layers") * pl.col("kv_heads") * pl.col("head_dim") * 4  # K and V
    tokens = pl.col("batch") * pl.col("seq_len")
    tokens = pl.when(tokens > 0).then(tokens)
    return (
        cells.with_columns(
            bytes_peak=pl.coalesce("peak_bytes", held + pl.col("bytes_workspace_peak").fill_null(0)),
            peak_is_measured=pl.col("peak_bytes").is_not_null(),
            bytes_held=held + pl.col("bytes_disk").fill_null(0),
        )
        .with_columns(bytes_per_token=pl.coalesce("held_bytes_per_token", pl.col("bytes_held") / tokens))
        .with_columns(memory_vs_f32=pl.col("bytes_per_token") / f32_per_token)
    )
