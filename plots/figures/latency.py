"""Time of a decode step: against length, and relative to the baseline's."""

import altair as alt
import polars as pl
from answers import UNRELIABLE
from figures.figure import Tables, figure
from known import heading, label_of
from marks import dots_and_whiskers, family_lines, in_focus, interval, length_choice, panels, text, tips, variant_axis
from messages import answer, at_each_length, count_of_verdicts, place, titled
from prepare import NoData, drawable, with_absent, with_panel
from style import QUIET, bytes_text, length_axis, log_axis, microseconds_text

VERDICTS = {"faster": "#0072B2", "slower": "#D55E00", "ambiguous": "#8a93a0", UNRELIABLE: "#f0c808"}


@figure(
    "latency",
    "Step latency against sequence length", "time",
    "Lower is better. Points are median times of a step with 95 % intervals; in a growth run, of all its steps. Ratios "
    "to the baseline decide which variant is faster, not these intervals. A ring marks times that something else on the machine disturbed.",
)
def latency(tables: Tables):
    rows = drawable(tables.common, "step_p50_us", "seq_len")
    rows = with_panel(rows).with_columns(
        text("step_p50_us", microseconds_text),
        text("step_p99_us", microseconds_text),
        interval("step_ci_low_us", "step_ci_high_us", microseconds_text),
        pl.col("verdict").fill_null("–"),
        noise=pl.col("noise").fill_null("") if "noise" in rows.columns else pl.lit(""),
    )
    extremes = pl.concat([rows["step_p50_us"], rows["step_ci_low_us"], rows["step_ci_high_us"]]).drop_nulls()
    message = longest_message(rows)
    style = tables.style.showing(rows["variant"])
    axis = log_axis(alt.Y, "step_p50_us", f"{heading('step_p50_us')} [µs]", extremes)
    x = length_axis("seq_len", "sequence length [tokens]", rows["seq_len"])
    tooltip = tips(p50="step_p50_us_text", interval_95="interval", p99="step_p99_us_text", verdict="verdict", noise="noise")
    ends = "step_ci_low_us", "step_ci_high_us"
    disturbed = (rows["noise"] != "").any()
    return titled(family_lines(rows, style, x, axis, tooltip, ends, (*ends, 0.16), over=rings if disturbed else lambda own: []), message)


def rings(own: alt.Chart) -> list[alt.Chart]:
    """Around times that were disturbed, by what is in the tooltip."""
    ring = own.mark_point(size=160, filled=False, strokeWidth=1.2, color=QUIET).transform_filter("datum.noise != ''")
    return [ring.encode(opacity=in_focus())]


def longest_message(rows: pl.DataFrame) -> str | None:
    """Of the first panel that has ratios, at its longest length."""
    for _, panel in rows.group_by("panel", maintain_order=True):
        longest = panel.filter(pl.col("seq_len") == pl.col("seq_len").max())
        if said := answer(longest):
            return f"{place(longest)}{said} at {longest['seq_len'][0]:,.0f} tokens"
    return None


@figure(
    "ratio",
    "Step time relative to the baseline's", "time",
    "Further left is faster; the line at 1 is the baseline. Bars are 95 % intervals of the ratio, grey where they contain 1. "
    "Numbers on the right are the bytes held per sequence and the relative L2 error of the output. Unreliable: the baseline "
    "is noisy or differs from itself.",
    at_one_length=True,
)
def ratio(tables: Tables):
    rows = with_absent(tables.common, ["ratio_p50", "ratio_ci_low", "ratio_ci_high", "err_rel_l2"])
    rows = rows.filter((pl.col("ratio_p50") > 0) & (pl.col("seq_len") > 0))
    if rows.is_empty():
        raise NoData("no variant was compared with a baseline")
    rows = with_panel(rows).with_columns(
        text("ratio_p50", "{:.3f}×".format),
        interval("ratio_ci_low", "ratio_ci_high", "{:.3f}".format),
        sequence=pl.col("bytes_held") / pl.col("batch"),
    )
    beside = (pl.col("sequence").map_elements(bytes_text, return_dtype=pl.String),
              pl.col("err_rel_l2").map_elements("error {:.1e}".format, return_dtype=pl.String))  # fmt: skip
    rows = rows.with_columns(beside=pl.concat_str(*beside, separator=" · ", ignore_nulls=True))
    choice = length_choice(rows["seq_len"])
    message = at_each_length(rows, count_of_verdicts)
    ends = pl.concat([rows["ratio_p50"], rows["ratio_ci_low"], rows["ratio_ci_high"]]).drop_nulls()
    against = ", ".join(sorted(map(label_of, set(rows["versus"].drop_nulls()))))
    # Beyond these an interval says only that the times were noise; it would squeeze all others.
    ends = ends.clip(rows["ratio_p50"].min() / 3, rows["ratio_p50"].max() * 3)
    shown = {verdict: colour for verdict, colour in VERDICTS.items() if verdict != UNRELIABLE or verdict in rows["verdict"]}
    colours = alt.Scale(domain=list(shown), range=list(shown.values()))
    axis = log_axis(alt.X, "ratio_p50", heading("ratio_p50", against), ends)
    order = alt.EncodingSortField("ratio_p50", op="mean", order="ascending")
    base = alt.Chart().encode(
        axis,
        variant_axis(rows["variant"].unique(), order),
        alt.Color("verdict:N", scale=colours, legend=alt.Legend(title="verdict", orient="top")),
        opacity=in_focus(),
        tooltip=tips(
            ratio="ratio_p50_text", interval_95="interval", versus="versus", verdict="verdict", bytes_and_error="beside"
        ),
    )
    whiskers = base.encode(alt.X("ratio_ci_low:Q"), alt.X2("ratio_ci_high:Q")).mark_rule(strokeWidth=2, clip=True)
    chart = dots_and_whiskers(base, whiskers, alt.Y("variant:N", sort=order), 1, "verdict")
    return titled(panels(chart, rows, max(90, 19 * rows["variant"].n_unique()), choice, apart="y"), message)
