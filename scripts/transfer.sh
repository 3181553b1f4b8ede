# Not to be run: what scripts/transfer_phone_to_web.sh and scripts/transfer_web_to_phone.sh have in common.
#
# transfer FIRST TASKS SECOND TASKS OUT OPTIONS…: train a team in the first environment (OUT/trained), then transfer its
# best epoch to the second one (OUT/transfer) and train it there. The same command resumes a stopped or killed run;
# finished parts are kept. OPTIONS are for both commands, the words of TRANSFER for the transfer alone.
transfer() {
  local first=$1 first_tasks=$2 second=$3 second_tasks=$4 out=$5
  shift 5
  local collab=${COLLAB:-collab} agents=${AGENTS:-early} alone recipe
  read -ra alone <<< "${TRANSFER:-}"
  recipe="$first $first_tasks to $second $second_tasks with $agents: $* ${TRANSFER:-}"
  if [[ -e $out && ! -e $out/recipe && -n $(ls -A -- "$out") ]]; then
    echo "error: $out is there already and holds something else; name another folder" >&2
    exit 2
  fi
  if [[ -e $out/recipe && $(< "$out/recipe") != "$recipe" ]]; then
    echo "error: $out holds what other options made ($(< "$out/recipe"); now $recipe); name another folder" >&2
    exit 2
  fi
  mkdir -p "$out"
  echo "$recipe" > "$out/recipe"
  if [[ -e $out/trained/training.json ]]; then
    "$collab" train-marl --resume "$out/trained"
  else
    rm -rf -- "$out/trained"
    "$collab" train-marl --env "$first" --tasks "$first_tasks" --agents "$agents" --out "$out/trained" "$@"
  fi
  if [[ -e $out/transfer/transfer.json ]]; then
    "$collab" transfer --resume "$out/transfer"
  else
    rm -rf -- "$out/transfer"
    "$collab" transfer --mode continual --agents "$out/trained@best" --env "$second" --tasks "$second_tasks" \
      --out "$out/transfer" "$@" ${alone[@]+"${alone[@]}"}  # bash 3.2 takes an empty list for an unset name
  fi
}
