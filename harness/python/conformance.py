"""Checks of anybody's cache: a function of q, k and v, or a class with update(k, v), on generated tensors and by FP64.

    from kvlab import conformance

    print(conformance.check(my_snapkv, rule="snapkv", budget=32, window=16))    # q, k, v to kept tokens, kept rows or outputs
    print(conformance.check(MyCache, format=conformance.Format("int4")))        # MyCache().update(k, v) gives all rows back

Arrays are float32, q [batch, q_heads, n, head_dim], k and v [batch, kv_heads, n, head_dim], after RoPE (base 10000, halves as
pairs). What comes back may be NumPy's, or any tensor with __dlpack__ or __array__. A function may return
- integers [batch, kv_heads, rows], or lists of them: the tokens it keeps;
- a pair of arrays [batch, kv_heads, rows, head_dim]: the rows it keeps, which are recognised by their bits;
- an array like q: attention's outputs.
One with a parameter `mask` gets [batch, n], true where a token is real. A class may say in `nbytes` how much it holds.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvlab.conformance_report import Check, Report, array, reachable_bytes
from kvlab.conformance_rules import HOLD_EVERY_STEP, RULES, Decision, Format, attention, gain, relative_error, rotate

__all__ = ["Check", "Format", "Report", "check", "reachable_bytes"]

NEAR_TIE = 1e-4  # relative distance of two scores that f32 may order otherwise
EXACT = 1e-5
BOUNDS = 0.8, 1.25  # of a format's own error
GAIN = 0.02
BYTES = 0.9, 1.1
OBJECTS = 4096  # bytes for what is no row: counters, masks
BATCH, Q_HEADS, KV_HEADS, HEAD_DIM = 2, 4, 2, 32


@dataclass
class Inputs:
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray

    def at(self, tokens: slice = slice(None), batch: Any = slice(None)) -> Inputs:
        return Inputs(*(np.ascontiguousarray(a[batch][:, :, tokens]) for a in (self.q, self.k, self.v)))


def inputs(seed: int, n: int, sizes: float = 0.5) -> Inputs:
    """Normal rows after RoPE; those of K and V differ in size, so that policies have something to choose by. sizes=0: N(0,1)."""
    random = np.random.default_rng(seed)
    made = []
    for heads, vary in ((Q_HEADS, False), (KV_HEADS, True), (KV_HEADS, True)):
        x = random.standard_normal((BATCH, heads, n, HEAD_DIM))
        made.append(x * np.exp(sizes * random.standard_normal((BATCH, heads, n, 1))) if vary and sizes else x)
    if sizes:
        made[0] += 0.7 * random.standard_normal((BATCH, Q_HEADS, 1, HEAD_DIM))
        made[0], made[1] = (rotate(x, np.arange(n)) for x in made[:2])
    return Inputs(*(x.astype(np.float32) for x in made))


def accepts(function: Callable, name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


Kept = list[list[np.ndarray]]  # [batch][kv_heads] of token numbers


def tokens_of(rows: Any, given: np.ndarray) -> tuple[Kept, int]:
    """The tokens whose rows [batch, kv_heads, rows, d] are, by their bits, and how many rows are none."""
    strange, kept = 0, []
    for b in range(len(given)):
        kept.append([])
        for h in range(given.shape[1]):
            names = {row.tobytes(): t for t, row in enumerate(given[b, h])}
            found = [names.get(np.ascontiguousarray(row, np.float32).tobytes(), -1) for row in array(rows[b][h])]
            strange += found.count(-1)
            kept[b].append(np.array([t for t in found if t >= 0], int))
    return kept, strange


@dataclass
class Answer:
    """A function's result: kept tokens by its keys, and by its values if it gives rows, or outputs."""

    kept: Kept | None = None
    of_values: Kept | None = None
    strange: int = 0
    out: np.ndarray | None = None


