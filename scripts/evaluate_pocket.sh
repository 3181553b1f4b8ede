#!/usr/bin/env bash
# Measures every stage of the pocket policy: one greedy agent, and the untrained team of the last stage.
#
#     scripts/evaluate_pocket.sh [OUT]         default: runs/pocket, as scripts/train_pocket.sh left it
#
# Suite seeds 30, 31 and 32: on the phone every task of the training split once per seed and every other task thrice; and
# once per seed some pages of mobile-miniwob, which the policy has never seen. They were chosen before any training: all
# whose name begins with click-, enter- or focus-text and that need no look at a picture. What is played is not played
# again, so OUT must not have been trained anew since; the table is made from what lies in OUT/eval, as OUT/eval/table.md.
set -euo pipefail

out=${1:-runs/pocket}
collab=${COLLAB:-collab}
readonly seeds=30,31,32
readonly pages=click-button,click-button-sequence,click-checkboxes,click-checkboxes-large,click-checkboxes-soft,\
click-checkboxes-transfer,click-collapsible,click-collapsible-2,click-dialog,click-dialog-2,click-link,click-menu-2,\
click-option,click-scroll-list,click-tab,click-tab-2,click-tab-2-easy,click-tab-2-hard,click-tab-2-medium,click-test,\
click-test-2,click-test-transfer,click-widget,enter-date,enter-password,enter-text,enter-text-2,enter-text-dynamic,\
enter-time,focus-text,focus-text-2

# measure NAME GRAPH CHECKPOINT TEMPERATURE…
measure() {
  local name=$1 graph=$2 path=$3
  shift 3
  local common=(--graph "$graph" --agents local --seeds "$seeds" --concurrency 16
    --set "agents.*.options.path=$path" --set 'agents.*.prompt=pocket' --set 'agents.*.history=4'
    --set 'agents.*.context_tokens=2048' --set 'agents.*.sampling.max_tokens=128' "$@")
  "$collab" eval --env androidworld --split new-seeds --episodes 72 "${common[@]}" --out "$out/eval/$name/new-seeds"
  "$collab" eval --env androidworld --split unseen-tasks --episodes 24 "${common[@]}" --out "$out/eval/$name/unseen-tasks"
  "$collab" eval --env androidworld --split unseen-app --episodes 24 "${common[@]}" --out "$out/eval/$name/unseen-app"
  "$collab" eval --env mobile-miniwob --tasks "$pages" --episodes 31 "${common[@]}" --out "$out/eval/$name/pages"
}

greedy=(--set 'agents.*.sampling.temperature=0')
for stage in dpo demonstration instruction basic; do
  measure "$stage" single "$out/$stage/final" "${greedy[@]}"
done
measure untrained single "$out/blank" "${greedy[@]}"
measure team team "$out/dpo/final"

# Every line is set against the one before, the last too: what the team adds to its single agent.
"$collab" runs table untrained="$out/eval/untrained" +basic="$out/eval/basic" +instruction="$out/eval/instruction" \
  +demonstration="$out/eval/demonstration" +dpo="$out/eval/dpo" team="$out/eval/team" --against previous |
  tee "$out/eval/table.md"
