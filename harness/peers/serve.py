"""Runs one peer for kvlab: a line of JSON in, a line of JSON out, tensors in shared memory.

    serve.py NAME installed     exit code 0 if what NAME.py needs is there
    serve.py NAME serve         answers requests until its input ends (README.md has them)

All peers share this file: it chooses the fastest of a peer's arms, repeats steps, reads clocks and counts memory. A peer's own file
makes caches and takes steps.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import json
import mmap
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
FLOATS = 3  # the file of shared floats
MOST_COPIES = 256  # copies of a cache; if more would fit into the last-level cache, nothing is measured cold
TRIES = 3  # rounds of steps that decide between several arms
HOLD_CYCLES = 1_000_000  # a GPU's wait, longer than Python takes to launch a step


class Unsupported(Exception):
    """A peer cannot run this geometry, on this device, or with this build of its engine."""


@dataclass(frozen=True)
class Setting:
    format: str
    batch: int
    q_heads: int
    kv_heads: int
    head_dim: int
    tokens: int  # after the last step
    steps: int  # the last tokens, which are appended one by one
    threads: int
    device: str  # "cpu" or "cuda"

    @property
    def base(self) -> int:
        return self.tokens - self.steps

    @property
    def group(self) -> int:
        return self.q_heads // self.kv_heads


@dataclass(frozen=True)
class Tokens:
    """Contiguous floats: k and v [batch, kv_heads, tokens, head_dim], q of the steps [batch, q_heads, steps, head_dim]."""

    k: memoryview
    v: memoryview
    q: memoryview


def load(name: str):
    """NAME.py of this folder, not an installed package of the same name."""
    spec = importlib.util.spec_from_file_location(f"kvlab_peer_{name}", HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    module.Unsupported, module.load = Unsupported, load
    spec.loader.exec_module(module)
    return module


def is_installed(name: str) -> bool:
    try:
        module = load(name)
    except ImportError:
        return False
    return all(importlib.util.find_spec(needed) for needed in module.NEEDS) and getattr(module, "is_built", lambda: True)()


def on_gpu():
    """torch.cuda, through which every peer on a GPU allocates, launches and reads the GPU's clock."""
    import torch

    return torch.cuda


def gpu_us(work) -> float:
    """Microseconds between events around the launches of `work`; the GPU waits until the host has made all launches."""
    start, end = (on_gpu().Event(enable_timing=True) for _ in range(2))
    on_gpu()._sleep(HOLD_CYCLES)
    start.record()
    work()
    end.record()
    end.synchronize()
    return 1e3 * start.elapsed_time(end)


def resident_bytes(device: str) -> int:
    if device == "cuda":
        return on_gpu().memory_allocated()
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def give_back(device: str) -> None:
    """Returns freed memory to the system, lest the next measurement of memory finds it."""
    gc.collect()
    if device == "cuda":
        on_gpu().empty_cache()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        pass


def fall_asleep(cache) -> None:
    """Stops the engine's threads, or waits until they no longer spin: kvlab measures others next."""
    getattr(cache, "sleep", lambda: None)()
    for _ in range(100):
        before = time.process_time()
        time.sleep(2e-3)
        if time.process_time() - before < 2e-4:
            return


def timed(step, arguments) -> list[float]:
    """Microseconds of each call."""
    times = []
    for argument in arguments:
        start = time.perf_counter_ns()
        step(*argument)
        times.append((time.perf_counter_ns() - start) * 1e-3)
    return times


