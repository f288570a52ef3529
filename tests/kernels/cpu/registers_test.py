"""The sums of the inner loops lie in registers: a compiler that keeps them in memory takes 1.6 times as long, and no bit changes."""

import os
import re
import shutil
import subprocess

import pytest

PROGRAM = os.environ["KVLAB_PROGRAM"]
# Loops over pairs of rows whose sums fit into the 32 registers of AVX-512; AVX2 has 16, and spills some.
FUNCTION = re.compile(r"<void kv::cpu::N_AVX3\w*::add_values<")
STORE = re.compile(r"vmov\w+ +%[xyz]mm\d+,.*\(%r[sb]p")
# The prefetcher is copied to the stack, and 2-bit rows of 8 words have two sums too many.
MOST = 16


def disassembly():
    if not shutil.which("objdump"):
        pytest.skip("objdump is not here")
    done = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "-C", PROGRAM], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split("\n\n")


def test_weighted_values_keep_their_sums_in_registers():
    found = {}
    for body in disassembly():
        name = body.split("\n", 1)[0]
        if FUNCTION.search(name):
            found[name.split("(")[0]] = len(STORE.findall(body))
    if not found:
        pytest.skip("no kernels for AVX-512 are built here")
    assert len(found) >= 20  # widths, rows a vector and queries
    assert not {name: stores for name, stores in found.items() if stores > MOST}
