"""gpu-check where there is no GPU: one clear line; what it makes of the rows that a GPU would give; and all of it, from
the command to the table, with a driver, a compiler and a program that only pretend.
"""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(os.environ["KVLAB_HOME"])
sys.path.insert(0, str(HOME / "harness" / "gpu_check"))

import run  # noqa: E402
import table  # noqa: E402

POINT = {"batch": 32, "seq_len": 4096, "kv_heads": 8, "group": 4, "head_dim": 128}


def has_driver():
    try:
        return ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except OSError:
        return False


@pytest.mark.skipif(has_driver(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_so_in_one_line_and_leaves_nothing(tmp_path):
    done = subprocess.run([HOME / "kvlab", "gpu-check", "--out", tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("kvlab: gpu-check: ") and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def nvcc_of(release, folder):
    script = folder / f"nvcc-{release}"
    script.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n")
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize(
    ("release", "driver_cuda", "reason"),
    [("12.4", 12040, ""), ("12.8", 12040, ""), ("12.4", 13000, ""), ("11.8", 12040, "12.4 is needed"),
     ("13.0", 12080, "the driver runs no newer than 12.8")],
)
def test_a_compiler_that_does_not_fit_is_refused_before_anything_is_built(tmp_path, release, driver_cuda, reason):
    assert reason in run.wrong_toolkit(nvcc_of(release, tmp_path), driver_cuda)
    assert bool(reason) == bool(run.wrong_toolkit(nvcc_of(release, tmp_path), driver_cuda))


def test_no_compiler_or_no_folder_is_a_line(tmp_path):
    assert "install the CUDA toolkit" in run.wrong_toolkit(None, 13000)
    (tmp_path / "file").write_text("")
    assert run.wrong_folder(tmp_path / "new" / "out") == ""
    assert "not empty" in run.wrong_folder(tmp_path)
    assert "cannot make the folder" in run.wrong_folder(tmp_path / "file")


def test_every_source_that_it_builds_is_there():
    names = {source.name for source in run.SOURCES}
    assert {"cuda_gpu.cu", "decode_kivi.cu", "main.cu", "scene.cc", "encoding.cc", "channel.cc"} <= names
    assert all(source.is_file() for source in run.SOURCES)


def program(lines, code=0, seconds=0):
    rows = "".join(f"print({json.dumps(json.dumps(line))}, flush=True);" for line in lines)
    return [sys.executable, "-c", f"import sys, time; {rows} time.sleep({seconds}); sys.exit({code})"]


def test_a_stage_keeps_its_rows_however_it_ends(tmp_path, monkeypatch):
    monkeypatch.setitem(run.LIMITS, "kernels", 1.5)
    row = {"stage": "kernels", "name": "f16", "status": "ok"}
    a_run = run.Run(tmp_path / "out")
    assert run.stream(a_run, "kernels", program([row])) == "ok"
    assert run.stream(a_run, "kernels", program([row], code=1)) == "failed"
    assert run.stream(a_run, "kernels", program([row], seconds=60)) == "cut off"
    assert run.stream(a_run, "kernels", program([{**row, "status": "skipped"}])) == "skipped"
    assert run.stream(a_run, "kernels", program([row, {**row, "status": "cut off"}])) == "cut off"
    assert [r["status"] for r in a_run.rows] == ["ok", "ok", "failed", "ok", "cut off", "skipped", "ok", "cut off"]
    lines = (tmp_path / "out" / "cells.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == a_run.rows
    a_run.write()
    assert (tmp_path / "out" / "cells.csv").read_text().startswith("stage,name,status")


def test_the_program_is_built_for_the_gpu_or_for_the_newest_that_the_compiler_knows():
    known = "compute_80\ncompute_89\ncompute_90\ncompute_90a\n"
    assert run.target_of((8, 0), known) == ("compute_80", "sm_80")
    assert run.target_of((8, 9), known) == ("compute_89", "sm_89")
    assert run.target_of((9, 0), known) == ("compute_90a", "sm_90a")
    assert run.target_of((8, 6), known) == ("compute_80", "compute_80")  # the driver compiles it further
    assert run.target_of((12, 0), known) == ("compute_90", "compute_90")


def test_clocks_are_those_of_the_samples():
    sample = "2026/01/01 00:00:00.000, {} MHz, 2619 MHz, 40, 300.00 W, 0x{:016x}"
    lines = [sample.format(1980, 0), "[Not Supported]", sample.format(1755, 4)]
    clocks = run.clocks_during(lines)
    assert (clocks["sm_mhz_least"], clocks["sm_mhz_most"]) == (1755, 1980)
    assert clocks["throttle_reasons"] == ["0x0000000000000000", "0x0000000000000004"]
    assert "MOVED" in table.clocks_line(clocks)
    assert run.clocks_during(["no such field"]) == {}


SANITIZER = """#!/bin/sh
echo '========= Error: Race reported between Read access at void kv::cuda::decode(kv::cuda::DecodeParams)+0x1 in decode.h:9'
echo '========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)'
exit CODE
"""


@pytest.mark.parametrize(("tool", "code", "status"), [("racecheck", 9, "hazards"), ("racecheck", 1, "failed"),
                                                      ("memcheck", 9, "failed"), ("memcheck", 0, "ok")])
def test_hazards_of_racecheck_are_listed_and_fail_nothing(tmp_path, monkeypatch, tool, code, status):
    sanitizer = tmp_path / "compute-sanitizer"
    sanitizer.write_text(SANITIZER.replace("CODE", str(code)))
    sanitizer.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    a_run = run.Run(tmp_path / "out")
    assert run.sanitize(a_run, tool, tmp_path / "program", "nvcc") == status
    assert a_run.rows == [{"stage": tool, "status": status, "reason": a_run.rows[0]["reason"]}]
    assert "Race reported" in (tmp_path / "out" / f"{tool}.txt").read_text()
    if status == "hazards":
        assert a_run.rows[0]["reason"].startswith("1 listed in racecheck.txt")
        text = table.short(a_run.rows, {"stages": {tool: {"status": status, "seconds": 1.0}}})
        assert "1 listed in racecheck.txt" in text


def test_hazards_count_however_racecheck_ends():
    hazard = "========= Warning: Race reported between Write access at foo\n"
    assert run.verdict("racecheck", hazard, None)[0] == "hazards"
    assert run.verdict("racecheck", hazard, 0)[0] == "hazards"
    assert run.verdict("racecheck", "========= RACECHECK SUMMARY: 0 hazards displayed", 0) == (
        "ok", "RACECHECK SUMMARY: 0 hazards displayed")
    assert run.verdict("memcheck", "========= Error: Invalid read", None)[0] == "failed"
    assert run.verdict("memcheck", "", None) == ("cut off", "")


@pytest.mark.parametrize("known", [0, 1, None])
def test_clocks_are_asked_for_by_the_name_that_this_driver_knows(tmp_path, monkeypatch, known):
    smi = tmp_path / "nvidia-smi"
    name = run.REASONS[known] if known is not None else "no_such_name"
    smi.write_text(f"#!/bin/sh\ncase \"$*\" in *{name}*) echo names; echo '1, 2 MHz, 3, 4, 5, 0x0';; *) echo 'Field is not valid'; exit 2;; esac\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    recorder, reason = run.record_clocks(tmp_path)
    assert (recorder is None) == (known is None) == bool(reason)
    if recorder:
        recorder.wait()
        assert run.clocks_during(run.samples_of(tmp_path))["sm_mhz_most"] == 2
    else:
        assert all(name in reason for name in run.REASONS)
        assert f"unknown, {reason}" in table.short([], {"no_clocks": reason})


def test_registers_are_read_from_the_assemblers_report():
    report = """ptxas info    : Compiling entry function '_Z3fooi' for 'sm_90a'
ptxas info    : Function properties for _Z3fooi
    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 151 registers, used 1 barriers, 16 bytes cumulative stack size
"""
    assert run.KERNEL.findall(report) == [("_Z3fooi", "8", "4", "151")]


def test_the_table_names_the_fastest_peer_of_the_same_kind_and_says_what_is_void():
    decode = {"stage": "decode", **POINT, "codec": "f16", "page_rows": 0, "status": "ok", "cold_us": 200.0,
              "steady_us": 190.0, "share_of_ceiling": 0.9, "kv_bytes": 1 << 29}
    peer = {"stage": "peers", **POINT, "bits": 16, "status": "ok"}
    rows = [
        decode,
        {**decode, "codec": "kivi4"},
        {**peer, "name": "slow", "steady_us": 500.0},
        {**peer, "name": "fast", "steady_us": 380.0},
        {**peer, "name": "int8", "bits": 8, "steady_us": 1.0},
        {"stage": "ceiling", "name": "before", "read_gb_s": 3000.0, "blocks_of_sm": 5, "sm_mhz": 1980},
        {"stage": "ceiling", "name": "after", "read_gb_s": 2900.0, "blocks_of_sm": 5, "sm_mhz": 1980},
        {"stage": "split", "name": "split-KV, 1 x 8192", "status": "ok", "speedup": 6.5},
    ]
    assert run.ceiling_moved(rows) == pytest.approx(1 / 30)
    text = table.short(rows, {"gpu": {"name": "X"}, "stages": {}, "void": True})
    lines = text.splitlines()
    assert any(line.startswith("f16 ") and line.endswith("2.00x fast") for line in lines)
    assert any(line.startswith("kivi4 ") and line.endswith("90.0%  85% met") for line in lines)
    assert "read ceiling before: 3000 GB/s, 5 blocks an SM, 1980 MHz" in lines
    assert any(line.startswith("VOID") for line in lines)
    assert "split-KV, 1 x 8192: 6.50x as fast as whole" in lines
    assert [table.bits_of(c) for c in ("f32", "bf16", "fp8", "q8_0", "q4_0", "token2", "kivi4")] == [32, 16, 8, 8, 4, 2, 4]


def test_a_share_is_held_against_its_target_where_it_has_one():
    row = {**POINT, "codec": "f16", "page_rows": 0, "steady_us": 100.0, "share_of_ceiling": 0.92, "kv_bytes": 1 << 28}
    assert table.target_of(row, []) == "92% met"
    assert table.target_of({**row, "share_of_ceiling": 0.919}, []) == "92% MISSED"
    assert table.target_of({**row, "kv_bytes": (1 << 28) - 1}, []) == ""
    wanted = {"fp8": "92%", "token8": "90%", "q8_0": "90%", "q4_0": "85%", "kivi2": "75%"}
    for codec, share in wanted.items():
        assert table.target_of({**row, "codec": codec, "share_of_ceiling": 1.0}, []) == f"{share} met"
    assert table.target_of({**row, "codec": "f32"}, []) == ""
    paged = {**row, "page_rows": 16, "steady_us": 102.0}
    assert table.target_of(paged, [row, paged]) == "2% slower met"
    assert table.target_of({**paged, "steady_us": 102.1}, [row, paged]) == "2% slower MISSED"
    assert table.target_of(paged, [paged]) == ""
    short = {**row, "batch": 1, "seq_len": 1024, "kv_bytes": 1, "steady_us": 7.5}
    assert table.target_of(short, []) == "7 us MISSED"
    assert table.target_of({**short, "codec": "q8_0"}, []) == ""


DRIVER = """
extern "C" int cuInit(unsigned) { return 0; }
extern "C" int cuDeviceGetCount(int* count) { return *count = 1, 0; }
extern "C" int cuDeviceGet(int* device, int) { return *device = 0, 0; }
extern "C" int cuDeviceGetAttribute(int* value, int attribute, int) { return *value = attribute == 75 ? 9 : 0, 0; }
extern "C" int cuDriverGetVersion(int* version) { return *version = 12080, 0; }
"""
COMPILER = """#!/bin/sh
case "$*" in
  *--version*) echo 'Cuda compilation tools, release 12.8, V12.8.1'; exit ;;
  *--list-gpu-arch*) echo compute_80; echo compute_90; exit ;;
  *code=sm_90a*) ;;
  *) exit 1 ;;
esac
for last; do :; done
cp "PROGRAM" "$last"
cat >&2 <<END
ptxas info    : Compiling entry function '_Z3foo' for 'sm_90a'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 100 registers, used 1 barriers
END
"""
SMI = """#!/bin/sh
echo 'timestamp, clocks.current.sm [MHz], clocks.current.memory [MHz], temperature.gpu, power.draw [W], reasons'
case "$*" in *-lms*) ;; *) echo one sample; exit ;; esac
while echo '2026/01/01 00:00:00.000, 1980 MHz, 2619 MHz, 40, 300.00 W, 0x0'; do sleep 0.05; done
"""
SHAPE = {**POINT, "codec": "f16", "status": "ok", "cold_us": 2.0, "steady_us": 1.0, "kv_bytes": 1}


def rows_of_a_gpu(kernel_status):
    ceiling = {"stage": "ceiling", "read_gb_s": 1.0, "blocks_of_sm": 4, "sm_mhz": 1980}
    return {
        "info": [{"name": "No such GPU"}],
        "wrappers": [{"stage": "wrappers", "name": "exp2", "status": "ok"}],
        "kernels": [{"stage": "kernels", "name": "f16 d128", "status": kernel_status}],
        "benchmark": [
            {**ceiling, "name": "before"},
            {**SHAPE, "stage": "decode", "page_rows": 0, "share_of_ceiling": 0.5},
            {**SHAPE, "stage": "append", "rows": 1},
            {**SHAPE, "stage": "prefill", "tokens": 128, "tflop_s": 1.0},
            {"stage": "benchmark", "status": "cut off", "reason": "no time for the last 7 cases"},
            {**ceiling, "name": "after"},
        ],
    }


def pretend(folder, kernel_status="ok"):
    """An environment in which there seem to be a driver, nvcc and nvidia-smi; the compiler's program prints rows."""
    folder.mkdir()
    (folder / "driver.cc").write_text(DRIVER)
    subprocess.run([shutil.which("g++"), "-shared", "-fPIC", folder / "driver.cc", "-o", folder / "libcuda.so.1"], check=True)
    (folder / "rows.py").write_text(
        f"import json, sys, time\nrows = {rows_of_a_gpu(kernel_status)!r}[sys.argv[1]]\n"
        "time.sleep(0.3 * (sys.argv[1] == 'benchmark'))\nprint(*map(json.dumps, rows), sep='\\n')\n"
        "sys.exit(any(row.get('status') == 'failed' for row in rows))\n")
    # Not in a #! line, which ends at the first space of the interpreter's path.
    (folder / "program").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{folder}/rows.py" "$@"\n')
    (folder / "nvcc").write_text(COMPILER.replace("PROGRAM", str(folder / "program")))
    (folder / "nvidia-smi").write_text(SMI)
    for name in ("program", "nvcc", "nvidia-smi"):
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "CUDACXX": str(folder / "nvcc"),
            "LD_LIBRARY_PATH": str(folder)}


@pytest.mark.skipif(has_driver(), reason="this machine has a GPU")
@pytest.mark.parametrize(("kernels", "code"), [("ok", 0), ("failed", 1)])
def test_the_command_leaves_its_results_and_a_line_for_all_that_was_timed(tmp_path, kernels, code):
    environment = pretend(tmp_path / "the tools", kernels)
    done = subprocess.run([HOME / "kvlab", "gpu-check", "--out", tmp_path / "out"], env=environment, capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == code, done.stderr
    stages = ["build", "wrappers", "kernels", "benchmark", "peers", "memcheck", "racecheck"]
    saved = json.loads((tmp_path / "out" / "env.json").read_text())
    assert list(saved["stages"]) == stages
    assert saved["stages"]["kernels"]["status"] == kernels and saved["stages"]["benchmark"]["status"] == "cut off"
    assert saved["target"] == "sm_90a" and saved["gpu"]["name"] == "No such GPU" and not saved["void"]
    lines = done.stdout.splitlines()
    for stage in stages:
        assert any(line.startswith(stage) for line in lines), stage
    for beginning in ("f16      32 x 4096, 8 x 4 heads of 128", "f16      32 x 8 heads of 128, rows at once: 1",
                      "f16      32 x 4096, 8 x 4 heads of 128, chunk of 128", "SM clock while timing: 1980 to 1980 MHz"):
        assert any(line.startswith(beginning) for line in lines), beginning
    assert any("no time for the last 7 cases" in line for line in lines)
    assert any("f16 d128" in line for line in lines) == (kernels == "failed")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"cells.csv", "cells.jsonl", "clocks.csv", "env.json"}