class Server:
    def __init__(self, peer):
        self.peer = peer
        self.caches: list = []  # the one that steps, then copies for cold repetitions
        self.next = 0

    def prepare(self, request: dict) -> dict:
        names = Setting.__dataclass_fields__
        self.setting = s = Setting(**{name: request[name] for name in names})
        devices = getattr(self.peer, "DEVICES", ("cpu",))
        if s.device not in devices:
            raise Unsupported(f"this peer runs only on {' and '.join(devices)}")
        places = request["places"]
        shared = mmap.mmap(FLOATS, 4 * places["end"])
        floats = memoryview(shared).cast("f")
        heads = {"k": (s.kv_heads, s.tokens), "v": (s.kv_heads, s.tokens), "q": (s.q_heads, s.steps)}

        def tensor(name):
            count, rows = heads[name]
            size = s.batch * count * rows * s.head_dim
            flat = floats[places[name] : places[name] + size].cast("B")
            return flat.cast("f", (s.batch, count, rows, s.head_dim))

        tokens = Tokens(*(tensor(name) for name in ("k", "v", "q")))
        arms = self.peer.arms(s)
        arm, tried = self.fastest(arms, tokens)
        cache = self.filled(arm, tokens)  # the engine's own memory must not count as the cache's
        del cache
        give_back(s.device)
        before = resident_bytes(s.device)
        cache = self.filled(arm, tokens)
        give_back(s.device)
        gained = resident_bytes(s.device) - before
        self.caches = [cache]
        copies = request["cold_bytes"] // max(1, cache.bytes()) if request["cold_bytes"] else 0
        is_cold = 0 < request["cold_bytes"] and copies <= MOST_COPIES
        self.caches += [self.filled(arm, tokens) for _ in range(copies if is_cold else 0)]
        for cache in self.caches:
            self.run_steps(cache)
        out = self.caches[0].output()
        floats[places["out"] : places["end"]] = memoryview(out).cast("B").cast("f")
        settings = "; ".join([*([f"arm {arm}" + tried] if len(arms) > 1 else []), self.caches[0].settings])
        fall_asleep(self.caches[0])
        return {
            "version": self.peer.version(),
            "settings": settings,
            "bytes": self.caches[0].bytes(),
            "resident_bytes": max(0, gained),
            "cold": is_cold,
        }

    def filled(self, arm: str, tokens: Tokens):
        return self.peer.Cache(self.setting, arm, tokens)

    def fastest(self, arms: list[str], tokens: Tokens) -> tuple[str, str]:
        """The arm with the smallest median, and the others' times as multiples of it. An arm that fails is left out."""
        if len(arms) == 1:
            return arms[0], ""
        medians, refused = {}, {}
        for arm in arms:
            try:
                cache = self.filled(arm, tokens)
                medians[arm] = self.median_us(cache)
            except MemoryError:
                raise
            except Exception as why:  # noqa: BLE001  # engines refuse a shape by exceptions of every kind
                refused[arm] = why
            finally:
                cache = None
                give_back(self.setting.device)
        if not medians:
            kind = Unsupported if all(isinstance(why, Unsupported) for why in refused.values()) else RuntimeError
            raise kind("none of its methods can: " + ", ".join(f"{arm} ({one_line(why)})" for arm, why in refused.items()))
        best = min(medians, key=medians.get)
        others = [f"{arm} {time / medians[best]:.2f}" for arm, time in medians.items() if arm != best]
        return best, f" (of its time take {', '.join(others)})" if others else ""

    def median_us(self, cache) -> float:
        """The median of steps; on a GPU of attention, by the GPU's clock."""
        us = [t for _ in range(TRIES) for t in self.run_steps(cache)[1:] or [1.0]]
        return statistics.median(us if self.setting.device == "cpu" else (gpu_us(cache.attend) for _ in us))

    def run_steps(self, cache) -> list[float]:
        cache.rewind()
        return timed(cache.step, ((i,) for i in range(self.setting.steps)))

    def steps(self, request: dict) -> dict:
        gc.disable()
        us = self.run_steps(self.caches[0])
        gc.enable()
        fall_asleep(self.caches[0])
        return {"us": us}

    def cold(self, request: dict) -> dict:
        """Repeats the last step, each time on another cache, whose rows have left the last-level cache."""
        gc.disable()
        self.caches[0].rewind()
        us = []
        for _ in range(request["count"]):
            cache = self.caches[self.next % len(self.caches)]
            self.next += 1
            us += timed(cache.attend, [()]) if self.setting.device == "cpu" else [gpu_us(cache.attend)]
        gc.enable()
        fall_asleep(self.caches[0])
        return {"us": us}


def started(peer):
    """The object that answers requests. A whole engine brings its own."""
    return peer.Engine() if hasattr(peer, "Engine") else Server(peer)


def serve(name: str) -> None:
    # An engine's own output must not look like an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            server = server or started(load(name))
            answer = getattr(server, request["do"])(request)
        except MemoryError:
            answer = {"error": "ran out of memory", "kind": "memory"}
        except Unsupported as why:
            answer = {"error": one_line(why), "kind": "unsupported"}
        except Exception as why:  # ends one cell, not the run
            answer = {"error": f"{type(why).__name__}: {one_line(why)}"}
            if type(why).__name__ == "OutOfMemoryError":  # a GPU's
                answer["kind"] = "memory"
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def one_line(why: BaseException) -> str:
    return (str(why).strip().splitlines() or [""])[0][:300]


if __name__ == "__main__":
    if sys.argv[2] == "installed":
        sys.exit(0 if is_installed(sys.argv[1]) else 1)
    serve(sys.argv[1])