def answer(result: Any, x: Inputs) -> Answer:
    if isinstance(result, tuple) and len(result) == 2:
        (kept, strange), (of_values, strange_values) = tokens_of(result[0], x.k), tokens_of(result[1], x.v)
        return Answer(kept, of_values, strange + strange_values)
    if not isinstance(result, (list, tuple)):
        result = array(result)
        if np.issubdtype(result.dtype, np.floating):
            if result.shape != x.q.shape:
                raise ValueError(f"outputs are {list(result.shape)}; like q they would be {list(x.q.shape)}")
            return Answer(out=result)
    if len(result) != len(x.k) or any(len(heads) != KV_HEADS for heads in result):
        raise ValueError(f"kept tokens are not of {len(x.k)} sequences with {KV_HEADS} heads each")
    return Answer([[array(tokens).astype(int) for tokens in heads] for heads in result])


def same(a: Answer, b: Answer) -> bool:
    if a.out is not None:
        return relative_error(a.out, np.asarray(b.out, np.float64)) < EXACT
    pairs = [(x, y) for heads in zip(a.kept, b.kept, strict=True) for x, y in zip(*heads, strict=True)]
    return all(set(x.tolist()) == set(y.tolist()) for x, y in pairs)


def worst_miss(rule: Callable[..., Decision], x: Inputs, kept: Kept, parameters: dict) -> float:
    n = x.k.shape[2]
    own = {key: value(n) if callable(value) else value for key, value in parameters.items()}
    return max(rule(x.q[b], x.k[b], x.v[b], np.arange(n), **own).miss(kept[b]) for b in range(len(kept)))


def said(miss: float) -> str:
    return "too many or too few tokens, or a protected token dropped" if math.isinf(miss) else f"scores miss by {miss:.1e} at most"


