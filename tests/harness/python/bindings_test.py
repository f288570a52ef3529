"""Caches from Python: attention against FP64 over what each placement and retention keeps, arrays without copies, sequences, files."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import kvlab
import numpy as np
import pytest
from shapes import SHAPE, Tensor, attention, cache, causal, error, step

# With budgets that make a sequence of 80 tokens evict.
RETENTIONS = {
    "full": "full", "ring": "ring(window=24,sinks=2)", "h2o": "h2o(heavy=16,recent=8)", "tova": "tova(budget=20)",
    "knorm": "knorm(budget=20)", "random": "random(budget=20)", "snapkv": "snapkv(budget=32,window=8)",
    "duo": "duo(recent=24,sinks=2,retrieval=1)", "expected": "expected(budget=20)",
    "ada": "ada(budget=32,window=8)", "pyramid": "pyramid(budget=24,window=8,beta=2)",
    **{name: f"{name}(budget=20)" for name in ("streaming", "observed", "keydiff")}, "lagkv": "lagkv(budget=20,lag=8)",
    "chunkkv": "chunkkv(budget=32,window=8,chunk=4)", "cur": "cur(budget=20)",
}  # fmt: skip


@pytest.fixture
def random():
    return np.random.default_rng(7)


def added(made, *arrays, layer=0):
    """The output of a step of a new sequence."""
    return made.step(made.add_sequence(), layer, *arrays)


def slice_of(array, first, end):
    return np.ascontiguousarray(array[:, first:end])


def test_every_listed_retention_is_tested_here():
    """The errors of codecs are contract_test's; python_policy_test.py runs a function of one's own."""
    listed = kvlab.variants()
    assert list(listed["retention"]) == [*RETENTIONS, "python"]
    assert all(text for stage in listed.values() for text in stage.values())


@pytest.mark.parametrize("placement", kvlab.variants()["placement"])
@pytest.mark.parametrize("retention", RETENTIONS)
def test_what_is_kept_is_what_is_attended_to(random, placement, retention):
    try:
        made = cache(f"{placement}/f32/{RETENTIONS[retention]}")
    except ValueError as refusal:
        assert f"retention '{retention}'" in str(refusal)
        assert placement == "tiered" or retention == "ada" and placement in ("doubling", "segmented")
        return
    sequence = made.add_sequence()
    q, k, v = step(random, 80)
    prompt = 40
    made.step(sequence, 0, *(slice_of(a, 0, prompt) for a in (q, k, v)))
    for token in range(prompt, 80):
        out = made.step(sequence, 0, *(slice_of(a, token, token + 1) for a in (q, k, v)))
        kept = [made.kept(sequence, 0, head) for head in range(SHAPE["kv_heads"])]
        assert all(tokens.max() == token and len(set(tokens)) == len(tokens) for tokens in kept)
        assert error(out, attention(q[:, token : token + 1], k, v, [[tokens] for tokens in kept])) < 1e-6
    sizes = {"full": [80] * 2, "ring": [26] * 2, "h2o": [24] * 2, "snapkv": [32 + 40] * 2, "duo": [26, 80], "expected": [20 + 40] * 2,
             **dict.fromkeys(["streaming", "observed", "keydiff", "lagkv", "cur"], [20 + 40] * 2), "chunkkv": [32 + 40] * 2,
             "pyramid": [32 + 40] * 2}  # the first of two layers has 8 + 24 rows, the second 8 + 8
    if retention == "ada":
        assert sum(map(len, kept)) == 2 * (32 + 40)
    else:
        assert [len(tokens) for tokens in kept] == sizes.get(retention, [20] * 2)
    if retention == "ring":
        assert sorted(kept[0]) == [0, 1, *range(56, 80)]


def test_a_prompt_of_a_ring_sees_what_token_by_token_sees(random):
    q, k, v = step(random, 80)
    out = added(cache("contiguous/f32/ring(window=24)"), q, k, v)
    seen = [[np.arange(max(0, i - 23), i + 1) for i in range(80)]] * 2
    assert error(out, attention(q, k, v, seen)) < 1e-6


def test_windows_of_layers(random):
    made = cache("contiguous + 0:contiguous/f16", windows=[0, 8])
    sequence = made.add_sequence()
    q, k, v = step(random, 40)
    assert error(made.step(sequence, 0, q, k, v), attention(q, k, v, causal(40, 40))) < 1e-3
    seen = [[np.arange(max(0, i - 7), i + 1) for i in range(40)]] * 2
    assert error(made.step(sequence, 1, q, k, v), attention(q, k, v, seen)) < 1e-6
    assert len(made.kept(sequence, 1)) == 8


def test_sinks_and_caps(random):
    made = cache()
    q, k, v = step(random, 20)
    sinks = np.linspace(-1, 2, 4, dtype=np.float32)
    out = made.step(made.add_sequence(), 0, q, k, v, sink_logits=sinks, score_cap=2.0)
    right = attention(q, k, v, causal(20, 20), sinks, 2.0)
    assert error(out, right) < 1e-6 and error(out, attention(q, k, v, causal(20, 20))) > 1e-2


def test_several_sequences_are_one_call(random):
    made = cache("paged(block=16)/q8_0", max_sequences=3)
    together = [made.add_sequence() for _ in range(3)]
    q, k, v = step(random, 12, sequences=(3,))
    out = made.step(together, 0, q, k, v)
    assert out.shape == q.shape
    assert all(np.array_equal(added(cache("paged(block=16)/q8_0"), q[i], k[i], v[i]), out[i]) for i in range(3))


def test_append_then_attend_is_a_step(random):
    two = cache("concat/f16")
    q, k, v = step(random, 9)
    whole = added(cache("concat/f16"), q, k, v, layer=1)
    sequence = two.add_sequence()
    two.append(sequence, 1, k, v)
    assert np.array_equal(two.attend(sequence, 1, q), whole)
    assert np.array_equal(two.attend(sequence, 1, np.ascontiguousarray(q[:, 7:])), whole[:, 7:])


def test_attending_again_is_about_the_sequence_that_is_named(random):
    made = cache(max_sequences=2)
    outputs = []
    q = step(random, 1)[0]
    for sequence in (made.add_sequence(), made.add_sequence()):
        made.append(sequence, 0, *step(random, 5)[1:])
        outputs.append(made.attend(sequence, 0, q))
    assert [np.array_equal(made.attend(i, 0, q), outputs[i]) for i in (1, 0, 1)] == [True] * 3
    assert not np.array_equal(*outputs)


class OnlyDlpack:
    """An array as PyTorch and JAX look from here."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, *arguments, **options):
        return self.array.__dlpack__(*arguments, **options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("of", [lambda array: array, OnlyDlpack], ids=["NumPy's", "others'"])
def test_arrays_come_in_and_go_out_without_a_copy(random, of):
    made = cache(max_sequences=2)
    arrays = step(random, 5)
    out = np.full_like(arrays[0], np.nan)
    wanted = of(out)
    assert made.step(made.add_sequence(), 0, *map(of, arrays), out=wanted) is wanted
    assert np.array_equal(out, added(made, *arrays))


def test_forks_grow_apart_and_truncation_takes_back(random):
    made = cache("paged(block=8)", max_sequences=2)
    parent = made.add_sequence()
    prompt, other, last = step(random, 10), step(random, 4), step(random, 2)
    made.step(parent, 0, *prompt)
    child = made.fork(parent)
    assert made.sequences == [parent, child]
    made.step(parent, 0, *other)
    made.truncate(parent, 10)
    assert np.array_equal(made.step(parent, 0, *last), made.step(child, 0, *last))
    made.release(child)
    assert made.sequences == [parent]
    made = cache("contiguous/f32/ring(window=8)")
    made.step(made.add_sequence(), 0, *prompt)
    with pytest.raises(ValueError, match="cannot truncate a sequence to 5 tokens: retention 'ring'"):
        made.truncate(0, 5)


def test_files_bring_a_sequence_back(random, tmp_path):
    made = cache("contiguous/kivi(bits=4,group=8,residual=16)", max_sequences=2)
    sequence = made.add_sequence()
    made.step(sequence, 0, *step(random, 50))
    made.save(sequence, tmp_path / "sequence")
    again = made.load(str(tmp_path / "sequence"))
    last = step(random, 1)
    assert np.array_equal(made.step(sequence, 0, *last), made.step(again, 0, *last))
    with pytest.raises(ValueError, match="sequence"):
        cache("contiguous/q8_0").load(tmp_path / "sequence")


def test_bytes_are_those_of_the_rows(random):
    made = cache("doubling/q8_0", max_sequences=2)
    made.step(made.add_sequence(), 0, *step(random, 64))
    held = made.bytes()
    assert held["payload"] >= 64 * 2 * SHAPE["kv_heads"] * SHAPE["head_dim"]  # a byte a number
    assert held["payload"] + held["metadata"] < 64 * 2 * SHAPE["kv_heads"] * SHAPE["head_dim"] * 1.2
    assert held["peak"] >= held["payload"] and held["disk"] == 0
    assert made.kernel().endswith("q8_0") and made.spec == "doubling/q8_0" and "doubling/q8_0" in repr(made)


def test_threads_share_a_cache(random):
    """Each thread works on a sequence of its own; every output is what one thread alone gets."""
    made = cache("paged(block=8)/f16", max_sequences=4, threads=1)
    steps = [[step(random, 1) for _ in range(60)] for _ in range(4)]
    sequences = [made.add_sequence() for _ in range(4)]
    outputs = [[] for _ in range(4)]

    def work(i):
        for one in steps[i]:
            outputs[i].append(made.step(sequences[i], 0, *one))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for i in range(4):
        alone = cache("paged(block=8)/f16", threads=1)
        sequence = alone.add_sequence()
        assert all(np.array_equal(alone.step(sequence, 0, *one), out) for one, out in zip(steps[i], outputs[i]))


def test_other_threads_run_while_the_cache_works(random):
    """A thread that counts gets its turn in the middle of a call: the interpreter's lock is free then."""
    made = cache(layers=1, max_tokens=6000, threads=1)
    long = step(random, 6000)
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1
            time.sleep(0)  # lets go of the lock

    counter = threading.Thread(target=count)
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e3)  # from here on threads change only where one lets go of the lock
    try:
        counter.start()
        sequence, before = made.add_sequence(), counted[0]
        made.step(sequence, 0, *long)
        during = counted[0] - before
    finally:
        done.set()
        sys.setswitchinterval(switch)
    counter.join()
    assert during > 0


