"""The task experiment: which caches still find what stands in a context, by depth and against bytes."""

import altair as alt
import polars as pl
from families import VariantStyle, labelled
from figures.figure import Tables, figure
from figures.models import series
from marks import in_focus, interval, legend_focus, length_choice, panels, text, tips, variant_axis
from messages import titled
from prepare import NoData, of_experiment, with_absent
from style import bytes_text, length_text, log_axis

ACCURACY = "right answers / questions"


@figure(
    "task_depth",
    "Right answers by depth", "quality",
    "Darker is better: the share of questions that a cache answers exactly. Columns are the context's length and the answer's depth in it; caches "
    "with the most bytes come first. Pale cells on the left mean that the beginning is forgotten, on the right that longer texts fail. Tasks that "
    "the full f32 cache itself fails are left out.",
    own_style=True,
)  # fmt: skip
def task_depth(tables: Tables):
    rows, left_out = usable(tables)
    length, depth = pl.col("seq_len").map_elements(length_text, return_dtype=pl.String), pl.col("depth").map_elements("{:g}".format, return_dtype=pl.String)
    rows = rows.with_columns(panel=pl.col("asked"), place=pl.format("{}, {} %", length, depth)).sort("seq_len", "depth", maintain_order=True)
    places = rows["place"].unique(maintain_order=True).to_list()
    held = rows.group_by("variant").agg(pl.col("held_bytes_per_token").mean()).sort("held_bytes_per_token", "variant", descending=[True, False])
    base = alt.Chart().encode(
        alt.X("place:N", sort=places, title="tokens of the context, depth of the answer", axis=alt.Axis(labelAngle=0, labelExpr="split(datum.label, ', ')")),
        variant_axis(held["variant"], longest=60, grid=False),
        tooltip=task_tips(),
    )
    colour = alt.Color("accuracy:Q", scale=alt.Scale(scheme="blues", domain=[0, 1]), legend=alt.Legend(title=["right", "answers"], format="%"))
    ink = alt.condition("datum.accuracy > 0.6", alt.value("white"), alt.value("black"))
    layers = base.mark_rect(stroke="white", strokeWidth=0.5).encode(colour), base.mark_text(fontSize=10).encode(text="label:N", color=ink)
    most = rows.group_by("panel").agg(pl.col("variant").n_unique())["variant"].max()
    return titled(panels(alt.layer(*layers), rows, max(90, 18 * most), apart="xy"), what_is_answered(rows) + left_out)


@figure(
    "task_bytes",
    "Right answers against bytes", "quality",
    "Towards the upper left is better. A line is a policy over its budgets, a lone point a cache that keeps every token; bars are 95 % "
    "intervals of the share of right answers (Wilson). Each panel is a depth. Tasks that the full f32 cache itself fails are left out.",
    at_one_length=True,
    own_style=True,
)  # fmt: skip
def task_bytes(tables: Tables):
    rows, left_out = usable(tables)
    at = pl.format("depth {} %", pl.col("depth").map_elements("{:g}".format, return_dtype=pl.String))
    rows = rows.with_columns(panel=pl.format("{} · {}", "asked", at))
    rows = rows.with_columns(variant=series()).sort("depth", "panel", maintain_order=True)
    # Most caches are asked at one length, and few at longer ones.
    choice = length_choice(rows["seq_len"], rows.group_by("seq_len").len().sort("len", "seq_len")["seq_len"][-1])
    style = VariantStyle(set(rows["variant"]), rows["variant"], None)
    held = [rows["held_bytes_per_token"].min() / 1.1, rows["held_bytes_per_token"].max() * 1.1]
    y = alt.Y("accuracy:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(title=ACCURACY, format="%"))
    base = alt.Chart().encode(
        log_axis(alt.X, "held_bytes_per_token", "bytes held per input token, all layers", held), y, tooltip=task_tips(spec="spec")
    )
    legend = alt.Legend(title=None, orient="top", columns=2, columnPadding=20, labelLimit=0, labelExpr=labelled(style.names, 60))
    bar = base.encode(alt.Y("accuracy_ci_low:Q", title=ACCURACY), alt.Y2("accuracy_ci_high:Q")).mark_rule(strokeWidth=1.2)
    line = base.mark_line(strokeWidth=1.8).encode(style.colour(legend), style.dash(), opacity=in_focus(), order="held_bytes_per_token:Q")
    point = base.mark_point(size=60, strokeWidth=1.8).encode(style.colour(legend), style.shape(legend), opacity=in_focus())
    layers = bar.encode(style.colour(legend), opacity=in_focus()).add_params(legend_focus()), line, point
    return titled(panels(alt.layer(*layers), rows, choice=choice), what_is_answered(rows) + left_out)


def usable(tables: Tables) -> tuple[pl.DataFrame, str]:
    """The cells whose full f32 cache is above the floor, in panels; and what is left out, for a title."""
    cells = with_absent(of_experiment(tables.cells, "task", "accuracy", "depth", "held_bytes_per_token"), ["accuracy_ci_low", "accuracy_ci_high", "pooled_p"], ["verdict", "template"])
    chat = pl.col("template") == "chatml"
    cells = cells.with_columns(task=pl.when(chat).then(pl.format("{} in ChatML", "task")).otherwise("task"))
    too_hard = pl.col("usable") == "no"
    rows = cells.filter(~too_hard)
    if rows.is_empty():
        raise NoData("the model does no task of the run well enough, even with the full f32 cache")
    at = pl.format("{} at {} % of {}", "task", pl.col("depth").map_elements("{:g}".format, return_dtype=pl.String),
                   pl.col("seq_len").map_elements(length_text, return_dtype=pl.String))  # fmt: skip
    names = cells.filter(too_hard).select(at).to_series().unique(maintain_order=True).to_list()
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    left_out = f"; left out because the full f32 cache itself fails: {', '.join(names[:3])}{more}" if names else ""
    label = pl.format("{}/{}", pl.col("right").cast(pl.Int64), pl.col("batch").cast(pl.Int64))
    return rows.with_columns(
        text("held_bytes_per_token", bytes_text),
        text("credit", "{:.2f}".format),
        text("pooled_p", "{:.2g}".format),
        interval("accuracy_ci_low", "accuracy_ci_high", "{:.2f}".format),
        pl.col("verdict").str.replace_all("_", " ").alias("told"),
        spec=pl.col("variant"),
        label=label,
        asked=pl.format("{} · question {} compression", "task", "query"),
    ), left_out


def task_tips(**more: str) -> list[alt.Tooltip]:
    return tips(**more, task="task", depth="depth", right="label", interval_95="interval", credit="credit_text",
                p_over_all_questions="pooled_p_text", bytes_held="held_bytes_per_token_text", verdict="told")  # fmt: skip


def what_is_answered(rows: pl.DataFrame) -> str:
    """Verdicts where most caches were asked, over all questions of the kind."""
    most = rows.group_by("asked", "seq_len").len().sort("len", "asked", "seq_len", descending=[True, False, False]).row(0, named=True)
    there = rows.filter(pl.col("asked") == most["asked"], pl.col("seq_len") == most["seq_len"])
    said = there["answer"][0]
    return f"{said[0].upper()}{said[1:]} ({most['asked']})"
