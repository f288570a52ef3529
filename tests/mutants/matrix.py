"""The tests that notice each bug of matrix.csv: one build that has them all, each switched on by the environment."""

from __future__ import annotations

import argparse
import ast
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from table import HOME, Bug, read_table, write_table

WORK = HOME / ".build" / "mutants"
SOURCE = WORK / "matrix"
BUILD = SOURCE / ".build" / "release"  # as deep below its sources as elsewhere, so that ccache finds what others compiled
PYTHON = HOME / ".venv" / "bin" / "python"
PARTS = 7
LEAST_LIMIT_S, TIMES = 20, 5
MEMORY, FILE = 16 << 30, 4 << 30  # a bug may ask for any number of bytes
SLOW = re.compile(r"project/|/(newcomer|slurm|site|[a-z_]*browser|differential|cli_peers|published_claims)_test")
STALE = "does not compile"


class Test(NamedTuple):
    name: str  # of the file
    path: str
    command: list[str]


def planted(file: str, content: bytes, bugs: list[Bug]) -> bytes:
    lines = content.split(b"\n")
    for bug in bugs:
        at = next(at for at, line in enumerate(lines) if line.strip() == bug.line.encode())
        begin = len(lines[at]) - len(lines[at].lstrip()) + int(bug.at)
        end = begin + len(bug.old.encode())
        assert lines[at][begin:end] == bug.old.encode(), bug
        lines[at] = lines[at][:begin] + bug.text().encode() + lines[at][end:]
    head, switch = 0, f'#include "{HOME}/tests/mutants/kv_mutant.h"\n#line 1'
    if file.endswith(".py"):
        body = [node for node in ast.parse(content).body if not is_opening(node)]
        head = min([body[0].lineno, *(d.lineno for d in getattr(body[0], "decorator_list", []))]) - 1
        switch = f'import sys; sys.path.append("{HOME}/tests/mutants"); from kv_mutant import kv_mutant'
    return b"\n".join([*lines[:head], switch.encode(), *lines[head:]])


