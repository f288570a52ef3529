"""A site's cells as its pages have them: one list a row, numbers as measured, and what a browser shows of a folder."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl
from details import commands, tidy
from known import label_of, name_of, spec_of
from prepare import is_aa_test, with_absent
from website.collect import Folder, slug

# Columns of cells.csv that a page has of a cell; the last of COLUMNS are derived here.
TEXTS = "experiment workload variant status reason verdict versus noise arm lengths kernel".split()
NUMBERS = """
    seq_len batch layers model_layers model_bytes q_heads kv_heads head_dim threads distance temperature step_p50_us step_ci_low_us step_ci_high_us
    prefill_p50_us prefill_ci_low_us prefill_ci_high_us ratio_p50 ratio_ci_low ratio_ci_high bytes_per_token err_rel_l2 kl_mean
    loss_change top1_agreement keeps_all
""".split()
COLUMNS = ["folder", "number", "cell", *TEXTS, *NUMBERS, "codec", "placement", "retention", "label", "aa", "within_limit"]


@dataclass(frozen=True)
class Record:
    folder: Folder
    variant: str
    row: list  # by COLUMNS


def records(folder: Folder, number: int) -> Iterator[Record]:
    """One for every cell of the folder, which is the site's `number`-th."""
    cells = with_absent(folder.run.cells, NUMBERS, TEXTS).with_columns(aa=is_aa_test())
    for at, row in enumerate(cells.iter_rows(named=True)):
        variant = row["variant"] or ""
        spec = spec_of(variant)
        stages = [name_of(stage) for stage in (spec.codec, spec.placement, spec.retention)]
        texts = [row[name] or "" for name in TEXTS]
        numbers = [rounded(row[name]) for name in NUMBERS]
        yield Record(folder, variant, [number, at, row["cell"], *texts, *numbers, *stages, label_of(variant), int(row["aa"]), int(row["within_limit"])])


def rounded(value: float | None):
    """To the digits that a page shows; whole numbers stay whole."""
    value = tidy(value)
    return float(f"{value:.6g}") if isinstance(value, float) else value


def folder_data(folder: Folder, number: int) -> dict:
    """Facts about the folder for every page that shows one of its cells."""
    return {
        "number": number,
        "name": folder.name,
        "machine": folder.machine,
        "machinePage": f"machines/{slug(folder.machine)}.html",
        "config": folder.config,
        "configPage": f"configs/{slug(folder.config)}.html",
        "commit": folder.commit,
        "dirty": folder.dirty,
        "aaTests": folder.trust.tests,
        "aaApart": folder.trust.apart,
        "aaFailed": folder.trust.aa_failed,
        "noisy": folder.trust.noisy,
        "cells": folder.run.cells.height,
        "failed": folder.run.cells.filter(pl.col("status") == "failed").height,
        "findings": folder.findings,
        "measured": str(folder.run.env.get("started") or "")[:10],
        "raw": raw_path(folder),
    }


def raw_path(folder: Folder) -> str:
    return f"raw/{slug(folder.machine)}/{slug(folder.name.partition('/')[2])}"


def command_lines(folder: Folder) -> list[str]:
    """The command that measures each cell again, in order."""
    return commands(folder.run.cells, [folder.run])
