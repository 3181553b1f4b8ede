"""Real phones and emulators: what SimPhone simulates, on a device that adb or AndroidWorld reaches.

device                tasks on a device, driven by uiautomator2     device_adb      finding a device
device_drive          the actions, as AndroidWorld executes them    device_guard    what may be touched
device_screen         the screen dump as an observation             device_tasks    the owner's and the device's tasks
androidworld          one emulator in an episode                    emulator        AndroidWorld on its emulator
androidworld_helper   the helper, in AndroidWorld's environment     androidworld_server   AndroidWorld's HTTP server
"""
