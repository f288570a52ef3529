"""What each of the three parts of a variant costs at a sweep point, all else the same: placement, codec, retention."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from known import spec_of
from style import bytes_text, microseconds_text

Row = Mapping


@dataclass(frozen=True)
class Part:
    title: str
    message: str
    columns: list[tuple[str, list[str]]]  # (heading, columns of cells.csv)
    rows: list[list[str]]


def parts(rows: list[Row]) -> Iterator[Part]:
    """A table a part of which several were measured. Of prefill, whose arms differ, none."""
    if not rows or any(row["arm"] for row in rows):
        return
    error = next((c for c in ("err_rel_l2", "kl_mean") if any(row[c] is not None for row in rows)), None)
    time = "step_p50_us"
    placements = alike(rows, "placement")
    if len(placements) > 1:
        placements.sort(key=lambda row: row[time] or 0)
        yield table("Placements", against_baseline(placements), placements, skip=("bits a value", "kept tokens"))
    codecs = alike(rows, "codec")
    if len(codecs) > 1 and error:
        codecs.sort(key=lambda row: row[error] or 0)
        yield table("Codecs, the most exact first", best_codecs(codecs, error), codecs, skip=("kept tokens",))
    policies = [row for row in rows if spec_of(row["variant"]).retention != "full"]
    if len(policies) > 1 and error:
        policies.sort(key=lambda row: (row["kept_tokens"] or 0, row[error] or 0))
        title = "Retentions, by the tokens that they keep, the most exact first"
        yield table(title, best_policies(policies, error), policies, skip=("bits a value",))


def alike(rows: list[Row], stage: str) -> list[Row]:
    """The largest group in which only this stage differs; of equals the first."""
    groups = defaultdict(list)
    for row in rows:
        spec = spec_of(row["variant"])
        if stage != "codec" or (spec.retention, spec.selection) == ("full", "all"):
            groups[replace(spec, **{stage: ""})].append(row)
    return max(groups.values(), key=len, default=[])


def against_baseline(rows: list[Row]) -> str:
    """The slowest first; what the intervals do not tell apart is not ranked."""
    compared = [row for row in reversed(rows) if row["ratio_ci_low"] is not None and row["versus"]]
    told = [row for row in compared if row["verdict"] in ("slower", "faster")]
    what = "median step" if all(row.get("append_total_us") is not None for row in rows) else "time"
    sentences = [f"{row['variant']} takes {ratio(row)} the {what} of {row['versus']}." for row in told]
    same = [f"{row['variant']} {ratio(row)}" for row in compared if row["verdict"] == "ambiguous"]
    if same:
        sentences.append(f"Not shown to differ from {compared[0]['versus']}: {', '.join(same)}.")
    return " ".join(sentences)


def ratio(row: Row) -> str:
    if row["ratio_p50"] is None:
        return ""
    ends = "" if row["ratio_ci_low"] is None else f" ({row['ratio_ci_low']:.3g} – {row['ratio_ci_high']:.3g})"
    return f"{row['ratio_p50']:.3g}×{ends}"


def best_codecs(rows: list[Row], error: str) -> str:
    """Among those that store about as many bits a value, of 9 and fewer."""
    groups: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        bits = row["bits_per_value"]
        if row[error] is not None and bits and bits <= 9:
            groups[math.ceil(bits)].append(row)
    return " ".join(
        f"Of {most - 1} to {most} stored bits a value: {best_names(groups[most], error, 'codec')}."
        for most in sorted(groups, reverse=True) if len(groups[most]) > 1
    )  # fmt: skip


def best_names(rows: list[Row], error: str, stage: str) -> str:
    """Of rows in order: those that are equal as printed, and the error; one above 1 is larger than what it is of."""
    least = f"{rows[0][error]:.2g}"
    names = list(dict.fromkeys(getattr(spec_of(row["variant"]), stage) for row in rows if f"{row[error]:.2g}" == least))
    listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    large = ", an error larger than the output itself" if error == "err_rel_l2" and rows[0][error] > 1 else ""
    return f"{listed} lose{'s' * (len(names) == 1)} least ({least}{large})"


def best_policies(rows: list[Row], error: str) -> str:
    groups: dict[float, list[Row]] = defaultdict(list)
    for row in rows:
        if row[error] is not None and row["kept_tokens"]:
            groups[row["kept_tokens"]].append(row)
    return " ".join(
        f"With {kept:.0f} tokens kept {best_names(group, error, 'retention')}." for kept, group in groups.items() if len(group) > 1
    )


def table(title: str, message: str, rows: list[Row], skip: tuple[str, ...]) -> Part:
    written = {heading: [write(row) for row in rows] for heading, (_, write) in COSTS.items() if heading not in skip}
    shown = {heading: texts for heading, texts in written.items() if any(texts)}
    return Part(title, message, [(heading, COSTS[heading][0].split()) for heading in shown], [list(row) for row in zip(*shown.values())])


def optional(column: str, write: Callable) -> Callable[[Row], str]:
    return lambda row: "" if row[column] is None else write(row[column])


# By heading: the columns of cells.csv, and a row's text.
COSTS: dict[str, tuple[str, Callable[[Row], str]]] = {
    "variant": ("variant", lambda row: row["variant"]),
    "bits a value": ("bits_per_value", optional("bits_per_value", "{:.3g}".format)),
    "kept tokens": ("kept_tokens", optional("kept_tokens", "{:.0f}".format)),
    "step, p50": ("step_p50_us step_ci_low_us step_ci_high_us", optional("step_p50_us", microseconds_text)),
    "time of the baseline’s": ("ratio_p50 ratio_ci_low ratio_ci_high versus", ratio),
    "verdict": ("verdict", lambda row: row["verdict"] or ""),
    "bytes a sequence": ("bytes_payload bytes_metadata bytes_slack bytes_disk batch", optional("bytes_sequence", bytes_text)),
    "error, rel. L2": ("err_rel_l2", optional("err_rel_l2", "{:.2g}".format)),
    "KL, mean": ("kl_mean kl_mean_ci_low kl_mean_ci_high", optional("kl_mean", "{:.2g}".format)),
}
