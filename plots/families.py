"""Variants as families: what a variant is made of, which panel shows it, what it is called there, and its colour.

A variant differs from the baseline in its selection, else in its retention, else in its codec, else in its placement: that stage decides which
panel it is in. A family is what has the same name there (`paged`, `q4_0`, `ring`), whatever its parameters.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace

import altair as alt
import polars as pl
from known import LABELS, SPECS, STAGES, label_of, name_of, numeric_parameters, parameters, shared_words, spec_of, with_parameters
from style import DASHES, HUES, INK, SHAPES, natural_order, shades

MOST_IN_A_PANEL = 6  # besides the baseline
MOST_IN_ONE = 8  # variants that one panel holds without a split
LONGEST_NAME = 32  # characters of a label


def baseline_of(cells: pl.DataFrame) -> str | None:
    """The variant that most ratios are against; else the one whose verdict says so."""
    names = set(cells["variant"])
    named = cells["versus"].drop_nulls().to_list() if "versus" in cells.columns else []
    marked = cells.filter(pl.col("verdict") == "baseline")["variant"].to_list()
    for several in (named, marked):
        counts = Counter(name for name in several if name in names)
        if counts:
            return counts.most_common(1)[0][0]
    return None


def deciding_stage(variant: str, baseline: str | None) -> str:
    spec, against = spec_of(variant), spec_of(baseline or "")
    for stage in STAGES[:-1]:
        if getattr(spec, stage) != getattr(against, stage):
            return stage
    return "placement"


def families(names: list[str], baseline: str | None) -> dict[tuple[str, str], list[str]]:
    """(stage, name): its variants. Few variants are families of one stage, the one in which most names differ."""
    stage = None
    if len(names) <= MOST_IN_ONE:
        counts = {stage: len({name_of(getattr(spec_of(n), stage)) for n in names}) for stage in reversed(STAGES)}
        stage = max(counts, key=counts.get)
    found: dict[tuple[str, str], list[str]] = {}
    for name in natural_order(names):
        of = stage or deciding_stage(name, baseline)
        found.setdefault((of, name_of(getattr(spec_of(name), of))), []).append(name)
    order = {stage: at for at, stage in enumerate(reversed(STAGES))}
    return dict(sorted(found.items(), key=lambda item: order[item[0][0]]))


def groups(names: list[str], baseline: str | None) -> dict[str, list[str]]:
    """The panels, by title; the baseline is among the placements and not counted."""
    found = families(names, baseline)
    if len(names) <= MOST_IN_ONE:
        return {"": list(names)}
    panels: dict[str, list[str]] = {}
    for stage in reversed(STAGES):
        own = {name: members for (of, name), members in found.items() if of == stage}
        for kept in packed(list(own.values()), baseline):
            titles = [name for name, members in own.items() if set(members) & set(kept)]
            title = f"{stage}: {', '.join(titles)}"
            same = sum(other.partition(" (")[0] == title for other in panels)
            panels[f"{title} ({same + 1})" if same else title] = kept
    return panels


def packed(members: list[list[str]], baseline: str | None) -> list[list[str]]:
    """Families in as few panels as hold them, of about the same size; a family is split only where it is too large."""
    count = lambda names: sum(name != baseline for name in names)  # noqa: E731
    pieces = [own[at : at + MOST_IN_A_PANEL] for own in members for at in range(0, len(own), MOST_IN_A_PANEL)]
    total = sum(map(count, pieces))
    target = -(-total // max(1, -(-total // MOST_IN_A_PANEL)))
    found: list[list[str]] = []
    for piece in pieces:
        full = not found or count(found[-1]) >= target or count(found[-1]) + count(piece) > MOST_IN_A_PANEL
        found.append([*piece]) if full else found[-1].extend(piece)
    return found


class VariantStyle:
    """One colour, shape and dash a variant, the same in every figure of a report: a hue a family, a shade a variant of
    it, and ink for the baseline. A figure has those `shown`."""

    def __init__(self, names, shown=None, baseline: str | None = None):
        self.names = natural_order(names)
        self.baseline = baseline
        self.shown = self.names if shown is None else [name for name in self.names if name in set(shown)]
        self.looks: dict[str, tuple[str, str, list[int]]] = {}
        for at, members in enumerate(families(self.names, baseline).values()):
            others = [name for name in members if name != baseline]
            for nth, (name, colour) in enumerate(zip(others, shades(HUES[at % len(HUES)], len(others)))):
                self.looks[name] = colour, SHAPES[(at + nth) % len(SHAPES)], DASHES[nth % len(DASHES)]
        if baseline in self.names:
            self.looks[baseline] = INK, SHAPES[0], DASHES[0]

    def showing(self, names) -> VariantStyle:
        return VariantStyle(self.names, names, self.baseline)

    def groups(self) -> dict[str, list[str]]:
        return groups(self.shown, self.baseline)

    def short(self) -> pl.Expr:
        """What labels have room for."""
        names = fitting({name: label_of(name) for name in self.names}, LONGEST_NAME)
        return pl.col("variant").replace_strict(names, default=None, return_dtype=pl.String).alias("short")

    def _encode(self, channel, look: int, legend=None):
        domain, values = self.names, [self.looks[name][look] for name in self.names]
        if legend is None:  # Vega-Lite joins legends of equal domains, even one that is off; order makes them differ
            domain, values = [*domain[::-1], ""], [*values[::-1], values[0]]
        scale = alt.Scale(domain=domain, range=values)
        return channel("variant", type="nominal", scale=scale, legend=legend)

    def legend_of(self, lines: pl.DataFrame) -> alt.Legend | None:
        """Of the variants with several rows at a length: lines, at whose ends there is not always room for a name."""
        several = lines.filter(pl.len().over("panel", "seq_len", "variant") > 1)["variant"].unique()
        if several.is_empty():
            return None
        return alt.Legend(title="line", labelLimit=0, labelExpr=labelled(self.names, 48), values=natural_order(several), symbolFillColor="white", symbolStrokeWidth=2)

    def colour(self, legend: alt.Legend | None = None):
        return self._encode(alt.Color, 0, legend)

    def stroke(self):
        return self._encode(alt.Stroke, 0)

    def fill(self):
        return self._encode(alt.Fill, 0)

    def shape(self, legend: alt.Legend | None = None):
        return self._encode(alt.Shape, 1, legend)

    def dash(self):
        return self._encode(alt.StrokeDash, 2)


def labelled(names: Iterable[str], longest: int, cut: str = "center") -> str:
    """The text of an axis or a legend of these variants, in Vega's language, with its left, center or right left out where it is too long."""
    labels = json.dumps({name: label_of(name) for name in names}, ensure_ascii=False)
    return f"truncate(({labels})[datum.label] || datum.label,{longest},'{cut}')"


