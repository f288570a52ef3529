"""What the charts of a model's predictions have to draw, read from the CSV files."""

from __future__ import annotations

import math

from drawn import drawn, front, losses, points


def check_quality(spec, files, value):
    cells = [row for row in files.of("quality") if row["kl_mean"]]
    at = [(row["seq_len"], row["held_bytes_per_token"], row[value], row["series"]) for row in cells]
    want = points((series, *point) for _, *point, series in at)
    for mark in ("line", "point"):
        assert drawn(spec, mark, "color", "x", "y") == want
    want = points((row["series"], row["held_bytes_per_token"], row[f"{value}_ci_low"], row[f"{value}_ci_high"])
                  for row in cells)  # fmt: skip
    assert drawn(spec, "rule", "color", "x", "y", "y2") == want
    best = set(points(row[1:3] for row in front(at)))
    assert best <= set(drawn(spec, "line", "x", "y"))


def check_quality_kl(spec, files):
    check_quality(spec, files, "kl_mean")


def check_quality_loss(spec, files):
    check_quality(spec, files, "loss_change")


def check_kl_position(spec, files):
    """In the middle of a bucket on a log axis, the first of which begins at 4."""
    buckets = [(cell["series"], math.sqrt(max(row["position_first"], 4) * (row["position_last"] + 1)), row)
               for cell, row in files.positions if row["kl_mean"]]  # fmt: skip
    for mark in ("line", "point"):
        assert drawn(spec, mark, "color", "x", "y") == points((*at, row["kl_mean"]) for *at, row in buckets)
    ends = points((*at, row["kl_mean_ci_low"], row["kl_mean_ci_high"]) for *at, row in buckets)
    assert drawn(spec, "area", "fill", "x", "y", "y2") == ends


def check_quality_read(spec, files):
    """Texts and recall in panels; the full cache's own points too."""
    cells = [row for row in files.of("quality", "recall") if row["bytes_read"]]
    assert any("/quest(" in row["variant"] for row in cells)
    at = [((row["experiment"], row["distance"]), row["bytes_read"] / row["batch"] / 1024, row["loss_change"], row) for row in cells]
    told_apart = [(panel, *point, row) for panel, *point, row in at if row["verdict"] == "worse"]
    want = points((row["series"], *point) for _, *point, row in at)
    assert drawn(spec, "point", "color", "x", "y") == want and 0 < len(told_apart) < len(at)
    inside = spec.get("spec", spec)
    shown = {layer["transform"][0]["filter"]: layer["mark"].get("filled", False) for layer in inside["layer"]
             if layer["mark"]["type"] == "point"}  # fmt: skip
    assert shown == {"datum.alike": True, "!datum.alike": False}
    drawn_alike = points((row["variant"], row["per_token"], row["error"]) for row in spec["data"]["values"] if not row["alike"])
    assert drawn_alike == points((row["series"], *point) for _, *point, row in told_apart)
    ends = points((row["series"], x, row["loss_change_ci_low"], row["loss_change_ci_high"]) for _, x, _, row in at)
    assert drawn(spec, "rule", "color", "x", "y", "y2") == ends
    assert {point[1:3] for point in points(row[:3] for row in front(at))} <= set(drawn(spec, "line", "x", "y"))


def check_recall(spec, files):
    cells = files.of("recall")
    for mark in ("line", "point"):
        want = points((row["series"], row["distance"], row["loss"]) for row in cells)
        assert drawn(spec, mark, "color", "x", "y") == want
    want = points((row["series"], row["distance"], *losses(row)) for row in cells)
    assert drawn(spec, "rule", "color", "x", "y", "y2") == want


def check_recall_budget(spec, files):
    cells = files.of("recall")
    dropping = {row["series"] for row in cells if row["kept_tokens"] < row["seq_len"]}
    cells = [row for row in cells if row["series"] in dropping]
    for mark in ("line", "point"):
        want = points((row["series"], row["kept_tokens"], row["loss"]) for row in cells)
        assert drawn(spec, mark, "color", "x", "y") == want
    want = points((row["series"], row["kept_tokens"], *losses(row)) for row in cells)
    assert drawn(spec, "rule", "color", "x", "y", "y2") == want
    full = {(row["loss"],) for row in files.of("recall") if row["verdict"] == "baseline"}
    assert full <= set(drawn(spec, "rule", "y"))


def check_stream(spec, files):
    stretches = [(cell["variant"], row["position_last"] + 1, row) for cell, row in files.positions
                 if cell["experiment"] == "stream"]  # fmt: skip
    for mark in ("line", "point"):
        want = points((*at, math.exp(row["loss"])) for *at, row in stretches)
        assert drawn(spec, mark, "color", "x", "y") == want
    want = points((*at, *map(math.exp, losses(row))) for *at, row in stretches)
    assert drawn(spec, "area", "fill", "x", "y", "y2") == want
