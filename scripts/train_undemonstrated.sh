#!/usr/bin/env bash
# Trains a checkpoint from nothing that learned no demonstration: AppVLM's ablation `awo` ends with it.
#
#     scripts/train_undemonstrated.sh [OUT]    default: runs/undemonstrated
#
# The pocket's stages before its demonstrations, half an hour on two cores. The same command resumes a stopped or killed
# training; finished stages are kept. OUT must be new, or made by this script with the same seed, settings, preset and
# prompts; any other directory is refused and left unchanged. OUT/final/final is the result.
# Where this checkout's `collab` is not on the PATH: COLLAB=.venv/bin/collab scripts/train_undemonstrated.sh
set -euo pipefail

out=${1:-runs/undemonstrated}
seed=${SEED:-0}
home=$(dirname -- "${BASH_SOURCE[0]}")/..
source "$home/scripts/stages.sh"

rows rows --levels basic,instruction --episodes 1800 --screens 600 --set at_most=8000 --set renamed=0.35 \
  --set two_steps=0.5
blank_as_pocket # it learns replies of the early base
train copy --stage copy --base "$out/blank"
train basic --stage sft --base "$out/copy/final" --data "$out/rows" --levels basic \
  --set epochs=1 --set schedule=constant --set 'weights_by_level={basic: 0.15}'
train final --stage sft --base "$out/basic/final" --data "$out/rows" --levels instruction \
  --set epochs=1 --set schedule=constant --set 'weights_by_level={instruction: 0.3}'
