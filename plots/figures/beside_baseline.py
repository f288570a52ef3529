"""Losses compared with those of a variant that the config names, such as budgets by layer or head with a uniform one of the same bytes."""

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from figures.models import change_axis, series, task_read, versus_full, warning_if_tiny
from known import label_of, label_text, name_of
from marks import dots_and_whiskers, in_focus, interval, panels, text, tips, variant_axis
from messages import titled
from prepare import NoData, with_absent, with_panel
from style import bytes_text

VERDICTS = {"better": "#0072B2", "worse": "#D55E00", "statistically tied": "#8a93a0"}
BY_HEAD = ("ada", "duo")  # retentions whose heads keep different numbers of tokens
SAME_BYTES = 0.03  # of the baseline's, on either side


@figure(
    "loss_baseline",
    "Loss minus the baseline's", "quality",
    "Further left is better; the line at 0 is the variant that the panel's title names. Bars are 95 % bootstrap intervals of the "
    "paired difference, grey where they contain 0 or lie within 0.001 nats of it. Numbers on the right are the bytes held per "
    "input token and KL(full f32 cache || variant). The axis is linear within 0.001 nats of zero.",
    warning=warning_if_tiny,
)
def loss_baseline(tables: Tables):
    rows = compared_rows(tables.cells)
    ends = [value for end in ("loss_change_ci_low", "loss_change_ci_high") for value in rows[end].drop_nulls()]
    order = alt.EncodingSortField("loss_change", op="mean", order="ascending")
    colours = alt.Scale(domain=list(VERDICTS), range=list(VERDICTS.values()))
    base = alt.Chart().encode(
        change_axis("loss_change", "loss minus the baseline's [nats]", ends, alt.X),
        variant_axis(rows["called"], order, "called", 80),
        alt.Color("told:N", scale=colours, legend=alt.Legend(title="the interval says", orient="top")),
        opacity=in_focus(),
        tooltip=tips(
            spec="spec", change="loss_change_text", interval_95="interval", versus="versus", verdict="verdict", bytes_and_KL="beside"
        ),
    )
    whiskers = base.encode(alt.X("loss_change_ci_low:Q"), alt.X2("loss_change_ci_high:Q")).mark_rule(strokeWidth=2)
    chart = dots_and_whiskers(base, whiskers, alt.Y("called:N", sort=order), 0, "told")
    most = rows.group_by("panel").len()["len"].max()
    return titled(panels(chart, rows, max(90, 19 * most), apart="y"), who_is_ahead(rows))


def compared_rows(cells: pl.DataFrame) -> pl.DataFrame:
    """The cells whose losses are compared with a named variant's, a panel a task and baseline; adds `task`, `called`, how
    the interval reads (`told`), `kind`, and `same_bytes`."""
    cells = with_absent(cells, ["loss_change", "distance", "held_bytes_per_token"], ["versus", "series"])
    rows = cells.filter(pl.col("experiment").is_in(["quality", "recall"]), pl.col("loss_change").is_not_null(), ~versus_full())
    if rows.is_empty():
        raise NoData("no quality or recall run names a baseline")
    own = pl.col("held_bytes_per_token").filter(pl.col("verdict") == "baseline").first()
    where = ["run", "experiment", "seq_len", "distance", "versus"]
    text_of = lambda column, write: pl.col(column).map_elements(write, return_dtype=pl.String)  # noqa: E731
    rows = rows.with_columns(
        spec=pl.col("variant"), task=task_read(), called=series(),
        same_bytes=(pl.col("held_bytes_per_token") / own.over(where) - 1).abs() <= SAME_BYTES,
    ).filter(pl.col("verdict") != "baseline")  # fmt: skip
    rows = with_panel(rows.with_columns(experiment=pl.format("{} · compared with {}", "task", label_text("versus"))))
    return rows.with_columns(
        text("loss_change", "{:+.2g}".format),
        interval("loss_change_ci_low", "loss_change_ci_high", "{:+.2g}".format),
        told=pl.when(pl.col("verdict").is_in(["better", "worse"])).then("verdict").otherwise(pl.lit("statistically tied")),
        budgeted=text_of("retention", name_of).is_in(BY_HEAD) | (pl.col("layer_specs").fill_null("") != ""),
        beside=pl.format("{} · KL {}", text_of("held_bytes_per_token", bytes_text), text_of("kl_mean", "{:.2g}".format)),
        panel=pl.when(pl.col("panel") == "").then("experiment").otherwise("panel"),
    )


def who_is_ahead(rows: pl.DataFrame) -> str:
    """By task, which budgets by layer or head lose least and most of those that hold the baseline's bytes; of all variants
    where none has such budgets."""
    budgeted = rows.filter("budgeted", "same_bytes")
    chosen = rows if budgeted.is_empty() else budgeted
    said = [f"on {task}, {of_task(own)}" for (task,), own in chosen.group_by("task", maintain_order=True)]
    against = " or ".join(dict.fromkeys(map(label_of, chosen["versus"])))
    uniform = "" if budgeted.is_empty() else ", a uniform budget of the same bytes"
    return f"Compared with {against}{uniform}: {'; '.join(said)}"


def of_task(rows: pl.DataFrame) -> str:
    ahead, behind = (rows.filter(pl.col("told") == told).sort("loss_change") for told in ("better", "worse"))
    ends = lambda row: sorted(abs(row[f"loss_change_ci_{end}"]) for end in ("low", "high"))  # noqa: E731
    said = ["{} loses {:.2g} nats {} ({:.2g} to {:.2g})".format(label_of(row["called"]), abs(row["loss_change"]), more, *ends(row))
            for extreme, at, more in ((ahead, 0, "less"), (behind, -1, "more")) if extreme.height
            for row in (extreme.row(at, named=True),)]  # fmt: skip
    unclear = rows.height - ahead.height - behind.height
    count = f"{unclear} of {rows.height} {'is' if unclear == 1 else 'are'} statistically tied"
    return ", ".join([*said, count])
