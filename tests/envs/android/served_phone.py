"""A SimPhone behind the adb server, as a device that the environment plays on."""

import asyncio
from contextlib import contextmanager

from collab.envs.android.device import DeviceSuite
from collab.envs.grammar import MOBILE
from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.adb.server import serve_phones

SERIAL = "emulator-5554"


EVERY_APP = ["Camera", "Clock", "Contacts", "Phone", "Settings", "Simple SMS Messenger", "Clipper", "Markor", "Files"]


@contextmanager
def on_device(phone=None, tasks=None, max_steps=20, **options):
    handle = PhoneHandle() if phone is None else PhoneHandle(phone)
    tasks = tasks or [{"name": "anything", "goal": "Do it.", "success": {"package": "x"}, "max_steps": max_steps}]
    options = {"allow_apps": EVERY_APP, "settle_s": 0.0, **options}
    with serve_phones({SERIAL: handle}) as port:
        yield DeviceSuite(serial=SERIAL, adb_port=port, tasks=tasks, **options), handle


def play(suite, actions, task="anything"):
    """Reset and play; actions are made from the observation. Returns the environment's results."""

    async def run():
        environment = await suite.open()
        observation = await environment.reset(suite.instance(task, 0))
        results = []
        for make in actions:
            result = await environment.step(make(observation) if callable(make) else make)
            observation = result.observation
            results.append(result)
        await suite.close()
        return results

    return asyncio.run(run())


def on(label, type="click", **fields):
    """An action on the element with this label."""

    def make(observation):
        index = next(one.index for one in observation.elements if one.label == label)
        return MOBILE.make(type, index=index, **fields)

    return make
