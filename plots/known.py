"""What results folders say of their variants and axes. data.py fills it in as it reads them; nothing here parses a spec."""

from __future__ import annotations

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

    def by_layer(self) -> list[tuple[str, str]]:
        """(layers, what they have) of each exception, without a placement and codec that are the variant's own."""
        found = []
        for exception in filter(None, self.layer_specs.split(" + ")):
            layers, _, own = exception.partition(":")
            for shared in (f"{self.placement}/{self.codec}", self.placement):
                if f"{own}/".startswith(f"{shared}/"):
                    own = own[len(shared) + 1 :]
                    break
            found.append((layers, own))
        return found


SPECS: dict[str, Spec] = {}  # by variant, and by series: the config's text of several
AXES: dict[str, Column] = {}
HEADINGS: dict[str, str] = {}  # by column, as columns.json has them


def learn(cells: pl.DataFrame, columns: Mapping[str, Column]) -> None:
    AXES.update({name: column for name, column in columns.items() if column.is_axis})
    HEADINGS.update({name: column.heading for name, column in columns.items() if column.heading})
    names = [name for name in ("variant", "series", "peer") if name in cells.columns]
    rows = cells.select(*names, *STAGE_COLUMNS).unique(maintain_order=True).to_dicts()
    series: dict[str, list[Spec]] = {}
    for row in rows:
        stages = [row[name] or "" for name in STAGE_COLUMNS]
        spec = Spec(*stages) if stages[0] else Spec(row.get("peer") or row["variant"] or "", stages[1] or "f32", is_cache=False)
        SPECS[row["variant"] or ""] = spec
        series.setdefault(row.get("series") or "", []).append(spec)
    for name, specs in series.items():
        SPECS.setdefault(name, alike(specs))


def heading(column: str, baseline: str = "") -> str:
    """A column's title; that of a ratio names the `baseline`. A folder of an earlier version has none: the column's name."""
    title = HEADINGS.get(column, column)
    return title.replace("baseline", baseline) if baseline else title


def alike(specs: list[Spec]) -> Spec:
    """The stages of a policy over its budgets: parameters that they do not share are left out."""
    stages = [common([getattr(spec, stage) for spec in specs]) for stage in STAGE_COLUMNS]
    return Spec(*stages, is_cache=specs[0].is_cache)


def common(parts: list[str]) -> str:
    shared = set.intersection(*(set(parameters(part).items()) for part in parts))
    first = parameters(parts[0])
    return parts[0] if len(set(parts)) == 1 else with_parameters(name_of(parts[0]), {k: v for k, v in first.items() if (k, v) in shared})


def spec_of(variant: str) -> Spec:
    return SPECS.get(variant) or Spec(variant, is_cache=False)


def dimensions(names: Iterable[str]) -> list[str]:
    """The columns whose values split a chart into panels, in the order in which a panel's title says them."""
    return ["run", *(name for name in AXES if AXES[name].title and name in names)]


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
