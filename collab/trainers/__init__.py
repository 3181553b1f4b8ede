"""Fine-tuning: turn rows into token ids, an order, and a checkpoint that the local engine can play.

    rows ──► examples ──► order ──► TRL trainer ──► OUT/final
             (token ids)  (steps)   (sft, dpo)      (safetensors, tokenizer, collab.json, card.json)

The stages: `copy` (warm-up of a model from scratch), `sft` (next-token loss on replies), `dpo` (preferences). A
*preset* holds one *recipe* per stage. Three rules hold everywhere:

    train what is played        a row is tokenised piece by piece, as the local engine reads a prompt, and closed by
                                the chat template's end of a reply
    cut nothing                 a row longer than the context is dropped and counted
    fix the order first         every step's rows are known before the first step, so the plan's counts are exact and
                                a killed run resumes exactly

A run directory:

    OUT/finetune.json          stage, recipe, base and data with their digests, seed, versions
    OUT/metrics.jsonl          one line per logging step
    OUT/checkpoints/step-N/    weights, optimizer, schedule, random state and their digests; complete or absent
    OUT/lock                   held by the training process
    OUT/final/                 the result, once the run is done
"""