class FunctionChecks:
    """A function of q, k and v."""

    def __init__(self, function: Callable, rule: str | None, form: Format | None, parameters: dict):
        self.function, self.rule, self.format, self.parameters = function, rule, form, parameters
        self.takes_mask = accepts(function, "mask")

    def call(self, x: Inputs, mask: np.ndarray | None = None) -> Answer:
        given = [a.copy() for a in (x.q, x.k, x.v)]
        return answer(self.function(*given, mask=mask) if mask is not None else self.function(*given), x)

    def run(self, report: Report) -> None:
        xs = [inputs(seed, n) for seed, n in enumerate((96, 160, 96, 160))]
        answers = [self.call(x) for x in xs]
        if answers[0].kept is not None:
            self.kept(report, xs, answers)
        else:
            self.outputs(report, xs, answers)
        again = self.call(xs[0])
        report.add("repeat", same(again, answers[0]), "the same input once more, after others")
        alone = [self.call(xs[0].at(batch=slice(b, b + 1))) for b in range(BATCH)]
        swapped = self.call(xs[0].at(batch=[1, 0]))
        report.add("batch", all(same(part_of(answers[0], b), alone[b]) for b in range(BATCH)), "each sequence alone is as in a batch")
        report.add("order", all(same(part_of(swapped, 1 - b), part_of(answers[0], b)) for b in range(BATCH)),
                   "sequences in another order give the same")  # fmt: skip
        self.heads(report, xs[0], answers[0])
        self.mask(report, xs[0])

    def kept(self, report: Report, xs: list[Inputs], answers: list[Answer]) -> None:
        fewer = [sum(map(len, a.kept[0])) < KV_HEADS * x.k.shape[2] for x, a in zip(xs, answers, strict=True)]
        report.add("active", all(fewer), "tokens are dropped" if all(fewer) else "no token is dropped at some call")
        strange = sum(a.strange for a in answers)
        if answers[0].of_values is None:
            report.add("keys and values", None, "token numbers are returned, not K and V")
        else:
            together = all(np.array_equal(k, v) for a in answers for pair in zip(a.kept, a.of_values, strict=True)
                           for k, v in zip(*pair, strict=True))  # fmt: skip
            report.add("keys and values", together and not strange,
                       f"{strange} vectors were never given" if strange else "K and V are of the same tokens")  # fmt: skip
        if self.rule is None:
            report.add("kept", None, "no rule was named: " + ", ".join(RULES))
            return
        misses = [worst_miss(RULES[self.rule], x, a.kept, self.parameters) for x, a in zip(xs, answers, strict=True)]
        right = sum(m < NEAR_TIE for m in misses)
        report.add("kept", right == len(misses), f"{right} of {len(misses)} calls as {self.rule} in FP64: {said(max(misses))}")

    def outputs(self, report: Report, xs: list[Inputs], answers: list[Answer]) -> None:
        right = [attention(x.q, x.k, x.v) for x in xs]
        errors = [relative_error(a.out, r) for a, r in zip(answers, right, strict=True)]
        form = self.format or Format("f32")
        own = [relative_error(attention(x.q, form.applied(x.k), form.applied(x.v)), r) for x, r in zip(xs, right, strict=True)]
        low, high = BOUNDS[0] ** 2 * min(own), BOUNDS[1] ** 2 * max(own) + EXACT
        report.add("active", None if form.name == "f32" else min(errors) > low,
                   "f32 loses nothing" if form.name == "f32" else f"error {min(errors):.2e} is more than {low:.2e}")  # fmt: skip
        report.add("error", low <= min(errors) and max(errors) <= high, f"{max(errors):.2e}; {form.name}: {low:.2e} to {high:.2e}")

    def heads(self, report: Report, x: Inputs, before: Answer) -> None:
        group = Q_HEADS // KV_HEADS
        order = np.arange(Q_HEADS).reshape(KV_HEADS, group)[::-1].ravel()
        turned = self.call(Inputs(*(np.ascontiguousarray(a) for a in (x.q[:, order], x.k[:, ::-1], x.v[:, ::-1]))))
        if turned.out is not None:
            turned.out = turned.out[:, order]
        else:
            turned.kept = [heads[::-1] for heads in turned.kept]
        report.add("heads", same(turned, before), "heads in another order give the same")

    def mask(self, report: Report, x: Inputs) -> None:
        if not self.takes_mask:
            return report.add("mask", None, "it takes no mask")
        padded = 12
        mask = np.ones((BATCH, x.k.shape[2]), bool)
        mask[1, :padded] = False
        loud = x.at()
        for a in (loud.q, loud.k, loud.v):
            a[1, :, :padded] *= -3
        first, second = self.call(x, mask), self.call(loud, mask)
        if first.out is not None:
            real = attention(x.q, x.k, x.v, mask)[1, :, padded:]
            errors = [relative_error(a.out[1, :, padded:], real) for a in (first, second)]
            bound = EXACT if self.format is None else 1.0
            return report.add("mask", max(errors) < bound and abs(errors[0] - errors[1]) < EXACT, f"error {max(errors):.1e} with padding")
        hidden = any((tokens < padded).any() for a in (first, second) for tokens in a.kept[1])
        report.add("mask", not hidden and same(first, second), "padding is kept" if hidden else "what stays does not depend on padding")


def part_of(whole: Answer, b: int) -> Answer:
    return Answer(out=whole.out[b : b + 1]) if whole.out is not None else Answer(kept=whole.kept[b : b + 1])


