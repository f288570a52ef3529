"""The report's table of tiers: of the cells that have several, what cells.csv says of them."""

from __future__ import annotations

import csv
import re

from support import reported
from synthetic import synthetic_run, write_csv

TIERS = {
    "bytes_hot": "1048576", "bytes_warm": "2097152", "bytes_disk": "3145728",
    "read_hot_bytes": "1572864", "read_warm_bytes": "2621440", "read_disk_bytes": "3670016",
    "hot_read_gbps": "11.5", "hot_ceiling_share": "0.71", "warm_read_gbps": "12.5", "warm_ceiling_share": "0.72",
    "disk_read_gbps": "1.25", "disk_ceiling_share": "0.93", "disk_device_share": "0.99",
    "tier_bound": "disk", "tier_bound_us": "4321",
}  # fmt: skip


def test_rows_are_those_with_tiers(tmp_path):
    folder = synthetic_run(tmp_path / "run", lengths=(256, 512))
    with (folder / "cells.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row.update(TIERS if row["variant"] == "contiguous/f16/full" else dict.fromkeys(TIERS, ""))
    write_csv(folder / "cells.csv", list(rows[0]), rows)
    reported(folder)
    page = (folder / "report.html").read_text()
    table = page[page.index('<table id="tiered">') :]
    body = table[table.index("<tbody>") : table.index("</table>")]
    variants = re.findall(r'data-variant="([^"]*)"', body)
    assert set(variants) == {"contiguous/f16/full"}
    assert len(variants) == sum(row["variant"] == "contiguous/f16/full" for row in rows)
    for shown in ("1 MiB", "1.5 MiB", "2 MiB", "2.5 MiB", "3 MiB", "3.5 MiB", "11.5", "71%", "12.5", "72%", "1.25", "93%",
                  "99%", "4.32 ms disk"):  # fmt: skip
        assert shown in body, shown


def test_without_tiers_there_is_no_table(tmp_path):
    folder = synthetic_run(tmp_path / "run", lengths=(256,))
    reported(folder)
    assert '<table id="tiered">' not in (folder / "report.html").read_text()
