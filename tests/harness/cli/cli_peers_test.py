"""Other engines beside kvlab's caches: a peer in plain Python goes through the same protocol as real ones."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from program import CONFIG, ENV, HOME, REPETITIONS, STEPS, assert_refused, by_variant, kvlab, run, start, succeeded, table

SETTINGS = {"experiment": "decode", "sweep.variants": ["contiguous/f16", "contiguous"], "sweep.seq_len": [40], "measure.cold_steps": 2,
            "measure.peer_timeout": 5}  # fmt: skip
FAKE = {"sweep.peers": ["fake"]}
FAKE_F32 = {"sweep.peers": ["fake/f32"]}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A project whose only peer is the fake one."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "harness" / "peers").mkdir(parents=True)
    shutil.copy(HOME / "harness" / "peers" / "serve.py", folder / "harness" / "peers")
    shutil.copy(Path(__file__).with_name("fake_peer.py"), folder / "harness" / "peers" / "fake.py")
    (folder / "config.toml").write_text(CONFIG)
    return folder


def env_of(home, python=sys.executable):
    return {**ENV, "KVLAB_HOME": str(home), "KVLAB_PEERS_PYTHON": str(python)}


def run_peers(home, out, changed={}, **options):
    return kvlab("run", home / "config.toml", "--out", out, "--no-plots", {**SETTINGS, **FAKE, **changed}, env=env_of(home, **options))


def changed_peer(home, folder, old, new):
    """A project whose fake peer has other text."""
    other = shutil.copytree(home, folder / "home")
    path = other / "harness" / "peers" / "fake.py"
    path.write_text(path.read_text().replace(old, new))
    return other


def processes_of(home):
    """Processes whose command names the folder."""
    named = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(home / "harness").encode() in path.read_bytes():
                named.append(path.parent.name)
        except OSError:
            pass
    return named


@pytest.fixture(scope="module")
def cells(home, tmp_path_factory):
    out = tmp_path_factory.mktemp("peers") / "run"
    done = run_peers(home, out)
    assert done.returncode == 1, done.stderr  # some cells have failed
    assert processes_of(home) == []
    return out, by_variant(table(out / "cells.csv"))


def test_a_peer_is_verified_and_timed_beside_the_caches(cells):
    row = cells[1]["fake/f32"]
    assert (row["status"], row["reason"], row["peer"], row["peer_version"]) == ("ok", "", "fake", "1.0")
    assert row["peer_settings"].startswith("arm quick (of its time take slow ") and row["peer_settings"].endswith("; plain Python")
    assert float(row["err_kernel_rel_l2"]) < float(row["peer_tolerance"]) == 1e-5
    assert int(row["peer_bytes_reported"]) == 4 << 20 and int(row["peer_bytes_resident"]) >= 0
    assert (int(row["repetitions"]), int(row["samples"])) == (REPETITIONS, REPETITIONS * STEPS)
    assert float(row["step_p50_us"]) > 0 and float(row["cold_attend_p50_us"]) > 0 and row["ratio_p50"] and row["verdict"]
    # These are known of kvlab's own caches alone.
    for column in ("bytes_payload", "append_p50_us", "attend_p50_us", "read_gbps", "bound_us", "kernel"):
        assert row[column] == "", column
    assert cells[1]["contiguous"]["peer"] == "" and cells[1]["contiguous"]["bound_us"]


def test_a_peer_is_compared_with_the_same_bits(cells):
    rows = cells[1]
    assert rows["fake/f32"]["versus"] == rows["fake/f16"]["versus"] == "contiguous/f16"
    for name, own in (("fake/f32", "contiguous"), ("fake/f16", "contiguous/f16")):
        row = rows[name]
        assert row["peer_versus"] == own
        assert float(row["peer_ratio_ci_low"]) < float(row["peer_ratio_p50"]) < float(row["peer_ratio_ci_high"])
    cold = [float(rows["fake/f32"][f"peer_cold_ratio_{end}"]) for end in ("ci_low", "p50", "ci_high")]
    assert cold == sorted(cold) and rows["fake/f16"]["cold_attend_p50_us"] == rows["fake/f16"]["peer_cold_ratio_p50"] == ""
    # Its error is that of the codec, and its arithmetic differs from FP64 on the same rows by little.
    assert float(rows["fake/f16"]["err_rel_l2"]) > 1e-5 > float(rows["fake/f16"]["err_kernel_rel_l2"])


@pytest.mark.parametrize("name, status, reason", [
    ("wrong", "failed", "attention differs from FP64 on the same stored rows by 0.001 (bound 1e-05)"),
    ("late", "failed", "peer 'fake' ended: out of registers"),
    ("early", "failed", "peer 'fake' ended"),
    ("hang", "failed", "peer 'fake' did not answer within 5 s (measure.peer_timeout)"),
    ("raises", "failed", "peer 'fake' failed: ValueError: the engine has"),
    ("refuses", "unsupported", "head_dim 16 is none of 64, 128"),
    ("full", "out_of_memory", "ran out of memory"),
])
def test_a_failure_ends_one_cell(cells, name, status, reason):
    row = cells[1][f"fake/{name}"]
    assert row["status"] == status
    assert row["reason"].startswith(reason) and "\n" not in row["reason"]
    assert row["step_p50_us"] == ""


def test_the_folder_holds_together(cells, home):
    succeeded(kvlab("check-results", cells[0], env=env_of(home)))
    shown = kvlab("summary", cells[0], "--table", "full", env=env_of(home)).stdout
    assert "fake/f16" in shown and "* other engines" in " ".join(shown.split())


def test_an_absent_peer_says_how_to_install_it(home, tmp_path):
    succeeded(run_peers(home, tmp_path / "out", FAKE_F32, python=tmp_path / "no-python"))
    rows = by_variant(table(tmp_path / "out" / "cells.csv"))
    absent = rows["fake/f32"]
    assert (absent["status"], absent["reason"]) == ("unsupported", "install it with: ./kvlab peers install fake")
    assert rows["contiguous"]["status"] == "ok"


def test_a_peer_without_its_packages_is_absent(home, tmp_path):
    other = changed_peer(home, tmp_path, 'NEEDS = ["math"]', 'NEEDS = ["math", "no_such_package"]')
    succeeded(run_peers(other, tmp_path / "out", FAKE_F32))
    assert {row["status"] for row in table(tmp_path / "out" / "cells.csv") if row["peer"]} == {"unsupported"}


@pytest.mark.parametrize("changed, parts", [
    ({"sweep.peers": ["fale"]}, ["sweep.peers", "not 'fale'", "fake/f32"]),
    ({"sweep.peers": ["fake/f23"]}, ["sweep.peers", "did you mean 'fake/f32'"]),
    ({"sweep.peers": ["fake", "fake/f32"]}, ["sweep.peers", "names fake/f32 twice"]),
    ({"measure.peer_timeout": 0}, ["measure.peer_timeout"]),
])
def test_mistakes_are_refused(home, tmp_path, changed, parts):
    assert_refused(run_peers(home, tmp_path / "out", changed), *parts)


def test_a_broken_head_is_refused(home, tmp_path):
    other = changed_peer(home, tmp_path, '# f16 = { stored = "f16", tolerance = 1e-5 }', '# f16 = { stored = "f16" }')
    assert_refused(run_peers(other, tmp_path / "out"), "fake.py", "'f16' lacks stored or tolerance")


def test_peers_do_not_outlive_a_killed_program(home, tmp_path):
    hanging = {**SETTINGS, "sweep.peers": ["fake/hang"], "measure.peer_timeout": 1000}
    program = start(home / "config.toml", tmp_path / "out", hanging, env=env_of(home), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    hangs = home / "harness" / "peers" / "fake.py.hangs"
    hangs.unlink(missing_ok=True)  # left by an earlier test
    while not hangs.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(home)
    os.kill(program.pid, signal.SIGKILL)
    program.wait()
    while processes_of(home) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(home) == []


@pytest.mark.parametrize("peer", ["ggml", "hf", "onnxruntime", "torch", "triton"])
def test_an_installed_peer_agrees_with_fp64(peer, config, tmp_path):
    python = Path(os.environ.get("KVLAB_PEERS_PYTHON") or HOME / ".venv-peers" / "bin" / "python")
    words = [python, "-I", "-B", HOME / "harness" / "peers" / "serve.py", peer, "installed"]
    if not python.exists() or subprocess.run([str(word) for word in words], capture_output=True).returncode != 0:
        pytest.skip(f"peer {peer} is not installed here: ./kvlab peers install {peer}")
    interpreter = {"TRITON_INTERPRET": "1"} if peer == "triton" else {}  # its kernels are for a GPU
    settings = SETTINGS | {"sweep.peers": [peer], "model.head_dim": 64, "sweep.seq_len": [300], "sweep.batch": [2], "measure.cold_steps": 0,
                           "measure.repetitions": 2, "measure.steps": 2, "measure.peer_timeout": 120}  # fmt: skip
    done = run(config, tmp_path / "out", settings, env={**ENV, **interpreter, "KVLAB_PEERS_PYTHON": str(python)})
    rows = [row for row in table(tmp_path / "out" / "cells.csv") if row["peer"]]
    assert len(rows) >= 2 and done.returncode == 0, [row["reason"] for row in rows] + [done.stderr]
    for row in rows:
        assert (row["status"], row["reason"]) == ("ok", "")
        assert 0 < float(row["err_kernel_rel_l2"]) < float(row["peer_tolerance"]) and float(row["step_p50_us"]) > 0
