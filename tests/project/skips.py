"""Counts the tests that were skipped, by reason, and fails on a reason that nothing here explains.

    python tests/project/skips.py FILE     what `ctest --output-junit FILE --test-output-size-passed 100000` wrote

Many a Python entry of ctest holds several tests and reports "Passed" though some were skipped, so that its output is read too.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

HOME = Path(__file__).resolve().parents[2]
HAS_DATA = (HOME.parent / "shared" / "data").is_dir()
HAS_SOURCES = (HOME.parent / "shared" / "sources").is_dir()
CPU = Path("/proc/cpuinfo")
FEATURES = CPU.read_text() if CPU.exists() else ""
HAS_AVX512 = "avx512" in FEATURES

# A reason, and whether it can be true here.
EXPECTED = [
    (r"the scalar path is not tiled", True),
    (r"no vector path on this machine", False),
    (r"no kernels for AVX-512", not HAS_AVX512),
    (r"multiplies f32 alone", "avx512_bf16" not in FEATURES),
    (r"KVLAB_DATA|no models|real data", not HAS_DATA),
    (r"the sources are not here", not HAS_SOURCES),
    (r"the synthetic run has no cells for it", True),
    # Not every distribution has them, nor every machine a network.
    (r"transformers here: .*(No module named|No matching distribution|[Cc]onnection|No such file.*venv)", True),
    (r"no PyTorch and transformers here: No module named", True),  # gigabytes: harness/python/README.md has the command
    (r"this machine has a GPU|no GPU", Path("/dev/nvidia0").exists()),
    (r"no CUDA compiler|this build is for", shutil.which("nvcc") is None),
    (r"terms of the model's licence are not accepted here", True),
    (r"no (ml_dtypes|pandas) here", True),  # `engines` of .ci/steps installs them
    (r"could not import 'kvpress'", True),
    (r"peer \S+ is not installed here", True),  # gigabytes: harness/peers/README.md has the command
    (r"Slurm is not installed", shutil.which("slurmctld", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None),
    (r"Chromium|playwright", shutil.which("chromium") is None),
]


def reasons(path: Path) -> Counter[str]:
    """By reason. GoogleTest prints it behind the place, pytest behind "SKIPPED [number] place: "."""
    found: Counter[str] = Counter()
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        output = case.findtext("system-out") or ""
        python = re.findall(r"^SKIPPED \[(\d+)\] \S+: (.*)$", output, re.M)
        for number, reason in python:
            found[reason] += int(number)
        compiled = re.findall(r"^\S+\.cc:\d+: Skipped\n(.*)$", output, re.M)
        found.update(compiled)
        if case.get("status") in ("notrun", "disabled") and not compiled and not python:
            found["of unknown reason: " + case.get("name", "")] += 1
    return found


def main(path: Path) -> int:
    found = reasons(path)
    unexpected = [reason for reason in found if not any(fine and re.search(known, reason) for known, fine in EXPECTED)]
    print(f"{sum(found.values())} tests were skipped")
    for reason, number in found.most_common():
        print(f"  {number:4} {reason}" + ("   <- not expected here" if reason in unexpected else ""))
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
