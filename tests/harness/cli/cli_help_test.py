"""Help, suggestions for mistyped words, and completion in a real shell."""

import re
import shutil
import subprocess

import pytest
from program import HOME, PROGRAM, assert_refused, kvlab


def commands():
    listed = kvlab("--help").stdout.split("Subcommands:")[1]
    return dict(line.split(None, 1) for line in listed.strip().splitlines())


def test_help_lists_every_command_with_a_line():
    assert set(commands()) >= {"run", "eval", "summary", "list", "tables", "plan", "completion", "plot", "test", "gpu-check"}
    assert all(commands().values())
    assert kvlab("help").stdout == kvlab("--help").stdout
    # The launcher knows them before anything is built.
    header = re.findall(r"^#   \./kvlab ([a-z-]+)(?: \S+)*?  +(.+)$", (HOME / "kvlab").read_text(), re.M)
    assert dict(header) == commands()


@pytest.mark.parametrize("args, parts", [
    (["rnu", "configs/ci.toml"], ["there is no command 'rnu'", "did you mean 'run'?"]),
    (["reprodcue"], ["did you mean 'reproduce'?"]),
    (["plto"], ["did you mean 'plan' or 'plot'?"]),
    (["run", "configs/ci.toml", "--sed", "3"], ["run has no option '--sed'", "did you mean ", "'--seed'"]),
    (["run", "configs/ci.toml", "--theads=3"], ["run has no option '--theads'", "'--threads'"]),
    (["tables", "--units", "binray"], ["'binray' is none of binary,decimal", "did you mean 'binary'?"]),
    (["tables", "--lengths", "128KB"], ["--lengths '128KB' is no number of tokens", "4K,128K"]),
    (["list", "colums"], ["did you mean 'columns'?"]),
    (["run", "quikstart"], ["config 'quikstart' does not exist", "did you mean 'configs/quickstart.toml'?"]),
    (["run", "configs/quikstart.toml"], ["did you mean 'configs/quickstart.toml'?"]),
    (["plot", "folder"], ["plot is the launcher's: ./kvlab plot"]),
])
def test_a_mistyped_word_gets_a_suggestion(tmp_path, args, parts):
    assert_refused(kvlab(*args, cwd=tmp_path), *parts)
    assert list(tmp_path.iterdir()) == []


def test_lengths_may_be_written_in_k():
    lengths = lambda text: kvlab("tables", "--measure", "0B", "--lengths", text).stdout  # noqa: E731
    assert lengths("4K,128K") == lengths("4096,131072") == lengths("4096,128k") != ""
    assert lengths("1K..4K") == lengths("1024..4096")


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
    done = subprocess.run(["bash", "-c", script], cwd=cwd, capture_output=True, text=True, timeout=60)
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
