"""Run commands in the shell of a phone."""

from collab.envs.simphone.content.messages import INBOX, SENT, add_message
from collab.envs.simphone.core import FACTORY
from collab.envs.simphone.shell import run

SDCARD = "/storage/emulated/0"
MESSAGES = add_message(
    add_message(FACTORY, "+15551111", "Hi, you = me, ok?", INBOX, date=1_697_384_000_000), "+1 555-2222", "Yo", SENT
)


def out(command, phone=FACTORY):
    return run(phone, command).stdout


def after(command, phone=FACTORY):
    return run(phone, command).phone
