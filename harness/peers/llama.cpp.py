# /// script
# dependencies = []
# ///
"""llama.cpp as a whole engine: its own programs, from the sdist of llama-cpp-python, read the texts of kvlab's cells and write tokens.

  read   llama-perplexity: predictions with a cache, compared with those of the engine's own f32 cache over the same windows
  time   llama-bench: tokens a second at a depth
Answers have the names of columns of cells.csv. It scores the second half of each window, so kvlab scores that half, too.
"""

import array
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

SDIST = "llama-cpp-python==0.3.36"
HASH = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
FOLDER = Path(sys.prefix) / "llama.cpp"
NEEDS = []
PROGRAMS = ["llama-perplexity", "llama-bench", "llama-server"]
NORMAL = 1.959964  # half of a 95 % interval, in standard errors; the engine takes tokens as independent
MIB = 1 << 20
TRIES = 5  # its last lines are lost at times: it ends without waiting for the thread that prints


def is_built():
    return all((FOLDER / program).is_file() for program in PROGRAMS)


def source(scratch, run, members):
    """Downloads the archive, checks its hash, and unpacks these members of llama.cpp, whose folder it returns."""
    wanted = Path(scratch) / "requirements.txt"
    wanted.write_text(f"{SDIST} --hash=sha256:{HASH}\n")
    run([sys.executable, "-I", "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "--dest", str(scratch), "--requirement", str(wanted)])
    sdist = next(Path(scratch).glob("*.tar.gz"))
    run(["tar", "xzf", str(sdist), "-C", str(scratch), "--strip-components=1", "--wildcards", f"*/vendor/llama.cpp/{members}"])
    folder = Path(scratch) / "vendor" / "llama.cpp"
    (folder / "ggml" / "ggml.pc.in").touch()  # for pkg-config alone; the sdist lacks it
    return folder


def build(scratch, run):
    """Compiles the programs for this machine. `run` runs a command; its failure ends the installation."""
    folder, built = source(scratch, run, "*"), Path(scratch) / "build"
    options = ["CMAKE_BUILD_TYPE=Release", "BUILD_SHARED_LIBS=ON", "GGML_NATIVE=ON", "LLAMA_BUILD_TESTS=OFF", "LLAMA_BUILD_EXAMPLES=OFF",
               "LLAMA_BUILD_APP=OFF", "LLAMA_BUILD_UI=OFF", "LLAMA_USE_PREBUILT_UI=OFF", "LLAMA_OPENSSL=OFF", "LLAMA_BUILD_NUMBER=0",
               f"LLAMA_BUILD_COMMIT={SDIST}", "CMAKE_BUILD_WITH_INSTALL_RPATH=ON", "CMAKE_INSTALL_RPATH=$ORIGIN"]  # fmt: skip
    print("kvlab: compiling llama.cpp: about 6 min on two cores", file=sys.stderr)
    run(["cmake", "-G", "Ninja", "-S", str(folder), "-B", str(built), *(f"-D{option}" for option in options)])
    run(["cmake", "--build", str(built), "--target", *PROGRAMS])
    shutil.rmtree(FOLDER, ignore_errors=True)
    shutil.copytree(built / "bin", FOLDER, symlinks=True)


def flags(request):
    """Options that all programs share."""
    cache = request["cache"]
    return ["-m", request["model"], "-t", str(request["threads"]), "-ctk", cache["k"], "-ctv", cache["v"]]


def environment(cache):
    return {**os.environ, **({"LLAMA_ATTN_ROT_DISABLE": "1"} if cache["rotate"] == "off" else {})}


def said(program, arguments, cache, files=()):
    """A program's standard output, and everything that it wrote."""
    with tempfile.TemporaryFile("w+") as log:
        done = subprocess.run([FOLDER / program, *arguments], env=environment(cache), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=log, text=True, pass_fds=files)  # fmt: skip
        log.seek(0)
        errors = log.read()
    if done.returncode != 0:
        lines = [line for line in (done.stdout + errors).splitlines() if line.strip()] or ["it says nothing"]
        raise RuntimeError(f"{program} ended with {done.returncode}: {lines[-1]}")
    return done.stdout, done.stdout + errors


def statistics(text):
    """Columns from what llama-perplexity --kl-divergence prints at its end, without those it could not compute; raises ValueError for a
    line that is not there. Its errors are NaN where a cache changes next to nothing."""

    def numbers(name):
        found = re.search(rf"^{name}\s*:\s*(\S+?)%?(?: ± +(\S+).*)?$", text, re.M)
        if not found:
            raise ValueError(f"llama-perplexity printed no '{name}'")
        return float(found[1]), float(found[2] or "nan")

    def between(name, value, error, least=-math.inf, most=math.inf):
        low, high = value - NORMAL * error, value + NORMAL * error
        return {name: value, **({f"{name}_ci_low": max(least, low), f"{name}_ci_high": min(most, high)} if error == error else {})}

    perplexity, error = numbers(r"Mean PPL\(Q\)")
    change, kl, top = numbers(r"Mean ln\(PPL\(Q\)/PPL\(base\)\)"), numbers("Mean +KLD"), numbers("Same top p")
    columns = {
        "perplexity": perplexity, "perplexity_se": error, "loss": math.log(perplexity), "loss_se": error / perplexity,
        **between("loss_change", *change), "loss_change_se": change[1],
        **between("kl_mean", *kl, least=0), "kl_median": numbers("Median +KLD")[0], "kl_p99": numbers("99.0% +KLD")[0],
        "kl_p999": numbers("99.9% +KLD")[0], "kl_max": numbers("Maximum KLD")[0],
        **between("top1_agreement", top[0] / 100, top[1] / 100, 0, 1), "p_change_rms": numbers("RMS Δp")[0] / 100,
    }  # fmt: skip
    return {name: value for name, value in columns.items() if math.isfinite(value)}


def cache_of(log):
    """The cache's columns, from the last that the log tells of; raises ValueError if it tells of none."""
    sizes = re.findall(r"llama_kv_cache: size = +([\d.]+) MiB \( *(\d+) cells, .*K \((\w+)\): .*V \((\w+)\):", log)
    if not sizes:
        raise ValueError("llama.cpp logged no size of its cache")
    mib, cells, k, v = sizes[-1]
    turned = "".join(f"; {side.upper()} rotated" for side in "kv" if re.findall(rf"attn_rot_{side} = (\d)", log)[-1:] == ["1"])
    size = round(float(mib) * MIB)
    return {"peer_bytes_reported": size, "held_bytes_per_token": size / int(cells), "peer_settings": f"K {k}, V {v}{turned}"}


class Engine:
    """Answers requests: `model`, a GGUF file; `cache`, an arm's parameters; `threads`."""

    def __init__(self):
        self.base, self.of = None, None  # logits of the f32 cache, in a file that ends with this process; what they are of

    def read(self, request):
        """Perplexity and divergences of `windows` of `context` tokens of the file `text`, whose ids are `tokens`."""
        windows, context = request["windows"], request["context"]
        of = [request[name] for name in ("model", "text", "windows", "context")]
        if self.of != of:
            self.read_base(request)
            self.of = of
        for _ in range(TRIES):
            _, log = self.perplexity(request, "--kl-divergence")
            if "Same top p:" in log:
                break
        return {**statistics(log), **cache_of(log), "predictions": windows * (context - 1 - context // 2),
                "versus": "llama.cpp(k=f32,v=f32)", "peer_version": SDIST}  # fmt: skip

    def perplexity(self, request, *more):
        base = f"/proc/self/fd/{self.base.fileno()}"
        context = request["context"]
        return said("llama-perplexity", [*flags(request), "-fa", request["cache"]["fa"], "-f", request["text"], "-c", str(context), "-b",
                    str(min(context, 512)), "--chunks", str(request["windows"]), "--kl-divergence-base", base, "-lv", "4", *more],
                    request["cache"], [self.base.fileno()])  # fmt: skip

    def read_base(self, request):
        self.base = tempfile.TemporaryFile()
        _, log = self.perplexity({**request, "cache": {"k": "f32", "v": "f32", "fa": "on", "rotate": "on"}})
        self.base.seek(0)
        head = self.base.read(20)
        if head[:8] != b"_logits_":
            raise RuntimeError("llama-perplexity wrote no logits: is the text shorter than two windows?")
        context, _, windows = struct.unpack("<3i", head[8:])
        read = array.array("i", self.base.read(4 * context * windows)).tolist()
        for at, (theirs, ours) in enumerate(zip(read, request["tokens"], strict=True)):
            if theirs != ours:
                raise RuntimeError(f"llama.cpp reads the text as other tokens: token {at} is {theirs} there and {ours} here")
        if (first := re.search(r"BOS token += (\d+)", log)) and int(first[1]) == read[0]:
            raise RuntimeError("its tokenizer puts BOS in front of a text; llama-perplexity then begins every window with it, kvlab only the first")

    def time(self, request):
        """Times of `steps` tokens after `depth` tokens, `repetitions` times, and of a prompt of `depth` tokens."""
        cache = request["cache"]
        common = [*flags(request), "-fa", "1" if cache["fa"] == "on" else "0", "-r", str(request["repetitions"]), "-v", "-o", "json"]
        out, log = said("llama-bench", [*common, "-p", "0", "-n", str(request["steps"]), "-d", str(request["depth"])], cache)
        answer = {"step_us": seconds_each(out, 1e6), "columns": {**cache_of(log), "peer_version": SDIST}}
        if request["prompt"]:
            out, _ = said("llama-bench", [*common, "-p", str(request["depth"]), "-n", "0"], cache)
            answer["prompt_us"] = seconds_each(out, 1e6 * request["depth"])
        return answer


def seconds_each(text, scale):
    """The time of a token in each repetition of llama-bench's only test, times `scale`."""
    (test,) = json.loads(text)
    return [scale / rate for rate in test["samples_ts"]]
