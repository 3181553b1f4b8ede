#!/usr/bin/env bash
# Trains a team on the phone, takes it to web pages, and trains on there: what it brings, gains and forgets.
#
#     scripts/transfer_phone_to_web.sh [OUT [OPTIONS…]]        default: runs/phone-to-web
#
# The pages are those of mobile-miniwob that know a solution, by which the oracle judges. OPTIONS are for both trainings,
# e.g. --set epochs=2 --set episodes=24; EVALUATION="--seeds 30 --episodes 24" says how much is measured. The same command
# again goes on where it was stopped or killed.
# OUT/transfer/result.md is the result. Other agents: AGENTS=local; where `collab` is not on the PATH:
# COLLAB=.venv/bin/collab scripts/transfer_phone_to_web.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/transfer.sh"

transfer androidworld all mobile-miniwob tag:oracle "${1:-runs/phone-to-web}" "${@:2}"
