#!/usr/bin/env bash
# Over-optimisation labs side by side on a machine with many cores: proofs/labs.sh FOLDER "SEED ..." CHANGE ...
set -eu
folder=$1 seeds=$2
shift 2
mkdir -p "$folder"
for seed in $seeds; do
    OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= setsid nohup nice -n 5 python3 proofs/rlhf.py lab "$seed" \
        "$folder/lab-$seed" "$@" > "$folder/lab-$seed.log" 2>&1 < /dev/null &
done
