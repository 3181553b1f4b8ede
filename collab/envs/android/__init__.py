"""Real phones and emulators: what SimPhone simulates, on a device that adb reaches.

device          tasks on a device, driven by uiautomator2       device_screen   the screen dump as an observation
device_drive    the actions, as AndroidWorld executes them      device_guard    what may be touched
device_tasks    task files                                      app_names       apps by their visible names
"""
