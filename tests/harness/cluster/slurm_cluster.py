"""A Slurm of two nodes on this machine alone, on loopback, without cgroups, systemd or a service: for tests and for a look.

    python tests/harness/cluster/slurm_cluster.py FOLDER COMMAND …     brings it up, runs COMMAND in it, takes it down

Needs Debian's slurm-wlm and munge. Everything lies in FOLDER; every program runs as the user who calls this.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

PROGRAMS = ["munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol"]
PATHS = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
NODES = ["n1", "n2"]
PATIENCE_S = 60
CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=15
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmdPidFile={folder}/d.%n.pid
SlurmdLogFile={folder}/log/d.%n.log
SlurmctldPidFile={folder}/ctld.pid
SlurmctldLogFile={folder}/log/ctld.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdTimeout=10
KillWait=2
SchedulerParameters=sched_interval=2,batch_sched_delay=0,requeue_delay=1
{nodes}
PartitionName=test Nodes=ALL Default=YES State=UP
"""


def missing() -> list[str]:
    return [name for name in PROGRAMS if not shutil.which(name, path=PATHS)]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def parent_of(process: int) -> int:
    return int(re.search(r"^PPid:\s*(\d+)", Path(f"/proc/{process}/status").read_text(), re.M)[1])


class Cluster:
    """Munge, a controller and two nodes; `environment` is what programs need to find them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.configuration = folder / "slurm.conf"
        self.environment = {**os.environ, "PATH": PATHS, "SLURM_CONF": str(self.configuration)}
        self.running: dict[str, subprocess.Popen] = {}

    def __enter__(self) -> Cluster:
        for inside in ("state", "log", *(f"spool/{node}" for node in NODES)):
            (self.folder / inside).mkdir(parents=True, exist_ok=True)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        host = socket.gethostname().split(".")[0]
        lines = [f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=2" for node in NODES]
        self.configuration.write_text(
            CONFIG.format(host=host, port=free_port(), folder=self.folder, user=getpass.getuser(), nodes="\n".join(lines))
        )
        try:
            files = {"key-file": key, "socket": "munge.sock", "pid-file": "munge.pid", "seed-file": "munge.seed", "log-file": "log/munge.log"}
            self.start("munged", "--force", "--foreground", *(f"--{name}={self.folder / file}" for name, file in files.items()))
            self.wait("munge's socket", (self.folder / "munge.sock").exists)
            self.start("slurmctld", "-D", "-f", self.configuration)
            for node in NODES:
                self.start_node(node)
            self.wait("two idle nodes", lambda: self.ask("sinfo", "-h", "-o", "%T %D").split() == ["idle", "2"])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        for process in reversed(self.running.values()):
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, program: str, *arguments, name: str = "") -> None:
        with (self.folder / "log" / f"{name or program}.out").open("ab") as log:
            path = shutil.which(program, path=PATHS)
            self.running[name or program] = subprocess.Popen(
                [path, *map(str, arguments)], env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def start_node(self, node: str) -> None:
        self.start("slurmd", "-D", "-N", node, "-f", self.configuration, name=node)

    def kill_node(self, node: str, tasks: list[int]) -> None:
        """Kills it as a power failure would: the daemon first, then the steps' keepers, who would report the end, then the tasks."""
        keepers = [parent_of(task) for task in tasks]
        self.running[node].kill()
        for process in [*keepers, *tasks]:
            os.kill(process, signal.SIGKILL)
        self.running.pop(node).wait()

    def ask(self, *words: str) -> str:
        return subprocess.run(words, env=self.environment, capture_output=True, text=True).stdout.strip()

    def wait(self, what: str, done, patience: float = PATIENCE_S):
        """Waits until `done` returns something, and returns that."""
        end = time.monotonic() + patience
        while not (found := done()):
            if time.monotonic() > end:
                logs = "\n".join(f"{log.name}: {log.read_text(errors='replace')[-1500:]}" for log in sorted((self.folder / "log").iterdir()))
                raise TimeoutError(f"no {what} within {patience:.0f} s\n{self.ask('squeue')}\n{logs}")
            time.sleep(0.2)
        return found


def main(words: list[str]) -> int:
    if len(words) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    if missing():
        print(f"error: not installed: {', '.join(missing())} (Debian: apt-get install slurm-wlm munge)", file=sys.stderr)
        return 2
    with Cluster(Path(words[0]).resolve()) as cluster:
        return subprocess.run(words[1:], env=cluster.environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
