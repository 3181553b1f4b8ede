"""SimPhone as AndroidWorld sees a device: AndroidWorld's own tasks set it up and judge it.

client/        android_env's interface over the adb server, and AndroidWorld's tasks as judges; runs under
               AndroidWorld's interpreter, started by path, and imports nothing of this package
fidelity       a task instance set up, solved (or spoilt by one change) and judged: AndroidWorld's score beside ours
table          all instances as a page of text
"""
