"""The expected data of the charts of a model's predictions, read from the CSV files."""

from __future__ import annotations

import math

from drawn import drawn, front, losses, places, points, title


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
    ends = [(*point, row[f"{value}_ci_low"], row[f"{value}_ci_high"]) for point, row in zip((row[:3] for row in at), cells)]
    assert drawn(spec, "circle", "fill", "x", "y") == points((place, *row[1:3]) for place, row in places(ends))


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


def check_loss_baseline(spec, files):
    """A panel a task, without the baseline itself; what is ambiguous is grey."""
    rows = [row for row in files.of("quality", "recall") if row["versus"] and row["verdict"] != "baseline"]
    told = lambda row: row["verdict"] if row["verdict"] != "ambiguous" else "statistically tied"
    name = lambda row: row["variant"]
    assert title(spec, "x") == "loss less the baseline's [nats]"
    assert drawn(spec, "point", "y", "x", "color") == points((name(row), row["loss_change"], told(row)) for row in rows)
    ends = points((name(row), row["loss_change_ci_low"], row["loss_change_ci_high"], told(row)) for row in rows)
    assert drawn(spec, "rule", "y", "x", "x2", "color") == ends and {told(row) for row in rows} == {"better", "worse", "statistically tied"}
    beside = points((name(row), f"{row['held_bytes_per_token']:.0f} B · KL {row['kl_mean']:.2g}") for row in rows)
    assert drawn(spec, "text", "y", "text") == beside
    panels = {"quality": "1,024 tokens of text", "recall": "recall 300 tokens back"}
    want = points((f"{panels[row['experiment']]} · beside contiguous f16 snapkv(budget=96)", name(row)) for row in rows)
    assert points((row["panel"], row["called"]) for row in spec["data"]["values"]) == want


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


def check_sensitivity_layers(spec, files):
    """A panel for K and one for V; caches with a codec in all layers are not drawn."""
    cells = [row for row in files.of("sensitivity") if row["sensitive_layer"] is not None]
    want = points((row["sensitive_layer"], row["sensitive_format"], row["kl_mean"]) for row in cells)
    assert drawn(spec, "rect", "y", "x", "color") == want
    panel = spec["facet"]["field"]
    shown = points((row[panel], row["sensitive_layer"], row["kl_mean"]) for row in spec["data"]["values"])
    assert shown == points((row["sensitive_side"], row["sensitive_layer"], row["kl_mean"]) for row in cells)


def check_sensitivity_sum(spec, files):
    cells = [row for row in files.of("sensitivity") if row["predicted_kl"]]
    kind = lambda row: "random codecs" if row["sensitive_format"] == "mixture" else "one codec"
    assert drawn(spec, "point", "x", "y", "color") == points((row["predicted_kl"], row["kl_mean"], kind(row)) for row in cells)
    assert drawn(spec, "line", "x", "y") == points((row["predicted_kl"], row["predicted_kl"]) for row in cells)
    ends = points((row["predicted_kl"], row["kl_mean_ci_low"], row["kl_mean_ci_high"]) for row in cells)
    assert drawn(spec, "rule", "x", "y", "y2") == ends


def tasks(files):
    """Without those that the full cache fails."""
    cells = files.of("task")
    assert {row["usable"] for row in cells} == {"yes", "no"}
    return [row for row in cells if row["usable"] == "yes"]


def check_task_depth(spec, files):
    """A column a length and depth, in their order; each share has its count."""
    cells = tasks(files)
    place = {row["cell"]: f"{'512' if row['seq_len'] == 512 else '1K'}, {row['depth']:g} %" for row in cells}
    assert drawn(spec, "rect", "y", "x", "color") == points((row["variant"], place[row["cell"]], row["accuracy"]) for row in cells)
    counts = points((row["variant"], place[row["cell"]], f"{row['right']:.0f}/{row['batch']:.0f}") for row in cells)
    assert drawn(spec, "text", "y", "x", "text") == counts
    in_order = sorted({(row["seq_len"], row["depth"], place[row["cell"]]) for row in cells})
    assert spec["layer"][0]["encoding"]["x"]["sort"] == [name for _, _, name in in_order]
    assert " ".join(spec["title"]["text"]) == (
        "2 of 4 caches answer worse than the full f32 cache; contiguous f32 is the smallest found to lose at most 10 points: 400 B a token, 45 of 48 right, full cache 45; "
        "too few questions to say of 1 (single · question after compression); too hard for the model and left out: single at 90 % of 512"
    )


def check_task_bytes(spec, files):
    """A panel a depth; budgets of a policy are a line."""
    cells = tasks(files)
    want = points((row["series"], row["held_bytes_per_token"], row["accuracy"]) for row in cells)
    for mark in ("line", "point"):
        assert drawn(spec, mark, "color", "x", "y") == want
    ends = points((row["series"], row["held_bytes_per_token"], row["accuracy_ci_low"], row["accuracy_ci_high"]) for row in cells)
    assert drawn(spec, "rule", "color", "x", "y", "y2") == ends
    shown = points((row[spec["facet"]["field"]], row["spec"], row["seq_len"]) for row in spec["data"]["values"])
    assert shown == points((f"single · question after compression · depth {row['depth']:g} %", row["variant"], row["seq_len"]) for row in cells)