def test_importing_brings_nothing_big_along():
    code = "import sys, kvlab; print(*sorted(sys.modules))"
    path = {**os.environ, "PYTHONPATH": str(Path(kvlab.__file__).parents[1])}
    modules = subprocess.run([sys.executable, "-c", code], env=path, capture_output=True, text=True, check=True).stdout.split()
    assert "kvlab._kvlab" in modules and not {"numpy", "polars", "altair", "torch", "transformers"} & set(modules)


def bfloat16(array):
    """The same numbers rounded towards zero, as another library's bfloat16 tensor."""
    bits = (array.view(np.uint32) >> 16).astype(np.uint16)
    return Tensor(array.shape, bits.ctypes.data, device=1, code=4, bits=16, keeps=bits)


def ml_dtypes_bfloat16(array):
    dtypes = pytest.importorskip("ml_dtypes", reason="no ml_dtypes here")
    return array.astype(dtypes.bfloat16)


@pytest.mark.parametrize("narrow, widened", [
    (lambda a: a.astype(np.float16), lambda a: a.astype(np.float16).astype(np.float32)),
    (bfloat16, lambda a: (a.view(np.uint32) & 0xFFFF0000).view(np.float32)),
    (ml_dtypes_bfloat16, lambda a: ml_dtypes_bfloat16(a).astype(np.float32)),
], ids=["float16", "bfloat16", "ml_dtypes"])
def test_arrays_of_16_bits_are_widened(random, narrow, widened):
    arrays = step(random, 5)
    with cache(max_sequences=3) as made:
        outs = [made.step(made.add_sequence(), 0, *map(of, arrays)) for of in (narrow, widened)]
        assert outs[0].dtype == np.float32 and np.array_equal(*outs)
        assert not np.array_equal(outs[0], made.step(made.fork(0), 1, *arrays))


def test_the_version_is_the_programs():
    alone = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # a sanitizer's runtime is in the program already
    program = subprocess.run([os.environ["KVLAB_PROGRAM"], "--version"], capture_output=True, text=True, check=True, env=alone)
    assert kvlab.__version__ == program.stdout.strip()
