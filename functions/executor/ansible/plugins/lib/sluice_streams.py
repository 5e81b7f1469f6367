"""Sends what a task prints on a node to the log while it appears, over the task's own SSH channel.

Ansible starts one ssh for a module and collects its output until it ends. `install` makes Ansible's ssh connection
start it as a `_Process`, which reads along: from a module the lines that our `command` writes to standard error, from a
script its standard output. The lines go from the worker to Ansible's main process through the queue of its results, so
they arrive in order, before the result, and no faster than the log takes them.

What a node may send is bounded here, because Ansible keeps it in memory.
"""

import os
import subprocess
import types

import ansible.plugins.connection.ssh as ssh
from ansible.utils.display import Display

from sluice_lines import RESULT_BYTES_MAX, LineCutter

# What a node may send as the result of a module, in bytes, and what is kept of its standard error.
STDOUT_BYTES_MAX = 64 << 20
STDERR_BYTES_MAX = 1 << 20
CHUNK_BYTES = 64 << 10
# A marked line that has no end within so many bytes is shown without it.
PARTIAL_BYTES_MAX = 256 << 10
# Begins a line of output in the standard error of our `command` module.
MARK = b"\x1e"
# The line of a module's code after which it may be extended; Ansible has it for programs that test modules.
WRAPPER = b"\n_ANSIBALLZ_WRAPPER = True"

MODULE_ACTIONS = ("command", "shell")
SCRIPT_ACTIONS = ("script", "raw", "script_run")

# The host and the task for which the next worker is started. Each worker is a fork, so it keeps its own.
current = None


def short_name(action):
    return action.rsplit(".", 1)[-1]


def install():
    """Makes Ansible's ssh connection read along. Workers that are forked afterwards do so."""
    if getattr(ssh.Connection.exec_command, "streams", False):
        return
    original = ssh.Connection.exec_command

    def exec_command(self, cmd, in_data=None, sudoable=True):
        stream = _stream(in_data, sudoable)
        if stream and in_data:
            in_data = stream.extended(in_data)
        _Process.stream, _Process.flooded = stream, False
        try:
            result = original(self, cmd, in_data=in_data, sudoable=sudoable)
        finally:
            _Process.stream = None
            if stream:
                stream.finish()
        if _Process.flooded:
            return 1, b"", "The host sent more than {} bytes as the result of a task.".format(STDOUT_BYTES_MAX).encode()
        return result

    exec_command.streams = True
    ssh.Connection.exec_command = exec_command
    replacement = types.ModuleType("subprocess")
    replacement.__dict__.update(subprocess.__dict__)
    replacement.Popen = _Process
    ssh.subprocess = replacement


def _stream(in_data, sudoable):
    """Returns the stream of the current task, or nothing if its output does not go to the log while it appears."""
    queue = Display()._final_q
    if not current or not queue:
        return None
    host, task = current
    # A loop shows the output of an item together with the item. no_log is a template until the worker has expanded it.
    if task.loop is not None or task.loop_with or task.async_val or task.no_log not in (None, False):
        return None
    action = short_name(task.action)
    if action in MODULE_ACTIONS and in_data and WRAPPER in in_data:
        return _ModuleStream(queue, host, task)
    if action in SCRIPT_ACTIONS and not in_data and sudoable:
        return _ScriptStream(queue, host, task)
    return None


class _Stream:
    """What one ssh prints.

    `stdout` and `stderr` take the next bytes, or none at the end, and return what Ansible sees.
    """

    def __init__(self, queue, host, task):
        self._queue, self._host, self._task = queue, host, str(task._uuid)
        self.bytes_max = max(int(os.environ.get("ZUUL_OUTPUT_MAX_BYTES") or 0) // 4, 1 << 20)

    def _send(self, lines):
        if lines:
            texts = [line.rstrip(b"\r").decode("utf-8", "replace") for line in lines]
            self._queue.send_callback("v2_sluice_output", self._host, self._task, texts)

    def stdout(self, chunk):
        return chunk

    def stderr(self, chunk):
        return chunk

    def finish(self):
        """Sends what is left when ssh has ended."""


class _ModuleStream(_Stream):
    """The lines that our `command` module marks in its standard error."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._partial = b""

    def extended(self, in_data):
        """Returns the module's code with a line that makes it stream."""
        begin = in_data.index(WRAPPER) + 1
        end = in_data.index(b"\n", begin) + 1
        line = "import os; os.environ['SLUICE_STREAM'] = '{}'\n".format(self.bytes_max).encode()
        return in_data[:end] + line + in_data[end:]

    def stderr(self, chunk):
        *complete, self._partial = (self._partial + chunk).split(b"\n")
        if self._partial and (not chunk or len(self._partial) > PARTIAL_BYTES_MAX):
            complete.append(self._partial)
            self._partial = b""
        self._send([line[1:] for line in complete if line.startswith(MARK)])
        return b"".join(line + b"\n" for line in complete if not line.startswith(MARK))

    def finish(self):
        self.stderr(b"")


class _ScriptStream(_Stream):
    """The standard output of a script, of which Ansible sees the beginning."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._lines = LineCutter(self.bytes_max)
        self._left = RESULT_BYTES_MAX

    def stdout(self, chunk):
        # With `become` the first line is Ansible's own.
        self._send([line for line in self._lines.feed(chunk) if not line.startswith(b"BECOME-SUCCESS-")])
        kept = chunk[:self._left]
        self._left -= len(kept)
        if kept and not self._left:
            kept += b"\n[the rest of the output is left out here]\n"
        return kept

    def finish(self):
        self._send(self._lines.finish())


class _Process(subprocess.Popen):
    """An ssh whose output is read along and bounded."""

    stream = None
    flooded = False

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        self._stdout_left, self._stderr_left = STDOUT_BYTES_MAX, STDERR_BYTES_MAX
        if self.stdout and self.stderr:
            self.stdout = _Pipe(self.stdout, self._visible_stdout)
            self.stderr = _Pipe(self.stderr, self._visible_stderr)

    def _visible_stdout(self, chunk):
        if _Process.stream:
            chunk = _Process.stream.stdout(chunk)
        self._stdout_left -= len(chunk)
        if self._stdout_left < 0:
            _Process.flooded = True
            self.kill()
            return b""
        return chunk

    def _visible_stderr(self, chunk):
        if _Process.stream:
            chunk = _Process.stream.stderr(chunk)
        chunk = chunk[:self._stderr_left]
        self._stderr_left -= len(chunk)
        return chunk


class _Pipe:
    """A pipe whose chunks go through `change` before Ansible sees them."""

    def __init__(self, pipe, change):
        self._pipe, self._change = pipe, change

    def read(self):
        """Returns what Ansible sees of the bytes that are there, and `b""` at the end."""
        try:
            chunk = os.read(self._pipe.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return _Nothing()
        visible = self._change(chunk)
        return visible or (_Nothing() if chunk else b"")

    def __getattr__(self, name):
        return getattr(self._pipe, name)


class _Nothing(bytes):
    """No bytes, but not the end of the output, which Ansible recognises by `b""`."""

    def __eq__(self, other):
        return False

    __hash__ = None
