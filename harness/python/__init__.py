"""KV caches, their measurements, and Hugging Face models over them.

    cache = kvlab.Cache("paged(block=16)/q8_0", layers=2, q_heads=8, kv_heads=2, head_dim=64, max_tokens=4096)
    sequence = cache.add_sequence()
    out = cache.step(sequence, 0, q, k, v)          # NumPy or DLPack: float32, float16 or bfloat16

    results = kvlab.run("configs/quickstart.toml")  # as `kvlab run`
    kvlab.eval({"q": q, "k": k, "v": v}, ["contiguous/f16", "paged/q8_0"])  # your own tensors
    results.cells                                   # a Polars frame
    results.plot.pareto()                           # an Altair chart

    from kvlab.transformers import KvlabCache       # needs kvlab[transformers]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvlab._kvlab import Cache, __version__, variants

if TYPE_CHECKING:
    from kvlab.results import Results, eval, load, run

__all__ = ["Cache", "Results", "__version__", "eval", "load", "run", "variants"]


def __getattr__(name: str):
    """Imports the parts that need Polars and Altair at first use."""
    if name in ("Results", "eval", "load", "run"):
        try:
            from kvlab import results
        except ModuleNotFoundError as error:
            raise ImportError(f"kvlab.{name} needs {error.name}: pip install {error.name}") from None
        return getattr(results, name)
    raise AttributeError(f"module 'kvlab' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
