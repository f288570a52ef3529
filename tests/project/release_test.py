"""What a release is known by: one version, and the container's commands."""

import re

from sources import PROJECT


def text(name):
    return (PROJECT / name).read_text(encoding="utf-8")


def test_one_version():
    """env.json and the program are held to it by cli_help_test.py, Python by bindings_test.py."""
    version = re.search(r"^project\(kvlab VERSION (\S+)", text("CMakeLists.txt"), re.M)[1]
    assert re.search(r"^## (\S+),? ", text("CHANGELOG.md"), re.M)[1].rstrip(",") == version
    assert 'input = "CMakeLists.txt"' in text("pyproject.toml") and "version =" not in text("pyproject.toml").split("[project.optional")[0]


def test_the_container_runs_the_two_commands():
    block = re.search(r"## Two commands\n```sh\n(.*?)```", text("README.md"), re.S)[1]
    commands = [line.partition("#")[0].strip() for line in block.splitlines()]
    assert len(commands) == 2
    ran = [line.removeprefix("RUN ") for line in text(".container/Containerfile").splitlines() if line.startswith("RUN ./kvlab")]
    assert [line.partition(" --out")[0] for line in ran] == commands
