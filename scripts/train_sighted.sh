#!/usr/bin/env bash
# Trains the sighted pocket: a policy that plays some easy tasks of the phone from pictures with numbered boxes alone.
#
#     scripts/train_sighted.sh [OUT]           default: runs/sighted
#
# The pocket's decoder gets an untrained vision tower, and imitates recorded solutions with pictures, twice as many the
# second time: under two hours on one core. The same command resumes a stopped or killed training; finished stages are
# kept. OUT must be new, or made by this script with the same seed, settings and prompts; any other directory is refused
# and left unchanged. OUT/final is the result.
# Where this checkout's `collab` is not on the PATH: COLLAB=.venv/bin/collab scripts/train_sighted.sh
set -euo pipefail

out=${1:-runs/sighted}
seed=${SEED:-5}
home=$(dirname -- "${BASH_SOURCE[0]}")/..
source "$home/scripts/stages.sh"

# Trained tasks of few screens, whose instructions are those of no unseen task.
readonly tasks=SystemWifiTurnOn,SystemWifiTurnOff,SystemWifiTurnOnVerify,SystemWifiTurnOffVerify,SystemBluetoothTurnOn,\
SystemBluetoothTurnOnVerify,SystemBrightnessMin,SystemBrightnessMinVerify,ClockStopWatchRunning,TurnOnWifiAndOpenApp,\
OpenAppTaskEval

# record FOLDER EPISODES SEED: the environment's own solutions, as pictures and the replies that lead on.
record() {
  if [[ -e $out/$1/run.json ]]; then
    "$collab" runs resume "$out/$1"
  else
    "$collab" rollout --env androidworld --graph single --agents rehearsal --split train --tasks "$tasks" \
      --episodes "$2" --seed "$3" --set 'agents.*.options.error_base=0' --set 'agents.*.options.error_slope=0' \
      --set 'agents.*.modality=image' --set 'agents.*.prompt=pocket' --set 'agents.*.history=4' --out "$out/$1"
  fi
}

# imitate FOLDER BASE RUN STEPS: the checkpoint in BASE learns what was recorded in RUN.
imitate() {
  if [[ -e $out/$1/training.json ]]; then
    "$collab" train --resume "$out/$1"
  else
    "$collab" train --algo filtered-bc --env androidworld --graph single --agents sighted --tasks "$tasks" \
      --offline "$out/$3" --seed "$seed" --set "run.agents.*.options.path=$out/$2" --set epochs=1 --set updates="$4" \
      --set steps=null --set episodes=1 --set rl.batch_rows=32 --set rl.rows_at_once=32 --set rl.learning_rate=1e-3 \
      --set rl.context=2048 --set held_out.episodes=44 --out "$out/$1"
  fi
}

[[ -e $out/blank ]] || "$collab" checkpoint add-vision --base built-in:pocket --seed "$seed" --out "$out/blank"
record few 330 "$seed"
imitate first blank few 500
[[ -e $out/seeing ]] || "$collab" export "$out/first@last" --out "$out/seeing"
record more 660 "$((seed + 1))"
imitate second seeing more 600
[[ -e $out/final ]] || "$collab" export "$out/second@last" --dtype bfloat16 --out "$out/final"
