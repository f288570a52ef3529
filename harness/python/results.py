"""Runs of the program from Python, and their results as Polars frames and Altair charts.

The program is started as `./kvlab run` starts it. The charts are those of the report, drawn by the same functions.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from kvlab import charts

if TYPE_CHECKING:
    import pandas

PACKAGE = Path(__file__).parent
# The launcher's settings, for the same reasons: waiting threads sleep soon, and large blocks use huge pages.
SETTINGS = {"GOMP_SPINCOUNT": "1000", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
CELL_FAILED, USER_ERROR = 1, 2


@dataclass(frozen=True)
class Results:
    """A results folder.

    cells      a row for each variant at each sweep point, with the columns of `kvlab list columns` and their types
    growth     a row a step of growth experiments
    positions  a row a bucket of positions of quality experiments
    texts, heads, moments, hits   likewise, of generate, eval and replay experiments
    columns    unit and meaning of each column of cells
    env        the machine and the build, of env.json (of the first host, where a merged folder has several)
    to_pandas  one of these tables as a pandas frame
    plot       the report's figures: plot.pareto() is an Altair chart; dir(plot) has those with something to draw
    """

    folder: Path
    cells: pl.DataFrame
    growth: pl.DataFrame
    positions: pl.DataFrame
    texts: pl.DataFrame
    heads: pl.DataFrame
    moments: pl.DataFrame
    hits: pl.DataFrame
    columns: dict[str, tuple[str, str]]
    env: dict[str, Any]
    config: str
    summary: str = ""  # output of the run

    @cached_property
    def plot(self) -> charts.Plots:
        return charts.Plots(self.folder)

    def to_pandas(self, table: str = "cells") -> pandas.DataFrame:
        """A table as a pandas frame, without pyarrow. Integers are Int64, which can be missing; texts are objects."""
        try:
            import pandas
        except ModuleNotFoundError:
            raise ImportError("to_pandas needs pandas: pip install pandas") from None
        kinds = {pl.Int64: "Int64", pl.Float64: "float64"}
        columns = getattr(self, table)
        return pandas.DataFrame({c.name: pandas.Series(c.to_list(), dtype=kinds.get(c.dtype, "object")) for c in columns})

    def _repr_html_(self) -> str:
        return charts.answers(self.folder)

    def __repr__(self) -> str:
        variants = self.cells["variant"].n_unique()
        return f"<kvlab.Results {str(self.folder)!r}: {self.cells.height} cells of {variants} variants>"


def project_home() -> Path:
    """The folder with configs/ and plots/: $KVLAB_HOME, else the package's own. Throws RuntimeError."""
    home = Path(os.environ.get("KVLAB_HOME") or PACKAGE / "home")
    if not (home / "plots" / "report.py").is_file():
        raise RuntimeError(f"{home} has no plots/report.py; set KVLAB_HOME to kvlab's folder")
    return home


def program() -> Path:
    """$KVLAB_PROGRAM, else the one of the package. Throws RuntimeError."""
    path = Path(os.environ.get("KVLAB_PROGRAM") or PACKAGE / "home" / "bin" / "kvlab")
    if not path.is_file():
        raise RuntimeError(f"{path}: no such program; set KVLAB_PROGRAM to where kvlab is")
    return path


