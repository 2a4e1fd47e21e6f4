# SPDX-License-Identifier: BSD-3-Clause
"""A stand-in for PBS: qsub, qstat and qdel in front of a test's Slurm.

OpenPBS is not in Debian. This proves what is said to PBS's commands and read from them, and that a job's script works
from its own variables and list of hosts; it does not prove how PBS itself queues, limits or ends jobs.
The hosts of its jobs are addresses of loopback, since the names of that Slurm's nodes mean nothing to this machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.slurm import Slurm

# the job's script with PBS's variables in the place of Slurm's; -W block and other words of qsub are not known
_QSUB = """\
#!{python} -IS
import os, re, shutil, subprocess, sys
*options, script = sys.argv[1:]
given = "".join(re.findall("^#PBS(.*)$", open(script).read(), re.M)) + " " + " ".join(options)
chunks = re.search("select=([0-9]+):ncpus=([0-9]+)(?::mpiprocs=([0-9]+))?", given)
nodes, each = int(chunks[1]), int(chunks[3] or 1)
kept = "{folder}/script.%d" % os.getpid()
shutil.copy(script, kept)
job = '''#!/bin/bash
PBS_JOBID=$SLURM_JOB_ID.stand-in PBS_NODEFILE={folder}/nodes.$SLURM_JOB_ID PBS_ENVIRONMENT=PBS_BATCH
for node in $({bin}/scontrol show hostnames "$SLURM_JOB_NODELIST"); do
    number=$((number + 1))
    for _ in $(seq %d); do echo "127.0.83.$((100 + number))"; done
done > "$PBS_NODEFILE"
for name in $(env | sed -n 's/^\\\\(SLURM_[A-Z_0-9]*\\\\)=.*/\\\\1/p'); do unset "$name"; done
PATH={folder}:$PATH
export PATH PBS_JOBID PBS_NODEFILE PBS_ENVIRONMENT
exec bash %s
''' % (each, kept)
output, limit = re.search("-o ([^ ]+)", given)[1], re.search("walltime=([0-9:]+)", given)[1]
words = ["--nodes=%d" % nodes, "--ntasks-per-node=%d" % each, "--cpus-per-task=%d" % (int(chunks[2]) // each)]
words += ["--no-requeue", "--export=NONE", "--time=" + limit, "--output=" + output + "%j.OU" * output.endswith("/")]
done = subprocess.run(["{bin}/sbatch", "--parsable", *words], input=job, text=True, capture_output=True)
sys.stderr.write(re.sub("(?m)^sbatch: error", "qsub", done.stderr))
if done.returncode:
    sys.exit(done.returncode)
print(done.stdout.strip() + ".stand-in")
"""
_QSTAT = """\
#!{python} -IS
import subprocess, sys
exits = {{"COMPLETED": 0, "FAILED": 1, "TIMEOUT": -29, "CANCELLED": 271, "NODE_FAIL": -2}}
for job in sys.argv[3:]:
    words = ["{bin}/squeue", "--noheader", "--states=all", "--jobs=" + job.partition(".")[0], "--format=%T|%r|%N"]
    asked = subprocess.run(words, text=True, capture_output=True)
    if asked.returncode or not asked.stdout.strip():
        sys.exit("qstat: Unknown Job Id " + job)
    state, reason, nodes = asked.stdout.strip().split("|")
    letter = {{"PENDING": "Q", "CONFIGURING": "Q", "RUNNING": "R", "COMPLETING": "E"}}.get(state, "F")
    print("Job Id: " + job)
    print("    job_state = " + letter)
    print("    exec_host = " + nodes)
    if letter == "Q":
        print("    comment = %s Run: %s" % ("Can Never" if "Limit" in reason else "Not", reason))
    if letter == "F":
        print("    Exit_status = %d" % exits[state])
    print()
"""
_QDEL = '#!/bin/sh\nexec {bin}/scancel "${{1%%.*}}"\n'
# the hosts are addresses of one machine, whose ranks SwitchML would take for one host's
_SSH = """\
#!/bin/sh
while [ "$1" != -- ]; do host=$1; shift; done
shift
SLURMD_NODENAME=$host SWITCHML_HOST=$host
export SLURMD_NODENAME SWITCHML_HOST
eval "exec $*"
"""


def write_pbs(folder: Path, slurm: Slurm) -> Path:
    """The folder, made, with the stand-ins, and with an ssh that reaches the nodes, for the PATH of what is tested."""
    folder.mkdir()
    values = {"python": sys.executable, "bin": slurm.bin, "folder": folder}
    for name, text in (("qsub", _QSUB), ("qstat", _QSTAT), ("qdel", _QDEL), ("ssh", _SSH)):
        script = folder / name
        script.write_text(text.format(**values) if name != "ssh" else text, encoding="utf-8")
        script.chmod(0o755)
    return folder