def fitting(names: dict[str, str], longest: int) -> dict[str, str]:
    """Names of at most so many characters, that go on differing where they did: their middle is left out."""
    found: dict[str, str] = {}
    for name, called in names.items():
        others = {found.get(other, text) for other, text in names.items() if text != called}
        tails = sorted(range(1, longest - 2), key=lambda tail: abs(tail - longest // 2))
        cuts = [called[: longest - 1 - tail] + "…" + called[len(called) - tail :] for tail in tails]
        found[name] = called if len(called) <= longest else next((cut for cut in cuts if cut not in others), called)
    return found


@dataclass(frozen=True)
class Parameter:
    """The one numeric parameter over which a run sweeps."""

    name: str  # "block of paged"
    values: dict[str, float]  # by variant; none for a variant that lacks it
    lines: dict[str, str]  # by variant: what is left of its name


def swept_parameter(names) -> Parameter | None:
    """The numeric parameter of which there are three values or more, if it is the only one of its kind."""
    found: dict[tuple[str, str, str], dict[str, tuple[float, str]]] = {}
    for name in natural_order(names):
        spec = spec_of(name)
        for stage in reversed(STAGES):
            part = getattr(spec, stage)
            for key, value in numeric_parameters(part).items():
                others = {other: text for other, text in parameters(part).items() if other != key}
                rest = replace(spec, **{stage: with_parameters(name_of(part), others)})
                line = "/".join(filter(None, astuple(rest)[:4])).removesuffix("/all") + rest.layer_specs
                SPECS.setdefault(line, rest)
                found.setdefault((stage, name_of(part), key), {})[name] = value, line
    swept = [(key, rows) for key, rows in found.items() if len({value for value, _ in rows.values()}) >= 3]
    if len(swept) != 1:
        return None
    ((_, called, key), rows), *_ = swept
    for line in {line for _, line in rows.values()}:
        LABELS.setdefault(line, shared_words([label_of(name) for name, (_, own) in rows.items() if own == line]))
    return Parameter(f"{key} of {called}", {n: value for n, (value, _) in rows.items()}, {n: line for n, (_, line) in rows.items()})
