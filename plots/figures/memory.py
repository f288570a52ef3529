"""Memory: the peak against length, and bytes by kind."""

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from known import label_of
from marks import family_lines, length_choice, panels, stacked_bars, text, tips, variant_axis
from messages import at_each_length, times, titled
from prepare import drawable, layers_said, with_panel
from style import KINDS, binary_unit, bytes_axis, bytes_text, length_axis

COLUMNS = ("bytes_payload", "bytes_metadata", "bytes_workspace_peak", "bytes_slack")  # in the order of KINDS
TIED = 1.005  # times the fewest bytes, within which a title names none alone
# What memory does not depend on: a panel for each of these only where the bytes differ after all.
SAME_OVER = ("workload", "experiment", "phase", "threads")


@figure(
    "memory",
    "Memory against sequence length", "memory",
    "Lower is better. The peak while the cache was filled and read: payload, metadata, slack, workspace, and both copies of "
    "a buffer that grows. (Folders of earlier versions: memory held during a step.) Parallel lines differ by a constant factor; a flat line is a cache of bounded size, which evicts tokens.",
)
def memory(tables: Tables):
    rows = drawable(tables.common, "bytes_peak", "seq_len")
    rows = with_panel(rows, SAME_OVER, COLUMNS).with_columns(
        text("bytes_peak", bytes_text),
        text("bytes_predicted", bytes_text),
        text("memory_vs_f32", "{:.3f}×".format),
        text("model_bytes", bytes_text),
    )
    longest = rows.filter(pl.col("seq_len") == pl.col("seq_len").max())
    message = f"{least(longest, tables.style.baseline, 'bytes_peak')} at {longest['seq_len'][0]:,.0f} tokens"
    style = tables.style.showing(rows["variant"])
    axis = bytes_axis("bytes_peak", peak_said(rows), rows["bytes_peak"])
    x = length_axis("seq_len", "sequence length [tokens]", rows["seq_len"])
    tooltip = tips(memory="bytes_peak_text", predicted="bytes_predicted_text", versus_f32="memory_vs_f32_text", whole_model_holds="model_bytes_text")
    return titled(family_lines(rows, style, x, axis, tooltip), message)


def peak_said(rows: pl.DataFrame) -> str:
    quantity = "peak memory" if rows["peak_is_measured"].all() else "memory held during a step"
    return f"{quantity}, {layers_said(rows)}"


def least(rows: pl.DataFrame, baseline: str | None, column: str) -> str:
    """Which of the rows, all of one length, have the fewest bytes, how few, and what the whole model holds with them."""
    peaks = column == "bytes_peak" and rows["peak_is_measured"].all()
    rows = rows.sort(column)
    smallest = rows.row(0, named=True)
    tied = rows.filter(pl.col(column) <= TIED * smallest[column], pl.col("panel") == smallest["panel"])
    layers = layers_said(rows.filter(pl.col("variant") == smallest["variant"]))
    amount = f"{bytes_text(smallest[column])} in {layers}"
    amount += f" ({bytes_text(smallest['model_bytes'])} in the whole model)" if smallest["model_bytes"] else ""
    same = rows.filter(pl.col("variant") == (baseline or ""), pl.col("panel") == smallest["panel"])
    if baseline in set(tied["variant"]):
        return f"No variant {'has a lower peak' if peaks else 'holds less'} than {label_of(baseline)}: {amount},"
    others = f" and {tied.height - 1} other{'s' * (tied.height > 2)}" if tied.height > 1 else ""
    best = ("have the lowest peak" if others else "has the lowest peak") if peaks else "hold the least" if others else "holds the least"
    compared = "" if same.is_empty() else f", {times(smallest[column] / same[column][0])} that of {label_of(baseline)}"
    return f"{label_of(smallest['variant'])}{others} {best}: {amount}{compared},"


@figure(
    "bytes",
    "Bytes by kind", "memory",
    "Shorter is better. Payload is encoded K and V; metadata is scales, zero points, tables and scores; slack is "
    "reserved and unused; workspace is the scratch memory of a step. The title counts what is held, without workspace.",
    at_one_length=True,
)
def bytes_by_kind(tables: Tables):
    rows = drawable(tables.common, "bytes_payload", "seq_len", "batch")
    rows = with_panel(rows, SAME_OVER, COLUMNS)
    per_token = pl.sum_horizontal(pl.col(COLUMNS).fill_null(0)) / (pl.col("batch") * pl.col("seq_len"))
    unit, size = binary_unit(rows.select(per_token).to_series().max())
    stacked = pl.concat(
        rows.select(
            "variant", "panel", "seq_len", kind=pl.lit(kind), order=pl.lit(order),
            bytes=pl.col(column), per_token=pl.col(column) / (pl.col("batch") * pl.col("seq_len") * size),
        )
        for order, (kind, column) in enumerate(zip(KINDS, COLUMNS))
    ).filter(pl.col("bytes") > 0)  # fmt: skip
    stacked = stacked.with_columns(text("bytes", bytes_text))
    choice = length_choice(rows["seq_len"])
    variants = [name for name in tables.style.names if name in set(rows["variant"])]
    base = alt.Chart().encode(variant_axis(variants), tooltip=tips(kind="kind", bytes="bytes_text"))
    x = alt.X("sum(per_token):Q", axis=alt.Axis(title=f"bytes per cached token, {layers_said(rows)} [{unit}]", tickCount=6))
    chart = stacked_bars(base, x, "kind", KINDS)
    height = max(60, 22 * len(variants))
    message = at_each_length(rows, lambda at: least(at, tables.style.baseline, "bytes_held"))
    return titled(panels(chart, stacked, height=height, choice=choice), message)