class CacheChecks:
    """A class whose objects have update(k, v), which gives all rows that attention reads."""

    STEPS = 256, 1, 1, 14, 1

    def __init__(self, make: Callable, rule: str | None, form: Format | None, residual: int, stated: Any, parameters: dict):
        self.make, self.rule, self.format, self.residual, self.stated = make, rule, form or Format("f32"), residual, stated
        self.parameters = parameters

    def steps(self, x: Inputs) -> Iterator[tuple[Any, int, Any, Any]]:
        """After each step: the object, tokens so far, rows of K and of V."""
        made, begin = self.make(), 0
        for n in self.STEPS:
            part = x.at(slice(begin, begin + n))
            own = {"q": part.q} if accepts(made.update, "q") else {}
            k, v = made.update(part.k, part.v, **own)
            begin += n
            yield made, begin, k, v

    def run(self, report: Report) -> None:
        x = inputs(7, sum(self.STEPS), sizes=0.0)
        seen = [(n, copy_of(k), copy_of(v), reachable_bytes(made), getattr(made, "nbytes", None)) for made, n, k, v in self.steps(x)]
        if self.rule is not None:
            self.kept(report, x, seen)
        else:
            self.rows(report, x, seen)
            self.bytes(report, x, *seen[-1])
        again = list(self.steps(x))[-1]
        report.add("repeat", equal(again[2], seen[-1][1]) and equal(again[3], seen[-1][2]), "a new object gives the same")
        alone = [list(self.steps(x.at(batch=slice(b, b + 1))))[-1] for b in range(BATCH)]
        leaks = not all(equal(alone[b][side + 2][0], seen[-1][side + 1][b]) for b in range(BATCH) for side in (0, 1))
        report.add("batch", not leaks, "a sequence alone is not as in a batch" if leaks else "each sequence alone is as in a batch")
        report.add("mask", None, "update(k, v) takes no mask")

    def kept(self, report: Report, x: Inputs, seen: list) -> None:
        misses, dropped, apart, strange = [], False, False, 0
        for n, k, v, *_ in seen:
            so_far = x.at(slice(0, n))
            (kept, none), (of_values, none_v) = tokens_of(k, so_far.k), tokens_of(v, so_far.v)
            strange += none + none_v
            dropped |= len(kept[0][0]) < n
            apart |= any(not np.array_equal(a, b) for pair in zip(kept, of_values, strict=True) for a, b in zip(*pair, strict=True))
            misses.append(worst_miss(RULES[self.rule], so_far, kept, self.parameters))
        report.add("active", dropped, "tokens are dropped" if dropped else "no token is ever dropped")
        report.add("keys and values", not apart and not strange, f"{strange} vectors were never given" if strange else "of the same tokens")
        if self.rule not in HOLD_EVERY_STEP:
            misses = misses[:1]
        right = sum(m < NEAR_TIE for m in misses)
        report.add("kept", misses[0] < NEAR_TIE, f"the first step, as {self.rule} in FP64: {said(misses[0])}")
        report.add("growth", right == len(misses) if len(misses) > 1 else None,
                   f"{right} of {len(misses)} steps as {self.rule} in FP64: {said(max(misses))}")  # fmt: skip

    def rows(self, report: Report, x: Inputs, seen: list) -> None:
        lengths = [len(array(k[0][0])) for _, k, *_ in seen]
        right = [n for n, *_ in seen]
        report.add("growth", lengths == right, f"tokens after steps: {lengths}" + ("" if lengths == right else f", not {right}"))
        if lengths != right:
            return
        settled = right[-1] - self.residual - sum(self.STEPS[1:])
        read = [np.stack([[array(rows)[:settled] for rows in heads] for heads in side]) for side in seen[-1][1:3]]
        form = self.format
        if form.name != "f32":
            touched = not any(np.array_equal(a, b[:, :, :settled]) for a, b in zip(read, (x.k, x.v), strict=True))
            report.add("active", touched, "values come back changed" if touched else "values come back as they were given")
        else:
            report.add("active", None, "f32 changes no value")
        for name, got, given in zip("KV", read, (x.k[:, :, :settled], x.v[:, :, :settled]), strict=True):
            self.error(report, name, got, given)
        q = x.q[:, :, settled - 16 : settled]
        exact, theirs = (attention(q, k, v) for k, v in ((x.k[:, :, :settled], x.v[:, :, :settled]), read))
        own = relative_error(attention(q, form.applied(x.k[:, :, :settled]), form.applied(x.v[:, :, :settled])), exact)
        error, low, high = relative_error(theirs, exact), BOUNDS[0] * own, BOUNDS[1] * own + EXACT
        report.add("attention", low <= error <= high, f"error {error:.2e}; {form.name}: {low:.2e} to {high:.2e}")

    def error(self, report: Report, name: str, got: np.ndarray, given: np.ndarray) -> None:
        form, error, own = self.format, relative_error(got, given), self.format.applied(given)
        low, high = BOUNDS[0] * relative_error(own, given), BOUNDS[1] * relative_error(own, given) + 1e-7
        report.add(f"error of {name}", low <= error <= high, f"{error:.2e}; {form.name}: {low:.2e} to {high:.2e}")
        is_, should = gain(got, given), gain(own, given)
        report.add(f"scale of {name}", abs(is_ - should) <= GAIN, f"{is_:.3f}; {form.name}: {should:.3f}")

    def bytes(self, report: Report, x: Inputs, n: int, k: Any, v: Any, held: int, own: int | None) -> None:
        a_row = 2 * BATCH * KV_HEADS * HEAD_DIM
        stated = self.stated if self.stated is not None else own
        settled = max(0, n - self.residual)
        by_format = a_row * (settled * self.format.bits + (n - settled) * 32) / 8
        report.add("bytes of format", held <= BYTES[1] * by_format + OBJECTS,
                   f"{held} reachable; {self.format.name}: {by_format:.0f}")  # fmt: skip
        if stated is None:
            report.add("bytes stated", None, "it states none in nbytes")
        else:
            report.add("bytes stated", BYTES[0] * stated - OBJECTS <= held <= BYTES[1] * stated + OBJECTS,
                       f"{held} reachable, {stated} stated")  # fmt: skip


