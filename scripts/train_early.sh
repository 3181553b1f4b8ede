#!/usr/bin/env bash
# Trains the early base from the pocket policy: it imitates demonstrations, most of them made in a hurry.
#
#     scripts/train_early.sh [OUT]             default: runs/early
#
# It takes eight minutes on two cores. The same command resumes a stopped or killed training; finished stages are kept.
# The same seed gives the same weights on the same machine. OUT must be new, or made by this script with the same seed,
# settings, preset and prompts; any other directory is refused and left unchanged. OUT/final/final is the result.
# Where this checkout's `collab` is not on the PATH: COLLAB=.venv/bin/collab scripts/train_early.sh
set -euo pipefail

out=${1:-runs/early}
seed=${SEED:-0}
home=$(dirname -- "${BASH_SOURCE[0]}")/..
source "$home/scripts/stages.sh"

# A base with head-room: it knows the right way from the pocket, and mostly takes the short one of demonstrators who
# skip a step. Being surer makes it no better, for what it is surest of is wrong.
rows demonstrations --levels demonstration --episodes 1440 --screens 0 --set at_most=5000 --set renamed=0.12 \
  --set talk=0.25 --set hurry=0.67
train final --stage sft --base built-in:pocket --data "$out/demonstrations" --levels demonstration \
  --set precision=float32 --set order=mixed --set epochs=1 --set max_steps=200 \
  --set learning_rate=0.0005 --set schedule=linear
