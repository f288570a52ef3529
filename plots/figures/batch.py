"""The batch experiment: what caches hold for sequences of unequal lengths."""

import altair as alt
import polars as pl
from answers import UNRELIABLE
from figures.figure import Tables, figure
from known import label_of
from marks import panels, stacked_bars, text, tips, variant_axis
from messages import place, times, titled
from prepare import of_experiment, with_absent, with_panel
from style import KINDS, bytes_text

KINDS_HELD = {"payload": "bytes_payload", "metadata": "bytes_metadata", "slack": "bytes_slack"}


@figure(
    "batch_waste",
    "Ragged batches: bytes held per byte of payload", "memory",
    "Shorter is better; at 1, a cache holds its tokens and nothing else. Slack is reserved and unused: padding up to the "
    "longest sequence, or the rest of each sequence's last block.",
)
def batch_waste(tables: Tables):
    rows = of_experiment(tables.cells, "batch", "bytes_payload", "waste_share")
    rows = with_panel(rows)
    several = rows["lengths"].n_unique() > 1
    panel = pl.concat_str(pl.lit("lengths "), "lengths", pl.lit(", batch "), pl.col("batch").cast(pl.Int64))
    rows = rows.with_columns(panel=panel) if several else rows
    message = cost_of_padding(rows) or most_and_least(rows)
    stacked = pl.concat(
        rows.select(
            "variant", "panel", "seq_len", "waste_share", "lengths", kind=pl.lit(kind), order=pl.lit(order),
            bytes=pl.col(column), times_payload=pl.col(column) / pl.col("bytes_payload"),
        )
        for order, (kind, column) in enumerate(KINDS_HELD.items())
    ).filter(pl.col("bytes") > 0)  # fmt: skip
    stacked = stacked.with_columns(text("bytes", bytes_text), text("waste_share", "{:.1%}".format))
    variants = [name for name in tables.style.names if name in set(rows["variant"])]
    colours = {kind: KINDS[kind] for kind in KINDS_HELD}
    tooltip = tips(length=False, lengths="lengths", kind="kind", bytes="bytes_text", slack_share="waste_share_text")
    x = alt.X("sum(times_payload):Q", axis=alt.Axis(title="bytes held / bytes of payload", tickCount=5))
    chart = stacked_bars(alt.Chart().encode(variant_axis(variants), tooltip=tooltip), x, "kind", colours)
    return titled(panels(chart, stacked, height=max(60, 22 * len(variants))), message)


def most_and_least(rows: pl.DataFrame) -> str:
    """What the variant with the most bytes over its payload holds in the largest batch, and what that with the least."""
    rows = rows.filter(pl.col("batch") == pl.col("batch").max())
    rows = rows.filter(pl.col("panel") == rows["panel"][0])
    held = pl.sum_horizontal(KINDS_HELD.values()) / pl.col("bytes_payload")
    rows = rows.with_columns(held=held).sort("held", "variant")
    said = [f"{label_of(row['variant'])} holds {row['held']:.2f} bytes" for row in (rows.row(-1, named=True), rows.row(0, named=True))]
    return f"{place(rows)}{said[0]} per byte of payload" + (f", {said[1]}" if rows.height > 1 else "")


def cost_of_padding(rows: pl.DataFrame) -> str | None:
    """The most that padding and its mask cost in time, of the lengths where they were measured."""
    rows = with_absent(rows, ["ratio_p50", "ratio_ci_low", "ratio_ci_high", "masked_share"], ["variant", "verdict"])
    padded = rows.filter(pl.col("variant") == "padded", pl.col("ratio_p50").is_not_null(), pl.col("verdict").ne_missing(UNRELIABLE)).sort("ratio_p50")
    if padded.is_empty():
        return None
    most = padded.row(-1, named=True)
    return (
        f"With padding and a mask, a step takes {times(most['ratio_p50'], most['ratio_ci_low'], most['ratio_ci_high'])} "
        f"as long as without them: {most['masked_share']:.0%} of its tokens are padding (lengths {most['lengths']})"
    )
