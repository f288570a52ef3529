"""What the PyTorch ecosystem offers for the same decode steps on the same GPU, timed as gpu-check times its own.

Every peer is checked against attention in FP64 before it is timed; its best form counts. Each prints a row of JSON as
soon as it is done. Shapes and distributions are those of harness/gpu_check/benchmark.cu; the numbers are PyTorch's own.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None

COLD_CALLS, LEAST_GRAPH_CALLS, GRAPH_LAUNCHES = 40, 32, 8
HOLD_CYCLES = 1_000_000  # longer than Python takes to launch a step


class Point(NamedTuple):
    batch: int
    seq_len: int
    kv_heads: int
    group: int
    head_dim: int

    @property
    def scale(self) -> float:
        return self.head_dim**-0.5


POINTS = [Point(32, 4096, 8, 4, 128), Point(1, 1024, 8, 4, 128), Point(1, 32768, 8, 4, 128), Point(32, 4096, 8, 1, 128),
          Point(16, 4096, 8, 8, 128), Point(32, 4096, 8, 4, 64), Point(16, 4096, 8, 2, 256), Point(4, 16384, 8, 4, 128)]

Tensor = Any
# (q [B, Hkv, G, D], k and v of the peer's own kind) -> [B, Hkv, G, D]
Step = Callable[[Tensor, Any, Any], Tensor]


class Peer(NamedTuple):
    name: str
    bits: int
    step: Step
    store: Callable[[Tensor], Any]  # [B, Hkv, S, D] f16 -> what is kept


# ---- scaled_dot_product_attention ----


def as_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The query heads of a group as so many tokens: every key is read once."""
    return F.scaled_dot_product_attention(q, k, v)


def with_gqa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    batch, heads, group, dim = q.shape
    out = F.scaled_dot_product_attention(q.reshape(batch, heads * group, 1, dim), k, v, enable_gqa=True)
    return out.reshape(batch, heads, group, dim)


def forced(backend: Any, step: Step) -> Step:
    from torch.nn.attention import sdpa_kernel

    def run(q: Tensor, k: Any, v: Any) -> Tensor:
        with sdpa_kernel([backend]):
            return step(q, k, v)

    return run


def sdpa_peers() -> Iterator[Peer]:
    from torch.nn.attention import SDPBackend

    for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION"):
        backend = getattr(SDPBackend, name, None)
        if backend is None:
            continue
        for form, step in (("viewed", as_queries), ("gqa", with_gqa)):
            yield Peer(f"sdpa {name.lower()} {form}", 16, forced(backend, step), lambda x: x)


# ---- dequantise, then attend ----


def store_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(-1, keepdim=True).float() / 127.0
    return torch.round(x.float() / scale).to(torch.int8), scale.half()


def load_int8(stored: tuple[Tensor, Tensor]) -> Tensor:
    return stored[0].half() * stored[1]


def dequantised(q: Tensor, k: Any, v: Any) -> Tensor:
    return as_queries(q, load_int8(k), load_int8(v))


# ---- flex_attention ----


