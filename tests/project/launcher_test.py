"""The launcher on a machine of stand-ins: it finds only what a test put there, and calls are logged."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
REAL = "basename cat cmp cp dirname env find grep head mkdir nproc readlink sed sh sort touch tr".split()
LIBRARIES = (
    "libeigen3-dev libbenchmark-dev libtomlplusplus-dev libcli11-dev nlohmann-json3-dev libcsv-dev "
    "libhwy-dev libmuparser-dev libgtest-dev libdnnl-dev liburing-dev"
).split()
REQUIREMENTS = ["plots/requirements.txt", "plots/requirements-test.txt", "harness/python/requirements-module.txt", "harness/model/requirements-models.txt"]

# "Builds" a program that shows what it was given: its own folder, the variables, and one argument a line.
CMAKE = """
for last; do :; done
build=$PROJECT/.build/release
case $* in *"preset cuda"* | *build/cuda*) build=$PROJECT/.build/cuda ;; esac
case $* in
  --version*) echo "cmake version ${CMAKE_VERSION:-3.25.1}"; exit ;;
  --build*) [ -z "${BUILD_FAILS:-}" ] || exit 1
    mkdir -p "$build/harness"
    [ -f "$build/harness/kvlab" ] || cp "$BIN/program" "$build/harness/kvlab" ;;
  *"--preset cuda"*) echo "x CUDA is required by KVLAB_CUDA=ON, but $NO_CUDA Call Stack"; [ -z "$NO_CUDA" ] || exit 1 ;;
esac
case $* in
  --build*) ;;
  *) mkdir -p "$build"; touch "$build/build.ninja"
    echo "CMAKE_HOME_DIRECTORY:INTERNAL=$PROJECT" >"$build/CMakeCache.txt" ;;
esac
"""
PROGRAM = """
echo "cwd=$PWD"; echo "home=$KVLAB_HOME"; echo "python=${KVLAB_PYTHON:-none}"; [ -z "${KVLAB_NO_PYTHON:-}" ] || echo "why=$KVLAB_NO_PYTHON"
for argument; do echo "argument=$argument"; done
[ "${1:-}" != list ] || [ "${2:-}" != fail ] || exit 7
[ "${2:-}" != bad ] || { echo "bad: a key is wrong" >&2; exit 2; }
"""
DPKG_QUERY = 'for name; do case " $INSTALLED " in *" $name "*) printf "%s:installed " "$name" ;; esac; done'
# `python3 -m venv` makes a python that logs, too.
PYTHON = """
case "$*" in
  *venv*--clear*) [ -z "${VENV_FAILS:-}" ] || { printf 'looking\nERROR: no network\nbye\n' >&2; exit 1; }
    mkdir -p "$PROJECT/.venv/bin"; cp "$BIN/venv-python" "$PROJECT/.venv/bin/python" ;;
