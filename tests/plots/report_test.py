"""The report of one or more folders: what is left out, and why; names, tables, and the escaping of values."""

import re
from itertools import count

import polars as pl
import pytest
from figures.figure import Figure
from figures.list import FIGURES
from page import Drawn, script_json, status_counts
from prepare import layers_said
from support import left_out, reported
from synthetic import edit, synthetic_run
from tables import common, named_rows

FIGURE = Figure("latency", "Step latency", "time", "Lower is better.", lambda tables: None)
TIERS = {
    "bytes_hot": "1048576", "bytes_warm": "2097152", "bytes_disk": "3145728",
    "read_hot_bytes": "1572864", "read_warm_bytes": "2621440", "read_disk_bytes": "3670016",
    "hot_read_gbps": "11.5", "hot_ceiling_share": "0.71", "warm_read_gbps": "12.5", "warm_ceiling_share": "0.72",
    "disk_read_gbps": "1.25", "disk_ceiling_share": "0.93", "disk_device_share": "0.99",
    "tier_bound": "disk", "tier_bound_us": "4321",
}  # fmt: skip


def test_what_was_not_measured_is_left_out(tmp_path):
    folder = synthetic_run(tmp_path / "run", lengths=(256,))
    measured = re.compile("err|cold|ceiling|bytes|ratio|append_total|peak|model_bytes|.*ci")
    edit(folder, lambda row: {name: "" if measured.match(name) else value for name, value in row.items()})
    (folder / "env.json").unlink()
    (folder / "config.toml").unlink()
    done = reported(folder, "--figures", "svg,png")
    assert done.stdout.splitlines() == [str(folder / "report.html")]
    assert '<table id="tiered">' not in (folder / "report.html").read_text()
    assert reported(folder, "--why-not", "growth").stdout == "growth: not drawn, no growth experiment was run\n"
    assert list(left_out(folder)) == [figure.name for figure in FIGURES if figure.name != "latency"]
    assert {path.name for path in (folder / "figures").iterdir()} == {"latency.svg", "latency.png"}


def test_several_runs_share_one_report(tmp_path):
    runs = [synthetic_run(tmp_path / name, lengths=(256,), growth_to=64, env={"cpu": {"model": f"CPU {name}"}}) for name in ("a", "b")]
    reported(*runs, "--out", tmp_path / "both")
    assert not (runs[0] / "report.html").exists()
    page = (tmp_path / "both" / "report.html").read_text()
    assert "CPU a" in page and "CPU b" in page


def test_a_run_of_noise_says_so_before_its_answers(tmp_path):
    """And what to do; its A/A tests, whose intervals are as wide as the noise, are no good sign."""
    folder = synthetic_run(tmp_path / "run", lengths=(256,))
    for quiet in (1, 2):  # one quiet cell of three, and two
        at = count()
        noise = lambda: "" if (number := next(at)) % 3 < quiet else f"the step's interval is wide: its upper end is {2 + number}.5 times its lower end"
        reported(edit(folder, lambda row: row | {"noise": noise()}))
        first = (folder / "report.html").read_text().partition('<section id="answers"')[2]
        before = first.partition('data-point="0"')[0]
        assert ("so these times say little. Close other programs, leave cores free (--threads)" in before) == (quiet == 1)
        pill = first.partition("found a difference")[0].rpartition('<span class="tag ')[2]
        assert pill.startswith("noisy" if quiet == 1 else "reproduced")
        assert len(first.partition("Reasons")[2].partition("</details>\n")[0].split("interval is wide")) == 2  # one line, its worst


def test_rows_are_those_with_tiers(tmp_path):
    folder = synthetic_run(tmp_path / "run", lengths=(256, 512))
    reported(edit(folder, lambda row: row | (TIERS if row["variant"] == "contiguous/f16/full" else dict.fromkeys(TIERS, ""))))
    page = (folder / "report.html").read_text()
    table = page[page.index('<table id="tiered">') :]
    body = table[table.index("<tbody>") : table.index("</table>")]
    variants = re.findall(r'data-variant="([^"]*)"', body)
    assert set(variants) == {"contiguous/f16/full"}
    assert len(variants) == 2
    for shown in ("1 MiB", "1.5 MiB", "2 MiB", "2.5 MiB", "3 MiB", "3.5 MiB", "11.5", "71%", "12.5", "72%", "1.25", "93%",
                  "99%", "4.32 ms disk"):  # fmt: skip
        assert shown in body, shown


@pytest.mark.parametrize(("text", "name"), [
    ("Step latency", "Step latency"),
    ("concat takes 4×", "Step latency: concat takes 4×"),
    (["concat takes 4×", "at 1K tokens"], "Step latency: concat takes 4× at 1K tokens"),
    ({"expr": "'Step latency at ' + length"}, "Step latency"),
])
def test_a_figure_is_named_by_what_it_draws_and_by_its_message(text, name):
    assert Drawn(FIGURE, {"title": {"text": text}}, "").name == name


def test_noise_is_said_where_cells_are_counted():
    """With 35 of 42 disturbed, '42 ok' alone would mislead; the noise of one that failed is not counted."""
    rows = [("ok", "others took 40 %", 1.0)] * 35 + [("ok", None, 1.0)] * 7 + [("failed", "others took 40 %", None)]
    assert status_counts(pl.DataFrame(rows, schema=["status", "noise", "step_p50_us"], orient="row")) == [("ok", 42), ("failed", 1), ("noisy", 35)]


@pytest.mark.parametrize(("layers", "of", "said"), [(1, 32, "one layer of 32"), (2, 32, "2 layers of 32"), (24, 24, "all 24 layers"),
                                                    (1, 1, "one layer"), (1, None, "one layer"), (6, None, "6 layers")])  # fmt: skip
def test_a_part_of_a_model_is_never_called_all_of_it(layers, of, said):
    assert layers_said(pl.DataFrame({"layers": [layers, layers], "model_layers": [of, of]})) == said


def test_no_text_ends_the_script_that_it_stands_in():
    assert script_json({"variant": "</script><b>"}) == '{"variant":"\\u003c/script>\\u003cb>"}'


def test_a_row_whose_policy_had_nothing_to_evict_says_so():
    rows = pl.DataFrame({"cell_index": [0, 1], "variant": ["contiguous/ring(window=9)", "contiguous"], "keeps_all": [1.0, None]})
    assert [common(row)["keeps_all"] for row in named_rows(rows)] == [True, False]
