"""The report of one or more folders: what is left out, and why."""

from __future__ import annotations

import csv

from figures.list import FIGURES
from support import left_out, reported
from synthetic import synthetic_run, write_csv


def test_what_was_not_measured_is_left_out(tmp_path):
    folder = synthetic_run(tmp_path / "run", lengths=(256,))
    with (folder / "cells.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        for column in row:
            if column.startswith(("err", "cold", "ceiling", "bytes", "ratio", "append_total", "peak", "model_bytes")) or "ci" in column:
                row[column] = ""
    write_csv(folder / "cells.csv", list(rows[0]), rows)
    (folder / "env.json").unlink()
    (folder / "config.toml").unlink()
    done = reported(folder, "--figures", "svg,png")
    assert done.stdout.splitlines() == [str(folder / "report.html")]
    assert reported(folder, "--why-not", "growth").stdout == "growth: not drawn, no growth experiment was run\n"
    assert list(left_out(folder)) == [figure.name for figure in FIGURES if figure.name != "latency"]
    assert (folder / "figures" / "latency.png").exists()


def test_several_runs_share_one_report(tmp_path):
    runs = [
        synthetic_run(tmp_path / name, lengths=(256, 512), growth_to=4096, cpu=f"CPU {name}")
        for name in ("a", "b")
    ]
    reported(*runs, "--out", tmp_path / "both")
    assert not (runs[0] / "report.html").exists()
    page = (tmp_path / "both" / "report.html").read_text()
    assert "CPU a" in page
    assert "CPU b" in page


def test_a_run_without_growth_says_so(tmp_path):
    reported(synthetic_run(tmp_path / "run", lengths=(256,)))
    assert left_out(tmp_path / "run")["growth"] == "no growth experiment was run"


def test_a_run_of_noise_says_so_before_its_answers(tmp_path):
    """And what to do; its A/A tests, whose intervals are as wide as the noise, are no good sign."""
    folder = synthetic_run(tmp_path / "run", lengths=(256,))
    with (folder / "cells.csv").open() as file:
        rows = list(csv.DictReader(file))
    for quiet in (1, 2):  # one quiet cell of three, and two
        for at, row in enumerate(rows):
            row["noise"] = "" if at % 3 < quiet else f"the step's interval reaches to {2 + at}.5 times its lower end"
        write_csv(folder / "cells.csv", list(rows[0]), rows)
        reported(folder)
        first = (folder / "report.html").read_text().partition('<section id="answers"')[2]
        before = first.partition('data-point="0"')[0]
        assert ("so these times say little. Close other programs, leave cores free (--threads)" in before) == (quiet == 1)
        pill = first.partition("found a difference")[0].rpartition('<span class="tag ')[2]
        assert pill.startswith("noisy" if quiet == 1 else "reproduced")
        assert len(first.partition("Reasons")[2].partition("</details>\n")[0].split("interval reaches")) == 2  # one line, its worst
