"""What results folders say of their variants and axes. data.py fills it in as it reads them; nothing here parses a spec."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl
from columns import Column

STAGES = ("selection", "retention", "codec", "placement")  # in the order in which they decide
STAGE_COLUMNS = ["placement", "codec", "retention", "selection", "layer_specs"]


@dataclass(frozen=True)
class Spec:
    """A variant's stages as the program writes them; of what is no cache of kvlab, a name in the placement's place."""

    placement: str
    codec: str = "f32"
    retention: str = "full"
    selection: str = "all"
    layer_specs: str = ""  # exceptions, as '0-1:contiguous/f16'
    is_cache: bool = True


SPECS: dict[str, Spec] = {}  # by variant, and by series, the config's text of several: the first one's
LABELS: dict[str, str] = {}  # of the same; what the program wrote as `label`, or the variant where an earlier version wrote none
AXES: dict[str, Column] = {}
HEADINGS: dict[str, str] = {}  # by column, as columns.json has them


def learn(cells: pl.DataFrame, columns: Mapping[str, Column]) -> None:
    AXES.update({name: column for name, column in columns.items() if column.is_axis or column.is_arm})
    HEADINGS.update({name: column.heading for name, column in columns.items() if column.heading})
    names = [name for name in ("variant", "label", "series", "peer") if name in cells.columns]
    rows = cells.select(*names, *STAGE_COLUMNS).unique(maintain_order=True).to_dicts()
    series: dict[str, list[str]] = {}
    for row in rows:
        stages = [row[name] or "" for name in STAGE_COLUMNS]
        spec = Spec(*stages) if stages[0] else Spec(row.get("peer") or row["variant"] or "", stages[1] or "f32", is_cache=False)
        SPECS[row["variant"] or ""] = spec
        LABELS[row["variant"] or ""] = row.get("label") or label_of(row["variant"] or "")
        series.setdefault(row.get("series") or "", []).append(row["variant"] or "")
    for name, variants in series.items():
        SPECS.setdefault(name, SPECS[variants[0]])
        LABELS.setdefault(name, shared_words([LABELS[variant] for variant in variants]))


def label_of(variant: str) -> str:
    """What everything that people read calls it."""
    return LABELS.get(variant, variant)


def label_text(column: str = "variant") -> pl.Expr:
    return pl.col(column).map_elements(label_of, return_dtype=pl.String)


def arm_of(row: Mapping) -> str:
    """What tells a row from others of its cache at its sweep point: 'batching 128', 'chunked by 512 tokens'."""
    arms = [(axis.title or "{}", row.get(name)) for name, axis in sorted(AXES.items(), key=lambda item: not item[1].is_text) if axis.is_arm]
    return " ".join(title.format(f"{value:.0f}" if isinstance(value, float) else value).replace("_", " ") for title, value in arms if value)


def called(row: Mapping) -> str:
    """A row's cache with its arm: 'paged q8_0, batching 128'."""
    return ", ".join(filter(None, (label_of(row["variant"] or ""), arm_of(row))))


def shared_words(labels: list[str]) -> str:
    """What several variants are called together, as a policy over its budgets: the words that their labels share."""
    first, *others = (label.split() for label in labels)
    alike = [word for at, word in enumerate(first) if all(word in other[at : at + 1] for other in others)]
    return " ".join(alike) or labels[0]


def heading(column: str, baseline: str = "") -> str:
    """A column's title; that of a ratio names the `baseline`. A folder of an earlier version has none: the column's name."""
    title = HEADINGS.get(column, column)
    return title.replace("baseline", baseline) if baseline else title


def spec_of(variant: str) -> Spec:
    return SPECS.get(variant) or Spec(variant, is_cache=False)


def dimensions(names: Iterable[str]) -> list[str]:
    """The columns whose values split a chart into panels, in the order in which a panel's title says them."""
    return ["run", *(name for name in AXES if AXES[name].title and not AXES[name].is_arm and name in names)]


def name_of(part: str) -> str:
    return part.partition("(")[0]


def parameters(part: str) -> dict[str, str]:
    """Those of one stage: 'ring(window=64,sinks=4)' -> {'window': '64', 'sinks': '4'}; a split's codecs keep theirs."""
    inside = part.partition("(")[2].removesuffix(")")
    return dict(pair.split("=", 1) for pair in re.split(r",(?![^(]*\))", inside) if "=" in pair)


def with_parameters(name: str, pairs: Mapping[str, str]) -> str:
    return f"{name}({','.join(f'{key}={value}' for key, value in pairs.items())})" if pairs else name


def numeric_parameters(part: str) -> dict[str, float]:
    return {key: float(value) for key, value in parameters(part).items() if re.fullmatch(r"-?\d+(\.\d+)?", value)}