esac
"""


class Machine:
    def __init__(self, folder):
        self.project = folder / "a project"
        self.bin = folder / "bin"
        self.log_file = folder / "log"
        self.env = {"PATH": str(self.bin), "BIN": str(self.bin), "LOG": str(self.log_file)}
        self.env.update(PROJECT=str(self.project), INSTALLED=" ".join(LIBRARIES), HOME=str(folder))
        self.env["NO_CUDA"] = ""
        for name in ["kernels", "variants", "harness/python", "harness/model", "plots"]:
            (self.project / name).mkdir(parents=True)
        for name in ["CMakeLists.txt", "x", "bad"]:  # the latter are configs
            (self.project / name).touch()
        for name in REQUIREMENTS:
            (self.project / name).write_text("package==1.0.0\n")
        shutil.copy(PROJECT / "kvlab", self.project)
        self.bin.mkdir()
        for name in REAL:
            (self.bin / name).symlink_to(shutil.which(name))
        for name in ["g++", "ninja", "git", "chromium", "apt-get", "ctest", "venv-python"]:
            self.add(name)
        self.add("id", "echo 0")
        self.add("cmake", CMAKE)
        self.add("program", PROGRAM)
        self.add("dpkg-query", DPKG_QUERY)
        self.add("python3", PYTHON)
        self.add("nvidia-smi", 'echo "| Driver Version: 550.54    CUDA Version: 12.4     |"')

    def add(self, name, body=""):
        script = self.bin / name
        script.unlink(missing_ok=True)  # writing through the link of a real tool would replace the tool
        script.write_text(f'#!{shutil.which("sh")}\necho "{name} $*" >>"$LOG"\n{body}\n')
        script.chmod(0o755)

    def remove(self, name):
        (self.bin / name).unlink()

    def run(self, *arguments, launcher=None, cwd="/"):
        """Runs the launcher; its log is that of this call alone."""
        self.log_file.write_text("")
        command = [str(launcher or self.project / "kvlab"), *arguments]
        streams = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        done = subprocess.run(command, cwd=cwd, env=self.env, **streams)
        self.log = self.log_file.read_text().splitlines()
        return done

    def called(self, prefix):
        return [line for line in self.log if line.startswith(prefix)]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_arguments_folder_and_exit_code_are_passed_on(machine, tmp_path):
    words = ["list", "fail", "two words", "", "*"]
    done = machine.run(*words, cwd=tmp_path)
    assert done.returncode == 7
    assert done.stdout.splitlines() == [f"cwd={tmp_path}", f"home={machine.project}", "python=none", *(f"argument={word}" for word in words)]


def test_a_symlink_finds_the_project(machine, tmp_path):
    link = tmp_path / "link to kvlab"
    link.symlink_to(machine.project / "kvlab")
    assert f"home={machine.project}" in machine.run("list", launcher=link).stdout


def test_help_neither_installs_nor_builds(machine):
    machine.env["INSTALLED"] = ""
    for arguments in [[], ["--help"]]:
        done = machine.run(*arguments)
        assert done.returncode == 0 and "./kvlab run CONFIG" in done.stdout and machine.log == []


def test_a_second_call_configures_nothing(machine):
    machine.run("list")
    assert len(machine.called("cmake --fresh")) == 1
    machine.run("list")
    assert machine.called("cmake --fresh") == [] and len(machine.called("cmake --build")) == 1


def test_a_copied_project_is_configured_anew(machine, tmp_path):
    machine.run("list")
    shutil.copytree(machine.project, tmp_path / "copy")
    machine.project = tmp_path / "copy"
    machine.env["PROJECT"] = str(machine.project)
    assert f"home={machine.project}" in machine.run("list").stdout
    assert len(machine.called("cmake --fresh")) == 1


def test_it_says_beforehand_what_it_fetches_and_builds(machine):
    machine.env["INSTALLED"] = " ".join(LIBRARIES[1:])
    machine.add("nproc", "echo 2")
    done = machine.run("run", "x")
    said = [line for line in done.stderr.splitlines() if line.startswith("kvlab: ")]
    assert said[0].startswith(f"kvlab: fetching packages ({LIBRARIES[0]}") and ".venv" in said[0]
    assert re.match(r"kvlab: compiling kvlab: about \d+ min on 2 cores", said[1])
    machine.env["INSTALLED"] += f" {LIBRARIES[0]}"
    assert machine.run("run", "x").stderr == ""
    assert "compiling its tests: about" in machine.run("test").stderr


@pytest.mark.parametrize("option", ["--device cuda", "--device=cuda", "--set device=cuda", '--set device="cuda"'])
def test_gpu_kernels_are_built_where_they_are_asked_for(machine, option):
    machine.run("run", "x", "--device", "cpu")
    assert "ON" not in " ".join(machine.log)
    done = machine.run("run", "x", *option.split())
    assert len(machine.called("cmake --fresh")) == 1 and "--preset cuda" in machine.called("cmake --fresh")[0]
    assert "-DKVLAB_DRIVER_CUDA=12.4" in machine.called("cmake --fresh")[0]
    assert machine.called("cmake --build")[-1].startswith(f"cmake --build {machine.project}/.build/cuda ")
    assert "and the GPU kernels: about" in done.stderr and "argument=x" in done.stdout
    machine.run("run", "x", *option.split())
    assert machine.called("cmake --fresh") == []
    assert machine.run("list").returncode == 0
    assert machine.called("cmake") == [f"cmake --build {machine.project}/.build/release --target kvlab"]


def test_kernels_that_nobody_asked_for_are_not_compiled_on(machine):
    machine.run("list")
    cache = machine.project / ".build/release/CMakeCache.txt"
    cache.write_text(cache.read_text() + "KVLAB_CUDA:BOOL=ON\n")
    machine.run("list")
    assert "-DKVLAB_CUDA=OFF" in machine.called("cmake -S")[0]


@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="this machine has a GPU")
@pytest.mark.parametrize("command", ["run", "eval", "test"])
def test_without_a_gpu_nothing_is_compiled_for_one(machine, command):
    machine.add("nvidia-smi", "exit 9")
    done = machine.run(command, "x", "--device", "cuda")
    assert done.returncode == 2 and "no NVIDIA GPU" in done.stderr and done.stderr.count("\n") == 1
    assert machine.called("cmake") == machine.called("apt-get") == machine.called("python3") == []
    assert machine.run("sbatch", "x", "--set", "device=cuda").returncode == 0


@pytest.mark.parametrize("words, part", [(["rnu", "x"], "no command 'rnu'"), (["run", "absent.toml"], "no file or folder 'absent.toml'")])
def test_mistakes_are_said_before_anything_is_compiled(machine, words, part):
    done = machine.run(*words)
    assert done.returncode == 2 and part in done.stderr and machine.called("cmake") == []
    machine.run("list")
    assert machine.run(*words).stdout.endswith(f"argument={words[1]}\n")  # the program says it itself


def test_a_config_is_checked_before_gpu_kernels_are_compiled(machine):
    machine.run("list")
    done = machine.run("run", "bad", "--device", "cuda")
    assert done.returncode == 2 and done.stderr == "bad: a key is wrong\n" and machine.called("cmake") == []


def test_no_module_of_the_current_folder_is_run(machine, tmp_path):
    """With the real Python, as far as it gets without a network."""
    machine.remove("python3")
    (machine.bin / "python3").symlink_to(sys.executable)
    for module in ("pip", "ensurepip", "venv", "sys"):
        (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit(1)\n")
    (machine.project / "plots/requirements.txt").write_text("")
    done = machine.run("run", "x", cwd=tmp_path)
    assert done.returncode == 0 and not (tmp_path / "ran").exists()
    assert f"python={machine.project / '.venv/bin/python'}" in done.stdout


def test_kernels_are_compiled_for_what_the_command_needs(machine):
    machine.run("run", "x")
    assert "-DKVLAB_ISAS=best" in machine.called("cmake --fresh")[0]
    cache = machine.project / ".build/release/CMakeCache.txt"
    cache.write_text(cache.read_text() + "KVLAB_ISAS:STRING=best\n")
    machine.run("list")
    assert machine.called("cmake -S") == []
    done = machine.run("test")
    assert "-DKVLAB_ISAS=default" in machine.called("cmake -S")[0] and "the kernels for AVX2: about" in done.stderr


@pytest.mark.parametrize("command", ["test", "sbatch"])
def test_tests_and_clusters_get_avx2_as_well(machine, command):
    machine.run(command)
    assert "-DKVLAB_ISAS=default" in machine.called("cmake --fresh")[0]


def test_without_a_cuda_compiler_one_line_says_so(machine):
    machine.env["NO_CUDA"] = "no CUDA compiler that works"
    done = machine.run("run", "x", "--device", "cuda")
    assert done.returncode == 2 and done.stdout == ""
    assert "cannot build the GPU kernels: no CUDA compiler that works" in done.stderr.splitlines()[-1]
    machine.env["NO_CUDA"] = ""
    assert machine.run("run", "x").returncode == 0


def test_a_failed_build_runs_nothing(machine):
    machine.run("list")
    machine.env["BUILD_FAILS"] = "yes"
    done = machine.run("list")
    assert done.returncode == 1 and done.stdout == ""


@pytest.mark.parametrize("arguments", ["--no-install run x", "run --no-install x", "run x --no-install"])
def test_no_install_lists_what_is_missing_and_stops(machine, arguments):
    machine.env["INSTALLED"] = " ".join(LIBRARIES[2:])
    machine.remove("ninja")
    machine.remove("python3")
    done = machine.run(*arguments.split())
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.split(": ")[-1].split() == ["ninja-build", *LIBRARIES[:2], "python3", "python3-venv", "plots/requirements.txt"]
    assert machine.called("apt-get") == [] and machine.called("cmake") == []


def test_no_install_goes_on_where_nothing_is_missing(machine):
    done = machine.run("run", "--no-install", "x")
    assert done.returncode == 2 and done.stderr == "kvlab: missing packages: plots/requirements.txt \n"
    assert machine.called("python3 -m") == machine.called("python3 -I -m") == machine.called("cmake") == []
    machine.run("run", "x")
    done = machine.run("run", "--no-install", "x")
    assert done.returncode == 0 and done.stdout.splitlines()[-2:] == ["argument=run", "argument=x"]


def test_the_browser_is_for_tests_alone(machine):
    machine.remove("chromium")
    machine.run("test")
    assert machine.run("list", "--no-install").returncode == 0
    done = machine.run("test", "--no-install")
    assert done.returncode == 2 and done.stderr.split(": ")[-1].split() == ["chromium"]


def test_missing_packages_are_installed_and_named(machine):
    machine.env["INSTALLED"] = " ".join(LIBRARIES[2:])
    done = machine.run("list")
    assert done.returncode == 0
    install = f"apt-get install --yes --no-install-recommends {LIBRARIES[0]} {LIBRARIES[1]}"
    assert machine.called("apt-get") == ["apt-get update", install]
    assert install in done.stderr


def test_who_is_not_root_installs_with_sudo(machine):
    machine.env["INSTALLED"] = ""
    machine.add("id", "echo 1000")
    machine.add("sudo", 'exec "$@"')
    done = machine.run("list")
    assert len(machine.called("sudo")) == len(machine.called("apt-get")) == 2
    assert "sudo env DEBIAN_FRONTEND=noninteractive apt-get install" in done.stderr


@pytest.mark.parametrize("absent, reason", [("apt-get", "no apt-get"), ("sudo", "no sudo")])
def test_where_nothing_can_be_installed_one_line_says_what_to_do(machine, absent, reason):
    machine.add("id", "echo 1000")
    if absent == "apt-get":
        machine.remove("apt-get")
    machine.env["INSTALLED"] = " ".join(LIBRARIES[1:])
    done = machine.run("list")  # CMake fetches a library
    assert done.returncode == 0
    lines = [line for line in done.stderr.splitlines() if "please" in line]
    assert len(lines) == 1 and reason in lines[0] and LIBRARIES[0] in lines[0]


def test_without_a_build_tool_it_stops(machine):
    machine.remove("apt-get")
    machine.remove("ninja")
    done = machine.run("list")
    assert done.returncode == 2 and "ninja" in done.stderr.splitlines()[-1] and machine.called("cmake") == []


@pytest.mark.parametrize("version, accepted", [("3.24.4", 0), ("3.9.1", 0), ("3.25.0", 1), ("4.1.2", 1)])
def test_an_old_cmake_is_named(machine, version, accepted):
    machine.env["CMAKE_VERSION"] = version
    done = machine.run("list")
    assert done.returncode == (0 if accepted else 2)
    assert (f"cmake {version} is too old" in done.stderr) == (not accepted)


@pytest.mark.parametrize("command", ["run", "eval", "reproduce"])
def test_commands_that_draw_are_told_of_a_python(machine, command):
    assert f"python={machine.project / '.venv/bin/python'}" in machine.run(command, "x").stdout
    assert "python=none" in machine.run("tables").stdout


def test_run_hands_over_a_python_that_is_made_once(machine):
    python = machine.project / ".venv/bin/python"
    assert f"python={python}" in machine.run("run", "x").stdout
    assert len(machine.called("venv-python -I -m pip install")) == 1
    machine.run("run", "x")
    assert machine.called("venv-python") == []
    (machine.project / "plots/requirements.txt").write_text("altair==6.3.0\n")
    machine.run("run", "x")
    assert len(machine.called("venv-python -I -m pip install")) == 1


def test_without_python_run_measures_and_plot_stops(machine):
    machine.env["VENV_FAILS"] = "yes"
    done = machine.run("run", "x")
    assert done.returncode == 0 and "python=none" in done.stdout
    reason = f"ERROR: no network (pip's output: {machine.project}/.build/python.log)"
    assert f"why={reason}" in done.stdout and f"charts will be left out: no Python environment: {reason}" in done.stderr
    done = machine.run("plot", "x")
    assert done.returncode == 2 and "cannot draw charts" in done.stderr


def test_plot_calls_the_report_and_needs_no_compiler(machine):
    machine.remove("g++")
    assert machine.run("plot", "a b", "c").returncode == 0
    assert machine.log[-1] == f"venv-python {machine.project}/plots/report.py a b c"
    assert machine.called("cmake") == []


def test_test_builds_what_tests_run_and_passes_options_to_ctest(machine):
    machine.add("ctest", 'echo "cwd=$PWD"; exit 8')
    done = machine.run("test", "-R", "ledger")
    assert done.returncode == 8 and f"cwd={machine.project}" in done.stdout
    assert machine.called("ctest")[0].startswith("ctest --preset release --parallel ")
    assert machine.called("ctest")[0].endswith(" -R ledger")
    assert machine.called("cmake --build")[0].endswith(" --target tests")
    machine.run("test", "--all", "-R", "ledger")
    assert machine.called("ctest")[0].startswith("ctest --preset full --parallel ") and machine.called("ctest")[0].endswith(" -R ledger")
    machine.run("test", "--device", "cuda", "-R", "cuda")
    assert machine.called("ctest")[0].endswith(" -R cuda") and "device" not in machine.called("ctest")[0]
