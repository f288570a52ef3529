"""`kvlab eval`: what variants do to the attention outputs of a user's own Q, K and V, as a whole and head by head."""

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from known import label_of
from labels import with_point_labels
from marks import click_focus, front_line, in_focus, panel_height, panel_width, panels, point_names, text, tips
from messages import times, titled
from prepare import NoData, drawable, of_experiment, with_absent, with_front, with_panel
from style import bytes_text, log_axis

SMALLEST_ERROR = 1e-9


@figure(
    "eval_error",
    "Error of your tensors against bytes", "error",
    "Towards the lower left is better; the dashed line is the Pareto front: no variant measured has both fewer bytes and "
    "a smaller error. A point is the error over all layers, heads and tokens of the dump; its line is the range from the "
    "best head to the worst. Bytes are per token given, evicted ones included. Errors below 1e-9 are drawn at 1e-9.",
)
def eval_error(tables: Tables):
    rows = of_experiment(tables.cells, "eval", "held_bytes_per_token")
    rows = drawable(rows, "held_bytes_per_token").filter(pl.col("err_rel_l2").is_not_null())
    if rows.is_empty():
        raise NoData("no variant of the eval has err_rel_l2")
    of_heads = tables.heads.group_by("run", "cell").agg(
        best_head=pl.col("err_rel_l2").min(), worst_head=pl.col("err_rel_l2").max()
    )
    rows = with_panel(rows).join(of_heads, on=["run", "cell"], how="left", maintain_order="left").with_columns(
        pl.col("best_head", "worst_head").fill_null(pl.col("err_rel_l2")).clip(SMALLEST_ERROR),
        per_token=pl.col("held_bytes_per_token") / 1024,
        error=pl.col("err_rel_l2").clip(SMALLEST_ERROR),
    )
    rows = with_front(rows).with_columns(
        text("held_bytes_per_token", bytes_text),
        text("err_rel_l2", "{:.3g}".format),
        text("kept_tokens", "{:.0f}".format),
        heads=pl.format("{} to {}", *(pl.col(end).map_elements("{:.3g}".format, pl.String) for end in ("best_head", "worst_head"))),
    )  # fmt: skip
    style = tables.style.showing(rows["variant"])
    errors = [rows["best_head"].min() / 2, rows["worst_head"].max() * 1.2]
    held = [rows["per_token"].min() / 3, rows["per_token"].max() * 1.1]
    axes = (
        log_axis(alt.X, "per_token", "bytes held per input token, all layers [KiB]", held),
        log_axis(alt.Y, "error", "relative L2 error of the output", errors, "~e"),
    )
    size = panel_width(rows), panel_height(rows)
    rows = with_point_labels(rows.with_columns(style.short(), named=True), "per_token", "error", axes, size, "front")
    base = alt.Chart().encode(
        *axes,
        opacity=in_focus(),
        tooltip=tips(kept="kept_tokens_text", bytes_held="held_bytes_per_token_text", error="err_rel_l2_text", heads="heads"),
    )
    range_of_heads = base.mark_rule(strokeWidth=1.6).encode(style.colour(), y="best_head:Q", y2="worst_head:Q")
    # Equal points nest in one another.
    points = base.mark_point(strokeWidth=2.2).encode(style.colour(), style.shape(), alt.Size("size:Q", scale=None))
    layers = [front_line(base.encode(opacity=alt.value(1))), range_of_heads, points.add_params(click_focus())]
    layers.append(point_names(alt.Chart().encode(*axes)))
    return titled(panels(alt.layer(*layers), rows), smallest_and_most_exact(rows))


def smallest_and_most_exact(rows: pl.DataFrame) -> str:
    """The ends of the Pareto front, those without an error left out."""
    rows = rows.filter(pl.col("panel") == rows["panel"][0])
    front = rows.filter("front", pl.col("err_rel_l2") > 2e-6).sort("per_token", "error")
    if front.is_empty():
        return "No smaller variant loses anything"
    said = [f"{label_of(row['variant'])} holds {row['held_bytes_per_token_text']} per token with an error of {row['err_rel_l2_text']}"
            for row in front.rows(named=True)]  # fmt: skip
    return said[0] + (f", {said[-1]}" if len(said) > 1 else "")


