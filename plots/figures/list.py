"""The table of all charts, in the order of the report: a file, and the experiments whose figures it has.

Figures of a file without an experiment are the common ones. They do not draw cells of the experiments that are named here.
"""

from dataclasses import replace
from importlib import import_module

from figures.figure import Figure

FILES = {
    "memory": "",
    "latency": "",
    "break_even": "",
    "peers": "",
    "parameter": "",
    "growth": "growth",
    "pareto": "",
    "own_tensors": "eval",
    "tiers": "",
    "bandwidth": "",
    "roofline": "",
    "budget": "budget",
    "checkpoint": "checkpoint",
    "prefill": "prefill",
    "batch": "batch",
    "quality": "quality generate",
    "sensitivity": "sensitivity",
    "reading": "quality recall",
    "beside_baseline": "quality recall",
    "recall": "recall",
    "task": "task",
    "stream": "stream",
    "whole_models": "model",
    "requests": "replay",
    "serving": "serve speculate",
}
# The picture of a run's first screen: the first of these that its first experiment has; else the first figure of that experiment.
MAIN = "latency growth_total budget quality_kl sensitivity_layers loss_baseline quality_read recall task_depth model_rate hit_rate replay_concurrency".split()
FIGURES = [
    replace(figure, experiments=tuple(experiments.split()))
    for file, experiments in FILES.items()
    for figure in vars(import_module(f"figures.{file}")).values() if isinstance(figure, Figure)
]  # fmt: skip


def main_figure(drawn: list[str], experiment: str, lengths: int) -> str | None:
    """The name of the figure that answers first, of those that were drawn: of the experiment's own, else of the common ones.
    Against length, only if there are several."""
    owned = [figure for figure in FIGURES if figure.name in drawn and experiment in figure.experiments]
    common = [figure for figure in FIGURES if figure.name in drawn and not figure.experiments]
    candidates = [figure.name for figure in owned or common] or drawn
    preferred = [name for name in MAIN if name in candidates and (lengths > 1 or name != "latency")]
    return (preferred or ["pareto"] * ("pareto" in candidates) or candidates or [None])[0]
