"""Mistakes: one exception of a fitting type with one line that says what, where and what would be right; the cache goes on."""

import os
import re

import kvlab
import numpy as np
import pytest
from shapes import SHAPE, Tensor, cache, step


@pytest.fixture
def made():
    return cache(max_sequences=2)


@pytest.fixture
def arrays():
    return step(np.random.default_rng(1), 3)


def refuses(kind, line, call, *arguments, **options):
    with pytest.raises(kind, match=line):
        call(*arguments, **options)


def strided(array):
    return np.repeat(array, 2, axis=2)[:, :, ::2]


def unaligned(array):
    raw = np.zeros(array.nbytes + 1, np.uint8)
    moved = raw[1:].view(np.float32).reshape(array.shape)
    moved[:] = array
    return moved


def on_gpu(array):
    """A tensor that says it lies in a GPU's memory, at an address that nobody may read."""
    return Tensor(array.shape, data=16, device=2, code=2, bits=32)


BAD_KEYS = {
    "float64": (lambda k: k.astype(np.float64), TypeError, "k is of float64; float32, float16 or bfloat16 is needed"),
    "integers": (lambda k: k.astype(np.int8), TypeError, "k is of int8"),
    "big endian": (lambda k: k.astype(">f4"), TypeError, "k is a ndarray that is not readable|k is of"),
    "list": (lambda k: k.tolist(), TypeError, "k is a list that is not readable as an array"),
    "None": (lambda k: None, TypeError, "k is a NoneType"),
    "dimensions": (lambda k: k[0], ValueError, r"k has the shape \(3, 32\); \(kv_heads=2, n=3, head_dim=32\) is needed"),
    "heads": (lambda k: np.concatenate([k, k]), ValueError, r"k has the shape \(4, 3, 32\)"),
    "head_dim": (lambda k: np.ascontiguousarray(k[..., :8]), ValueError, r"k has the shape \(2, 3, 8\)"),
    "tokens": (lambda k: np.ascontiguousarray(k[:, :2]), ValueError, r"k has the shape \(2, 2, 32\)"),
    "stride": (strided, ValueError, "k is not contiguous; numpy.ascontiguousarray"),
    "fortran": (np.asfortranarray, ValueError, "k is not contiguous"),
    "alignment": (unaligned, ValueError, "k is not contiguous"),
    "GPU": (on_gpu, ValueError, "k lies in a GPU's memory"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", BAD_KEYS)
def test_a_bad_array_is_refused_and_nothing_changes(made, arrays, mistake):
    change, kind, line = BAD_KEYS[mistake]
    q, k, v = arrays
    sequence = made.add_sequence()
    with pytest.raises(kind, match=line) as raised:
        made.step(sequence, 0, q, change(k), v)
    assert "\n" not in str(raised.value)
    assert made.tokens(sequence) == 0
    made.step(sequence, 0, q, k, v)
    assert made.tokens(sequence) == 3


def test_an_output_must_be_writable(made, arrays):
    q, k, v = arrays
    out = np.zeros_like(q)
    out.flags.writeable = False
    refuses(ValueError, "out is read-only", made.step, made.add_sequence(), 0, q, k, v, out=out)
    for array in (q, k, v):
        array.flags.writeable = False
    made.step(0, 0, q, k, v)


@pytest.mark.parametrize("wrong, kind, line", [
    (lambda q, k, v: {"out": np.zeros_like(q, np.float16)}, TypeError, "out is of float16; float32 is needed"),
    (lambda q, k, v: dict(zip("qkv", step(np.random.default_rng(1), 0))), ValueError, r"q has the shape \(4, 0, 32\).* n of at least 1"),
    *((lambda q, k, v, cap=cap: {"score_cap": cap}, ValueError, "score_cap must be") for cap in (float("nan"), float("inf"), -1.0)),
], ids=["float16", "no tokens", "nan", "inf", "-1"])  # fmt: skip
def test_a_bad_step_is_refused(made, arrays, wrong, kind, line):
    refuses(kind, line, made.step, made.add_sequence(), 0, **(dict(zip("qkv", arrays)) | wrong(*arrays)))


@pytest.mark.parametrize("wrong, line", [
    ("contigous", "contiguous"),
    ("", "."),
    ("paged(block=16)/kivi", "would cut the codec's groups"),
    ("contiguous/f32/ring(window=0)", "window"),
    ("contiguous + 9:contiguous/f16", "there is no layer 9"),
    ("contiguous/f32/ring(window=model)", "window"),
    ({"layers": 0}, "layers must be from 1"),
    ({"layers": 2**31 - 1}, "layers must be from 1 to 1024, not 2147483647"),
    ({"q_heads": 3}, r"q_heads \(3\) must be a multiple of kv_heads \(2\)"),
    ({"q_heads": 2**31 - 1}, "q_heads must be from 1 to 4096"),
    ({"head_dim": 30}, "head_dim must be a multiple of 8"),
    ({"max_tokens": 0}, "max_tokens must be at least 1"),
    ({"max_tokens": 2**62}, "no machine holds that"),
    ({"max_sequences": -1}, "max_sequences must be from 1"),
    ({"max_sequences": 2**31 - 1}, "max_sequences must be from 1 to 65536"),
    ({"windows": [4]}, "windows has 1 entries; one for each of 2 layers"),
    ({"windows": [4, -1]}, "a window of -1 tokens"),
    ({"threads": -1}, "threads must be from 0 to 4096, not -1"),
    *(({"rope_theta": theta}, f"rope_theta must be a positive number, not {theta:g}") for theta in (float("nan"), float("inf"), -1.0)),
])  # fmt: skip
def test_what_no_cache_can_be_is_refused(wrong, line):
    spec, options = (wrong, {}) if isinstance(wrong, str) else ("contiguous", wrong)
    refuses(ValueError, line, cache, spec, **options)


def test_too_big_for_the_machine():
    refuses(MemoryError, "bytes", lambda: cache(layers=64, max_tokens=2**30).add_sequence())


def test_sequences_and_layers_that_are_not_there(made, arrays):
    q, k, v = arrays
    refuses(ValueError, re.escape("no sequence 0; add_sequence() makes one"), made.step, 0, 0, q, k, v)
    first, second = made.add_sequence(), made.add_sequence()
    refuses(ValueError, "no sequence 7; there are: 0, 1", made.tokens, 7)
    refuses(ValueError, "max_sequences = 2", made.add_sequence)
    refuses(ValueError, "max_sequences = 2", made.fork, first)
    refuses(ValueError, "layer 2 is none: there are 0 to 1", made.step, first, 2, q, k, v)
    refuses(ValueError, "kv_head -1 is none", made.kept, first, 0, -1)
    twice = [np.stack([array, array]) for array in arrays]
    refuses(ValueError, "sequence 1 is given twice", made.step, [second, second], 0, *twice)
    refuses(TypeError, "sequence: a number", made.step, "0", 0, q, k, v)
    refuses(TypeError, "sequence: a number", made.step, [], 0, q, k, v)
    made.release(second)
    refuses(ValueError, "no sequence 1", made.release, second)


def test_more_tokens_than_there_is_room_for(made):
    random = np.random.default_rng(1)
    sequence = made.add_sequence()
    made.step(sequence, 0, *step(random, 90))
    refuses(ValueError, "sequence 0 has 90 tokens in layer 0; 7 more are past max_tokens = 96", made.step, sequence, 0, *step(random, 7))
    made.step(sequence, 0, *step(random, 6))


def test_queries_of_tokens_that_are_not_kept(made, arrays):
    q, k, v = arrays
    sequence = made.add_sequence()
    refuses(ValueError, "keeps fewer than the 3 that q asks for", made.attend, sequence, 0, q)
    made.append(sequence, 0, k, v)
    made.truncate(sequence, 0)
    refuses(ValueError, "keeps fewer", made.attend, sequence, 0, q)
    ring = cache("contiguous/f32/ring(window=2)")
    refuses(ValueError, r"use step\(\)", ring.append, ring.add_sequence(), 0, k, v)
    cut = cache("contiguous/f32/snapkv(budget=8,window=4)")
    prompt = step(np.random.default_rng(1), 40)
    cut.step(cut.add_sequence(), 0, *prompt)
    refuses(ValueError, "keeps fewer than the 40", cut.attend, 0, 0, prompt[0])


def test_a_pool_that_is_used_up():
    made = cache("paged(block=16,pool=2)", layers=1)
    refuses(MemoryError, "out of blocks: the pool has 2", made.step, made.add_sequence(), 0, *step(np.random.default_rng(1), 40))
    assert made.tokens(0) == 0


def test_files_that_cannot_be(made, tmp_path):
    refuses((ValueError, RuntimeError), "nowhere", made.load, tmp_path / "nowhere")
    (tmp_path / "text").write_text("text")
    refuses(ValueError, "text", made.load, tmp_path / "text")
    made.add_sequence()
    refuses(RuntimeError, "missing", made.save, 0, tmp_path / "missing" / "file")


def test_a_closed_cache(arrays):
    q, k, v = arrays
    made = cache()
    with made:
        sequence = made.add_sequence()
    calls = [made.add_sequence, made.bytes, made.kernel, lambda: made.step(sequence, 0, q, k, v), lambda: made.attend(sequence, 0, q),
             lambda: made.append(sequence, 0, k, v), lambda: made.fork(sequence), lambda: made.kept(sequence), lambda: made.sequences,
             lambda: made.truncate(sequence, 0), lambda: made.save(sequence, "x"), lambda: made.load("x")]  # fmt: skip
    for call in calls:
        refuses(ValueError, "^the cache is closed$", call)
    made.close()
    assert made.closed and made.spec == "contiguous" and made.layers == SHAPE["layers"] and "closed" in repr(made)
    refuses(AttributeError, "module 'kvlab' has no attribute 'Cash'", lambda: kvlab.Cash)


def test_saving_replaces_no_device_and_no_link(made, tmp_path):
    sequence = made.add_sequence()
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        refuses(ValueError, "a folder, a device or a pipe", made.save, sequence, path)
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "link").symlink_to("behind")
    made.save(sequence, tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and made.load(tmp_path / "behind") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["behind", "link", "pipe"]


@pytest.mark.parametrize("call", ["save", "load"])
def test_no_path_is_cut_at_a_nul(made, tmp_path, call):
    made.save(made.add_sequence(), tmp_path / "a")
    arguments = (0,) if call == "save" else ()
    refuses(ValueError, "NUL", getattr(made, call), *arguments, f"{tmp_path}/a\0b")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
