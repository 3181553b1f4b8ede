"""SimPhone as AndroidWorld sees a device: AndroidWorld's own tasks set it up and judge it.

client/        android_env's interface over the adb server, and AndroidWorld's tasks as judges; runs under
               AndroidWorld's interpreter, started by path, and imports nothing of this package
judge          the process that runs it
fidelity       a task instance set up, solved and judged: their score beside ours
hands          what executes our solution: SimPhone's engine, or AndroidWorld through adb
spoil          solved phones with one thing changed
table          all instances as a page of text
"""
