#!/usr/bin/env bash
# Trains the early base from nothing: rows, tokenizer, copy warm-up, one stage of all levels stopped early, and its end.
#
#     scripts/train_early.sh [OUT]             default: runs/early
#
# It takes less than an hour on two cores. What is finished is not done again, and what was stopped or killed goes on
# where it was, so the same command may be given as often as it takes. The same seed gives the same weights on the same
# machine. OUT is made, or was made by this script with the same seed, settings, preset and prompts; anything else is
# refused and left as it is. OUT/final/final is the result.
# Where this checkout's `collab` is not on the PATH: COLLAB=.venv/bin/collab scripts/train_early.sh
set -euo pipefail

out=${1:-runs/early}
seed=${SEED:-0}
home=$(dirname -- "${BASH_SOURCE[0]}")/..
source "$home/scripts/stages.sh"

# A base with head-room: it has seen enough of each task to act, and too little to be sure. All tasks are in one stage, so
# that none is better known than another. Behind 900 steps at a constant rate, 300 at a falling one calm the weights.
rows rows --levels basic,instruction --episodes 900 --screens 300 --set at_most=8000 --set renamed=0.35 \
  --set two_steps=0.5
rows demonstrations --levels demonstration --episodes 6000 --screens 0 --set at_most=5000 --set renamed=0.12 \
  --set talk=0.25
blank
train copy --stage copy --base "$out/blank" --set precision=float32
supervised() { train "$1" --stage sft --base "$2" --data "$out/rows,$out/demonstrations" --set precision=float32 \
  --set order=mixed --set epochs=1 "${@:3}"; }
supervised mixed "$out/copy/final" --set max_steps=900 --set schedule=constant --set warmup=0.1311 --set saved=float32 \
  --set 'weights_by_level={basic: 0.1, instruction: 0.25}'
supervised final "$out/mixed/final" --set max_steps=300 --set schedule=linear --set warmup=0 \
  --set 'weights_by_level={basic: 0.04, instruction: 0.08}'