@figure(
    "eval_heads",
    "Error of your tensors by layer and head, relative to the variant's own", "error",
    "Each panel is a variant with its error over the whole dump, from the smallest error to the largest. Rows are layers, columns "
    "query heads. Orange heads lose more than the variant as a whole, blue ones less. An orange row is a layer that the variant "
    "does not suit; neighbouring orange columns share a KV head. “+2” counts other variants with the same errors.",
)
def eval_heads(tables: Tables):
    cells = with_absent(tables.cells, ["err_rel_l2"]).select("run", "cell", together="err_rel_l2")
    rows = tables.heads.join(cells, on=["run", "cell"], maintain_order="left")
    rows = rows.filter(pl.col("err_rel_l2") > 0, pl.col("together") > 0)
    if rows.is_empty():
        raise NoData("no eval was run")
    if rows.select("layer", "q_head").n_unique() == 1:
        raise NoData("the dump has one layer and one head")
    rows = one_of_equals(rows.sort("together", "run", "variant", "layer", "q_head")).with_columns(
        text("err_rel_l2", "{:.3g}".format), times=pl.col("err_rel_l2") / pl.col("together")
    )
    chart = alt.Chart().mark_rect(stroke="white", strokeWidth=0.5).encode(
        alt.X("q_head:O", title="query head", axis=alt.Axis(labelOverlap=True, labelAngle=0)),
        alt.Y("layer:O", title="layer", axis=alt.Axis(labelOverlap=True)),
        times_colour(rows["times"]),
        tooltip=[  # the panel names the variant, so that a name is in the page once for each of thousands of rows
            alt.Tooltip(f"{field}:N", title=title)
            for title, field in (("variant", "panel"), ("layer", "layer"), ("query head", "q_head"), ("error", "err_rel_l2_text"))
        ],
    )  # fmt: skip
    layers, heads = rows["layer"].n_unique(), rows["q_head"].n_unique()
    sized = chart.properties(width=min(max(18 * heads, 240), 300), height=min(max(16 * layers, 48), 300))
    titles = list(dict.fromkeys(rows["panel"]))
    drawn = sized.facet(alt.Facet("panel:N", sort=titles, title=None), data=rows, columns=3)
    worst = rows.sort("times").row(-1, named=True)
    return titled(drawn, f"Query head {worst['q_head']:.0f} of layer {worst['layer']:.0f} loses {times(worst['times'])} as much "
                         f"as {label_of(worst['variant'])} does as a whole")  # fmt: skip


def one_of_equals(rows: pl.DataFrame) -> pl.DataFrame:
    """The first of the variants whose heads all have the same errors, as those that differ in the placement alone, with
    `panel`: its name, how many more there are, and its error."""
    several = rows["run"].n_unique() > 1
    groups: dict[tuple, list[tuple]] = {}
    for (run, variant, together), part in rows.group_by("run", "variant", "together", maintain_order=True):
        name = f"{run} · {label_of(variant)}" if several else label_of(variant)
        groups.setdefault((together, *part["err_rel_l2"]), []).append((run, variant, name))
    titles = [
        {"run": same[0][0], "variant": same[0][1], "panel": f"{same[0][2]}{more(len(same) - 1)}: {together:.2g}"}
        for (together, *_), same in groups.items()
    ]
    return rows.join(pl.DataFrame(titles), on=["run", "variant"], maintain_order="left")


def more(count: int) -> str:
    return f" +{count}" if count else ""


def times_colour(times: pl.Series) -> alt.Color:
    """Of a ratio: white at 1, and as dark at twice as at half."""
    most = max(times.max(), 1 / times.min(), 1.1)
    ticks = [tick for tick in (0.01, 0.1, 0.2, 0.5, 0.7, 1, 1.5, 2, 5, 10, 100) if 1 / most <= tick <= most]
    return alt.Color(
        "times:Q",
        scale=alt.Scale(type="log", scheme="blueorange", domain=[1 / most, most]),
        legend=alt.Legend(title="relative to the variant's error", format=".2~r", gradientLength=130, values=ticks),
    )
