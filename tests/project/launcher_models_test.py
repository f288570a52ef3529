"""What the launcher installs for models, and that everything it installs for Python is pinned."""

import re
import shutil

import pytest
from launcher_test import PROJECT, REQUIREMENTS, machine  # noqa: F401, a fixture

MODELS = "harness/model/requirements-models.txt"


@pytest.mark.parametrize("arguments, needed", [
    (["tables", "--model", "llama-3-8b"], False),
    (["tables", "--model", "some.gguf"], True),
    (["plan", "--model", "llama-3.1-8b"], False),
    (["logits", "--model", "folder"], True),
    (["run", "bundled.toml", "--set", "workload.model=smollm2-135m"], True),
    (["run", "bundled.toml"], True),
    (["run", "no-model.toml"], False),
    (["reproduce", "004"], True),
    (["run", "configs/packaged.toml"], True),
    (["list"], False),
])
def test_what_reads_models_is_installed_where_one_is_named(machine, arguments, needed, tmp_path):
    (tmp_path / "bundled.toml").write_text('[workload]\nmodel = "a/model"\ntext = "x"\n')
    (tmp_path / "no-model.toml").write_text('[model]\nheads = 4\n')
    (machine.project / "configs").mkdir()
    (machine.project / "configs/packaged.toml").write_text('[workload]\nmodel = "smollm2-135m"\n')
    assert machine.run(*arguments, cwd=tmp_path).returncode == 0
    command = f"venv-python -I -m pip install --no-deps --requirement {machine.project}/{MODELS}"
    assert (command in machine.log) == needed


def test_models_need_no_compiler_and_no_install_is_passed_on(machine):
    machine.remove("g++")
    assert "Python packages for models (.venv)" in machine.run("models").stderr
    machine.add("venv-python", 'echo "forbidden=${KVLAB_NO_INSTALL:-no}"')
    shutil.copy(machine.bin / "venv-python", machine.project / ".venv/bin/python")
    assert machine.run("models", "fetch", "a").stdout == "forbidden=no\n"
    assert machine.log[-1] == f"venv-python {machine.project}/harness/model/model_packages.py fetch a"
    assert machine.run("models", "fetch", "a", "--no-install").stdout == "forbidden=yes\n"


@pytest.mark.parametrize("file", REQUIREMENTS)
def test_python_packages_are_pinned_with_hashes(file):
    text = re.sub(r"^(#|-r ).*\n", "", (PROJECT / file).read_text(), flags=re.M)
    packages = re.findall(r"^\S.*(?:\n +.*)*", text, re.M)
    assert len(packages) > 2
    for package in packages:
        assert re.match(r"[a-z0-9-]+==[\w.]+ ", package) and "--hash=sha256:" in package, package


def test_a_dry_run_makes_no_python_and_says_so(machine, tmp_path):
    (tmp_path / "config.toml").write_text("")
    done = machine.run("run", "config.toml", "--model", "smollm2-135m", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "argument=--dry-run" in done.stdout and "python=none" in done.stdout
    assert f"a run would download the Python packages of plots/requirements.txt {MODELS} into .venv" in done.stderr
    assert not (machine.project / ".venv").exists()
