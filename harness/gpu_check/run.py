"""kvlab gpu-check: builds the GPU kernels with nvcc alone, checks them on the GPU of this machine, and times them.

Needs an NVIDIA driver, a CUDA toolkit and Python's standard library. Every stage has a time limit and leaves what it
has: a line in cells.jsonl for each case as it is done, and cells.csv, env.json and a short table at the end. Exit
codes: 0 all right, 1 a check failed, 2 something for the user to set right.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).resolve().parent))

import driver  # noqa: E402
import table  # noqa: E402

Row = dict[str, Any]

TOTAL_SECONDS = 570
# What each stage may take. Together they fit, unless few cores take long to build: then the last stages get less.
LIMITS = {"build": 300, "wrappers": 15, "kernels": 60, "memcheck": 40, "racecheck": 40, "benchmark": 140, "peers": 150}

SOURCES = [
    *sorted((HOME / "kernels/cuda").rglob("*.cu")),
    *sorted((HOME / "harness/gpu_check").glob("*.c[cu]")),
    *sorted((HOME / "kernels/format").glob("*.cc")),
    HOME / "variants/storage/attention_plan.cc",
]


class Run:
    """The results folder, the time left, and the rows so far."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.start = time.monotonic()
        self.rows: list[Row] = []
        self.environment: Row = {"stages": {}}
        out.mkdir(parents=True, exist_ok=True)
        (out / "cells.jsonl").write_text("")

    def seconds(self, stage: str) -> float:
        return max(0.0, min(LIMITS[stage], TOTAL_SECONDS - (time.monotonic() - self.start)))

    def add(self, row: Row) -> None:
        self.rows.append(row)
        with (self.out / "cells.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")

    def finish_stage(self, stage: str, status: str, began: float) -> None:
        self.environment["stages"][stage] = {"status": status, "seconds": round(time.monotonic() - began, 1)}
        self.write()
        print(f"gpu-check: {stage}: {status} ({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)

    def write(self) -> None:
        (self.out / "env.json").write_text(json.dumps(self.environment, indent=2) + "\n")
        columns = list(dict.fromkeys(key for row in self.rows for key in row))
        with (self.out / "cells.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(self.rows)


def find_nvcc() -> str | None:
    for candidate in (os.environ.get("CUDACXX"), shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"):
        if candidate and Path(candidate).is_file():
            return candidate
    return None


OLDEST_CUDA = (12, 4)
RELEASE = re.compile(r"release (\d+)\.(\d+)")


def wrong_toolkit(nvcc: str | None, driver_cuda: int) -> str:
    """Why this compiler's programs cannot be built or run here, or nothing. `driver_cuda`: 12040 is 12.4."""
    if not nvcc:
        return "no CUDA compiler here; install the CUDA toolkit (12.4 or newer), or set CUDACXX to its nvcc"
    found = RELEASE.search(output_of(nvcc, "--version"))
    if not found:
        return f"{nvcc} does not say its version; set CUDACXX to the nvcc of a CUDA toolkit"
    version = (int(found[1]), int(found[2]))
    if version < OLDEST_CUDA:
        return f"{nvcc} is of CUDA {version[0]}.{version[1]}, and 12.4 is needed; set CUDACXX to a newer nvcc"
    if version[0] > driver_cuda // 1000:
        return (f"{nvcc} is of CUDA {version[0]}.{version[1]}, and the driver runs no newer than "
                f"{driver_cuda // 1000}.{driver_cuda % 1000 // 10}; update it, or set CUDACXX to an older nvcc")
    return ""


def wrong_folder(out: Path) -> str:
    """Why the results cannot go there, or nothing; the folder is there then."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        used = any(out.iterdir())
    except OSError as error:
        return f"cannot make the folder '{out}' ({error.strerror}); give --out another"
    return f"'{out}' is not empty; give --out a new folder" if used else ""


def first_lines(text: str, count: int = 6) -> str:
    return " | ".join(line.strip() for line in text.strip().splitlines()[:count])


def output_of(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def target_of(capability: tuple[int, int], known: str) -> tuple[str, str]:
    """nvcc's (arch, code) for a GPU, given the compute_NN that this nvcc lists.

    Hopper has a target of its own, with what only it can do. A GPU that is newer than the compiler gets the newest
    intermediate code that it knows, which the driver then compiles.
    """
    number = 10 * capability[0] + capability[1]
    numbers = [int(n) for n in re.findall(r"compute_(\d+)\b", known) if int(n) <= number] or [80]
    if number in numbers:
        suffix = "90a" if capability == (9, 0) else str(number)
        return f"compute_{suffix}", f"sm_{suffix}"
    return f"compute_{max(numbers)}", f"compute_{max(numbers)}"


# ---- stages ----


def compile_one(nvcc: str, gencode: str, source: Path, folder: Path, deadline: float) -> tuple[Path, int, str]:
    target = folder / f"{source.relative_to(HOME)}.o".replace("/", "_")
    command = [nvcc, "-std=c++20", "-O3", gencode, "--fmad=false", "--expt-relaxed-constexpr", "-Xptxas=-v"]
    command += ["-Xcompiler=-ffp-contract=off", f"-I{HOME}", "-c", str(source), "-o", str(target)]
    try:
        left = max(1.0, deadline - time.monotonic())
        done = subprocess.run(command, capture_output=True, text=True, timeout=left)
    except subprocess.TimeoutExpired:
        return target, 1, f"{source.name}: out of time"
    return target, done.returncode, done.stderr


KERNEL = re.compile(
    r"Compiling entry function '(\w+)' for '\w+'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers",
    re.DOTALL,
)


def build(run: Run, nvcc: str, gencode: str) -> Path | None:
    """The program, or None; registers and spills become rows."""
    folder = run.out / "build"
    folder.mkdir(exist_ok=True)
    deadline = time.monotonic() + run.seconds("build")
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        done = list(pool.map(lambda source: compile_one(nvcc, gencode, source, folder, deadline), SOURCES))
    errors = [text for _, code, text in done if code != 0]
    if errors:
        run.add({"stage": "build", "status": "failed", "reason": first_lines(errors[0])})
        return None
    for _, _, report in done:
        for name, stores, loads, registers in KERNEL.findall(report):
            spills = int(stores) + int(loads)
            run.add({"stage": "registers", "name": name, "registers": int(registers), "spill_bytes": spills,
                     "status": "ok" if spills == 0 else "failed"})
    program = folder / "gpu_check"
    objects = [str(target) for target, _, _ in done]
    linked = subprocess.run([nvcc, gencode, *objects, "-o", str(program)], capture_output=True, text=True)
    if linked.returncode != 0:
        run.add({"stage": "build", "status": "failed", "reason": first_lines(linked.stderr)})
        return None
    return program


def stop(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def stream(run: Run, stage: str, command: list[str], environment: dict[str, str] | None = None) -> str:
    """Runs a program that prints rows; returns ok, failed, cut off (also where a row of its own says that there was no
    time for the rest), or skipped if that is all that its rows say."""
    limit = run.seconds(stage)
    before = len(run.rows)
    if limit < 1:
        return "no time left"
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True, env=environment)
    late = threading.Event()
    timer = threading.Timer(limit, lambda: (late.set(), stop(process)))
    timer.start()
    errors: list[str] = []
    reader = threading.Thread(target=lambda: errors.extend(process.stderr or []))
    reader.start()
    try:
        for line in process.stdout or []:
            if line.startswith("{"):
                run.add(json.loads(line))
    finally:
        code = process.wait()
        reader.join()
        timer.cancel()
    if late.is_set():
        run.add({"stage": stage, "status": "cut off", "reason": f"its {limit:.0f} s were over"})
        return "cut off"
    if code != 0:
        run.add({"stage": stage, "status": "failed", "reason": first_lines("".join(errors[-6:])) or f"exit code {code}"})
        return "failed"
    statuses = {row.get("status") for row in run.rows[before:]}
    if statuses == {"skipped"}:
        return "skipped"
    return "cut off" if "cut off" in statuses else "ok"


def sanitize(run: Run, tool: str, program: Path, nvcc: str) -> str:
    beside = Path(nvcc).resolve().parent / "compute-sanitizer"
    sanitizer = shutil.which("compute-sanitizer") or (str(beside) if beside.is_file() else None)
    if not sanitizer:
        run.add({"stage": tool, "status": "skipped", "reason": "compute-sanitizer is not installed"})
        return "skipped"
    limit = run.seconds(tool)
    if limit < 1:
        return "no time left"
    command = [sanitizer, "--tool", tool, "--error-exitcode", str(FOUND_SOMETHING), str(program), "kernels", "small"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)
    try:
        text, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        stop(process)
        text = process.communicate()[0]
        late = True
    else:
        late = False
    (run.out / f"{tool}.txt").write_text(text)
    checked = f"{text.count(KERNEL_CASE)} cases in {limit:.0f} s" if late else ""
    status, reason = verdict(tool, text, None if late else process.returncode)
    run.add({"stage": tool, "status": status, "reason": "; ".join(filter(None, (checked, reason)))})
    return status


KERNEL_CASE = '"stage": "kernels"'
FOUND_SOMETHING = 9  # the sanitizer's exit code; the program's own are others
RACE = re.compile(r"=+ (?:Error|Warning): (?:Race reported|Potential \w+ hazard detected)[^\n]*?(?: in (\w+)\(|$)", re.MULTILINE)


def verdict(tool: str, text: str, code: int | None) -> tuple[str, str]:
    """What a sanitizer found: (status, reason). `code` is None where its time was over.

    racecheck does not know that asynchronous copies are waited for and then ordered by a barrier of the warp, so what it
    reports is for a reader to judge: its hazards are listed and fail nothing. All else that goes wrong does.
    """
    races = RACE.findall(text) if tool == "racecheck" else []
    summary = next((line.strip("= ") for line in text.splitlines() if "SUMMARY" in line), "")
    if races and code in (None, 0, FOUND_SOMETHING):
        places = ", ".join(sorted({name for name in races if name})[:4])
        return "hazards", f"{len(races)} listed in racecheck.txt" + (f", of {places}" if places else "")
    if code is None:
        return ("failed" if "= Error" in text else "cut off"), summary
    return ("ok" if code == 0 else "failed"), summary


# What holds a clock back, by the name that newer drivers have for it and by the one that they dropped.
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")


def record_clocks(out: Path) -> tuple[subprocess.Popen[bytes] | None, str]:
    """The recorder, or None and why there is none."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        return None, "there is no nvidia-smi"
    for reasons in REASONS:
        fields = f"timestamp,clocks.sm,clocks.mem,temperature.gpu,power.draw,{reasons}"
        query = [smi, f"--query-gpu={fields}", "--format=csv", "-i", "0"]
        if output_of("timeout", "5", *query).count("\n") >= 1:  # names, and a sample
            return subprocess.Popen([*query, "-lms", "500"], stdout=(out / "clocks.csv").open("wb"),
                                    stderr=subprocess.DEVNULL), ""
    return None, f"nvidia-smi knows none of {', '.join(REASONS)}"


def clocks_during(lines: list[str]) -> Row:
    """The SM clock's range in MHz, and what held it back, of nvidia-smi's samples."""
    samples = [line.split(", ") for line in lines if line.count(", ") >= 5]
    speeds = [int(s[1].split()[0]) for s in samples if s[1].split()[0].isdigit()]
    if not speeds:
        return {}
    reasons = {s[5].strip() for s in samples}
    return {"sm_mhz_least": min(speeds), "sm_mhz_most": max(speeds), "throttle_reasons": sorted(reasons)}


def samples_of(out: Path) -> list[str]:
    clocks = out / "clocks.csv"
    return clocks.read_text(errors="replace").splitlines()[1:] if clocks.is_file() else []


def ceiling_moved(rows: list[Row]) -> float | None:
    reads = [row["read_gb_s"] for row in rows if row.get("stage") == "ceiling"]
    return abs(reads[1] / reads[0] - 1.0) if len(reads) == 2 else None


def check(run: Run, nvcc: str, target: tuple[str, str]) -> None:
    began = time.monotonic()
    program = build(run, nvcc, f"-gencode=arch={target[0]},code={target[1]}")
    run.finish_stage("build", "ok" if program else "failed", began)
    if not program:
        return
    run.environment["gpu"] = json.loads(output_of(str(program), "info") or "{}")

    def left(stage: str, to_finish: int) -> str:
        return str(max(10.0, run.seconds(stage) - to_finish))

    stages = {
        "wrappers": lambda: stream(run, "wrappers", [str(program), "wrappers"]),
        "kernels": lambda: stream(run, "kernels", [str(program), "kernels"]),
        "benchmark": lambda: stream(run, "benchmark", [str(program), "benchmark", left("benchmark", 15)]),
        "peers": lambda: stream(run, "peers", [sys.executable, str(Path(__file__).with_name("peers.py")),
                                               "--seconds", left("peers", 10)]),
        "memcheck": lambda: sanitize(run, "memcheck", program, nvcc),
        "racecheck": lambda: sanitize(run, "racecheck", program, nvcc),
    }
    for stage, work in stages.items():
        began, before = time.monotonic(), len(samples_of(run.out))
        outcome = work()
        if stage == "benchmark":
            run.environment["clocks"] = clocks_during(samples_of(run.out)[before:])
            if not run.environment["clocks"]:
                run.environment.setdefault("no_clocks", "nvidia-smi gave no sample while timing")
        run.finish_stage(stage, outcome, began)
    moved = ceiling_moved(run.rows)
    run.environment["ceiling_moved"] = moved
    run.environment["void"] = moved is None or moved > 0.02


def describe(run: Run, nvcc: str, target: tuple[str, str]) -> None:
    run.environment.update(
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        git_commit=output_of("git", "-C", str(HOME), "rev-parse", "HEAD"),
        git_changes=bool(output_of("git", "-C", str(HOME), "status", "--porcelain", "--untracked-files=no")),
        nvcc=output_of(nvcc, "--version").splitlines()[-1:],
        target=target[1],
        nvidia_smi=output_of("nvidia-smi", "--query-gpu=name,driver_version,vbios_version,clocks.max.sm,clocks.max.mem,"
                             "power.limit,ecc.mode.current", "--format=csv"),
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="kvlab gpu-check", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path, help="results folder; must be new or empty")
    out = parser.parse_args().out
    reason, capability = driver.find_gpu()
    nvcc = find_nvcc()
    reason = reason or wrong_toolkit(nvcc, driver.supported_cuda()) or wrong_folder(out)
    if reason or not nvcc or not capability:
        print(f"kvlab: gpu-check: {reason}; nothing was run", file=sys.stderr)
        return 2
    run = Run(out)
    target = target_of(capability, output_of(nvcc, "--list-gpu-arch"))
    describe(run, nvcc, target)
    clocks, no_clocks = record_clocks(out)
    if no_clocks:
        run.environment["no_clocks"] = no_clocks
    try:
        check(run, nvcc, target)
    finally:
        if clocks:
            clocks.terminate()
        shutil.rmtree(out / "build", ignore_errors=True)
        run.write()
    print(table.short(run.rows, run.environment))
    print(f"\nresults: {out}")
    return 1 if any(row.get("status") == "failed" for row in run.rows if row.get("stage") != "peers") else 0


if __name__ == "__main__":
    sys.exit(main())
