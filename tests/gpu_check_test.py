"""gpu-check where there is no GPU: one clear line; and what it makes of the rows that a GPU would give."""

import ctypes
import json
import os
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
    assert {"cuda_gpu.cu", "decode_kivi.cu", "main.cu", "scene.cc", "encoding.cc", "convert_scalar.cc"} <= names
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
    assert [r["status"] for r in a_run.rows] == ["ok", "ok", "failed", "ok", "cut off", "skipped"]
    lines = (tmp_path / "out" / "cells.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == a_run.rows
    a_run.write()
    assert (tmp_path / "out" / "cells.csv").read_text().startswith("stage,name,status")


def test_registers_are_read_from_the_assemblers_report():
    report = """ptxas info    : Compiling entry function '_Z3fooi' for 'sm_90a'
ptxas info    : Function properties for _Z3fooi
    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 151 registers, used 1 barriers, 16 bytes cumulative stack size
"""
    assert run.KERNEL.findall(report) == [("_Z3fooi", "8", "4", "151")]


def test_the_table_names_the_fastest_peer_of_the_same_kind_and_says_what_is_void():
    decode = {"stage": "decode", **POINT, "codec": "f16", "page_rows": 0, "status": "ok", "cold_us": 200.0,
              "steady_us": 190.0, "share_of_ceiling": 0.9}
    peer = {"stage": "peers", **POINT, "bits": 16, "status": "ok"}
    rows = [
        decode,
        {**decode, "codec": "kivi4"},
        {**peer, "name": "slow", "steady_us": 500.0},
        {**peer, "name": "fast", "steady_us": 380.0},
        {**peer, "name": "int8", "bits": 8, "steady_us": 1.0},
        {"stage": "ceiling", "name": "before", "read_gb_s": 3000.0},
        {"stage": "ceiling", "name": "after", "read_gb_s": 2900.0},
        {"stage": "split", "name": "split-KV, 1 x 8192", "status": "ok", "speedup": 6.5},
    ]
    assert run.ceiling_moved(rows) == pytest.approx(1 / 30)
    text = table.short(rows, {"gpu": {"name": "X"}, "stages": {}, "void": True})
    lines = text.splitlines()
    assert any(line.startswith("f16 ") and line.endswith("2.00x fast") for line in lines)
    assert any(line.startswith("kivi4 ") and line.rstrip().endswith("90.0%") for line in lines)
    assert any(line.startswith("VOID") for line in lines)
    assert "split-KV, 1 x 8192: 6.50x as fast as whole" in lines
    assert [table.bits_of(c) for c in ("f32", "bf16", "fp8", "q8_0", "q4_0", "token2", "kivi4")] == [32, 16, 8, 8, 4, 2, 4]