def flex_peers() -> Iterator[Peer]:
    try:
        from torch.nn.attention.flex_attention import flex_attention
    except ImportError:
        return
    compiled = torch.compile(flex_attention, dynamic=False)  # for one shape: the compiler forgets the others

    def step(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        batch, heads, group, dim = q.shape
        out = compiled(q.reshape(batch, heads * group, 1, dim), k, v, enable_gqa=group > 1)
        return out.reshape(batch, heads, group, dim)

    yield Peer("flex_attention compiled", 16, step, lambda x: x)


def triton_peers() -> Iterator[Peer]:
    try:
        import triton_decode
    except ImportError:
        return
    for bits, store in ((16, lambda x: x), (8, store_int8), (4, triton_decode.store_int4)):
        yield Peer(f"triton split-KV int{bits}" if bits < 16 else "triton split-KV f16", bits,
                   triton_decode.step(bits), store)


# ---- checking and timing ----


CHECKED = [0, -1]  # sequences of a batch


def expected(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.einsum("bhgd,bhsd->bhgs", q[CHECKED].double(), k[CHECKED].double()) * q.shape[-1] ** -0.5
    return torch.einsum("bhgs,bhsd->bhgd", scores.softmax(-1), v[CHECKED].double())


def relative_error(out: Tensor, want: Tensor) -> float:
    return float((out[CHECKED].double() - want).norm() / want.norm())


def time_once(work: Callable[[], Any]) -> float:
    """Microseconds on the GPU, which is kept busy until the host has launched all of the work."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(HOLD_CYCLES)
    start.record()
    work()
    end.record()
    end.synchronize()
    return 1e3 * start.elapsed_time(end)


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def steady_us(call: Callable[[int], Any], data_sets: int) -> float:
    """A call's share of a graph of calls, one after the other over all the data sets."""
    calls = max(LEAST_GRAPH_CALLS, data_sets)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call(0)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            call(i)
    return median([time_once(graph.replay) / calls for _ in range(GRAPH_LAUNCHES)])


def buffers(point: Point, l2_bytes: int, memory_bytes: int) -> int:
    """How many caches take turns: several times the L2 even at 4 bits, at most what 16 GiB hold, or a third of the GPU."""
    size = 4 * point.batch * point.seq_len * point.kv_heads * point.head_dim
    return max(1, min(4 * l2_bytes // (size // 4) + 2, min(16 << 30, memory_bytes // 3) // size, 256))


# Besides rounding, what a peer's own quantisation costs over N(0,1) rows.
BOUNDS = {16: 0.01, 8: 0.03, 4: 0.4}


def measure(peer: Peer, point: Point, data: list[tuple[Tensor, Tensor, Tensor]], want: Tensor) -> dict[str, Any]:
    stored = [(q, peer.store(k), peer.store(v)) for q, k, v in data]
    error = relative_error(peer.step(*stored[0]), want)
    row = {"stage": "peers", "name": peer.name, "bits": peer.bits, **point._asdict(), "relative_error": error}
    if not error < BOUNDS[peer.bits]:
        return {**row, "status": "failed", "reason": f"wrong result: relative error {error:.3g}"}

    def call(i: int) -> Tensor:
        return peer.step(*stored[i % len(stored)])

    cold = median([time_once(lambda i=i: call(i)) for i in range(COLD_CALLS)])
    return {**row, "status": "ok", "cold_us": cold, "steady_us": steady_us(call, len(stored))}


def all_peers() -> list[Peer]:
    return [*sdpa_peers(), *triton_peers(), Peer("dequantise int8, then sdpa", 8, dequantised, store_int8), *flex_peers()]


def make_data(point: Point, count: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    torch.manual_seed(1)
    q_shape = (point.batch, point.kv_heads, point.group, point.head_dim)
    shape = (point.batch, point.kv_heads, point.seq_len, point.head_dim)
    shapes = (q_shape, shape, shape)
    return [tuple(torch.randn(s, device="cuda", dtype=torch.float16) for s in shapes) for _ in range(count)]


def failure(peer: Peer, point: Point, error: Exception) -> dict[str, Any]:
    reason = str(error).strip().splitlines()
    return {"stage": "peers", "name": peer.name, "bits": peer.bits, **point._asdict(), "status": "failed",
            "reason": (reason or [type(error).__name__])[0][:200]}


def compare(point: Point, end: float) -> bool:
    """Prints a row for each peer at one point; False where the time was over before the last."""
    torch.compiler.reset()  # or it gives up on a function that it has compiled for 8 shapes
    gpu = torch.cuda.get_device_properties(0)
    data = make_data(point, buffers(point, gpu.L2_cache_size, gpu.total_memory))
    want = expected(*data[0])
    for peer in all_peers():
        if time.monotonic() > end:
            return False
        try:
            row = measure(peer, point, data, want)
        except Exception as error:  # noqa: BLE001  a peer that cannot do a shape says so in its row
            row = failure(peer, point, error)
            torch.cuda.synchronize()
        print(json.dumps(row), flush=True)
    return True


def why_not() -> str:
    if torch is None:
        return "PyTorch is not installed"
    return "" if torch.cuda.is_available() else "this PyTorch cannot use the GPU"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    end = time.monotonic() + parser.parse_args().seconds
    if why_not():
        print(json.dumps({"stage": "peers", "status": "skipped", "reason": why_not()}))
        return
    print(json.dumps({"stage": "versions", "name": "torch", "reason": torch.__version__}), flush=True)
    with torch.no_grad():
        for at, point in enumerate(POINTS):
            if not compare(point, end):
                left = len(POINTS) - at
                print(json.dumps({"stage": "peers", "status": "cut off", "reason": f"no time for all of the last {left} points"}))
                return
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
