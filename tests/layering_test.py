"""Who may include whom: kernels <- variants <- harness <- tests; the reference is on its own.

The linker refuses a call in the wrong direction; this refuses an include, which a header needs no linker for.
"""

import os
import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
LAYERS = ["kernels", "variants", "harness", "tests"]  # each may include itself and what stands before it
CODE = {".h", ".cc", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"][^>"]+)[>"]', re.MULTILINE)
IMPORT = re.compile(r"^\s*(?:from|import)\s+(\w+)", re.MULTILINE)


def project_path(file, included):
    """The project's file that `included` (with its opening quote or bracket) names; None for a library's."""
    path = Path(included[1:])
    if path.parts[0] not in LAYERS and included[0] == '"':
        path = Path(os.path.normpath(file.parent / path))
    return path if path.parts[0] in LAYERS else None


def allowed(file, target):
    if file.parts[0] == "harness" and file.stem == "reference":
        return target == Path("harness/reference.h")  # any other header of ours may bring kernels/ along
    return LAYERS.index(target.parts[0]) <= LAYERS.index(file.parts[0])


def violations(project):
    found = []
    for layer in LAYERS:
        for file in sorted(f.relative_to(project) for f in (project / layer).rglob("*") if f.suffix in CODE):
            for included in INCLUDE.findall((project / file).read_text()):
                target = project_path(file, included)
                if target and not allowed(file, target):
                    found.append(f"{file} includes {included[1:]}")
    for file in sorted((project / "plots").rglob("*.py")):
        imported = set(IMPORT.findall(file.read_text())) & set(LAYERS)
        found += [f"{file.relative_to(project)} imports {module}" for module in sorted(imported)]
    return found


def test_the_project_keeps_its_layers():
    assert violations(PROJECT) == []


def test_the_project_is_really_read():
    read = [f for layer in LAYERS for f in (PROJECT / layer).rglob("*") if f.suffix in CODE]
    assert PROJECT / "kernels/span.h" in read and PROJECT / "variants/cache.h" in read


@pytest.mark.parametrize(
    "file, line",
    [
        ("kernels/cpu/attend.cc", '#include "variants/cache.h"'),
        ("kernels/cpu/attend.cc", "#include <variants/cache.h>"),
        ("kernels/cuda/attend.cu", '  #  include "../../harness/ledger.h"'),
        ("variants/codec/f16.cc", '#include "harness/ledger.h"'),
        ("harness/driver.cc", '#include "tests/helpers.h"'),
        ("harness/reference.cc", '#include "kernels/span.h"'),
        ("harness/reference.h", '#include "variants/spec.h"'),
        ("harness/reference.cc", '#include "ledger.h"'),  # it includes variants/memory.h
        ("plots/report.py", "from harness import results"),
        ("plots/report.py", "    import tests.helpers"),
    ],
)
def test_a_planted_violation_is_found(tmp_path, file, line):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(f"// first line\n{line}\n" if not file.endswith(".py") else f"{line}\n")
    assert len(violations(tmp_path)) == 1


@pytest.mark.parametrize(
    "file, line",
    [
        ("kernels/cpu/attend.cc", '#include "kernels/span.h"'),
        ("kernels/cpu/attend.cc", "#include <vector>"),
        ("variants/cache.cc", '#include "kernels/span.h"'),
        ("variants/cache.cc", '#include "cache.h"'),
        ("harness/driver.cc", '#include "variants/cache.h"'),
        ("tests/cache_test.cc", '#include "harness/reference.h"'),
        ("harness/reference.cc", '#include "harness/reference.h"'),
        ("harness/reference.cc", "#include <Eigen/Dense>\n#include <omp.h>"),
        ("plots/report.py", "import altair"),
    ],
)
def test_the_right_direction_is_left_alone(tmp_path, file, line):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(f"{line}\n")
    assert violations(tmp_path) == []
