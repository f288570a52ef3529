"""kvlab gpu-check: builds the GPU kernels with nvcc alone and checks them on this machine's GPU.

Needs an NVIDIA driver, a CUDA toolkit and Python's standard library. A machine without the toolkit takes a program that
`--build` made on another one. Each stage has a time limit and keeps its rows when it ends early: cells.jsonl has a line a case
at once; cells.csv, env.json and a summary follow. Times are measured by `kvlab run configs/gpu.toml --device cuda`.
Exit codes: 0 all checks passed, 1 a check failed, 2 a mistake to set right.

  ./kvlab gpu-check --out my-gpu                                    # everything, ten minutes
  ./kvlab gpu-check --build gpu_check --target sm_90a               # on a machine without a GPU
  ./kvlab gpu-check --out my-gpu --program gpu_check --stages wrappers,kernels --seconds 60
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
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).resolve().parent))

import driver  # noqa: E402

Row = dict[str, Any]

TOTAL_SECONDS = 570
# Seconds of each stage, in order. All of them fit into the total; where a build takes longer on few cores, later stages get less.
LIMITS = {"build": 300, "wrappers": 15, "kernels": 60, "memcheck": 60, "split": 20, "racecheck": 60}

SOURCES = [
    *sorted((HOME / "kernels/cuda").rglob("*.cu")),
    *sorted((HOME / "harness/gpu_check").glob("*.c[cu]")),
    *sorted((HOME / "kernels/format").glob("*.cc")),
    HOME / "variants/storage/attention_plan.cc",
]


class Run:
    """The results folder, the time left, and the rows so far."""

    def __init__(self, out: Path, seconds: float = TOTAL_SECONDS) -> None:
        self.out = out
        self.total = seconds
        self.start = time.monotonic()
        self.rows: list[Row] = []
        self.environment: Row = {"stages": {}}
        out.mkdir(parents=True, exist_ok=True)
        (out / "cells.jsonl").write_text("")

    def seconds(self, stage: str) -> float:
        return max(0.0, min(LIMITS[stage], self.total - (time.monotonic() - self.start)))

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


def find_nvcc(driver_cuda: int = 0) -> tuple[str, str]:
    """The compiler that CMake chooses, too, and nothing; or nothing, and the reason why none will do for the driver (12040 is 12.4)."""
    driver = [f"{driver_cuda // 1000}.{driver_cuda % 1000 // 10}"] if driver_cuda else []
    done = subprocess.run([str(HOME / "harness/cmake/find_nvcc.sh"), *driver], capture_output=True, text=True)
    line = done.stdout.strip()
    return (line, "") if done.returncode == 0 else ("", line)


def wrong_folder(out: Path) -> str:
    """The reason why results cannot go there, or nothing; then the folder exists."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        used = any(out.iterdir())
    except OSError as error:
        return f"cannot make the folder '{out}' ({error.strerror}); choose another --out"
    return f"'{out}' is not empty; choose a new folder for --out" if used else ""


def first_lines(text: str, count: int = 6) -> str:
    return " | ".join(line.strip() for line in text.strip().splitlines()[:count])


