"""Who may include whom, which namespace a folder has, that no type is defined twice, and where an experiment may be named.

The linker refuses a call in the wrong direction between kernels, variants, harness and tests; this refuses an
include, which a header needs no linker for, and it does so between the rooms of those folders too.
"""

import os
import re
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from sources import PROJECT, definitions, sources

EXPERIMENTS = sorted(folder.name for folder in (PROJECT / "harness/experiments").iterdir() if folder.is_dir())
# From the bottom: a file may include its own room and those before it. harness/main.cc and the tests stand on top.
ROOMS = [
    "kernels",
    "kernels/format",
    "kernels/cpu",
    "kernels/cuda",
    "variants/core",
    "variants",
    *(f"variants/{room}" for room in ["codec", "placement", "retention", "selection", "storage", "cache", "model_cache"]),
    *(f"harness/{room}" for room in ["gpu_check", "io", "peers", "functions", "math", "memory", "results", "config", "verify/metrics"]),
    *(f"harness/{room}" for room in ["model", "workload", "verify", "measure", "tables", "planner", "choose", "experiments"]),
    *(f"harness/experiments/{name}" for name in EXPERIMENTS),
    *(f"harness/{room}" for room in ["cluster", "claims", "answers", "cli", "python"]),
    "harness",
    "tests",
]
LAYERS = ["kernels", "variants", "harness", "tests"]
# The FP64 oracle stands on its own: any other header of ours may bring along the code that it judges.
ORACLE = re.compile(r"harness/verify/reference/.*")
ORACLE_NEEDS = re.compile(r"harness/math/random\.h")  # source of the documented draws
GENERATED = Path("harness/version.h")  # strings alone
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"][^>"]+)[>"]', re.MULTILINE)
IMPORT = re.compile(r"^\s*(?:from|import)\s+(\w+)", re.MULTILINE)
# Experiments whose names are words elsewhere, too: a table, a column, a key, a workload, growth.csv, a chapter, a peer's command.
ALSO_WORDS = {"batch", "budget", "decode", "growth", "model", "prefill", "quality", "serve"}


def room_of(path):
    folders = [str(parent) for parent in path.parents]
    return next(folder for folder in folders if folder in ROOMS)


def included_paths(project, file):
    """The project's files that a file includes, by their paths below the project."""
    for included in INCLUDE.findall((project / file).read_text()):
        path = Path(included[1:])
        if path.parts[0] not in LAYERS and included[0] == '"':
            path = Path(os.path.normpath(file.parent / path))
        if path.parts[0] in LAYERS and path != GENERATED:
            yield path


def upward_includes(project):
    for file in sources(project, folders=LAYERS):
        for target in included_paths(project, file):
            if ORACLE.fullmatch(str(file)):
                right = ORACLE.fullmatch(str(target)) or ORACLE_NEEDS.fullmatch(str(target))
            else:
                right = ROOMS.index(room_of(target)) <= ROOMS.index(room_of(file))
            if not right:
                yield f"{file} includes {target}"
    for file in sources(project, {".py"}, ["plots"]):
        for module in sorted(set(IMPORT.findall((project / file).read_text())) & set(LAYERS)):
            yield f"{file} imports {module}"


def circles(project):
    """Folders that need each other: those of one circle."""
    needs = defaultdict(set)
    for file in sources(project, folders=LAYERS[:-1]):
        for target in included_paths(project, file):
            if target.parent != file.parent:
                needs[str(file.parent)].add(str(target.parent))
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        yield f"{' and '.join(sorted(set(error.args[1])))} need each other"


def wrong_namespaces(project):
    """Definitions outside the namespace of their room: kv::<room>, and kv::reference for the oracle."""
    for file in sources(project, folders=["harness"]):
        if file.parent == Path("harness"):
            continue
        home = "kv::reference" if ORACLE.fullmatch(str(file)) else f"kv::{file.parts[1]}"
        wrong = set()
        for _, name, namespace in definitions((project / file).read_text()):
            inside = namespace == home or namespace.startswith(f"{home}::") or "(anonymous)" in namespace
            if not inside and name != "main":
                wrong.add(namespace or "the global namespace")
        yield from (f"{file} defines names of {scope} outside {home}" for scope in sorted(wrong))


def types_defined_twice(project):
    files = defaultdict(set)
    for file in sources(project, folders=LAYERS[:-1]):
        for kind, name, namespace in definitions((project / file).read_text()):
            if kind == "type" and "(anonymous)" not in namespace:
                files[f"{namespace}::{name}"].add(str(file))
    return [f"{name} is defined in {' and '.join(sorted(f))}" for name, f in sorted(files.items()) if len(f) > 1]


def experiments_named_elsewhere(project):
    """An experiment is named in its folder, the list, its figures, configs, documentation and tests: not as a text of other files."""
    for file in sources(project, {".cc", ".h", ".py"}, ["kernels", "variants", "harness", "plots"]):
        if file == Path("harness/experiments/list.h") or file.is_relative_to("plots/figures"):
            continue
        text = (project / file).read_text()
        for name in EXPERIMENTS:
            if file.is_relative_to(f"harness/experiments/{name}"):
                continue
            said = rf'(?:kExperiment\]|experiment|kind)"?\]?\)? *[!=]= *"{name}"' if name in ALSO_WORDS else rf'"{name}"'
            if found := re.search(said, text) or re.search(rf"experiments/{name}/", text):
                yield f"{file}:{text.count(chr(10), 0, found.start()) + 1}: {found[0]}"


RULES = [upward_includes, circles, wrong_namespaces, types_defined_twice, experiments_named_elsewhere]


@pytest.mark.parametrize("rule", RULES)
def test_the_project_keeps_its_layers(rule):
    assert list(rule(PROJECT)) == []


def test_the_project_is_really_read():
    read = sources(PROJECT, folders=LAYERS)
    assert Path("kernels/span.h") in read and Path("variants/cache/cache.h") in read
    assert {"decode", "recall", "replay"} <= set(EXPERIMENTS)
    folders = {str(file.parent) for file in read if file.parts[0] in ("variants", "harness")}
    assert folders - {"harness/verify/reference"} <= set(ROOMS), "a folder that has no place in the order"


def plant(folder, files):
    for file, text in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    return [found for rule in RULES for found in rule(folder)]


UPWARDS, DOWNWARDS = [
    ("kernels/cpu/attend.cc", '#include "variants/cache/cache.h"'),
    ("kernels/cpu/attend.cc", "#include <variants/cache/cache.h>"),
    ("kernels/cuda/attend.cu", '  #  include "../../harness/ledger.h"'),
    ("kernels/format/f16.cc", '#include "kernels/cpu/isa.h"'),
    ("variants/codec/f16.cc", '#include "harness/memory/ledger.h"'),
    ("variants/codec/f16.cc", '#include "variants/cache/spec.h"'),
    ("variants/core/entry.h", '#include "variants/list.h"'),
    ("variants/core/slot_table.h", '#include "variants/storage/host_storage.h"'),
    ("variants/list.h", '#include "variants/codec/parameters.h"'),
    ("variants/retention/evicting.h", '#include "variants/storage/host_storage.h"'),
    ("variants/storage/storage.h", '#include "variants/cache/sequence.h"'),
    ("harness/experiments/driver.cc", '#include "tests/helpers.h"'),
    ("harness/io/paths.cc", '#include "harness/config/config.h"'),
    ("harness/measure/cell.h", '#include "harness/experiments/list.h"'),
    ("harness/claims/reproduce.cc", '#include "harness/cli/document.h"'),
    ("harness/verify/reference/attention.cc", '#include "kernels/span.h"'),
    ("harness/verify/reference/attention.h", '#include "variants/cache/spec.h"'),
    ("harness/verify/reference/attention.cc", '#include "../verify.h"'),
    ("harness/verify/reference/h2o.cc", '#include "variants/list.h"'),
    ("harness/verify/reference/h2o.cc", '#include "harness/memory/ledger.h"'),  # it includes variants/core/memory.h
    ("plots/report.py", "from harness import results"),
    ("plots/report.py", "    import tests.helpers"),
], [
    ("kernels/cpu/attend.cc", '#include "kernels/span.h"'),
    ("kernels/cpu/attend.cc", "#include <vector>"),
    ("variants/cache/cache.cc", '#include "kernels/span.h"'),
    ("variants/cache/cache.cc", '#include "cache.h"'),
    ("variants/cache/spec.cc", '#include "variants/list.h"'),
    ("variants/codec/f16.cc", '#include "variants/list.h"'),
    ("variants/list.h", '#include "variants/core/entry.h"'),
    ("variants/retention/h2o.cc", '#include "variants/retention/evicting.h"'),
    ("harness/experiments/driver.cc", '#include "variants/cache/cache.h"'),
    ("harness/cli/eval.cc", '#include "harness/experiments/driver.h"'),
    ("harness/main.cc", '#include "harness/cli/eval.h"'),
    ("tests/cache_test.cc", '#include "harness/verify/reference/attention.h"'),
    ("harness/verify/reference/attention.cc", '#include "harness/verify/reference/attention.h"'),
    ("harness/verify/reference/attention.cc", "#include <Eigen/Dense>\n#include <omp.h>"),
    ("harness/verify/reference/ring.cc", '#include "harness/verify/reference/list.h"'),
    ("plots/report.py", "import altair"),
]  # fmt: skip


@pytest.mark.parametrize("found, file, line", [*((1, *one) for one in UPWARDS), *((0, *one) for one in DOWNWARDS)])
def test_only_an_include_upwards_is_found(tmp_path, found, file, line):
    assert len(plant(tmp_path, {file: f"{line}\n" if file.endswith(".py") else f"// first line\n{line}\n"})) == found


def test_a_circle_of_folders_is_found(tmp_path):
    files = {
        "kernels/cpu/encode/a.h": '#include "kernels/cpu/attention/b.h"\n',
        "kernels/cpu/attention/b.h": '#include "kernels/cpu/ceilings/c.h"\n',
        "kernels/cpu/ceilings/c.h": '#include "kernels/cpu/encode/a.h"\n',
    }
    names = "kernels/cpu/attention and kernels/cpu/ceilings and kernels/cpu/encode"
    assert plant(tmp_path, files) == [f"{names} need each other"]
    files["kernels/cpu/ceilings/c.h"] = ""
    assert plant(tmp_path, files) == []


@pytest.mark.parametrize("text, found", [
    ("namespace kv::io {\nstruct Row {};\nint read() { return 1; }\n}  // namespace kv::io\n", 0),
    ("namespace kv::io {\nnamespace {\nstruct Row {};\n}  // namespace\n}  // namespace kv::io\n", 0),
    ("namespace kv {\nclass Cache;\n}  // namespace kv\nnamespace kv::io {\nstruct Row {};\n}  // namespace kv::io\n", 0),
    ("namespace kv {\nstruct Row {};\n}  // namespace kv\n", 1),
    ("namespace kv::results {\ntemplate <typename T>\nstd::vector<T> read(int a,\n                    T b) {\n  return {};\n}\n}  // namespace kv::results\n", 1),
    ("struct Row {};\n", 1),
])
def test_a_foreign_namespace_is_found(tmp_path, text, found):
    assert len(plant(tmp_path, {"harness/io/rows.h": text})) == found


def test_a_type_of_two_definitions_is_found(tmp_path):
    reading = "namespace kv {{\n{}\n}}  // namespace kv\n"
    files = {
        "variants/core/a.cc": reading.format("struct Reading {\n  int rows;\n};"),
        "variants/storage/b.cc": reading.format("// Not struct Reading {};\nnamespace {\nstruct Reading {};\n}  // namespace"),
    }
    assert plant(tmp_path, files) == []
    files["variants/storage/c.cc"] = reading.format("template <typename T>\nclass Reading final : public Base<T> {\n};")
    assert plant(tmp_path, files) == ["kv::Reading is defined in variants/core/a.cc and variants/storage/c.cc"]
