#!/usr/bin/env bash
# Trains a base from nothing that has met no peers: docs/edges/results.md compares graphs from it.
#
#     scripts/train_silent.sh [OUT]            default: runs/silent
#
# The pocket's first stages and the early base's demonstrations, in a hurry, but no row holds a message, neither another
# agent's nor its own. An hour on two cores. The same command resumes a stopped or killed training; finished stages are
# kept. The same seed gives the same weights on the same machine. OUT must be new, or made by this script with the same
# seed, settings, preset and prompts; any other directory is refused and left unchanged. OUT/final/final is the result.
# Where this checkout's `collab` is not on the PATH: COLLAB=.venv/bin/collab scripts/train_silent.sh
set -euo pipefail

out=${1:-runs/silent}
seed=${SEED:-0}
home=$(dirname -- "${BASH_SOURCE[0]}")/..
source "$home/scripts/stages.sh"

rows rows --levels basic,instruction --episodes 1800 --screens 600 --set at_most=8000 --set renamed=0.35 \
  --set two_steps=0.5 --set talk=0
rows demonstrations --levels demonstration --episodes 7200 --screens 0 --set at_most=5000 --set renamed=0.12 \
  --set talk=0 --set hurry=0.67
blank_as_pocket # its prompts are as long as the early base's
train copy --stage copy --base "$out/blank"
train basic --stage sft --base "$out/copy/final" --data "$out/rows" --levels basic \
  --set epochs=1 --set schedule=constant --set 'weights_by_level={basic: 0.15}'
train instruction --stage sft --base "$out/basic/final" --data "$out/rows" --levels instruction \
  --set epochs=1 --set schedule=constant --set 'weights_by_level={instruction: 0.3}'
train final --stage sft --base "$out/instruction/final" --data "$out/demonstrations" --levels demonstration \
  --set order=mixed --set epochs=1 --set schedule=linear
