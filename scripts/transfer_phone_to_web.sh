#!/usr/bin/env bash
# Trains a team on the phone, then on web pages, and measures what it brings, gains and forgets.
#
#     scripts/transfer_phone_to_web.sh [OUT [OPTIONS…]]        default: runs/phone-to-web
#
# The pages are those of mobile-miniwob that know a solution, by which the oracle judges. OPTIONS are for both trainings,
# e.g. --set epochs=2 --set steps=1200. TRANSFER is for what is done with the trained team alone: how much is measured,
# and how it learns what is new to it, e.g.
#     TRANSFER="--seeds 30,31,32 --set replay_fraction=0.4 --set dpo.learning_rate=1e-4"
# The same command resumes a stopped or killed run.
# OUT/transfer/result.md is the result. Other agents: AGENTS=local; where `collab` is not on the PATH:
# COLLAB=.venv/bin/collab scripts/transfer_phone_to_web.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/transfer.sh"

transfer androidworld all mobile-miniwob tag:oracle "${1:-runs/phone-to-web}" "${@:2}"