def output_of(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def target_of(capability: tuple[int, int], known: str) -> tuple[str, str]:
    """nvcc's (arch, code) for a GPU, given the compute_NN that this nvcc lists.

    Hopper has a target of its own, sm_90a. A GPU newer than the compiler gets the newest intermediate code that the compiler
    knows, which the driver then compiles.
    """
    number = 10 * capability[0] + capability[1]
    numbers = [int(n) for n in re.findall(r"compute_(\d+)\b", known) if int(n) <= number] or [80]
    if number in numbers:
        suffix = "90a" if capability == (9, 0) else str(number)
        return f"compute_{suffix}", f"sm_{suffix}"
    return f"compute_{max(numbers)}", f"compute_{max(numbers)}"


def commit() -> str:
    """The commit of these sources, with a + where they differ from it; "unknown" without git."""
    changed = output_of("git", "-C", str(HOME), "status", "--porcelain", "--untracked-files=no")
    return (output_of("git", "-C", str(HOME), "rev-parse", "HEAD") or "unknown") + ("+" if changed else "")


# ---- stages ----


def compile_one(nvcc: str, gencode: str, source: Path, folder: Path, deadline: float) -> tuple[Path, int, str]:
    target = folder / f"{source.relative_to(HOME)}.o".replace("/", "_")
    command = [nvcc, "-std=c++20", "-O3", gencode, "--fmad=false", "--expt-relaxed-constexpr", "-Xptxas=-v"]
    command += ["-Xcompiler=-ffp-contract=off", f'-DKVLAB_COMMIT="{commit()}"', f"-I{HOME}", "-c", str(source), "-o", str(target)]
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


def run_for(seconds: float, command: list[str], take: Callable[[str], None]) -> int | None:
    """Gives each line of the command's output to `take`. Returns the exit code, or None if the time ran out."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    late = threading.Event()

    def stop() -> None:
        late.set()
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    timer = threading.Timer(seconds, stop)
    timer.start()
    for line in process.stdout or []:
        take(line)
    code = process.wait()
    timer.cancel()
    return None if late.is_set() else code


def stream(run: Run, stage: str, command: list[str]) -> str:
    """Runs a program that prints rows; returns ok, failed, cut off or no time left."""
    limit = run.seconds(stage)
    if limit < 1:
        return "no time left"
    other: list[str] = []

    def take(line: str) -> None:
        try:
            run.add(json.loads(line)) if line.startswith("{") else other.append(line)
        except ValueError:  # a line that ends where the program did
            other.append(line)

    code = run_for(limit, command, take)
    if code is None:
        run.add({"stage": stage, "status": "cut off", "reason": f"its {limit:.0f} s ran out"})
        return "cut off"
    if code != 0:
        run.add({"stage": stage, "status": "failed", "reason": first_lines("".join(other[-6:])) or f"exit code {code}"})
        return "failed"
    return "ok"


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
    lines: list[str] = []
    code = run_for(limit, command, lines.append)
    text = "".join(lines)
    (run.out / f"{tool}.txt").write_text(text)
    checked = f"{text.count(KERNEL_CASE)} cases in {limit:.0f} s" if code is None else ""
    status, reason = verdict(tool, text, code)
    run.add({"stage": tool, "status": status, "reason": "; ".join(filter(None, (checked, reason)))})
    return status


KERNEL_CASE = '"stage": "kernels"'
FOUND_SOMETHING = 9  # the sanitizer's exit code; the program itself exits with 0 to 2
RACE = re.compile(r"=+ (?:Error|Warning): (?:Race reported|Potential \w+ hazard detected)[^\n]*?(?: in (\w+)\(|$)", re.MULTILINE)


def verdict(tool: str, text: str, code: int | None) -> tuple[str, str]:
    """A sanitizer's (status, reason). `code` is None if its time ran out.

    racecheck does not see that a warp waits for asynchronous copies and then passes a barrier, so a reader must judge its
    hazards: they are listed and fail nothing. Every other finding fails the run.
    """
    races = RACE.findall(text) if tool == "racecheck" else []
    summary = next((line.strip("= ") for line in text.splitlines() if "SUMMARY" in line), "")
    if races and code in (None, 0, FOUND_SOMETHING):
        places = ", ".join(sorted({name for name in races if name})[:4])
        return "hazards", f"{len(races)} listed in racecheck.txt" + (f", of {places}" if places else "")
    if code is None:
        return ("failed" if "= Error" in text else "cut off"), summary
    return ("ok" if code == 0 else "failed"), summary


def built(run: Run, nvcc: str, target: tuple[str, str]) -> Path | None:
    began = time.monotonic()
    program = build(run, nvcc, f"-gencode=arch={target[0]},code={target[1]}")
    run.finish_stage("build", "ok" if program else "failed", began)
    return program


def check(run: Run, program: Path, nvcc: str, stages: list[str]) -> None:
    run.environment["gpu"] = json.loads(output_of(str(program), "info") or "{}")
    run.environment["commit"] = run.environment["gpu"].pop("commit", "unknown")  # the program's, wherever it was built
    for stage in stages:
        began = time.monotonic()
        try:
            outcome = (sanitize(run, stage, program, nvcc) if stage.endswith("check")
                       else stream(run, stage, [str(program), stage]))
        except OSError as error:
            run.add({"stage": stage, "status": "failed", "reason": str(error)})
            outcome = "failed"
        run.finish_stage(stage, outcome, began)


def summary(rows: list[Row], environment: Row) -> str:
    """A line a stage, with the cases that failed or why it ended early; then spills and splits."""
    lines = [f"GPU: {environment.get('gpu', {}).get('name', 'unknown')}"]
    for stage, outcome in environment.get("stages", {}).items():
        own = [row for row in rows if row.get("stage") == stage]
        failed = [str(row.get("name") or row.get("reason", "")) for row in own if row.get("status") == "failed"]
        early = [row["reason"] for row in own if row.get("status") in ("cut off", "hazards")]
        detail = ", ".join(failed[:4]) or "; ".join(early)
        lines.append(f"{stage:10} {outcome['status']:12} {outcome['seconds']:6.1f} s  {detail}".rstrip())
    spilling = [row for row in rows if row.get("stage") == "registers" and row["spill_bytes"]]
    lines.append(f"kernels that spill registers: {len(spilling)}")
    lines += [f"split-KV, {row['name']}: {row['speedup']:.2f}x as fast as whole" for row in rows
              if row.get("stage") == "split" and row.get("status") == "ok"]
    return "\n".join([*lines, "times, and other engines': ./kvlab run configs/gpu.toml --device cuda"])


def describe(run: Run, nvcc: str, target: tuple[str, str]) -> None:
    run.environment.update(
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        nvcc=output_of(nvcc, "--version").splitlines()[-1:],
        target=target[1],
        nvidia_smi=output_of("nvidia-smi", "--query-gpu=name,driver_version,vbios_version,clocks.max.sm,clocks.max.mem,"
                             "power.limit,ecc.mode.current", "--format=csv"),
    )


def build_alone(program: Path, target: str) -> int:
    """Builds the program for a machine that has a GPU and no toolkit; its registers and spills go to the error stream."""
    nvcc, reason = find_nvcc()
    reason = reason or ("" if re.fullmatch(r"sm_\d+a?", target) else f"--target must be like sm_90a, not '{target}'")
    if reason:
        return refuse(reason)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        made = built(run, nvcc, (target.replace("sm_", "compute_"), target))
        if made:
            shutil.move(made, program)
        for row in run.rows:
            if row["status"] == "failed":
                print(json.dumps(row), file=sys.stderr)
    print(f"program: {program}" if made else "kvlab: gpu-check: nothing was built")
    return 0 if made else 1


def refuse(reason: str) -> int:
    print(f"kvlab: gpu-check: {reason}; nothing was run", file=sys.stderr)
    return 2


def chosen(stages: str, program: Path | None, seconds: float) -> tuple[list[str], str]:
    """The stages to run, and the reason why they cannot be run, or nothing."""
    names = [name for name in LIMITS if name != "build"]
    asked = stages.split(",") if stages else names
    unknown = [name for name in asked if name not in names]
    if unknown:
        return [], f"no stage '{unknown[0]}'; there are {', '.join(names)}"
    if not seconds > 0:
        return [], f"--seconds must be a time, such as 60, not {seconds:g}"
    if program and not os.access(program, os.X_OK):
        return [], f"'{program}' is not a program; give --program the file that --build made"
    return [name for name in names if name in asked], ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="kvlab gpu-check", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    goal = parser.add_mutually_exclusive_group(required=True)
    goal.add_argument("--out", type=Path, help="results folder; must be new or empty")
    goal.add_argument("--build", type=Path, metavar="PROGRAM", help="only build, for the GPU of --target; needs no GPU")
    parser.add_argument("--target", default="sm_90a", help="with --build: sm_80, sm_89, sm_90a, sm_120 (%(default)s)")
    parser.add_argument("--program", type=Path, help="program that --build made elsewhere; nothing is compiled here")
    parser.add_argument("--stages", default="", help=f"some of {','.join(list(LIMITS)[1:])}")
    parser.add_argument("--seconds", type=float, default=TOTAL_SECONDS, help="for all stages together (%(default)s)")
    options = parser.parse_args()
    if host := os.environ.get("CUDAHOSTCXX"):  # CMake's name of what nvcc calls
        os.environ["NVCC_CCBIN"] = host
    if options.build:
        return build_alone(options.build, options.target)
    stages, reason = chosen(options.stages, options.program, options.seconds)
    found, capability = driver.find_gpu()
    reason = reason or found
    nvcc, unfit = find_nvcc(driver.supported_cuda())
    reason = reason or ("" if options.program else unfit) or wrong_folder(options.out)
    if reason or not capability:
        return refuse(reason)
    run = Run(options.out, options.seconds)
    target = target_of(capability, output_of(nvcc, "--list-gpu-arch") if nvcc else "")
    describe(run, nvcc or "nvcc", target)
    try:
        program = options.program or built(run, nvcc or "nvcc", target)
        if program:
            check(run, program.resolve(), nvcc or "nvcc", stages)
    finally:
        shutil.rmtree(options.out / "build", ignore_errors=True)
        run.write()
    print(summary(run.rows, run.environment))
    print(f"\nresults: {options.out}")
    return 1 if any(row.get("status") == "failed" for row in run.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
