"""Help, suggestions for mistyped words, and completion in a real shell."""

import json
import re
import shlex
import shutil
import subprocess

import pytest
from program import HOME, PROGRAM, assert_refused, kvlab


def commands():
    listed = kvlab("--help").stdout.split("Subcommands:")[1].split("\nExamples:")[0]
    return dict(line.split(None, 1) for line in listed.strip().splitlines())


def test_help_lists_every_command_with_a_line():
    assert set(commands()) >= {"run", "eval", "summary", "list", "tables", "plan", "completion", "plot", "test", "gpu-check"}
    assert all(commands().values())
    assert kvlab("help").stdout == kvlab("--help").stdout
    # The launcher knows them before anything is built.
    header = re.findall(r"^#   \./kvlab ([a-z-]+)(?: \S+)*?  +(.+)$", (HOME / "kvlab").read_text(), re.M)
    assert dict(header) == commands()


def test_lengths_may_be_written_in_k():
    lengths = lambda text: kvlab("tables", "--measure", "0B", "--lengths", text).stdout  # noqa: E731
    assert lengths("4K,128K") == lengths("4096,131072") == lengths("4096,128k") != ""
    assert lengths("1K..4K") == lengths("1024..4096")


LAUNCHERS = {"plot", "site", "models", "peers", "gpu-check", "test"}
READING = {"check-results", "summary", "compare", "list", "environment", "schema", "tables", "plan", "completion", "help", "sbatch"}


@pytest.mark.parametrize("command", sorted({""} | commands().keys() - LAUNCHERS))
def test_help_ends_with_examples_that_work(command, tmp_path):
    _, examples = kvlab(*command.split(), "--help").stdout.split("\nExamples:\n")
    assert examples.strip()
    for example in map(str.strip, examples.strip().splitlines()):
        words = shlex.split(example.removeprefix("source <(").removesuffix(")"))
        assert words[0] == "./kvlab" and words[1] in commands() and command in ("", words[1])
        own = kvlab(words[1], "--help").stdout
        assert all(f"{word} " in own for word in words[2:] if word.startswith("--")), example
        if any(word.split(".")[0].isupper() for word in words):
            continue  # a file of the reader's own
        words = [PROGRAM, *words[1:], *(["--dry-run"] if words[1] == "run" else [])]
        if words[1] in READING | {"run"} or "--list" in words:
            done = subprocess.run(words, cwd=HOME, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0 and done.stdout, (example, done.stderr)


def test_the_launcher_has_examples_of_its_own_commands():
    for command in LAUNCHERS - {"plot", "site", "models"}:  # these three need .venv
        done = subprocess.run([HOME / "kvlab", command, "--help"], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and f"Examples:\n  ./kvlab {command}" in done.stdout, done.stderr
    listed = re.findall(r"^    ([a-z-]+)\) (?:echo|printf) '  \./kvlab \1", (HOME / "kvlab").read_text(), re.M)
    assert set(listed) == LAUNCHERS


def test_eval_ships_an_example(tmp_path):
    assert kvlab("eval", "--example", "dump.safetensors", cwd=tmp_path).returncode == 0
    help_of_eval = kvlab("eval", "--help").stdout
    data = (tmp_path / "dump.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert {name: tensor["shape"] for name, tensor in header.items()} == {"q": [2, 4, 256, 64], "k": [2, 2, 256, 64], "v": [2, 2, 256, 64]}
    assert all(f'"{name}"' in help_of_eval for name in header) and "[layers, kv_heads, tokens, head_dim]" in help_of_eval
    out = ["--out", "out", "--no-plots"]
    done = kvlab("eval", "dump.safetensors", "--variants", "contiguous/f16;paged/q8_0", *out, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert_refused(kvlab("eval", "--example", "dump.safetensors", cwd=tmp_path), "already exists")
    assert_refused(kvlab("eval", "dump.safetensors", cwd=tmp_path), "--variants", "--example")


def test_the_version_is_listed_and_told():
    launcher = subprocess.run([HOME / "kvlab", "--version"], capture_output=True, text=True)
    assert launcher.stdout == kvlab("--version").stdout != ""
    assert json.loads(kvlab("environment").stdout)["kvlab"]["version"] == launcher.stdout.strip()
    for program in (PROGRAM, HOME / "kvlab"):
        assert re.search(r"^\s*--version .*print the version", subprocess.run([program, "help"], capture_output=True, text=True).stdout, re.M)


def completed(line, cwd):
    """What bash offers for the last word of a line, by the script that the program prints."""
    script = f"""
source <("{PROGRAM}" completion bash)
COMP_LINE={line!r}; COMP_WORDS=($COMP_LINE); [ "${{COMP_LINE% }}" = "$COMP_LINE" ] || COMP_WORDS+=("")
COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
complete -p kvlab >/dev/null || exit 3
_kvlab
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", script], cwd=cwd, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.split()


def test_bash_completes_commands_options_and_values(tmp_path):
    assert completed("kvlab ru", tmp_path) == ["run"]
    assert set(completed("kvlab ", tmp_path)) == set(commands())
    assert completed("kvlab run x.toml --no-p", tmp_path) == ["--no-plots"]
    assert completed("kvlab run x.toml --table ", tmp_path) == ["short", "full"]
    assert completed("kvlab tables --units d", tmp_path) == ["decimal"]
    assert completed("kvlab completion z", tmp_path) == ["zsh"]
    assert completed("kvlab list --no-such", tmp_path) == []
    assert completed("kvlab run conf", tmp_path) == []  # and then bash completes files


def test_every_option_is_in_every_script():
    scripts = [kvlab("completion", shell).stdout for shell in ("bash", "zsh", "fish")]
    for command in set(commands()) - {"plot", "test", "gpu-check", "peers"}:
        options = set(re.findall(r"^  (?:-\w,)?--([a-z-]+)", kvlab(command, "--help").stdout, re.M))
        assert options, command
        for script in scripts:
            assert command in script
            for option in options:
                assert re.search(rf"(--|-l ){option}\b", script), (command, option)


@pytest.mark.parametrize("shell", [shell for shell in ("bash", "zsh", "fish") if shutil.which(shell)])
def test_a_script_is_valid(shell, tmp_path):
    (tmp_path / "script").write_text(kvlab("completion", shell).stdout)
    done = subprocess.run([shell, "-n", tmp_path / "script"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
