"""Placements with several tiers: a step's time compared with each tier's roofline, what lies where, and what reading ahead hides."""

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from known import label_of
from marks import family_lines, in_focus, length_choice, panels, stacked_bars, text, tips, variant_axis
from messages import at_each_length, from_to, place, times, titled
from prepare import NoData, drawable, with_absent, with_panel
from style import bytes_text, length_axis, log_axis, microseconds_text

# From dark to light, so that the tiers keep their order in grey.
TIERS = {"hot": ("bytes_hot", "#8c3b0a"), "warm": ("bytes_warm", "#e08b4a"), "disk": ("bytes_disk", "#c3cfdf")}
NUMBERS = """
    bytes_hot bytes_warm bytes_disk read_hot_bytes read_warm_bytes read_disk_bytes hot_ceiling_gbps warm_ceiling_gbps
    disk_ceiling_gbps disk_hidden_share tier_bound_us tier_bound_share attend_p50_us
""".split()


@figure(
    "tier_time",
    "Time of attention against context, and the roofline of each tier", "time",
    "Lower is better. Solid lines are median times of attention over a whole context. Dotted lines of the same colour are the time "
    "to read the K and V in memory at the measured bandwidth, dashed ones to read those in the file. With perfect overlap, the solid "
    "line lies on the higher of the two, or on the time of computing.",
)
def tier_time(tables: Tables):
    rows = with_absent(drawable(tables.cells, "tier_bound_us", "attend_p50_us", "seq_len"), NUMBERS, ["tier_bound", "simulated"])
    rows = with_panel(rows).with_columns(
        text("attend_p50_us", microseconds_text),
        text("tier_bound_us", microseconds_text),
        text("tier_bound_share", "{:.0%}".format),
        memory_us=positive(microseconds("hot") + microseconds("warm")),
        disk_us=positive(microseconds("disk")),
        simulated=pl.col("simulated").fill_null("nothing"),
    )
    message = longest_message(rows)
    style = tables.style.showing(rows["variant"])
    ends = pl.concat([rows[column] for column in ("attend_p50_us", "memory_us", "disk_us")]).drop_nulls()
    axis = log_axis(alt.Y, "attend_p50_us", "time of attention, p50 [µs]", ends)
    tooltip = tips(
        attention_p50="attend_p50_us_text", bound="tier_bound_us_text", the_bound_is="tier_bound",
        of_the_bound="tier_bound_share_text", simulated="simulated",
    )  # fmt: skip
    bounds = lambda own: [  # noqa: E731
        own.encode(alt.Y(f"{column}:Q"), style.colour(), opacity=in_focus()).mark_line(strokeWidth=1.2, strokeDash=dash)
        for column, dash in (("memory_us", [1, 3]), ("disk_us", [6, 4]))
    ]
    return titled(family_lines(rows, style, length_axis("seq_len", "context [tokens]", rows["seq_len"]), axis, tooltip, under=bounds), message)


def microseconds(tier: str) -> pl.Expr:
    """What a step reads of the tier, at its ceiling."""
    return (pl.col(f"read_{tier}_bytes") / pl.col(f"{tier}_ceiling_gbps") * 1e-3).fill_null(0)


def positive(value: pl.Expr) -> pl.Expr:
    return pl.when(value > 0).then(value)


def longest_message(rows: pl.DataFrame) -> str:
    """Of the first panel, at its longest context: the variant that reads most of its rows from a file."""
    panel = rows.filter(pl.col("panel") == rows["panel"][0])
    longest = panel.filter(pl.col("seq_len") == pl.col("seq_len").max())
    row = longest.sort(pl.col("disk_us").fill_null(0), descending=True, maintain_order=True).row(0, named=True)
    over = times(row["attend_p50_us"] / row["tier_bound_us"])
    limit = {"disk": "reading its file", "memory": "reading its memory", "compute": "computing"}[row["tier_bound"]]
    return (
        f"{place(longest)}{label_of(row['variant'])} attends to {row['seq_len']:,.0f} tokens in "
        f"{microseconds_text(row['attend_p50_us'])}, {over} as long as {limit} alone takes"
    )


