#!/usr/bin/env bash
# Trains the pocket policy from nothing: rows, tokenizer, copy warm-up, curriculum, process preferences.
#
#     scripts/train_pocket.sh [OUT]            default: runs/pocket
#
# The same command resumes a stopped or killed training; finished stages are kept. The same seed gives the same weights
# on the same machine. OUT must be new, or made by this script with the same seed, settings, preset and prompts; any
# other directory is refused and left unchanged. OUT/dpo/final is the result;
# OUT/{copy,basic,instruction,demonstration}/final are the stages before it.
# Where this checkout's `collab` is not on the PATH: COLLAB=.venv/bin/collab scripts/train_pocket.sh
set -euo pipefail

out=${1:-runs/pocket}
seed=${SEED:-0}
home=$(dirname -- "${BASH_SOURCE[0]}")/..
source "$home/scripts/stages.sh"

# Sets of their own: what is asked about a screen costs more time than its step, and the steps of many instances teach
# more than all that can be asked about few. Preferences are the last touch, so few will do.
# Rows about one screen teach reading unknown names; whole solutions show the phone with its usual ones.
rows rows --levels basic,instruction --episodes 1800 --screens 600 --set at_most=8000 --set renamed=0.35 \
  --set two_steps=0.5
rows preferences --levels preference --episodes 720 --screens 0
rows demonstrations --levels demonstration --episodes 18000 --screens 0 --set at_most=5000 --set renamed=0.12 \
  --set talk=0.25
blank
train copy --stage copy --base "$out/blank"
train basic --stage sft --base "$out/copy/final" --data "$out/rows" --levels basic \
  --set epochs=1 --set schedule=constant --set 'weights_by_level={basic: 0.15}'
train instruction --stage sft --base "$out/basic/final" --data "$out/rows" --levels instruction \
  --set epochs=1 --set schedule=constant --set 'weights_by_level={instruction: 0.3}'
train demonstration --stage sft --base "$out/instruction/final" --data "$out/rows,$out/demonstrations" \
  --set order=mixed --set epochs=1 --set 'weights_by_level={basic: 0.04, instruction: 0.08}'
train dpo --stage dpo --base "$out/demonstration/final" --data "$out/preferences" --set sharing=prefix
