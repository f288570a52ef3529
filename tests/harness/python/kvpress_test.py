"""Caches keep the tokens that kvpress keeps of the same q, k and v: sets that the code of kvpress 0.5.5 gave, on NumPy in the place of PyTorch, and
where both are installed its own code.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from kvlab.conformance import inputs
from kvlab.conformance_rules import weights_of
from shapes import kept_tokens

N, BUDGET = 200, 50
RECORDED = json.loads(Path(__file__).with_name("kvpress_kept.json").read_text())
METHODS = {  # a retention here, and the press there
    "streaming": ("streaming(budget=50)", lambda kvpress, ratio: kvpress.StreamingLLMPress(ratio)),
    "observed": ("observed(budget=50)", lambda kvpress, ratio: kvpress.ObservedAttentionPress(ratio)),
    "keydiff": ("keydiff(budget=50)", lambda kvpress, ratio: kvpress.KeyDiffPress(ratio)),
    "lagkv": ("lagkv(budget=50,lag=12)", lambda kvpress, ratio: kvpress.LagKVPress(ratio, lag_size=12)),
    "cur": ("cur(budget=50)", lambda kvpress, ratio: kvpress.CURPress(ratio)),
    "chunkkv": ("chunkkv(budget=50,window=10,kernel=5,chunk=13)", lambda kvpress, ratio: kvpress.ChunkKVPress(votes_of_snapkv(kvpress)(ratio), chunk_length=13)),
    "snapkv": ("snapkv(budget=50,window=10,kernel=5)", lambda kvpress, ratio: votes_of_snapkv(kvpress)(ratio)),
}  # fmt: skip


def votes_of_snapkv(kvpress):
    """SnapKVPress, given the weights in place of a layer that computes them: ChunkKVPress hands it none."""

    class Votes(kvpress.SnapKVPress):
        def __init__(self, ratio):
            super().__init__(ratio, window_size=10)

        def score(self, module, hidden_states, keys, values, attentions, kwargs):
            return super().score(module, hidden_states, keys, values, kwargs["weights"], kwargs)

    return Votes


@pytest.mark.parametrize("method", METHODS)
def test_kvlab_keeps_the_recorded_tokens(method):
    x = inputs(1, N)
    kept = kept_tokens(f"contiguous/f32/{METHODS[method][0]}", x.q[0], x.k[0], x.v[0])
    assert [sorted(map(int, tokens)) for tokens in kept] == RECORDED[method]


@pytest.mark.parametrize("method", METHODS)
def test_kvpress_keeps_the_recorded_tokens(method):
    assert kept_by_kvpress(method) == RECORDED[method]


def kept_by_kvpress(method):
    kvpress, torch = pytest.importorskip("kvpress"), pytest.importorskip("torch")
    x = inputs(1, N)
    q, k, v = (torch.from_numpy(a[:1]) for a in (x.q, x.k, x.v))
    weights = torch.from_numpy(weights_of(x.q[0], x.k[0], N).reshape(1, 4, N, N).astype(np.float32))
    config = SimpleNamespace(num_attention_heads=4, num_key_value_heads=2)
    module = SimpleNamespace(head_dim=32, config=config)
    attentions = weights if method == "observed" else None
    keys, _ = METHODS[method][1](kvpress, 1 - BUDGET / N).compress(module, q[:, 0], k, v, attentions, {"weights": weights})
    return [sorted(int((k[0, head] == row).all(-1).nonzero()[0]) for row in keys[0, head]) for head in range(2)]


if __name__ == "__main__":
    print(json.dumps({method: kept_by_kvpress(method) for method in METHODS}))
