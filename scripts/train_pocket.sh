#!/usr/bin/env bash
# Trains the pocket policy from nothing: rows, tokenizer, copy warm-up, curriculum, process preferences.
#
#     scripts/train_pocket.sh [OUT]            default: runs/pocket
#
# What is finished is not done again, and what was stopped or killed goes on where it was, so the same command may be
# given as often as it takes. The same seed gives the same weights on the same machine. OUT/dpo/final is the result;
# OUT/{copy,basic,instruction,demonstration}/final are the stages before it.
set -euo pipefail

out=${1:-runs/pocket}
seed=${SEED:-0}
collab=${COLLAB:-collab}

# stage FOLDER WHAT ARGUMENTS…: `collab WHAT`, from the start, from where it stopped, or not at all.
stage() {
  local folder=$out/$1 what=$2 done=$3
  shift 3
  if [[ -e $folder/$done ]]; then
    echo "$folder: done"
  elif [[ -e $folder ]]; then
    "$collab" "$what" --resume "$folder"
  else
    "$collab" "$what" --out "$folder" --seed "$seed" "$@"
  fi
}

common=(--env androidworld --teacher oracle --prompt pocket --set history=4 --set context_tokens=2048 --set mistakes=0.1
  --set talk=0.15)

mkdir -p "$out"
# Sets of their own: what is asked about a screen costs more time than its step, and the steps of many instances teach
# more than all that can be asked about few.
stage rows synth card.md --levels basic,instruction --episodes 1800 --screens 600 "${common[@]}" --set at_most=8000
stage preferences synth card.md --levels preference --episodes 720 --screens 0 "${common[@]}"
stage demonstrations synth card.md --levels demonstration --episodes 21600 --screens 0 "${common[@]}" \
  --set at_most=6000
[[ -e $out/blank ]] ||
  "$collab" checkpoint new --data "$out/rows,$out/demonstrations" --preset pocket --seed "$seed" --out "$out/blank"
stage copy finetune final --stage copy --base "$out/blank"
stage basic finetune final --stage sft --base "$out/copy/final" --data "$out/rows" --levels basic \
  --set epochs=1 --set schedule=constant --set 'weights_by_level={basic: 0.15}'
stage instruction finetune final --stage sft --base "$out/basic/final" --data "$out/rows" --levels instruction \
  --set epochs=1 --set schedule=constant --set 'weights_by_level={instruction: 0.4}'
stage demonstration finetune final --stage sft --base "$out/instruction/final" \
  --data "$out/rows,$out/demonstrations" --set order=mixed --set epochs=1 \
  --set 'weights_by_level={basic: 0.04, instruction: 0.08}'
stage dpo finetune final --stage dpo --base "$out/demonstration/final" --data "$out/preferences"
