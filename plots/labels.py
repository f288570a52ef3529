"""Names beside the marks that they belong to: where each goes so that no two of a panel overlap."""

import math

import altair as alt
import polars as pl

LINE_HEIGHT = 13  # pixels
CHARACTER = 6.4  # pixels, on average, in a name
LONGEST = 34  # characters of two names for one line

# Places of a name beside its point, from the best to the worst: a Pareto front leaves it to the right.
BESIDE = [
    (-11, 0, "right"), (6, -14, "left"), (11, 0, "left"), (6, 14, "left"), (-6, 14, "right"), (-6, -14, "right")
]  # fmt: skip
AT_ENDS = [BESIDE[2], *BESIDE[:2], *BESIDE[3:]]  # lines come from the left


class Pixels:
    """Data to pixels and back along an axis: logarithmic or linear, as the axis has it."""

    def __init__(self, axis: alt.X | alt.Y, length: float):
        scale = axis.to_dict()["scale"]
        self.kind, self.length = scale.get("type", "linear"), length
        self.low, self.high = (self._bend(end) for end in scale["domain"])

    def _bend(self, value: float) -> float:
        if self.kind == "log":
            return math.log2(value) if value > 0 else -math.inf
        if self.kind == "symlog":
            return math.copysign(math.log1p(abs(value) * 1e3), value)
        return value

    def _straighten(self, value: float) -> float:
        if self.kind == "log":
            return 2**value
        return math.copysign(math.expm1(abs(value)) / 1e3, value) if self.kind == "symlog" else value

    def of(self, value: float) -> float:
        return (self._bend(value) - self.low) / (self.high - self.low) * self.length

    def back(self, pixel: float) -> float:
        return self._straighten(self.low + pixel / self.length * (self.high - self.low))


def spread(wanted: list[float], apart: float = LINE_HEIGHT) -> list[float]:
    """The positions nearest to the wanted ones that are `apart`: overlapping ones become a block around their mean."""
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    blocks: list[list[int]] = []
    centre = lambda block: sum(wanted[at] for at in block) / len(block)  # noqa: E731
    for at in order:
        blocks.append([at])
        while len(blocks) > 1 and (
            centre(blocks[-1]) - centre(blocks[-2]) < apart * (len(blocks[-1]) + len(blocks[-2])) / 2
        ):
            last = blocks.pop()
            blocks[-1] += last
    placed = [0.0] * len(wanted)
    for block in blocks:
        for nth, at in enumerate(block):
            placed[at] = centre(block) + apart * (nth - (len(block) - 1) / 2)
    return placed


def with_end_labels(rows: pl.DataFrame, x: str, y: str, axis: alt.Y, height: float) -> pl.DataFrame:
    """Adds `label` at the last point of each line, and its height `label_at`. Identical lines of a panel share one."""
    pixels = Pixels(axis, height)
    names: dict[tuple, tuple[str, float]] = {}
    for _, panel in rows.filter(pl.col("labelled")).group_by("panel", maintain_order=True):
        lines: dict[tuple, list[dict]] = {}
        for _, line in panel.sort(x).group_by("variant", maintain_order=True):
            values = tuple(line.select(x, y).rows())
            lines.setdefault(values, []).append(line.row(-1, named=True))
        ends = list(lines.values())
        places = spread([pixels.of(same[0][y]) for same in ends])
        for same, place in zip(ends, places):
            called = [row["short"] for row in same]
            shown = 2 if len(" = ".join(called[:2])) <= LONGEST else 1
            label = " = ".join(called[:shown]) + (f" = {len(called) - shown} more" if len(called) > shown else "")
            if len(label) > LONGEST:
                label = label[: LONGEST // 2] + "…" + label[1 - LONGEST // 2 :]
            names[same[0]["panel"], same[0]["variant"], same[0][x]] = label, pixels.back(place)
    found = [names.get(key, (None, None)) for key in rows.select("panel", "variant", x).iter_rows()]
    return rows.with_columns(
        label=pl.Series([label for label, _ in found], dtype=pl.String),
        label_at=pl.Series([at for _, at in found], dtype=pl.Float64),
    )


def with_point_labels(
    rows: pl.DataFrame, x: str, y: str, axes: tuple[alt.X, alt.Y], size: tuple[float, float], first: str,
    places: list[tuple[int, int, str]] = BESIDE,
) -> pl.DataFrame:
    """Adds `label` with `label_dx`, `label_dy` and `label_align` where a name finds room beside its point, those that are
    `first` before the others; equal points share a name. Only rows that are `named` get one."""
    across, up = (Pixels(axis, length) for axis, length in zip(axes, size))
    placed: dict[int, tuple[str, float, float, str]] = {}
    for _, group in rows.with_row_index("at").group_by("panel", "seq_len", maintain_order=True):
        points: dict[tuple[float, float], list[dict]] = {}
        for row in group.sort(first, descending=True, maintain_order=True).iter_rows(named=True):
            points.setdefault((across.of(row[x]), size[1] - up.of(row[y])), []).append(row)
        taken = [(px - 8, py - 8, px + 8, py + 8) for px, py in points]
        for (px, py), same in points.items():
            if not any(row["named"] for row in same):
                continue
            label = same[0]["short"] + (f" +{len(same) - 1}" if len(same) > 1 else "")
            for dx, dy, align in places:
                left = px + dx - (len(label) * CHARACTER if align == "right" else 0)
                box = left, py + dy - 6, left + len(label) * CHARACTER, py + dy + 6
                inside = left > 0 and box[2] < size[0]
                if inside and not any(overlaps(box, other) for other in taken if other != (px - 8, py - 8, px + 8, py + 8)):
                    taken.append(box)
                    placed[same[0]["at"]] = label, dx, dy, align
                    break
    found = [placed.get(at, (None, 0, 0, "left")) for at in range(rows.height)]
    names = {"label": pl.String, "label_dx": pl.Float64, "label_dy": pl.Float64, "label_align": pl.String}
    return rows.with_columns(
        pl.Series(name, [place[nth] for place in found], dtype=kind) for nth, (name, kind) in enumerate(names.items())
    )


def overlaps(one: tuple, other: tuple) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