@figure(
    "tier_bytes",
    "Bytes held in each tier", "memory",
    "Payload, scales and slack in the first memory (hot), in the second pool (warm) and in a file (disk), as the ledger "
    "counted them, all sequences and layers together.",
    at_one_length=True,
)
def tier_bytes(tables: Tables):
    rows = with_absent(tables.cells, NUMBERS).filter(pl.col("bytes_warm").is_not_null(), pl.col("experiment") == "decode")
    if rows.is_empty():
        raise NoData("no variant has several tiers")
    rows = with_panel(rows)
    unit, name = unit_of(max(rows.select(pl.sum_horizontal(*(column for column, _ in TIERS.values()))).to_series()))
    stacked = pl.concat(
        rows.select("variant", "panel", "seq_len", tier=pl.lit(tier), order=pl.lit(order), held=pl.col(column) / unit,
                    bytes=pl.col(column))
        for order, (tier, (column, _)) in enumerate(TIERS.items())
    ).filter(pl.col("bytes") > 0)  # fmt: skip
    stacked = stacked.with_columns(text("bytes", bytes_text))
    choice = length_choice(rows["seq_len"])
    message = at_each_length(rows, least_in_memory)
    variants = [variant for variant in tables.style.names if variant in set(rows["variant"])]
    colours = {tier: colour for tier, (_, colour) in TIERS.items()}
    base = alt.Chart().encode(variant_axis(variants), tooltip=tips(tier="tier", held="bytes_text"))
    chart = stacked_bars(base, alt.X("held:Q", axis=alt.Axis(title=f"held [{name}]", tickCount=6)), "tier", colours)
    return titled(panels(chart, stacked, height=max(60, 24 * len(variants)), choice=choice), message)


def unit_of(most: float) -> tuple[int, str]:
    """The largest binary unit of which `most` has at least one."""
    units = ((30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "B"))
    return next((1 << power, name) for power, name in units if most >= 1 << power or not power)


def least_in_memory(rows: pl.DataFrame) -> str:
    """The variant with the smallest part of its bytes in memory, of the rows of one length."""
    memory = pl.col("bytes_hot") + pl.col("bytes_warm")
    share = memory / (memory + pl.col("bytes_disk"))
    row = rows.with_columns(memory=memory, share=share).sort("share", "memory", maintain_order=True).row(0, named=True)
    return f"{label_of(row['variant'])} keeps {bytes_text(row['memory'])} in memory and {bytes_text(row['bytes_disk'])} in a file"


@figure(
    "tier_hidden",
    "Share of reading that is hidden behind computing", "time",
    "Higher is better. The share of the time of file reads that attention did not wait for, because it worked on tokens that "
    "had arrived. The first read of a layer cannot be hidden.",
)
def tier_hidden(tables: Tables):
    rows = with_absent(tables.cells, NUMBERS).filter(pl.col("disk_hidden_share").is_not_null())
    if rows.is_empty():
        raise NoData("no step has read K or V from a file")
    rows = with_panel(rows).with_columns(text("disk_hidden_share", "{:.0%}".format), text("read_disk_bytes", bytes_text))
    longest = rows.filter(pl.col("seq_len") == rows["seq_len"].max()).sort("disk_hidden_share", "variant")
    least, most = longest.row(0, named=True), longest.row(-1, named=True)
    share = from_to(least, most, "disk_hidden_share")
    message = f"Attention hides {share} of the time of reading the file at {least['seq_len']:,.0f} tokens"
    style = tables.style.showing(rows["variant"])
    axis = alt.Y("disk_hidden_share", type="quantitative", scale=alt.Scale(domain=[0, 1], nice=False),
                 axis=alt.Axis(title="share of reading that is hidden", format=".0%"))  # fmt: skip
    tooltip = tips(hidden="disk_hidden_share_text", a_step_reads="read_disk_bytes_text")
    return titled(family_lines(rows, style, length_axis("seq_len", "context [tokens]", rows["seq_len"]), axis, tooltip), message)
