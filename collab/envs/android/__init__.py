"""Real phones and emulators: what SimPhone simulates, on a device that adb or AndroidWorld reaches.

device                    tasks on a device, driven by uiautomator2      device_environment   one device in an episode
device_tasks              the owner's tasks                              device_carried       the device's own tasks
device_drive              the actions, as AndroidWorld executes them     device_adb           finding a device
device_screen             the screen dump as an observation              device_guard         what may be touched
app_names                 apps by their visible names                    action_log           what is logged first
still_there               what was seen, before it is touched
emulator                  AndroidWorld on its emulator                   helper_process       its helper, from here
androidworld_helper       the helper, in AndroidWorld's environment      androidworld_screen  its screens and actions
androidworld_server       AndroidWorld's HTTP server                     androidworld_http    its client
androidworld_environment  one emulator in an episode                     androidworld_budgets steps of its tasks
"""
