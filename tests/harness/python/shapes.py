"""Small caches, their steps, and what attention over them is in FP64."""

import ctypes

import kvlab
import numpy as np

SHAPE = {"layers": 2, "q_heads": 4, "kv_heads": 2, "head_dim": 32, "max_tokens": 96}
GROUP = SHAPE["q_heads"] // SHAPE["kv_heads"]


class Managed(ctypes.Structure):  # DLManagedTensor
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    ]  # fmt: skip


class Tensor:
    """A tensor of a library that NumPy does not know: an address with a type and a device. `keeps` lives as long."""

    def __init__(self, shape, data, device, code, bits, keeps=None):
        self.shape, self.device, self.keeps = (ctypes.c_int64 * len(shape))(*shape), device, keeps
        at = ctypes.cast(self.shape, ctypes.c_void_p).value
        self.tensor = Managed(data=data, device_type=device, ndim=len(shape), code=code, bits=bits, lanes=1, shape=at)

    def __dlpack__(self, *arguments, **options):
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return capsule(ctypes.addressof(self.tensor), b"dltensor", None)

    def __dlpack_device__(self):
        return self.device, 0


def cache(spec="contiguous", **changes):
    return kvlab.Cache(spec, **{**SHAPE, **changes})


def kept_tokens(spec, q, k, v):
    """The tokens that each head keeps of a prompt."""
    made = cache(spec, layers=1, max_tokens=k.shape[1])
    sequence = made.add_sequence()
    made.step(sequence, 0, *map(np.ascontiguousarray, (q, k, v)))
    return [made.kept(sequence, 0, head) for head in range(SHAPE["kv_heads"])]


def rows(random, n, heads=SHAPE["kv_heads"], sequences=()):
    return random.standard_normal((*sequences, heads, n, SHAPE["head_dim"]), dtype=np.float32)


def step(random, n, sequences=()):
    """q, k and v of n tokens."""
    return rows(random, n, SHAPE["q_heads"], sequences), rows(random, n, sequences=sequences), rows(random, n, sequences=sequences)


def attention(q, k, v, seen, sink_logits=None, score_cap=0.0):
    """FP64: softmax(q k^T / sqrt(d)) v of queries [q_heads, n, d] over rows [kv_heads, tokens, d], where seen[kv_head][i] are
    the tokens that query i sees."""
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    out = np.empty_like(q)
    for head in range(q.shape[0]):
        for i in range(q.shape[1]):
            tokens = seen[head // GROUP][i]
            scores = k[head // GROUP, tokens] @ q[head, i] / np.sqrt(q.shape[2])
            if score_cap:
                scores = score_cap * np.tanh(scores / score_cap)
            top = scores.max() if sink_logits is None else max(scores.max(), sink_logits[head])
            weights = np.exp(scores - top)
            total = weights.sum() + (0 if sink_logits is None else np.exp(sink_logits[head] - top))
            out[head, i] = weights / total @ v[head // GROUP, tokens]
    return out


def causal(tokens, n):
    """What the last n of so many tokens see where all are kept, for every head."""
    return [[np.arange(tokens - n + i + 1) for i in range(n)]] * SHAPE["kv_heads"]


def error(out, right):
    """Relative L2 distance."""
    return np.linalg.norm(out - right) / np.linalg.norm(right)
