"""Fine-tuning: rows become token ids, an order and a checkpoint that the local engine can play.

    rows ──► examples ──► order ──► TRL trainer ──► OUT/final
             (token ids)  (steps)   (sft, dpo)      (safetensors, tokenizer, collab.json, card.json)

A *stage* changes a checkpoint in one way: `copy` (the warm-up of a model made from nothing), `sft` (next-token loss on
replies), `dpo` (preferences). A *preset* holds one *recipe* per stage. Three rules hold everywhere:

    what is trained is what is asked   a row is tokenised piece by piece, as the local engine reads a prompt, and
                                       closed by the token that the chat template closes a reply with
    nothing is cut                     a row longer than the context is dropped and counted
    the order is written down first    every step's rows are known before the first one is trained, so the plan's
                                       counts are exact and a run that was killed goes on as if nothing had happened

A run directory:

    OUT/finetune.json          stage, recipe, base and data with their digests, seed, versions
    OUT/metrics.jsonl          one line per logging step
    OUT/checkpoints/step-N/    weights, optimizer, schedule, random state and their digests; whole or not there at all
    OUT/lock                   held by the process that trains
    OUT/final/                 the result; there once the run is done
"""
