"""The loss from reading a part of the tokens: selections compared with caches that hold as few, against the bytes that a step reads."""

import altair as alt
import polars as pl
from families import labelled
from figures.figure import Tables, figure
from figures.models import change_axis, model_style, series, task_read, versus_full, warning_if_tiny
from known import label_of
from labels import with_point_labels
from marks import click_focus, front_line, in_focus, interval, panel_width, panels, point_names, text, tips
from messages import titled
from prepare import NoData, in_order, with_absent, with_front, with_panel
from style import bytes_text, log_axis

TITLE = "change of the mean loss [nats]"
NOT_TOLD_APART = ["ambiguous", "negligible", "identical", "better"]


@figure(
    "quality_read",
    "Change of the loss against bytes read", "quality",
    "Towards the lower left is better; the dashed line is the Pareto front. A selection keeps every token and reads some; a "
    "window or heavy hitters hold few. Bytes are those that the last step reads per sequence in all layers. Bars are 95 % bootstrap "
    "intervals; filled points are statistically tied with the full f32 cache. The axis is linear within 0.001 nats of zero.",
    warning=warning_if_tiny,
)
def quality_read(tables: Tables):
    rows = reading_rows(tables.cells)
    style = model_style(tables, rows)
    message = fewest_bytes(rows)
    ends = [value for end in ("loss_change_ci_low", "loss_change_ci_high") for value in rows[end].drop_nulls()]
    read = [rows["per_token"].min() / 1.2, rows["per_token"].max() * 1.2]
    axes = log_axis(alt.X, "per_token", "bytes that a step reads, all layers [KiB]", read), change_axis("error", TITLE, ends)
    height = 340 if rows["panel"].n_unique() <= 3 else 250  # of a row of panels, of several
    size = panel_width(rows), height
    rows = with_point_labels(rows.with_columns(style.short(), named="front"), "per_token", "error", axes, size, "front")
    base = alt.Chart().encode(
        *axes,
        tooltip=tips(
            spec="spec", bytes_read="bytes_read_text", loss_change="loss_change_text", interval_95="interval",
            kept="kept_tokens_text", verdict="verdict",
        ),
    )  # fmt: skip
    bar = base.encode(alt.Y("loss_change_ci_low:Q", title=TITLE), alt.Y2("loss_change_ci_high:Q"))
    legend = alt.Legend(title=None, orient="bottom", columns=3, columnPadding=20, labelLimit=0, labelExpr=labelled(style.names, 44), values=style.shown)  # there is not room for every name
    points = base.encode(style.colour(legend), style.shape(legend), opacity=in_focus())
    layers = [
        front_line(base),
        bar.mark_rule(strokeWidth=1.5).encode(style.colour(legend), opacity=in_focus()),
        points.transform_filter("!datum.alike").mark_point(size=65, strokeWidth=1.8).add_params(click_focus()),
        points.transform_filter("datum.alike").mark_point(size=65, strokeWidth=1.8, filled=True),
        point_names(base),
    ]
    return titled(panels(alt.layer(*layers), rows, height=height), message)


def reading_rows(cells: pl.DataFrame) -> pl.DataFrame:
    """The cells of texts and of recall, a panel each; adds `per_token`, the KiB that a step reads, `error`, the front of
    the two, `alike`: statistically tied with the full cache, and `part`: whether rows are dropped or unread."""
    cells = with_absent(cells, ["bytes_read", "loss_change", "distance"], ["oracle"])
    rows = cells.filter(pl.col("experiment").is_in(["quality", "recall"]), pl.col("bytes_read") > 0)
    rows = rows.filter(pl.col("loss_change").is_not_null(), versus_full())
    selects = (pl.col("selection") != "all").fill_null(False)
    if not rows.select(selects.any()).item():
        raise NoData("no model reads with a selection")
    rows = rows.sort("experiment", "distance", "seq_len").with_columns(experiment=task_read())
    rows = with_panel(rows.with_columns(in_order(rows, "experiment"))).with_columns(
        text("bytes_read", bytes_text),
        text("loss_change", "{:+.2g}".format),
        text("kept_tokens", "{:.0f}".format),
        interval("loss_change_ci_low", "loss_change_ci_high", "{:+.2g}".format),
        spec=pl.col("variant"),
        variant=series(),
        per_token=pl.col("bytes_read") / pl.col("batch") / 1024,
        error=pl.col("loss_change"),
        alike=pl.col("verdict").is_in([*NOT_TOLD_APART, "baseline"]),
        part=(selects | (pl.col("kept_tokens") < pl.col("seq_len"))) & pl.col("oracle").is_null(),
    )
    return with_front(rows)


def fewest_bytes(rows: pl.DataFrame) -> str:
    """What the selection loses that reads least of those in most panels, and how many points that read a part lose nothing
    that their intervals show. Oracles are no choice."""
    selections = rows.filter(pl.col("selection") != "all", pl.col("oracle").is_null())
    part = rows.filter("part")
    tied = f"{part['alike'].sum()} of {part.height} caches that read a part of the tokens are statistically tied with the full one"
    if selections.is_empty():
        return f"{tied}; the selections are oracles"
    sums = selections.group_by("spec", "variant").agg(pl.col("per_token").sum(), panels=pl.len())
    named = sums.sort("panels", "per_token", "spec", descending=[True, False, False]).row(0, named=True)
    said = [
        f"{row['loss_change']:.2g}{'' if at else ' nats'} ({row['loss_change_ci_low']:.2g} to {row['loss_change_ci_high']:.2g})"
        + (f" on {row['panel']}" if row["panel"] else "")
        for at, row in enumerate(selections.filter(pl.col("spec") == named["spec"]).rows(named=True))
    ]
    return f"{label_of(named['variant'])} reads least of the selections and loses {', '.join(said)}; {tied}"
