"""SimPhone as adb and uiautomator2 see it: a loopback server that their real clients drive.

async with PhoneServer({"emulator-5554": PhoneHandle()}) as server:
    ...                       # ANDROID_ADB_SERVER_PORT={server.port} adb -s emulator-5554 shell

server       an adb server: sockets, bounds, shell services, phones that several connections share
sync         push, pull, list
http         what runs behind tcp:9008
automator    uiautomator2's methods, and the screen as UiAutomator's tree
selectors    finding elements
"""
