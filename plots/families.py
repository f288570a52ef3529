"""Variants as families: what a variant is made of, which panel shows it, what it is called there, and its colour.

A variant differs from the baseline in its selection, else in its retention, else in its codec, else in its placement: that stage decides which
panel it is in. A family is what has the same name there (`paged`, `q4_0`, `ring`), whatever its parameters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple, dataclass

import altair as alt
import polars as pl
from style import DASHES, HUES, INK, SHAPES, natural_order, shades

STAGES = ("selection", "retention", "codec", "placement")  # in the order in which they decide
MOST_IN_A_PANEL = 6  # besides the baseline
MOST_IN_ONE = 8  # variants that one panel holds without a split
LONGEST_NAME = 32  # characters of a label
_PARAMETERS = r"\(([^()]*)\)"
# Of `contiguous/x(…)` the name x says whether it is a codec or a retention; of a retention that is not known here, what
# bounds its tokens does.
_SELECTION = re.compile(r"(all|quest|topk)\b")
_RETENTION = re.compile(r"(full|ring|h2o|tova|knorm|snapkv|duo|expected|ada|pyramid|random)\b|.*\b(budget|window|heavy|recent|sinks)=")


@dataclass(frozen=True)
class Spec:
    """`placement(…)/codec(…)/retention(…)/selection(…)`, with the defaults of the stages that the name leaves out."""

    placement: str
    codec: str = "f32"
    retention: str = "full"
    selection: str = "all"


def parse(variant: str) -> Spec:
    placement, *rest = re.split(r"/(?![^(]*\))", variant)
    selection = rest.pop() if rest and _SELECTION.match(rest[-1]) else "all"
    if len(rest) == 1 and _RETENTION.match(rest[0]):
        return Spec(placement, retention=rest[0], selection=selection)
    return Spec(placement, *rest[:2], selection=selection)


def name_of(part: str) -> str:
    return part.partition("(")[0]


def short(variant: str, baseline: str | None = None) -> str:
    """Without the stages that are as by default, and without the baseline's placement where another stage is named."""
    if variant.endswith("/f32"):
        return variant  # another engine's: kvlab's own names leave f32 out
    spec = parse(variant)
    rest = [part for part, default in ((spec.codec, "f32"), (spec.retention, "full"), (spec.selection, "all")) if part != default]
    placed_alike = baseline is not None and spec.placement == parse(baseline).placement
    return "/".join(rest if rest and placed_alike else [spec.placement, *rest])


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


def commonest_placement(names: Iterable[str]) -> str:
    """What names can leave out where there is no baseline."""
    return Counter(parse(name).placement for name in names).most_common(1)[0][0]


def deciding_stage(variant: str, baseline: str | None) -> str:
    spec, against = parse(variant), parse(baseline or "")
    for stage in STAGES[:-1]:
        if getattr(spec, stage) != getattr(against, stage):
            return stage
    return "placement"


def families(names: list[str], baseline: str | None) -> dict[tuple[str, str], list[str]]:
    """(stage, name): its variants. Few variants are families of one stage, the one in which most names differ."""
    stage = None
    if len(names) <= MOST_IN_ONE:
        counts = {stage: len({name_of(getattr(parse(n), stage)) for n in names}) for stage in reversed(STAGES)}
        stage = max(counts, key=counts.get)
    found: dict[tuple[str, str], list[str]] = {}
    for name in natural_order(names):
        of = stage or deciding_stage(name, baseline)
        found.setdefault((of, name_of(getattr(parse(name), of))), []).append(name)
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
            same = sum(other.removesuffix(" …") == title for other in panels)
            panels[title + " …" * same] = kept
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

    def short_names(self) -> dict[str, str]:
        """What labels call the variants: without parameters where the names still differ."""
        against = self.baseline if len(self.shown) > MOST_IN_ONE else None
        full = {name: short(name, against if name != self.baseline else None) for name in self.names}
        alike: dict[str, list[str]] = {}
        for called in full.values():
            alike.setdefault(re.sub(_PARAMETERS, "", called), []).append(called)
        return {name: without_common(called, alike[re.sub(_PARAMETERS, "", called)]) for name, called in full.items()}

    def short(self) -> pl.Expr:
        """What labels have room for."""
        names = fitting(self.short_names(), LONGEST_NAME)
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
        return alt.Legend(title="line", values=natural_order(several), symbolFillColor="white", symbolStrokeWidth=2)

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


def without_common(called: str, alike: list[str]) -> str:
    """A name without the parameters that all names have which are alike but for parameters."""
    if len(alike) == 1:
        return re.sub(_PARAMETERS, "", called)
    every = [dict(re.findall(r"(\w+)" + _PARAMETERS, name)) for name in alike]

    def own(found: re.Match) -> str:
        common = set.intersection(*(set(parts.get(found[1], "").split(",")) for parts in every))
        kept = [pair for pair in found[2].split(",") if pair not in common]
        return f"{found[1]}({','.join(kept)})" if kept else found[1]

    return re.sub(r"(\w+)" + _PARAMETERS, own, called)


def fitting(names: dict[str, str], longest: int) -> dict[str, str]:
    """Names of at most so many characters, that go on differing where they did: cut at the end, else before it."""
    found: dict[str, str] = {}
    for name, called in names.items():
        others = {found.get(other, text) for other, text in names.items() if text != called}
        others |= {text[: longest - 1] + "…" for text in names.values() if text != called}
        cuts = [called[: longest - 1 - tail] + "…" + called[len(called) - tail :] for tail in range(longest - 2)]
        found[name] = called if len(called) <= longest else next((cut for cut in cuts if cut not in others), called)
    return found


def numeric_parameters(part: str) -> dict[str, float]:
    return {key: float(value) for key, value in re.findall(r"(\w+)=(-?\d+(?:\.\d+)?)(?=[,)])", part)}


def without(part: str, key: str) -> str:
    """'paged(block=8,order=shuffled)' without block: 'paged(order=shuffled)'."""
    name, _, inside = part.rstrip(")").partition("(")
    kept = [pair for pair in inside.split(",") if pair and not pair.startswith(f"{key}=")]
    return f"{name}({','.join(kept)})" if kept else name


@dataclass(frozen=True)
class Parameter:
    """The one numeric parameter over which a run sweeps."""

    name: str  # "block of paged"
    values: dict[str, float]  # by variant; none for a variant that lacks it
    lines: dict[str, str]  # by variant: what is left of its name


def swept_parameter(names) -> Parameter | None:
    """The numeric parameter of which there are three values or more, if it is the only one of its kind."""
    found: dict[tuple[int, str, str], dict[str, tuple[float, str]]] = {}
    for name in natural_order(names):
        parts = astuple(parse(name))
        for at, part in enumerate(parts):
            for key, value in numeric_parameters(part).items():
                rest = "/".join([*parts[:at], without(part, key), *parts[at + 1 :]]).removesuffix("/all")
                found.setdefault((at, name_of(part), key), {})[name] = value, rest
    swept = [(key, rows) for key, rows in found.items() if len({value for value, _ in rows.values()}) >= 3]
    if len(swept) != 1:
        return None
    ((_, stage, key), rows), *_ = swept
    return Parameter(f"{key} of {stage}", {n: value for n, (value, _) in rows.items()}, {n: rest for n, (_, rest) in rows.items()})