def is_opening(node: ast.stmt) -> bool:
    """A docstring or an import from __future__, before which nothing may stand."""
    return (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def prepare(bugs: list[Bug]) -> str:
    """The committed sources with all bugs; files that are as before keep their time. Returns the commit."""
    archive = subprocess.run(["git", "-C", HOME, "archive", "--format=tar", "HEAD"], capture_output=True, check=True).stdout
    kept = set()
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar.getmembers():
            path = SOURCE / member.name
            kept.add(path)
            if not member.isfile():
                tar.extract(member, SOURCE)
                continue
            content, here = tar.extractfile(member).read(), [bug for bug in bugs if bug.file == member.name]
            content = planted(member.name, content, here) if here else content
            if not path.is_file() or path.read_bytes() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                path.chmod(member.mode)
    for folder in ("kernels", "variants", "harness", "plots", "tests"):
        for path in (SOURCE / folder).rglob("*"):
            if path.is_file() and path not in kept and "__pycache__" not in path.parts:
                path.unlink()
    if not (SOURCE / ".venv").exists():
        (SOURCE / ".venv").symlink_to(HOME / ".venv")
    return subprocess.run(["git", "-C", HOME, "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()


def build() -> set[tuple[str, int]]:
    """Nothing, or the places of the compiler's errors."""
    if not (BUILD / "build.ninja").exists():
        options = ["-DKVLAB_CUDA=OFF", "-DKVLAB_GPU_TESTS=ON", "-DKVLAB_ISAS=best"]
        subprocess.run(["cmake", "--preset", "release", *options], cwd=SOURCE, check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run(["ninja", "-C", BUILD, "-k", "0", f"-j{os.cpu_count()}", "kvlab", "tests"], capture_output=True, text=True)
    if done.returncode == 0:
        return set()
    found = re.findall(r"^(\S+?):(\d+):\d+: error", done.stdout, re.MULTILINE)
    places = {(os.path.relpath(os.path.normpath(BUILD / file), SOURCE), int(line)) for file, line in found}
    if not places:
        sys.exit(done.stdout[-3000:])
    return places


def build_without_stale(bugs: list[Bug]) -> tuple[list[Bug], str]:
    """Builds, and leaves out the bugs that do not compile, which the table then says."""
    while True:
        good = [bug for bug in bugs if bug.note != STALE and bug.planted()]
        commit, places = prepare(good), build()
        if not places:
            return good, commit
        lines = {file: [line.strip() for line in (HOME / file).read_text().split("\n")] for file, _ in places}
        stale = {bug for bug in good if any(bug.file == file and lines[file][line - 1] == bug.line for file, line in places)}
        if not stale:
            sys.exit(f"tests/mutants/run: errors where no bug is: {sorted(places)}")
        print(f"{len(stale)} bugs do not compile", flush=True)
        bugs = [bug._replace(note=STALE) if bug in stale else bug for bug in bugs]
        save([bug for bug in bugs if bug.note == STALE])


def save(done: list[Bug]) -> None:
    rows = {bug.name: bug for bug in done}
    write_table([rows.get(bug.name, bug) for bug in read_table()])


def cases_by_file() -> dict[str, list[tuple[Path, str]]]:
    """Each GoogleTest file's program and filters: whole suites where they are its own."""
    found, homes = {}, {}
    listing = WORK / "cases.json"
    for program in sorted((BUILD / "tests").glob("*_test*")):
        if program.is_file() and os.access(program, os.X_OK):
            subprocess.run([program, "--gtest_list_tests", f"--gtest_output=json:{listing}"], capture_output=True, check=True)
            for suite in json.loads(listing.read_text())["testsuites"]:
                for case in suite["testsuite"]:
                    file = case["file"][case["file"].rindex("tests/"):]
                    found.setdefault(file, []).append((program, suite["name"], case["name"]))
                    homes.setdefault((program, suite["name"]), set()).add(file)
    return {file: sorted({(p, f"{s}.*" if len(homes[p, s]) == 1 else f"{s}.{c}") for p, s, c in cases}) for file, cases in found.items()}


def all_tests(words: list[str]) -> list[Test]:
    found = []
    for file, cases in cases_by_file().items():
        program, filters = str(cases[0][0]), ":".join(case for _, case in cases)
        found.append(Test(Path(file).stem, file, [program, "--gtest_brief=1", "--gtest_fail_fast", f"--gtest_filter={filters}"]))
    for path in sorted(SOURCE.glob("tests/*/**/*_test.py")):
        file = str(path.relative_to(SOURCE))
        found.append(Test(path.stem, file, [str(PYTHON), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", file]))
    count = Counter(test.name for test in found)
    found = [test._replace(name=f"{Path(test.path).parent.name}/{test.name}") if count[test.name] > 1 else test for test in found]
    if words:
        return [test for test in found if any(word in (test.name, test.name.removesuffix("_test")) or ("/" in word and word in test.path) for word in words)]
    return [test for test in found if not SLOW.search(test.path)]


def passes(test: Test, limit: float, **switch: str) -> bool | None:
    """None if it has not ended in these seconds."""
    scratch = WORK / f"tmp{threading.get_ident()}"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    environment = {**os.environ, "KVLAB_HOME": str(SOURCE), "KVLAB_PROGRAM": str(BUILD / "harness" / "kvlab"), "OMP_WAIT_POLICY": "passive",
                   "TMPDIR": str(scratch), **switch}  # fmt: skip
    run = subprocess.Popen(["prlimit", f"--as={MEMORY}", f"--fsize={FILE}", *test.command], env=environment, cwd=SOURCE, start_new_session=True,
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        return run.wait(limit) == 0
    except subprocess.TimeoutExpired:
        return None
    finally:
        try:
            os.killpg(run.pid, signal.SIGKILL)  # with what a test has started
        except ProcessLookupError:
            pass
        run.wait()
        shutil.rmtree(scratch, ignore_errors=True)


def first_pass(test: Test) -> tuple[float, set[str]] | None:
    """Seconds without a bug, and the bugs that it reaches; None if it fails."""
    folder = WORK / "reached" / test.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begin = time.monotonic()
    if not passes(test, 900, KVLAB_MUTANTS_REACHED=str(folder)):
        return None
    return time.monotonic() - begin, {path.name for path in folder.iterdir()}


def judge(bug: Bug, tests: list[Test], baseline: dict, longest: float, commit: str) -> Bug:
    """Runs the tests that reach a bug. What other tests said before stays."""
    said = {"noticed": set(), "passed": set(), "not_run": set()}
    for test in sorted((test for test in tests if test.name in baseline), key=lambda test: baseline[test.name][0]):
        seconds, reached = baseline[test.name]
        if bug.name in reached:
            long = seconds > longest  # then time says nothing
            passed = passes(test, longest if long else max(LEAST_LIMIT_S, TIMES * seconds), KVLAB_MUTANT=bug.name)
            said["passed" if passed else "not_run" if long and passed is None else "noticed"].add(test.name.removesuffix("_test"))
    ran = {test.name.removesuffix("_test") for test in tests if test.name in baseline}
    before = {name: set(getattr(bug, name).split()) - (ran if name != "not_run" else said["noticed"] | said["passed"]) for name in said}
    said["not_run"] -= before["noticed"] | before["passed"]
    return bug._replace(commit=commit, **{name: " ".join(sorted(said[name] | before[name])) for name in said})


def main(words: list[str]) -> int:
    ask = argparse.ArgumentParser(prog="tests/mutants/run --matrix")
    ask.add_argument("--files", default="*", help="bugs of these files or folders, as kernels/*")
    ask.add_argument("--tests", default="", help="names of test files, or parts of their paths, by commas")
    ask.add_argument("--shard", help="K/N; else a seventh, by the commit's hash")
    ask.add_argument("--longest", type=float, default=60, help="seconds: a slower test is ended then, and was not run if it has not failed")
    ask.add_argument("--new", action="store_true", help="bugs that were never run")
    ask.add_argument("--minutes", type=float, default=1e9, help="no bug is begun later")
    ask.add_argument("--jobs", type=int, default=os.cpu_count())
    asked = ask.parse_args(words)
    bugs, commit = build_without_stale(read_table())
    part, parts = map(int, asked.shard.split("/")) if asked.shard else (int(commit, 16) % PARTS, PARTS)
    chosen = [bug for bug in bugs if int(bug.name, 16) % parts == part and fnmatch(bug.file, asked.files) and not (asked.new and bug.commit)]
    chosen.sort(key=lambda bug: (bool(bug.commit), hashlib.sha256((bug.name + commit).encode()).digest()))
    tests = all_tests([word for word in asked.tests.split(",") if word])
    with ThreadPoolExecutor(asked.jobs) as pool:
        baseline = dict(zip([test.name for test in tests], pool.map(first_pass, tests)))
        failing = [name for name, said in baseline.items() if said is None]
        if failing:
            print("left out, since they fail without any bug:", *failing, flush=True)
        baseline = {name: said for name, said in baseline.items() if said}
        print(f"{len(chosen)} bugs, {len(baseline)} test files of {sum(said[0] for said in baseline.values()):.0f} s", flush=True)
        lock, end, lost = threading.Lock(), time.monotonic() + 60 * asked.minutes, []

        def one(bug: Bug) -> None:
            begin = time.monotonic()
            if begin > end:
                return
            row = judge(bug, tests, baseline, asked.longest, commit)
            with lock:
                save([row])
                lost.extend([row] if bug.noticed and not row.noticed else [])
                print(f"{row.state():10} {time.monotonic() - begin:4.0f} s {row.file}: {row.line[:60]} [{row.old} -> {row.new}] {row.noticed}", flush=True)

        list(pool.map(one, chosen))
    for row in lost:
        print(f"no test notices any more: {row.file}: {row.line}")
    return int(bool(lost))
