# Read by the scripts that train a shipped checkpoint from nothing: stages that are done once and resumed where they stopped.
#
#     source "$home/scripts/stages.sh"      after out, seed and home are set; begins or checks the folder OUT
#     rows FOLDER ARGUMENTS…                `collab synth` of the phone's solver
#     blank                                 a checkpoint without any training, from OUT/rows and OUT/demonstrations
#     blank_as_pocket                       likewise, with the pocket's tokenizer: for what reads the same tokens as it
#     train FOLDER ARGUMENTS…               `collab finetune`

collab=${COLLAB:-collab}

# stage FOLDER WHAT MANIFEST RESULT ARGUMENTS…: `collab WHAT`, not at all when RESULT is there, from where it stopped when
# MANIFEST is there, else from the start.
stage() {
  local folder=$out/$1 what=$2 manifest=$3 result=$4
  shift 4
  if [[ -e $folder/$result ]]; then
    echo "$folder: done"
  elif [[ -e $folder/$manifest ]]; then
    "$collab" "$what" --resume "$folder"
  else
    rm -rf -- "$folder"
    "$collab" "$what" --out "$folder" --seed "$seed" "$@"
  fi
}
rows() { stage "$1" synth synth.json card.md --env androidworld --teacher oracle --prompt pocket --set history=4 \
  --set context_tokens=2048 --set max_tokens=128 --set mistakes=0.1 --set talk=0.15 "${@:2}"; }
train() { stage "$1" finetune finetune.json final "${@:2}"; }
blank() {
  [[ -e $out/blank ]] ||
    "$collab" checkpoint new --data "$out/rows,$out/demonstrations" --preset pocket --seed "$seed" --out "$out/blank"
}
blank_as_pocket() {
  [[ ! -e $out/blank ]] || return 0
  rm -rf -- "$out/learned"
  "$collab" checkpoint new --data "$out/rows" --preset pocket --seed "$seed" --out "$out/learned"
  cp -- "$home"/agents/pocket/tokenizer.json "$home"/agents/pocket/tokenizer_config.json "$out/learned"
  mv -- "$out/learned" "$out/blank"
}

# What a folder holds is one seed and one recipe: this file, the script that reads it, the preset and the prompts.
recipe="seed $seed, recipe $(cat -- "${BASH_SOURCE[0]}" "${BASH_SOURCE[1]}" "$home/collab/trainers/presets/pocket.yaml" \
  "$home"/prompts/pocket/*.jinja | sha256sum | cut -c1-12)"
if [[ -e $out && ! -e $out/recipe && -n $(ls -A -- "$out") ]]; then
  echo "error: $out is there already and holds something else; name another folder" >&2
  exit 2
fi
if [[ -e $out/recipe && $(< "$out/recipe") != "$recipe" ]]; then
  echo "error: $out holds what another seed or recipe made ($(< "$out/recipe"); now $recipe); name another folder" >&2
  exit 2
fi
mkdir -p "$out"
echo "$recipe" > "$out/recipe"
