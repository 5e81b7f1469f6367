#!/usr/bin/python
"""Runs a command on a node for the tasks `command` and `shell`, and prints its output while it appears.

It takes the place of Ansible's own module of this name: Ansible's `command` and `shell` actions send `command` from
the configured library before their own. Arguments and result are the same, except that standard error is part of
standard output unless `zuul_ansible_split_streams` is set, as Zuul's users know it.

If SLUICE_STREAM is set (the executor sets it where something reads), each line of output is also written to standard
error at once, after the character RS (0x1e). The result on standard output follows at the end, as from any module.
Nothing is written to a file. The command ends when the connection on which the result is awaited ends.
"""

import datetime
import glob
import os
import select
import shlex
import signal
import subprocess
import sys
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sluice_lines import RESULT_BYTES_MAX, Kept, LineCutter

DOCUMENTATION = """
module: command
short_description: runs a command, and prints its output while it appears
description: Runs a command.
options: {}
"""

# How long to read on after the command has ended and something that it started keeps its output open, in seconds:
# without any output, and in all.
QUIET_SECONDS = 1.0
LINGER_SECONDS = 10.0
# The time between SIGTERM and SIGKILL for a command whose connection has ended, in seconds.
KILL_SECONDS = 2.0
CHUNK_BYTES = 64 << 10


class Gone(Exception):
    """Nothing awaits the result any more."""


class Output:
    """One output of the command: kept for the result, and printed at once if the task streams."""

    def __init__(self, pipe, kept_bytes_max, stream_bytes_max):
        self.pipe = pipe
        self._kept = Kept(kept_bytes_max)
        self._lines = LineCutter(stream_bytes_max) if stream_bytes_max else None

    def add(self, chunk):
        self._kept.add(chunk)
        if self._lines:
            self._print(self._lines.feed(chunk))

    def finish(self):
        if self._lines:
            self._print(self._lines.finish())
        return self._kept.value()

    @staticmethod
    def _print(lines):
        left = b"".join(b"\x1e" + line + b"\n" for line in lines)
        try:
            while left:
                left = left[os.write(2, left):]
        except OSError:
            raise Gone()


