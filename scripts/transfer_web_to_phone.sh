#!/usr/bin/env bash
# Trains a team on web pages, then on the phone: the opposite direction of transfer_phone_to_web.sh.
#
#     scripts/transfer_web_to_phone.sh [OUT [OPTIONS…]]        default: runs/web-to-phone
#
# Pages, OPTIONS, TRANSFER, AGENTS, COLLAB and what happens when it is called again are as there.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/transfer.sh"

transfer mobile-miniwob tag:oracle androidworld all "${1:-runs/web-to-phone}" "${@:2}"