def copy_of(rows: Any) -> list:
    return [[array(head).copy() for head in heads] for heads in rows]


def equal(a: Any, b: Any) -> bool:
    if len(a) != len(b):
        return False
    if not isinstance(a, list) and array(a).ndim < 3:
        return np.array_equal(array(a), array(b))
    return all(equal(x, y) if not isinstance(x, np.ndarray) else np.array_equal(x, array(y)) for x, y in zip(a, b, strict=True))


def is_cache(subject: Any) -> bool:
    if isinstance(subject, functools.partial):
        return is_cache(subject.func)
    return inspect.isclass(subject) or callable(subject) and not inspect.signature(subject).parameters


def check(subject: Callable, *, rule: str | None = None, format: Format | None = None, residual: int = 0,
          stated_bytes: int | None = None, name: str | None = None, **parameters: Any) -> Report:  # fmt: skip
    """Checks a function of q, k and v, or a class (or any callable without parameters) whose objects have update(k, v).

    rule: a policy of conformance_rules.RULES, with its `parameters`: numbers, or functions of a prompt's tokens. format: what
    its rows lose; `residual` newest rows are raw. stated_bytes: what it says that it holds; else nbytes. An adapter's subject
    brings its own. Raises ValueError for a rule that is not known and for a result of another shape."""
    rule, format = rule or getattr(subject, "rule", None), format or getattr(subject, "format", None)
    residual = residual or getattr(subject, "residual", 0)
    parameters = {**getattr(subject, "parameters", {}), **parameters}
    if rule is not None and rule not in RULES:
        raise ValueError(f"no rule '{rule}'; there are {', '.join(RULES)}")
    if rule is not None and "budget" not in parameters:
        raise ValueError(f"rule '{rule}' needs budget=, its tokens per head")
    report = Report(name or getattr(subject, "__name__", type(subject).__name__))
    if is_cache(subject):
        CacheChecks(subject, rule, format, residual, stated_bytes, parameters).run(report)
    else:
        FunctionChecks(subject, rule, format, parameters).run(report)
    return report