def run(
    config: str | os.PathLike[str] | Mapping[str, Any],
    *,
    out: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Results:
    """Measures what a config says, as `kvlab run`.

    config     a TOML file (a path of the project works from anywhere: "configs/quickstart.toml"), or its content as a dict
    out        the results folder; a new temporary one where it is left out
    overrides  as --set: {"decode.seq_len": [256, 512]}

    Throws ValueError with the program's line for a mistake in the config, RuntimeError where the program fails. A cell that
    failed its verification is a row whose status says so.
    """
    with tempfile.TemporaryDirectory(prefix="kvlab-config-") as scratch:
        words = ["run", written(config, Path(scratch))]
        for key, value in (overrides or {}).items():
            words += ["--set", f"{key}={toml_value(value)}"]
        return measured(words, out)


def eval(
    tensors: str | os.PathLike[str] | Mapping[str, Any],
    variants: Sequence[str],
    *,
    out: str | os.PathLike[str] | None = None,
    prompt: int = 0,
    context: int | None = None,
    threads: int | None = None,
) -> Results:
    """Runs your own Q, K and V through variants, as `kvlab eval`: bytes and errors against FP64.

    tensors    arrays "q" [layers, q_heads, tokens, head_dim], "k" and "v" [layers, kv_heads, tokens, head_dim], after RoPE;
               or a safetensors file of them
    variants   specs: ["contiguous/f16", "paged/q8_0"]
    prompt     the first tokens, read as one causal prefill
    context    tokens of the context that errors are to speak of; 8,192 where it is left out

    Throws as `run` does.
    """
    with tempfile.TemporaryDirectory(prefix="kvlab-tensors-") as scratch:
        words = ["eval", saved(tensors, Path(scratch)), "--variants", ";".join(variants), "--prompt", prompt]
        for option, value in (("--context", context), ("--threads", threads)):
            words += [] if value is None else [option, value]
        return measured(words, out)


def measured(words: Sequence[Any], out: str | os.PathLike[str] | None) -> Results:
    """The results of the program with these words."""
    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="kvlab-"))
    settings = {name: os.environ.get(name, value) for name, value in SETTINGS.items()}
    environment = {**os.environ, **settings, "KVLAB_HOME": str(project_home()), "KVLAB_PYTHON": ""}
    if not (project_home() / ".venv-peers").is_dir():  # `pip install '.[peers]'` has its own
        environment.setdefault("KVLAB_PEERS_PYTHON", sys.executable)
    command = [str(word) for word in (program(), *words, "--out", folder, "--no-plots")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode not in (0, CELL_FAILED):
        said = (done.stderr or done.stdout).strip() or f"kvlab ended with {done.returncode}"
        raise (ValueError if done.returncode == USER_ERROR else RuntimeError)(said.removeprefix("error: "))
    return load(folder, summary=done.stdout)


def saved(tensors: str | os.PathLike[str] | Mapping[str, Any], scratch: Path) -> Path:
    """A file of tensors; made of arrays."""
    if not isinstance(tensors, Mapping):
        return Path(tensors)
    import numpy
    from safetensors.numpy import save_file

    path = scratch / "tensors.safetensors"
    arrays = {name: numpy.asarray(array) for name, array in tensors.items()}
    save_file({name: numpy.ascontiguousarray(a if a.dtype == numpy.float16 else a.astype("f4")) for name, a in arrays.items()}, path)
    return path


def written(config: str | os.PathLike[str] | Mapping[str, Any], scratch: Path) -> Path:
    """A config's file; made of a dict."""
    if not isinstance(config, Mapping):
        return Path(config)
    import tomli_w

    path = scratch / "config.toml"
    path.write_text(tomli_w.dumps(config), encoding="utf-8")
    return path


def toml_value(value: Any) -> str:
    import tomli_w

    return tomli_w.dumps({"x": value}).partition("=")[2].strip().replace("\n", " ")


def load(folder: str | os.PathLike[str], *, summary: str = "") -> Results:
    """Reads a results folder, one that holds cells.csv. Throws ValueError with the file and the line that is wrong."""
    runs = charts.load_runs(Path(folder))
    columns = runs[0].columns
    tables = ("cells", "growth", "positions", "texts", "heads", "moments", "hits")
    frames = {name: typed(pl.concat([getattr(r, name) for r in runs], how="diagonal_relaxed"), columns) for name in tables}
    meanings = {column.name: (column.unit, column.meaning) for column in columns.values()}
    return Results(Path(folder), **frames, columns=meanings, env=runs[0].env, config=runs[0].config, summary=summary)


def typed(table: pl.DataFrame, columns: Mapping[str, Any]) -> pl.DataFrame:
    """With integers as columns.json has them, and each column under its present name alone."""
    known = {name: columns[name] for name in table.columns if name in columns}
    renamed = [name for name, column in known.items() if name != column.name and column.name in table.columns]
    integers = [name for name, column in known.items() if column.type == "integer" and name not in renamed]
    return table.drop(renamed).with_columns(pl.col(integers).cast(pl.Int64))
