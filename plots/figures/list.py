"""The table of all charts, in the order of the report: a file, and the experiments whose figures it has.

Figures of a file without an experiment are the common ones. They do not draw cells of the experiments that are named here.
"""

from dataclasses import replace
from importlib import import_module

from figures.figure import Figure

FILES = {
    "memory": "",
    "latency": "",
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
    "reading": "quality recall",
    "beside_baseline": "quality recall",
    "recall": "recall",
    "stream": "stream",
    "whole_models": "model",
    "requests": "replay",
}
FIGURES = [
    replace(figure, experiments=tuple(experiments.split()))
    for file, experiments in FILES.items()
    for figure in vars(import_module(f"figures.{file}")).values() if isinstance(figure, Figure)
]  # fmt: skip
