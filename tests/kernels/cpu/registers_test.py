"""The sums of the inner loops lie in registers: a compiler that keeps them in memory takes 1.6 times as long, and no bit changes."""

import os
import re
import shutil
import subprocess

import pytest

PROGRAM = os.environ["KVLAB_PROGRAM"]
STORE = re.compile(r"vmov\w+ +%[xyz]mm\d+,.*\(%r[sb]p")
# Loops; how many instances there are at least; stores of vectors to the stack that an instance has at most. AVX-512 has 32
# registers: the prefetcher is copied to the stack, and 2-bit rows of 8 words have two sums too many. AVX2 has 16, and loops
# over floats put away the sums of the first two of four keys.
LOOPS = {
    "codes' values with AVX-512": (r"<void kv::cpu::N_AVX3\w*::add_values<", 20, 16),
    "floats' scores with AVX2": (r"<void kv::cpu::N_AVX2::score_rows<.*float, 8ul", 6, 18),
    "floats' values with AVX2": (r"<void kv::cpu::N_AVX2::add_rows<.*float, 8ul", 6, 12),
}


@pytest.fixture(scope="module")
def stores():
    if not shutil.which("objdump"):
        pytest.skip("objdump is not here")
    done = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "-C", PROGRAM], stdout=subprocess.PIPE, text=True, check=True)
    bodies = [body.strip() for body in done.stdout.split("\n\n") if "kv::cpu::N_AVX" in body.strip().split("\n", 1)[0]]
    return {body.split("\n", 1)[0]: len(STORE.findall(body)) for body in bodies}


@pytest.mark.parametrize("loop", LOOPS)
def test_loops_keep_their_sums_in_registers(stores, loop):
    pattern, least, most = LOOPS[loop]
    found = {name: count for name, count in stores.items() if re.search(pattern, name)}
    if not found:
        pytest.skip(f"no kernels for {loop.split()[-1]} are built here")
    assert len(found) >= least
    assert not {name: count for name, count in found.items() if count > most}
