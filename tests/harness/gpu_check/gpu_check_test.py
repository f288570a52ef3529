"""gpu-check without a GPU: it refuses in one line; and, with a simulated driver, compiler and program, it runs from the command
to the summary.
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


def nvcc_of(release, folder, host_error=""):
    """An nvcc that says its version, and with -E what it has against the host's compiler."""
    folder.mkdir(exist_ok=True)
    script = folder / "nvcc"
    script.write_text(f"""#!/bin/sh
case "$*" in
  --version) echo 'Cuda compilation tools, release {release}, V{release}.1' ;;
  *) echo "host_config.h:137:2: error: #error -- {host_error}! Use at your own risk." >&2 ;;
esac
""")
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize(
    ("release", "driver_cuda", "reason"),
    [("12.4", 12040, ""), ("12.8", 12040, ""), ("12.4", 13000, ""), ("12.10", 12080, ""), ("13.0", 0, ""),
     ("11.8", 12040, "12.4 is needed; set CUDACXX to a newer nvcc"),
     ("12.0", 0, "12.4 is needed; set CUDACXX to a newer nvcc"),
     ("13.0", 12080, "the driver runs no newer than 12.8; update it, or set CUDACXX to an older nvcc")],
)
def test_a_compiler_that_does_not_fit_is_refused_before_anything_is_built(tmp_path, monkeypatch, release, driver_cuda, reason):
    monkeypatch.setenv("CUDACXX", nvcc_of(release, tmp_path))
    nvcc, said = run.find_nvcc(driver_cuda)
    assert reason in said and "\n" not in said
    assert (nvcc == os.environ["CUDACXX"]) == (not reason) == (not said)


def test_a_host_compiler_that_is_too_new_is_named_with_the_variable_for_another(tmp_path, monkeypatch):
    limit = "unsupported GNU version! gcc versions later than 13 are not supported"
    monkeypatch.setenv("CUDACXX", nvcc_of("12.4", tmp_path, limit))
    for host, name in (("", "g++"), ("/opt/g++-16", "/opt/g++-16")):
        monkeypatch.setenv("CUDAHOSTCXX", host)
        assert run.find_nvcc() == ("", f"{name} is too new for {tmp_path}/nvcc (gcc versions later than 13 are not supported); "
                                       "set CUDAHOSTCXX to an older compiler")


def test_an_old_compiler_in_path_gives_way_to_one_that_is_new_enough(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDACXX", raising=False)
    monkeypatch.setenv("PATH", f"{Path(nvcc_of('12.0', tmp_path / 'old')).parent}:/usr/bin:/bin")
    installed = Path("/usr/local/cuda/bin/nvcc")
    nvcc, said = run.find_nvcc()
    assert nvcc == str(installed) if installed.is_file() else "old/nvcc is of CUDA 12.0, and 12.4 is needed" in said
    monkeypatch.setenv("PATH", f"{Path(nvcc_of('12.6', tmp_path / 'new')).parent}:/usr/bin:/bin")
    assert run.find_nvcc() == (str(tmp_path / "new/nvcc"), "")


@pytest.mark.skipif(not shutil.which("cmake"), reason="no CMake here")
def test_cmake_chooses_as_gpu_check_does(tmp_path, monkeypatch):
    (tmp_path / "kernels/cuda").mkdir(parents=True)
    (tmp_path / "kernels/cuda/one.cu").write_text("")
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.25)\nproject(chooses NONE)\ninclude({HOME}/harness/cmake/cuda.cmake)\n")
    monkeypatch.setenv("CUDACXX", nvcc_of("11.8", tmp_path))
    done = subprocess.run(["cmake", "-S", tmp_path, "-B", tmp_path / "build", "-DKVLAB_CUDA=ON"], capture_output=True, text=True)
    assert done.returncode != 0
    assert f"CUDA is required by KVLAB_CUDA=ON, but {run.find_nvcc()[1]}" in " ".join(done.stderr.split())


