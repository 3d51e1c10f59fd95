#!/bin/sh
# Starts a Slurm of one node from Debian's packages in a folder of its own, and runs check.py against it.
# Needs root and: apt-get install slurmctld slurmd slurm-client munge
set -eu

python=${PYTHON:-.venv/bin/python}
for program in munged slurmctld slurmd sbatch; do
    command -v "$program" >/dev/null || { echo "$program is not there: apt-get install slurmctld slurmd slurm-client munge"; exit 2; }
done
[ "$(id -u)" = 0 ] || { echo "slurmd of one node starts jobs of other users and needs root"; exit 2; }

home=$(mktemp -d /tmp/oodml-slurm.XXXXXX)
chmod 755 "$home"
pids=""
finish() {
    for pid in $pids; do kill "$pid" 2>/dev/null || true; done
    for pid in $pids; do wait "$pid" 2>/dev/null || true; done
    [ -n "${KEEP:-}" ] || rm -rf "$home"
}
trap finish EXIT

mkdir -p "$home/spool" "$home/state"
dd if=/dev/urandom of="$home/munge.key" bs=1024 count=1 2>/dev/null
chmod 400 "$home/munge.key"
munged --foreground --force --num-threads=1 --socket="$home/munge.socket" --key-file="$home/munge.key" \
    --pid-file="$home/munge.pid" --seed-file="$home/munge.seed" --log-file="$home/munge.log" >"$home/munge.out" 2>&1 &
pids="$pids $!"

host=$(hostname -s)
cat > "$home/slurm.conf" <<CONF
ClusterName=oodml
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmctldPort=36817
SlurmdPort=36818
AuthType=auth/munge
AuthInfo=socket=$home/munge.socket
CryptoType=crypto/munge
StateSaveLocation=$home/state
SlurmdSpoolDir=$home/spool
SlurmctldPidFile=$home/slurmctld.pid
SlurmdPidFile=$home/slurmd.pid
SlurmctldLogFile=$home/slurmctld.log
SlurmdLogFile=$home/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
ReturnToService=2
KillWait=5
JobRequeue=1
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=test Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF="$home/slurm.conf"

for _ in 1 2 3 4 5 6 7 8 9 10; do [ -S "$home/munge.socket" ] && break; sleep 0.5; done
slurmctld -D >"$home/slurmctld.out" 2>&1 & pids="$pids $!"
slurmd -D >"$home/slurmd.out" 2>&1 & pids="$pids $!"
ready=""
for _ in $(seq 60); do
    if sinfo --noheader --format=%T 2>/dev/null | grep -q idle; then ready=yes; break; fi
    sleep 1
done
[ -n "$ready" ] || { echo "Slurm did not start:"; tail -20 "$home"/slurm*.log; exit 1; }
sinfo --version
OMP_NUM_THREADS=1 "$python" -m tests.slurm.check "$home/work" || { tail -20 "$home"/slurm*.log; exit 1; }
