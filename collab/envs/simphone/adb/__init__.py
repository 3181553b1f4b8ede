"""SimPhone as adb and uiautomator2 see it: a loopback server that their real clients drive.

async with PhoneServer({"emulator-5554": PhoneHandle()}) as server:
    ...                       # ANDROID_ADB_SERVER_PORT={server.port} adb -s emulator-5554 shell

server       sockets, bounds, the services of an adb server      handle       a phone several connections share
frames       reading and writing the protocols' frames           sync         push, pull, list
terminal     shell services                                      http         what runs behind tcp:9008
automator    uiautomator2's methods                              selectors    finding elements
hierarchy    the screen as UiAutomator's tree and XML               exam         tasks that a client begins
"""
