"""The norm of the last outputs, over the newcomer's own axis."""

import altair as alt
from figures.figure import Tables, figure
from prepare import of_experiment


@figure("probe", "Norm of the last outputs", "error", "A line is a variant.")
def probe(tables: Tables):
    rows = of_experiment(tables.cells, "probe", "probe_norm")
    return alt.Chart(rows.select("tail_tokens", "probe_norm", "variant")).mark_line(point=True).encode(x="tail_tokens:Q", y="probe_norm:Q", color="variant:N")
