"""The gate's choices (.ci/steps): what a commit's hash and its changes make it run."""

import json
import os
import subprocess
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
SHARDED = "contract_test cache_machine_test threads_test retention_test".split()


def sh(home, script):
    """What a script prints that has sourced the steps of a project."""
    home.joinpath(".ci").mkdir(exist_ok=True)
    home.joinpath(".ci/steps").write_text((PROJECT / ".ci/steps").read_text())
    done = subprocess.run(["bash", "-c", f". .ci/steps; {script}"], cwd=home, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


def commit(home, file):
    home.joinpath(file).parent.mkdir(parents=True, exist_ok=True)
    home.joinpath(file).write_text(os.urandom(8).hex())
    git(home, "add", file)
    git(home, "commit", "-q", "-m", file)


def git(home, *words):
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *who, *words], cwd=home, check=True, capture_output=True)


def test_thirds_of_the_claims_are_all_of_them(tmp_path):
    names = sorted(path.stem for path in (PROJECT / "configs/claims").glob("*.toml"))
    tmp_path.joinpath("configs").symlink_to(PROJECT / "configs")
    thirds = [sh(tmp_path, f"claims_of {third}") for third in (0, 1, 2)]
    assert min(map(len, thirds)) >= len(names) // 3
    assert sorted(sum(thirds, [])) == names


def test_every_hash_has_a_part(tmp_path):
    hashes = ["0000003f", "000001000", "0000002", "ffffffff" * 5]
    assert [sh(tmp_path, f"part_of 3 {text}") for text in hashes] == [["0"], ["1"], ["2"], ["0"]]


def test_without_a_commit_to_compare_with_everything_counts_as_changed(tmp_path):
    asks = "changed it kernels && echo runs"
    assert sh(tmp_path, asks) == ["it: no commit to compare with, so it counts as changed", "runs"]
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path, "kernels/a")
    assert sh(tmp_path, asks)[1:] == ["runs"]


def test_changes_count_from_the_last_tag_or_from_thirty_commits_ago(tmp_path):
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path, "kernels/a")
    for _ in range(29):
        commit(tmp_path, "other")
    asks = "changed it kernels && echo runs"
    assert sh(tmp_path, asks)[1:] == ["runs"]  # too few commits
    commit(tmp_path, "other")
    assert "unchanged since" in sh(tmp_path, asks)[0]
    commit(tmp_path, "kernels/a")
    assert "changed since" in sh(tmp_path, asks)[0] and sh(tmp_path, asks)[1:] == ["runs"]
    git(tmp_path, "tag", "v1")
    assert sh(tmp_path, asks)[1:] == ["runs"]  # a tag of this commit is not the last one
    commit(tmp_path, "other")
    assert "unchanged since" in sh(tmp_path, asks)[0]
    commit(tmp_path, "kernels/README.md")
    assert "unchanged since" in sh(tmp_path, asks)[0]
    tmp_path.joinpath("kernels/a").write_text("not committed")
    assert sh(tmp_path, asks)[1:] == ["runs"]


def test_a_branch_changed_what_it_has_changed_since_main(tmp_path):
    main, clone = tmp_path / "main", tmp_path / "clone"
    main.mkdir()
    git(main, "init", "-q", "-b", "main")
    commit(main, "kernels/a")
    git(tmp_path, "clone", "-q", str(main), str(clone))
    git(clone, "checkout", "-q", "-b", "branch")
    commit(clone, "other")
    asks = "changed it kernels && echo runs"
    assert "unchanged since" in sh(clone, asks)[0]
    commit(clone, "kernels/b")
    assert sh(clone, asks)[1:] == ["runs"]


def test_a_step_that_fails_is_named_and_fails_the_whole(tmp_path):
    script = "step one true; step two false; step three true; finish 2>&1; echo status $?"
    said = sh(tmp_path, script)
    assert said[-2:] == ["FAILED: two", "status 1"]
    assert any(line.startswith("== three: ") for line in said)


def test_what_would_begin_late_is_left_out_and_named(tmp_path):
    script = "deadline=1; step one true; SECONDS=60; step two false; finish 2>&1; echo status $?"
    said = sh(tmp_path, script)
    assert said[0] == "== one" and said[-2:] == ["LEFT OUT, since 1 minutes had passed: two", "status 0"]


def test_every_parser_has_its_folders(tmp_path):
    for path in (PROJECT / "tests/fuzz").glob("*_fuzz.cc"):
        folders = sh(tmp_path, f"folders_of_parser {path.name.removesuffix('_fuzz.cc')}")[0].split()
        assert folders != ["."] and all((PROJECT / folder).is_dir() for folder in folders), path


def test_the_gates_sanitizers_see_every_program_of_kernels_and_variants():
    build = Path(os.environ["KVLAB_PROGRAM"]).parents[1]
    listed = json.loads(subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True, check=True).stdout)
    labels = {}
    for test in listed["tests"]:
        program = Path(test["command"][0]).name
        labels.setdefault(program, set()).update(*(entry["value"] for entry in test["properties"] if entry["name"] == "LABELS"))
    lower = {program for program in labels if program.startswith(("kernels_", "variants_")) or program in SHARDED}
    assert len(lower) > 4 and all(labels[program] == {"lower"} for program in lower)
