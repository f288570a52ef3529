"""What gpu-check compares with, as far as a CPU can run it: each peer's arithmetic against FP64.

Needs a PyTorch that gpu-check could use, and Triton's interpreter for its kernels; skipped where there is none.
"""

import os
import sys
import types
from pathlib import Path

import pytest

os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are defined
sys.path.insert(0, str(Path(os.environ["KVLAB_HOME"]) / "harness" / "gpu_check"))

import peers  # noqa: E402

torch = peers.torch


def version_of(module):
    return tuple(int(n) for n in module.__version__.split(".")[:2])


needs_torch = pytest.mark.skipif(torch is None or version_of(torch) < (2, 5), reason="there is no PyTorch from 2.5 on")

POINTS = [peers.Point(2, 96, 2, 4, 64), peers.Point(1, 100, 2, 1, 128), peers.Point(3, 70, 1, 8, 64),
          peers.Point(1, 130, 1, 2, 256)]


def tensors(point):
    torch.manual_seed(1)
    shape = (point.batch, point.kv_heads, point.seq_len, point.head_dim)
    q = torch.randn(point.batch, point.kv_heads, point.group, point.head_dim)
    return [x.half() for x in (q, torch.randn(shape), torch.randn(shape))]


def error_of(peer, point):
    q, k, v = tensors(point)
    return peers.relative_error(peer.step(q, peer.store(k), peer.store(v)), peers.expected(q, k, v))


def flex_eager(q, k, v):
    from torch.nn.attention.flex_attention import flex_attention

    batch, heads, group, dim = q.shape
    out = flex_attention(q.reshape(batch, heads * group, 1, dim), k, v, enable_gqa=group > 1)
    return out.reshape(batch, heads, group, dim)


@needs_torch
@pytest.mark.parametrize("point", POINTS, ids=str)
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_every_form_of_sdpa_and_flex_is_attention(point):
    forms = {"viewed": peers.as_queries, "gqa": peers.with_gqa, "flex": flex_eager}
    for name, step in forms.items():
        assert 1e-5 < error_of(peers.Peer(name, 16, step, lambda x: x), point) < 1e-3, name
    int8 = peers.Peer("int8", 8, peers.dequantised, peers.store_int8)
    assert 2e-3 < error_of(int8, point) < peers.BOUNDS[8]


@needs_torch
@pytest.mark.parametrize("point", POINTS, ids=str)
def test_the_triton_kernels_are_attention_over_what_they_store(point, monkeypatch):
    pytest.importorskip("triton")
    if version_of(pytest.importorskip("numpy")) >= (2, 4):
        pytest.skip("Triton's interpreter does not know this NumPy")
    monkeypatch.setattr(torch.cuda, "get_device_properties",
                        lambda _: types.SimpleNamespace(multi_processor_count=4))
    of_triton = list(peers.triton_peers())
    assert [peer.bits for peer in of_triton] == [16, 8, 4]
    for peer, (least, most) in zip(of_triton, [(1e-5, 1e-3), (2e-3, 0.03), (0.03, 0.4)]):
        assert least < error_of(peer, point) < most, peer.name


def test_data_sets_are_several_times_the_cache_at_4_bits_too():
    l2 = 50 << 20
    for point in peers.POINTS:
        size = 4 * point.batch * point.seq_len * point.kv_heads * point.head_dim
        count = peers.buffers(point, l2, 80 << 30)
        assert count * size <= 17 << 30
        assert count * size / 4 >= 4 * l2
        assert peers.buffers(point, l2, 8 << 30) * size <= 3 << 30
