"""kvlab.conformance: right caches pass, every planted fault fails its check, and kvlab's own caches keep what its rules say.

The faults are those found in other projects' caches. Each is one line that differs from the right function or class above it."""

import functools
import itertools
import json

import numpy as np
import pytest
from kvlab import conformance
from kvlab.conformance import Format, check, inputs, reachable_bytes
from kvlab.conformance_rules import RULES, lloyd, rotate, weights_of
from shapes import kept_tokens

BUDGET = 40


def kept_by(rule, x, n=None, **parameters):
    q, k, v = (a[:, :, :n] for a in x)
    out = []
    for b in range(len(k)):
        decision = RULES[rule](q[b], k[b], v[b], np.arange(k.shape[2]), **parameters)
        if decision.together:
            order = np.argsort(-decision.scores.ravel(), kind="stable")[: decision.rows * k.shape[1]]
            out.append([np.sort(order[order // k.shape[2] == h] % k.shape[2]) for h in range(k.shape[1])])
        else:
            out.append([np.sort(np.argsort(-s, kind="stable")[: decision.rows]) for s in decision.scores])
    return out


def rows_of(kept, k, v):
    take = lambda x: np.stack([np.stack([x[b, h, t] for h, t in enumerate(heads)]) for b, heads in enumerate(kept)])  # noqa: E731
    return take(k), take(v)


# Functions that keep rows by SnapKV and StreamingLLM, and what is wrong with others.
def snapkv(q, k, v, mask=None, window=16, budget=BUDGET):
    if mask is None:
        return kept_by("snapkv", (q, k, v), budget=budget, window=window)
    kept = []
    for b, real in enumerate(mask):
        places = np.flatnonzero(real)
        own = kept_by("snapkv", (q[b : b + 1][:, :, real], k[b : b + 1][:, :, real], v[b : b + 1][:, :, real]), budget=budget, window=window)
        kept.append([places[tokens] for tokens in own[0]])
    return kept


def streaming(q, k, v, sinks=4):
    return rows_of(kept_by("streaming", (q, k, v), budget=BUDGET, sinks=sinks), k, v)


def scores_before_rope(q, k, v):
    positions = np.arange(k.shape[2])
    return snapkv(rotate(q, positions, back=True), rotate(k, positions, back=True), v)


def budget_ignored_later():
    calls = itertools.count()
    return lambda q, k, v: snapkv(q, k, v, budget=k.shape[2] if next(calls) else BUDGET)


@pytest.mark.parametrize("function, rule, parameters", [
    (snapkv, "snapkv", {"window": 16}), (streaming, "streaming", {}),
    *((functools.partial(lambda q, k, v, rule: kept_by(rule, (q, k, v), budget=BUDGET), rule=rule), rule, {}) for rule in RULES),
])  # fmt: skip
def test_right_functions_pass(function, rule, parameters):
    report = check(function, rule=rule, budget=BUDGET, **parameters)
    assert report.ok, report
    assert {c.name: c.status for c in report.checks}["mask"] == ("pass" if function is snapkv else "skipped")


BYPASS = lambda q, k, v: snapkv(q, k, v, budget=k.shape[2])  # noqa: E731
FAULTS = {
    "bypass": (BYPASS, "snapkv", {"active", "kept"}),
    "window off by one": (lambda q, k, v: snapkv(q, k, v, window=15), "snapkv", {"kept"}),
    "scores before RoPE": (scores_before_rope, "snapkv", {"kept"}),
    "all sequences by the first one's queries": (lambda q, k, v: snapkv(np.broadcast_to(q[:1], q.shape), k, v), "snapkv", {"kept", "batch", "order"}),
    "mask ignored": (lambda q, k, v, mask=None: snapkv(q, k, v), "snapkv", {"mask"}),
    "the first head's tokens for all": (lambda q, k, v: [heads[:1] * 2 for heads in snapkv(q, k, v)], "snapkv", {"kept", "heads"}),
    "sinks dropped": (lambda q, k, v: streaming(q, k, v, sinks=0), "streaming", {"kept"}),
    "values not evicted": (lambda q, k, v: (streaming(q, k, v)[0], v[:, :, :BUDGET].copy()), "streaming", {"keys and values"}),
    "budget ignored later": (budget_ignored_later(), "snapkv", {"active", "kept", "repeat", "batch"}),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_of_a_function_is_caught(fault):
    function, rule, fails = FAULTS[fault]
    report = check(function, rule=rule, budget=BUDGET)
    assert fails <= set(report.failed), report
    assert not report.ok


# Classes with update(k, v). Codes are packed, so that bytes are what they would be.
class Window:
    """The newest rows and four sinks, at every step."""

    def __init__(self):
        self.k = self.v = None

    def update(self, k, v):
        for name, new in (("k", k), ("v", v)):
            old = getattr(self, name)
            setattr(self, name, self.cut(new if old is None else np.concatenate([old, new], 2), old is None))
        return self.k, self.v

    def cut(self, x, is_first):
        return np.concatenate([x[:, :, :4], x[:, :, max(4, x.shape[2] - BUDGET + 4) :]], 2)


class BudgetIgnoredAfterTheFirstCall(Window):
    def cut(self, x, is_first):
        return super().cut(x, is_first) if is_first else x


class Codebook:
    """2-bit codes of N(0,1) under a scale a row, four codes a byte."""

    factor = 1.0

    def __init__(self):
        self.parts, self.raw = {"k": [], "v": []}, []
        self.book = lloyd(2)

    @property
    def nbytes(self):
        return sum(codes.nbytes + scale.nbytes for side in self.parts.values() for codes, scale in side) + self.book.nbytes

    def update(self, k, v):
        return self.read("k", k), self.read("v", v)

    def read(self, name, x):
        scale = np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True))
        codes = np.searchsorted((self.book[1:] + self.book[:-1]) / 2, x / scale).astype(np.uint8)
        packed = sum(codes[..., i::4] << 2 * i for i in range(4)).astype(np.uint8)
        self.parts[name].append((packed, scale.astype(np.float32)))
        return np.concatenate([self.widen(*part) for part in self.parts[name]], 2)

    def widen(self, packed, scale):
        codes = np.stack([packed >> 2 * i & 3 for i in range(4)], -1).reshape(*packed.shape[:-1], -1)
        return (self.book[codes] * scale * self.factor).astype(np.float32)


class RawKeysBilledAtTwoBits(Codebook):
    def update(self, k, v):
        self.raw.append(k)
        return np.concatenate(self.raw, 2), super().update(k, v)[1]


def codebook(**changes):
    """A codebook with other members: what is wrong with it."""
    return type("Wrong", (Codebook,), changes)


def read_past_the_codec(self, name, x):
    self.raw.append((name, x))
    Codebook.read(self, name, x)
    return np.concatenate([rows for side, rows in self.raw if side == name], 2)


TWO_BITS = Format("lloyd2", group=32)


def test_right_classes_pass():
    assert check(Window, rule="streaming", budget=BUDGET).ok
    report = check(Codebook, format=TWO_BITS)
    assert report.ok, report
    assert {"error of K", "scale of V", "bytes stated", "bytes of format", "attention", "growth"} <= {c.name for c in report.checks}


@pytest.mark.parametrize("made, how, fails", [
    (BudgetIgnoredAfterTheFirstCall, {"rule": "streaming", "budget": BUDGET}, {"growth"}),
    (RawKeysBilledAtTwoBits, {"format": TWO_BITS}, {"bytes stated", "bytes of format", "error of K", "active"}),
    (codebook(factor=1.05), {"format": TWO_BITS}, {"scale of K", "scale of V"}),
    (codebook(read=lambda self, name, x: Codebook.read(self, name, x) * (1 + 0.01 * (len(x) - 1))), {"format": TWO_BITS}, {"batch"}),
    (codebook(read=read_past_the_codec), {"format": TWO_BITS}, {"active", "error of K", "error of V", "attention", "bytes stated"}),
    (codebook(read=lambda self, name, x: Codebook.read(self, name, x)[:, :, -256:]), {"format": TWO_BITS}, {"growth"}),
], ids=["budget ignored later", "raw keys billed at two bits", "centroid scale off", "scale of the batch", "codec bypassed", "step forgotten"])  # fmt: skip
def test_a_planted_fault_of_a_class_is_caught(made, how, fails):
    report = check(made, **how)
    assert fails <= set(report.failed), report


# Functions that give outputs.
def attend(q, k, v, mask=None, form=None):
    if form:
        k, v = form.applied(k), form.applied(v)
    out = [np.einsum("hgqt,htd->hgqd", weights_of(q[b], k[b], q.shape[2], None if mask is None else mask[b]), v[b]) for b in range(len(q))]
    return np.stack(out).reshape(q.shape).astype(np.float32)


@pytest.mark.parametrize("function, form, fails", [
    (attend, None, set()),
    (lambda q, k, v: attend(q, k, v, form=Format("int4")), Format("int4"), set()),
    (lambda q, k, v: attend(q, k, v), Format("int4"), {"active", "error"}),
    (lambda q, k, v: attend(q, k, v, form=Format("int3")), Format("int4"), {"error"}),
    (lambda q, k, v, mask=None: attend(q, k, v), None, {"mask"}),
    (lambda q, k, v: attend(q, k * 0.9, v), None, {"error"}),
])  # fmt: skip
def test_outputs_are_held_to_two_sided_bounds(function, form, fails):
    report = check(function, format=form)
    assert set(report.failed) == fails, report


def test_shares_of_storage_are_counted_once():
    class Holder:
        __slots__ = ("rows",)

    a, holder = np.zeros(1000, np.float32), Holder()
    holder.rows = {"a": [a, a[10:20]], "b": lambda: a}
    assert reachable_bytes(holder) == 4000
    b = np.zeros(10)
    assert reachable_bytes((holder, lambda: b)) == 4080


def test_a_report_is_lines_and_json():
    report = check(BYPASS, rule="snapkv", budget=BUDGET, name="mine")
    assert str(report).splitlines()[0] == "mine" and len(str(report).splitlines()) == len(report.checks) + 1
    read = json.loads(report.json())
    assert read["ok"] is False and [c["name"] for c in read["checks"] if c["status"] == "fail"] == report.failed
    assert not conformance.Report("nothing").ok


def test_mistakes_are_one_line():
    for wrong, message in (({"rule": "snap"}, "no rule 'snap'"), ({"rule": "snapkv"}, "needs budget=")):
        with pytest.raises(ValueError, match=message):
            check(snapkv, **wrong)
    with pytest.raises(ValueError, match="like q they would be"):
        check(lambda q, k, v: q[:, :, :5])


# The rules themselves, by kvlab's own caches, whose evictions an FP64 policy in C++ checks.
@pytest.mark.parametrize("retention, rule, parameters", [
    ("knorm(budget=40)", "knorm", {"budget": 40, "newest": True}),
    ("ring(window=36,sinks=4)", "streaming", {"budget": 40}),
    ("snapkv(budget=40,window=16,kernel=5)", "snapkv", {"budget": 40}),
    ("expected(budget=40,sinks=4)", "expected", {"budget": 40}),
    ("ada(budget=40,window=16,kernel=5,floor=0,step=1)", "ada", {"budget": 40}),
    ("streaming(budget=40)", "streaming", {"budget": 40}),
    ("observed(budget=40)", "observed", {"budget": 40}),
    ("keydiff(budget=40)", "keydiff", {"budget": 40}),
    ("lagkv(budget=40,lag=16)", "lagkv", {"budget": 40, "lag": 16}),
    ("cur(budget=40)", "cur", {"budget": 40}),
    ("chunkkv(budget=40,window=16,chunk=10)", "chunkkv", {"budget": 40}),
])  # fmt: skip
def test_rules_are_those_of_kvlabs_caches(retention, rule, parameters):
    function = lambda q, k, v: [kept_tokens(f"contiguous/f32/{retention}", *one) for one in zip(q, k, v)]  # noqa: E731
    report = check(function, rule=rule, **parameters)
    assert report.ok, report


def test_tova_drops_what_the_rule_drops():
    x, budget = inputs(1, 41), 40
    expected = kept_by("tova", (x.q, x.k, x.v), n=budget, budget=budget - 1)[0]
    for kept, head in zip(kept_tokens("contiguous/f32/tova(budget=40)", x.q[0], x.k[0], x.v[0]), expected, strict=True):
        assert set(kept) == {*head.tolist(), budget}