def test_no_compiler_or_no_folder_is_a_line(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDACXX", str(tmp_path / "none"))
    assert "none', which is not a program" in run.find_nvcc()[1]
    (tmp_path / "file").write_text("")
    assert run.wrong_folder(tmp_path / "new" / "out") == ""
    assert "not empty" in run.wrong_folder(tmp_path)
    assert "cannot make the folder" in run.wrong_folder(tmp_path / "file")


def test_every_source_that_it_builds_is_there():
    names = {source.name for source in run.SOURCES}
    assert {"cuda_gpu.cu", "decode_kivi.cu", "main.cu", "problem.cc", "encoding.cc", "channel.cc"} <= names
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
    assert [r["status"] for r in a_run.rows] == ["ok", "ok", "failed", "ok", "cut off"]
    lines = (tmp_path / "out" / "cells.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == a_run.rows
    assert run.stream(a_run, "split", [sys.executable, "-c", f"print({json.dumps(row)!r}); print('{{\"stage', end=''); exit(3)"]) == "failed"
    assert a_run.rows[-2:] == [row, {"stage": "split", "status": "failed", "reason": '{"stage'}]
    a_run.write()
    assert (tmp_path / "out" / "cells.csv").read_text().startswith("stage,name,status")


def test_the_program_is_built_for_the_gpu_or_for_the_newest_that_the_compiler_knows():
    known = "compute_80\ncompute_89\ncompute_90\ncompute_90a\n"
    assert run.target_of((8, 0), known) == ("compute_80", "sm_80")
    assert run.target_of((8, 9), known) == ("compute_89", "sm_89")
    assert run.target_of((9, 0), known) == ("compute_90a", "sm_90a")
    assert run.target_of((8, 6), known) == ("compute_80", "compute_80")  # the driver compiles it further
    assert run.target_of((12, 0), known) == ("compute_90", "compute_90")


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
        text = run.summary(a_run.rows, {"stages": {tool: {"status": status, "seconds": 1.0}}})
        assert "1 listed in racecheck.txt" in text


def test_hazards_count_however_racecheck_ends():
    hazard = "========= Warning: Race reported between Write access at foo\n"
    assert run.verdict("racecheck", hazard, None)[0] == "hazards"
    assert run.verdict("racecheck", hazard, 0)[0] == "hazards"
    assert run.verdict("racecheck", "========= RACECHECK SUMMARY: 0 hazards displayed", 0) == (
        "ok", "RACECHECK SUMMARY: 0 hazards displayed")
    assert run.verdict("memcheck", "========= Error: Invalid read", None)[0] == "failed"
    assert run.verdict("memcheck", "", None) == ("cut off", "")


def test_registers_are_read_from_the_assemblers_report():
    report = """ptxas info    : Compiling entry function '_Z3fooi' for 'sm_90a'
ptxas info    : Function properties for _Z3fooi
    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 151 registers, used 1 barriers, 16 bytes cumulative stack size
"""
    assert run.KERNEL.findall(report) == [("_Z3fooi", "8", "4", "151")]


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
def rows_of_a_gpu(kernel_status):
    """By stage: what the program prints."""
    split = {"stage": "split", "name": "1 x 8192", "status": "ok", "split_us": 2.0, "whole_us": 13.0, "speedup": 6.5}
    return {"info": [{"name": "No such GPU"}], "wrappers": [{"stage": "wrappers", "name": "exp2", "status": "ok"}],
            "kernels": [{"stage": "kernels", "name": "f16 d128", "status": kernel_status}], "split": [split]}


def pretend(folder, kernel_status="ok"):
    """An environment with a driver and an nvcc; the program that nvcc makes prints rows."""
    folder.mkdir()
    (folder / "driver.cc").write_text(DRIVER)
    subprocess.run([shutil.which("g++"), "-shared", "-fPIC", folder / "driver.cc", "-o", folder / "libcuda.so.1"], check=True)
    (folder / "rows.py").write_text(
        f"import json, sys\nrows = {rows_of_a_gpu(kernel_status)!r}[sys.argv[1]]\n"
        "print(*map(json.dumps, rows), sep='\\n')\n"
        "sys.exit(any(row.get('status') == 'failed' for row in rows))\n")
    # Not in a #! line, which ends at the first space of the interpreter's path.
    (folder / "program").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{folder}/rows.py" "$@"\n')
    (folder / "nvcc").write_text(COMPILER.replace("PROGRAM", str(folder / "program")))
    for name in ("program", "nvcc"):
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "CUDACXX": str(folder / "nvcc"),
            "LD_LIBRARY_PATH": str(folder)}


@pytest.mark.skipif(has_driver(), reason="this machine has a GPU")
@pytest.mark.parametrize(("kernels", "code"), [("ok", 0), ("failed", 1)])
def test_the_command_leaves_its_results_and_a_line_a_stage(tmp_path, kernels, code):
    environment = pretend(tmp_path / "the tools", kernels)
    done = subprocess.run([HOME / "kvlab", "gpu-check", "--out", tmp_path / "out"], env=environment, capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == code, done.stderr
    stages = ["build", "wrappers", "kernels", "memcheck", "split", "racecheck"]
    saved = json.loads((tmp_path / "out" / "env.json").read_text())
    assert list(saved["stages"]) == stages and saved["stages"]["kernels"]["status"] == kernels
    assert saved["target"] == "sm_90a" and saved["gpu"]["name"] == "No such GPU"
    lines = done.stdout.splitlines()
    for beginning in (*stages, "kernels that spill registers: 0", "split-KV, 1 x 8192: 6.50x", "times, and other engines'"):
        assert any(line.startswith(beginning) for line in lines), beginning
    assert any("f16 d128" in line for line in lines) == (kernels == "failed")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"cells.csv", "cells.jsonl", "env.json"}


def test_a_stage_that_cannot_start_leaves_the_others_theirs(tmp_path, monkeypatch):
    (tmp_path / "compute-sanitizer").write_text(SANITIZER.replace("CODE", "0"))
    (tmp_path / "compute-sanitizer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program = tmp_path / "of another machine"
    program.write_bytes(b"\x7fELF of none")
    program.chmod(0o755)
    a_run = run.Run(tmp_path / "out")
    run.check(a_run, program, "nvcc", ["wrappers", "memcheck"])
    assert {stage: told["status"] for stage, told in a_run.environment["stages"].items()} == {"wrappers": "failed", "memcheck": "ok"}
    assert "Exec format error" in a_run.rows[0]["reason"] and a_run.rows[1]["status"] == "ok"


@pytest.mark.skipif(has_driver(), reason="this machine has a GPU")
def test_a_program_built_elsewhere_runs_the_stages_asked_for(tmp_path):
    environment = pretend(tmp_path / "the tools")
    command = [HOME / "kvlab", "gpu-check"]
    options = {"env": environment, "capture_output": True, "text": True, "timeout": 300}
    program = tmp_path / "gpu_check"
    made = subprocess.run([*command, "--build", program, "--target", "sm_90a"], **options)
    assert made.returncode == 0 and program.is_file(), made.stderr
    done = subprocess.run([*command, "--out", tmp_path / "out", "--program", program, "--stages", "kernels,wrappers"], **options)
    assert done.returncode == 0, done.stderr
    saved = json.loads((tmp_path / "out" / "env.json").read_text())
    assert list(saved["stages"]) == ["wrappers", "kernels"]
    for wrong, reason in ((["--stages", "kernel"], "no stage 'kernel'"), (["--program", tmp_path / "none"], "is not a program"),
                          (["--seconds", "0"], "--seconds must be a time")):
        refused = subprocess.run([*command, "--out", tmp_path / "none", *wrong], **options)
        assert refused.returncode == 2 and reason in refused.stderr and refused.stderr.count("\n") == 1
    assert not (tmp_path / "none").exists()
    assert "--target must be like sm_90a" in subprocess.run([*command, "--build", program, "--target", "h100"], **options).stderr