def end_group(process):
    """Ends the command and everything of its process group."""
    for name, seconds in ((signal.SIGTERM, KILL_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
        try:
            os.killpg(process.pid, name)
        except OSError:
            return
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            process.poll()
            try:
                os.killpg(process.pid, 0)
            except OSError:
                return
            time.sleep(0.05)


def communicate(process, data, outputs):
    """Feeds `data` to the command and reads its outputs until it has ended.

    Raises `Gone` if nothing awaits the result.
    """
    poll = select.poll()
    readers = {}
    for output in outputs:
        os.set_blocking(output.pipe.fileno(), False)
        readers[output.pipe.fileno()] = output
        poll.register(output.pipe.fileno(), select.POLLIN)
    if data:
        os.set_blocking(process.stdin.fileno(), False)
        poll.register(process.stdin.fileno(), select.POLLOUT)
    elif process.stdin:
        process.stdin.close()
    # No event is asked for; what is always reported is that the other end is closed.
    poll.register(1, 0)
    ended_at = quiet_since = None
    while readers or process.poll() is None:
        for number, event in poll.poll(100 if readers else 5):
            if number == 1:
                if event & (select.POLLERR | select.POLLHUP):
                    raise Gone()
            elif number in readers:
                try:
                    chunk = os.read(number, CHUNK_BYTES)
                except BlockingIOError:
                    continue
                if chunk:
                    readers[number].add(chunk)
                    quiet_since = None
                else:
                    poll.unregister(number)
                    del readers[number]
            else:
                data = feed(process, data)
                if not data:
                    poll.unregister(number)
                    process.stdin.close()
        if process.poll() is not None:
            now = time.monotonic()
            ended_at = ended_at or now
            quiet_since = quiet_since or now
            if now - quiet_since > QUIET_SECONDS or now - ended_at > LINGER_SECONDS:
                return


def feed(process, data):
    """Writes some of `data` to the command, and returns the rest; nothing if the command does not read it."""
    try:
        return data[os.write(process.stdin.fileno(), data[:CHUNK_BYTES]):]
    except BlockingIOError:
        return data
    except OSError:
        return b""


def environment():
    """Returns the environment of the command, without what Ansible needs to run this module."""
    values = {name: value for name, value in os.environ.items() if name != "SLUICE_STREAM"}
    paths = [path for path in values.get("PYTHONPATH", "").split(":") if path and "ansible_" not in path]
    values.pop("PYTHONPATH", None)
    if paths:
        values["PYTHONPATH"] = ":".join(paths)
    return values


def execute(module, arguments, data):
    """Runs the command and returns its exit code, standard output and standard error."""
    split = module.params["zuul_ansible_split_streams"]
    stream_bytes_max = 0 if module.no_log else int(os.environ.get("SLUICE_STREAM") or 0)
    try:
        process = subprocess.Popen(
            arguments, env=environment(), start_new_session=True, stdout=subprocess.PIPE,
            stdin=subprocess.PIPE if data else subprocess.DEVNULL,
            stderr=subprocess.PIPE if split else subprocess.STDOUT,
        )
    except (OSError, ValueError) as error:
        module.fail_json(
            rc=getattr(error, "errno", None) or 257, stdout="", stderr="", cmd=arguments, msg=str(error), changed=False,
        )
    ended = lambda *_: (end_group(process), os._exit(1))
    for name in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(name, ended)
    pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe]
    outputs = [Output(pipe, RESULT_BYTES_MAX // len(pipes), stream_bytes_max) for pipe in pipes]
    try:
        communicate(process, data, outputs)
        texts = [output.finish() for output in outputs]
    except Gone:
        ended()
    texts = [text.decode("utf-8", "replace") for text in texts]
    return process.returncode, texts[0], texts[1] if split else ""


def reason_to_skip(creates, removes):
    """Returns why the command need not run, as the parts of the result; nothing if it has to."""
    if creates and glob.glob(creates):
        return {
            "msg": "Did not run command since '{}' exists".format(creates),
            "stdout": "skipped, since {} exists".format(creates),
        }
    if removes and not glob.glob(removes):
        return {
            "msg": "Did not run command since '{}' does not exist".format(removes),
            "stdout": "skipped, since {} does not exist".format(removes),
        }
    return None


def command_line(module):
    """Returns the arguments of the process, and the command as the result shows it."""
    p = module.params
    raw, shell = p["_raw_params"], p["_uses_shell"]
    if not (raw and raw.strip()) and not p["argv"]:
        module.fail_json(rc=256, msg="no command given", changed=False)
    if raw and p["argv"]:
        module.fail_json(rc=256, msg="only command or argv can be given, not both", changed=False)
    if shell:
        text = raw if raw else " ".join(p["argv"])
        return [p["executable"] or getattr(module, "_shell", None) or "/bin/sh", "-c", text], text
    arguments = shlex.split(raw) if raw else [str(argument) for argument in p["argv"]]
    if p["expand_argument_vars"]:
        arguments = [os.path.expanduser(os.path.expandvars(argument)) for argument in arguments]
    return arguments, arguments


def main():
    module = AnsibleModule(
        argument_spec={
            "_raw_params": {},
            "_uses_shell": {"type": "bool", "default": False},
            "argv": {"type": "list", "elements": "str"},
            "chdir": {"type": "path"},
            "executable": {},
            "expand_argument_vars": {"type": "bool", "default": True},
            "creates": {"type": "path"},
            "removes": {"type": "path"},
            "stdin": {},
            "stdin_add_newline": {"type": "bool", "default": True},
            "strip_empty_ends": {"type": "bool", "default": True},
            "zuul_ansible_split_streams": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    p = module.params
    result = {"changed": False, "stdout": "", "stderr": "", "rc": None, "cmd": None, "msg": ""}
    result.update(start=None, end=None, delta=None)
    if not p["_uses_shell"] and p["executable"]:
        module.warn("The parameter 'executable' has no effect for 'command': use 'shell' for '{}'.".format(p["executable"]))
    arguments, result["cmd"] = command_line(module)
    if p["chdir"]:
        try:
            os.chdir(p["chdir"])
        except OSError as error:
            module.fail_json(**dict(result, msg="Unable to change directory before execution: {}".format(error)))
    skipped = reason_to_skip(p["creates"], p["removes"])
    if skipped:
        module.exit_json(**dict(result, rc=0, **skipped))
    if module.check_mode:
        # Whether it would change something is only known with one of these arguments.
        known = bool(p["creates"] or p["removes"])
        result.update(rc=0, changed=known, msg="Command would have run if not in check mode")
        if not known:
            result["skipped"] = True
        module.exit_json(**result)
    data = p["stdin"]
    if data is not None:
        data = (data + ("\n" if p["stdin_add_newline"] else "")).encode("utf-8", "surrogateescape")
    start = datetime.datetime.now()
    result["rc"], result["stdout"], result["stderr"] = execute(module, arguments, data)
    end = datetime.datetime.now()
    result.update(changed=True, start=str(start), end=str(end), delta=str(end - start))
    if p["strip_empty_ends"]:
        result["stdout"], result["stderr"] = result["stdout"].rstrip("\r\n"), result["stderr"].rstrip("\r\n")
    if result["rc"]:
        module.fail_json(**dict(result, msg="non-zero return code"))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
