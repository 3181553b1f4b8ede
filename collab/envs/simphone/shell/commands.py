"""Every command the shell knows, and the emulator console."""

from __future__ import annotations

from collab.envs.simphone.apps.messages import receive
from collab.envs.simphone.shell import content, files, system, text, tree
from collab.envs.simphone.shell.apps import am, monkey, pm
from collab.envs.simphone.shell.input import input_command
from collab.envs.simphone.shell.session import SHELL, CommandFunction, Output, ShellResult, ShellSession, Stop
from collab.envs.simphone.state import Phone


def _true(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Return success; also used for accepted commands without an effect here."""
    return Output()


def _false(session: ShellSession, args: list[str], stdin: str) -> Output:
    return Output(code=1)


def _cd(session: ShellSession, args: list[str], stdin: str) -> Output:

    path = session.path(args[0] if args else "/")
    if not tree.is_folder(session.phone, path):
        return Output(err=f"/system/bin/sh: cd: {args[0]}: No such file or directory\n", code=2)
    session.cwd = path
    return Output()


def _pwd(session: ShellSession, args: list[str], stdin: str) -> Output:
    return Output(session.cwd + "\n")


def _exit(session: ShellSession, args: list[str], stdin: str) -> Output:
    code = int(args[0]) if args and args[0].isascii() and args[0].isdecimal() and len(args[0]) < 6 else session.status
    raise Stop(code)


def _export(session: ShellSession, args: list[str], stdin: str) -> Output:
    session.variables.update((name, value) for name, _, value in (arg.partition("=") for arg in args))
    return Output()


def _which(session: ShellSession, args: list[str], stdin: str) -> Output:
    found = [name for name in args if name in COMMANDS]
    return Output("".join(f"/system/bin/{name}\n" for name in found), code=int(len(found) < len(args)))


def _run_other(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Run another command, for `exec NAME …`, `toybox NAME …` and `su 0 NAME …`."""
    while args and (args[0] in ("0", "root", "-c") or args[0].startswith("-")):
        args = args[1:]
    if not args:
        return Output()
    command = COMMANDS.get(args[0])
    if command is None:
        return Output(err=f"{SHELL}: {args[0]}: inaccessible or not found\n", code=127)
    return command(session, args[1:], stdin)


def _uname(session: ShellSession, args: list[str], stdin: str) -> Output:
    return Output("Linux localhost 5.15.41 #1 SMP PREEMPT x86_64\n" if "-a" in args else "Linux\n")


def _id(session: ShellSession, args: list[str], stdin: str) -> Output:
    return Output("uid=0(root) gid=0(root) groups=0(root) context=u:r:su:s0\n")


def _df(session: ShellSession, args: list[str], stdin: str) -> Output:
    head = "Filesystem       1K-blocks    Used Available Use% Mounted on\n"
    return Output(head + "/dev/fuse         16777216 6878658   9898558  41% /storage/emulated\n")


def _ip(session: ShellSession, args: list[str], stdin: str) -> Output:
    return Output(
        "wlan0     Link encap:Ethernet\n          inet addr:10.0.2.16  Bcast:10.0.2.255  Mask:255.255.255.0\n"
    )


COMMANDS: dict[str, CommandFunction] = {
    ":": _true,
    "[": files.bracket,
    "[[": files.bracket,
    "am": am,
    "base64": text.base64_command,
    "basename": text.basename,
    "cat": files.cat,
    "cd": _cd,
    "chmod": files.chmod,
    "chown": files.chmod,
    "cmd": system.cmd,
    "content": content.content,
    "cp": files.cp,
    "date": system.date,
    "df": _df,
    "dirname": text.dirname,
    "dumpsys": system.dumpsys,
    "echo": text.echo,
    "exec": _run_other,
    "exit": _exit,
    "export": _export,
    "false": _false,
    "find": files.find,
    "getprop": system.getprop,
    "grep": text.grep,
    "head": text.head,
    "id": _id,
    "ifconfig": _ip,
    "ime": system.ime,
    "input": input_command,
    "logcat": _true,
    "ls": files.ls,
    "md5sum": files.make_digest("md5"),
    "mkdir": files.mkdir,
    "monkey": monkey,
    "mv": files.mv,
    "pidof": system.pidof,
    "pm": pm,
    "printf": text.printf,
    "ps": system.ps,
    "pwd": _pwd,
    "restorecon": files.restorecon,
    "rm": files.rm,
    "rmdir": files.rmdir,
    "screencap": system.screencap,
    "service": system.service,
    "set": _true,
    "setprop": _true,
    "settings": system.settings,
    "sha1sum": files.make_digest("sha1"),
    "sha256sum": files.make_digest("sha256"),
    "sleep": system.sleep,
    "sort": text.sort,
    "sqlite3": content.sqlite,
    "stat": files.stat,
    "su": _run_other,
    "svc": system.svc,
    "sync": _true,
    "tail": text.tail,
    "test": files.test,
    "touch": files.touch,
    "toybox": _run_other,
    "tr": text.tr,
    "true": _true,
    "uiautomator": system.uiautomator,
    "umask": _true,
    "uname": _uname,
    "wc": text.wc,
    "which": _which,
    "whoami": system.whoami,
    "wm": system.wm,
}


def console(phone: Phone, command: str) -> ShellResult:
    """Answer the emulator's console (`adb emu …`): `sms send NUMBER TEXT`, `gsm call NUMBER`, `ping`."""
    words = command.strip().split(" ", 3)
    if words[:2] == ["sms", "send"] and len(words) == 4 and words[2]:
        text = words[3].encode("utf-8", "replace").decode("utf-8")
        return _build_result(receive(phone, words[2], text), "OK\n")
    if words[:1] == ["gsm"] and words[1:2] in (["call"], ["cancel"], ["accept"], ["list"]):
        return _build_result(phone, "OK\n")
    if words[:1] in (["ping"], ["avd"], ["power"], ["geo"]):
        return _build_result(phone, "OK\n")
    return _build_result(phone, "KO: unknown command, try 'help'\n", 1)


def _build_result(phone: Phone, out: str, code: int = 0) -> ShellResult:
    return ShellResult(phone=phone, stdout=out, stderr="", exit_code=code, output=out)
