"""`./kvlab peers` lists peers and installs their dependencies into the environment .venv-peers.

    kvlab peers                     lists them
    kvlab peers install NAME ...    installs some
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOME = HERE.parents[1]
ENVIRONMENT = HOME / ".venv-peers"
PYTHON = ENVIRONMENT / "bin" / "python"


def peers() -> dict[str, str]:
    """The head of each peer's file, by name."""
    heads = {}
    for path in sorted(HERE.glob("*.py")):
        head = re.match(r"# /// script\n(.*?)^# ///$", path.read_text(encoding="utf-8"), re.S | re.M)
        if head:
            heads[path.stem] = re.sub(r"^# ?", "", head[1], flags=re.M)
    return heads


def requirements(head: str) -> list[str]:
    return ast.literal_eval(re.search(r"^dependencies = (\[.*?\])$", head, re.S | re.M)[1])


def formats(head: str) -> list[str]:
    return re.findall(r"^(\w+) = \{", head, re.M)


def is_installed(name: str) -> bool:
    command = [PYTHON, "-I", "-B", HERE / "serve.py", name, "installed"]
    return PYTHON.is_file() and subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0


def run(command: list[str]) -> None:
    """Runs a command with its output on the terminal; raises SystemExit with the command if it fails."""
    if subprocess.run(command, stdout=sys.stderr).returncode != 0:
        sys.exit(f"kvlab: this command failed: {' '.join(command)}")


def install(name: str, head: str) -> None:
    if not PYTHON.is_file():
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
    if packages := requirements(head):
        run([str(PYTHON), "-I", "-m", "pip", "install", *packages])
    if re.search(r"^def build\(", (HERE / f"{name}.py").read_text(encoding="utf-8"), re.M):
        run([str(PYTHON), "-B", str(HERE / "install.py"), "--build", name])
    if not is_installed(name):
        sys.exit(f"kvlab: {name} was installed, but does not start: {PYTHON} {HERE / 'serve.py'} {name} installed")
    print(f"{name} is installed in {ENVIRONMENT.name}")


def build(name: str) -> None:
    """Compiles a peer's engine; runs in the environment's Python."""
    sys.path.insert(0, str(HERE))
    import serve

    sys.path.pop(0)
    with tempfile.TemporaryDirectory(prefix="kvlab-peer-") as scratch:
        serve.load(name).build(scratch, run)


def main(words: list[str]) -> int:
    known = peers()
    if words[:1] == ["--build"]:
        build(words[1])
    elif words[0:1] in (["-h"], ["--help"]):
        print((__doc__ or "").strip())
    elif not words:
        for name, head in known.items():
            state = "installed" if is_installed(name) else f"install it with: ./kvlab peers install {name}"
            print(f"{name:12} {', '.join(formats(head)) or 'a whole engine':42} {state}")
    elif words[0] != "install" or len(words) == 1:
        print("kvlab: write `kvlab peers`, which lists them, or `kvlab peers install NAME ...`", file=sys.stderr)
        return 2
    else:
        for name in words[1:]:
            if name not in known:
                print(f"kvlab: there is no peer '{name}'; there are {', '.join(known)}", file=sys.stderr)
                return 2
        for name in words[1:]:
            install(name, known[name])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
