"""Sends the events of a playbook to the executor, which writes the build's log.

Uses one connection to the socket in SLUICE_LOG_SOCKET, with one JSON object per line. The executor adds timestamps and
masks secrets. What a command prints on a node is sent while it appears (`lib/sluice_streams.py`); other output is sent
when its task ends.
"""

import datetime
import json
import os
import socket
import sys
import time

from ansible.plugins.callback import CallbackBase

PLUGINS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(PLUGINS, "lib"), os.path.join(PLUGINS, "module_utils")]

import sluice_streams  # noqa: E402 (found on the path that is set above)
from sluice_lines import LINE_OVERHEAD_BYTES  # noqa: E402

DOCUMENTATION = """
name: zuul_stream
type: stdout
short_description: sends plays, tasks and results to the executor
description: Sends plays, tasks and results to the executor.
"""

# Text of one result in the log, of one of its lines, and of one message to the executor. A message may have one line
# more.
LOG_TEXT_MAX = 8 << 20
LINE_TEXT_MAX = 64 << 10
MESSAGE_TEXT_MAX = 64 << 10
# One string in job-output.json, and one result.
RECORD_TEXT_MAX = 64 << 10
RECORD_MAX = 1 << 20
# Keys of a result that debug tasks do not print.
ORDINARY = {
    "ansible_facts", "changed", "cmd", "delta", "diff", "end", "failed", "failed_when_result", "invocation", "msg", "rc",
    "results", "skipped", "skip_reason", "start", "stderr", "stderr_lines", "stdout", "stdout_lines", "warnings",
    "deprecations", "exception", "zuul_log_id", "unreachable", "attempts", "false_condition", "_ansible_no_log",
}


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat().replace("+00:00", "Z")


def shortened(value):
    """Cuts long texts, so that one result cannot fill the record."""
    if isinstance(value, str):
        if len(value) <= RECORD_TEXT_MAX:
            return value
        return value[:RECORD_TEXT_MAX] + "[{} more characters are in job-output.txt]".format(len(value) - RECORD_TEXT_MAX)
    if isinstance(value, dict):
        return {str(key): shortened(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [shortened(item) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return shortened(str(value))


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "zuul_stream"

    def __init__(self):
        super().__init__()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(os.environ["SLUICE_LOG_SOCKET"])
        self._phase = ""
        self._play = ""
        # Whether the executor's own playbook runs, which gathers facts before that of the job; what it has counted.
        self._is_setup = False
        self._setup_counts = {}
        self._split_streams = os.environ.get("ZUUL_ANSIBLE_SPLIT_STREAMS") == "True"
        # Host and task of each result whose output is in the log already.
        self._streamed = set()
        sluice_streams.install()

    # Messages to the executor.

    def _send(self, event, **fields):
        if self._is_setup:
            return
        try:
            text = json.dumps({"event": event, **fields}, ensure_ascii=False)
            # Half of a surrogate pair, by which Python writes a byte that is no UTF-8, is no valid JSON.
            self._socket.sendall(text.encode("utf-8", "replace") + b"\n")
        except OSError:
            # The executor has killed this playbook and closed the socket.
            pass

    def _log(self, text):
        self._lines("", text.split("\n"))

    def _host_log(self, host, text):
        self._lines("{} | ".format(host), text.split("\n"))

    def _lines(self, prefix, lines):
        """Sends lines for the log in messages of a bounded size, and of very many only the first."""
        message, length, total = [], 0, 0
        for position, line in enumerate(lines):
            if total > LOG_TEXT_MAX:
                message.append("{}[{} more lines are left out here]".format(prefix, len(lines) - position))
                break
            line = prefix + line[:LINE_TEXT_MAX]
            message.append(line)
            length += len(line)
            total += len(line) + LINE_OVERHEAD_BYTES
            if length > MESSAGE_TEXT_MAX:
                self._send("log", text="\n".join(message))
                message, length = [], 0
        if message:
            self._send("log", text="\n".join(message))

    # Plays and tasks.

    def v2_playbook_on_start(self, playbook):
        setup = os.path.join(os.path.dirname(os.environ["ANSIBLE_CONFIG"]), "setup.yaml")
        self._is_setup = playbook._file_name == setup
        self._send("started")

    def v2_playbook_on_play_start(self, play):
        extra = play.get_variable_manager().extra_vars
        self._phase = extra.get("zuul_execution_phase", "")
        name = play.get_name().strip()
        self._play = name
        self._send("play", id=str(play._uuid), name=name, at=now())
        self._log("\nPLAY [{}]".format(name))

    def v2_playbook_on_task_start(self, task, is_conditional):
        self._task_start(task, "TASK")

    def v2_playbook_on_handler_task_start(self, task):
        self._task_start(task, "RUNNING HANDLER")

    def v2_playbook_on_cleanup_task_start(self, task):
        self._task_start(task, "CLEANUP TASK")

    def _task_start(self, task, word):
        role = None
        if task._role:
            role = {"name": task._role.get_name(), "id": str(task._role._uuid), "path": task._role._role_path}
        if task.loop or task.loop_with:
            word = "LOOP"
        if self._split_streams and sluice_streams.short_name(task.action) in sluice_streams.MODULE_ACTIONS:
            task.args["zuul_ansible_split_streams"] = True
        self._send("task", id=str(task._uuid), name=task.get_name(), role=role, at=now())
        self._log("\n{} [{}]".format(word, task.get_name()))

    def v2_playbook_on_include(self, included_file):
        for host in included_file._hosts:
            self._host_log(host.get_name(), "included: {}".format(included_file._filename))

    def v2_playbook_on_no_hosts_matched(self):
        self._log("skipping: no hosts matched")

    def v2_playbook_on_no_hosts_remaining(self):
        self._log("NO MORE HOSTS LEFT")

    # Output.

    def v2_runner_on_start(self, host, task):
        # The worker of this host and task is the next process that Ansible starts.
        sluice_streams.current = (host.get_name(), task)

    def v2_sluice_output(self, host, task, lines):
        """Takes lines of output from a worker while its task runs."""
        self._streamed.add((host, task))
        self._lines("{} | ".format(host), lines)

    # Results.

    def v2_runner_on_ok(self, result):
        self._result(result, "changed" if result._result.get("changed") else "ok")

    def v2_runner_on_failed(self, result, ignore_errors=False):
        if not ignore_errors:
            self._failed(result, "failed")
            if self._phase == "run" and not self._rescued(result._task):
                self._send("failing")
        self._result(result, "ERROR (ignored)" if ignore_errors else "ERROR")

    def v2_runner_on_skipped(self, result):
        data = result._result
        reason = data.get("skip_reason") or data.get("msg") or "Conditional result was False"
        self._record(result)
        self._host_log(result._host.get_name(), "skipping: {}".format(reason))

    def v2_runner_on_unreachable(self, result):
        host = result._host.get_name()
        if not getattr(result._task, "ignore_unreachable", False):
            self._failed(result, "unreachable")
            self._send("unreachable", host=host)
        self._record(result)
        self._host_log(host, "UNREACHABLE: {}".format(result._result.get("msg", "").strip()))

    def v2_runner_item_on_ok(self, result):
        self._item(result, "changed" if result._result.get("changed") else "ok")

    def v2_runner_item_on_failed(self, result):
        self._item(result, "ERROR")

    def v2_runner_item_on_skipped(self, result):
        self._item(result, "skipping")

    def v2_runner_retry(self, result):
        data = result._result
        left = data.get("retries", 0) - data.get("attempts", 0)
        self._host_log(result._host.get_name(), "FAILED - RETRYING: {} ({} retries left).".format(result._task.get_name(), left))

    def v2_playbook_on_stats(self, stats):
        if self._is_setup:
            self._setup_counts = {host: dict(stats.summarize(host)) for host in stats.processed}
            return
        self._log("\nPLAY RECAP")
        counts = {}
        for host in sorted(stats.processed):
            before = self._setup_counts.get(host, {})
            counted = {key: count - before.get(key, 0) for key, count in stats.summarize(host).items()}
            if host in self._setup_counts and not any(counted.values()):
                continue
            counts[host] = counted
            line = " ".join(
                "{}: {}".format(word, counts[host].get(key, 0))
                for word, key in (
                    ("ok", "ok"), ("changed", "changed"), ("unreachable", "unreachable"), ("failed", "failures"),
                    ("skipped", "skipped"), ("rescued", "rescued"), ("ignored", "ignored"),
                )
            )
            self._host_log(host, line)
        self._send("stats", stats=counts)

    # How a result is logged.

    def _rescued(self, task):
        parent = task._parent
        while parent is not None:
            if getattr(parent, "rescue", None):
                return True
            parent = getattr(parent, "_parent", None)
        return False

    def _failed(self, result, how):
        """Reports a failure by task and host, for the build's result; without a message if the task has no_log."""
        data = result._result
        items = data.get("results") if isinstance(data.get("results"), list) else []
        failed = [item for item in items if isinstance(item, dict) and item.get("failed")]
        if failed:
            # The whole result of a loop only says that an item failed.
            data = failed[0]
        is_hidden = result._task.no_log or any("censored" in one or one.get("_ansible_no_log") for one in (result._result, data))
        message, code = None, None
        if not is_hidden:
            message, code = data.get("msg"), data.get("rc")
            if "assertion" in data and isinstance(message, str):
                message = "{}: {}".format(message, data["assertion"])
            if not isinstance(message, str) or message.strip() in ("", "non-zero return code"):
                texts = [data.get("stderr"), data.get("stdout")]
                lines = [line for text in texts if isinstance(text, str) for line in text.strip().splitlines()[-1:]]
                message = lines[0] if lines else None
        self._send(
            "failed", how=how, play=self._play, task=result._task.get_name(), host=result._host.get_name(),
            code=code if isinstance(code, int) else None, message=message and message[:LOG_TEXT_MAX],
            handled=self._rescued(result._task),
        )

    def _item(self, result, word):
        data = result._result
        label = data.get(data.get("ansible_loop_var", "item"), "")
        if "_ansible_item_label" in data:
            label = data["_ansible_item_label"]
        self._log_result(result._host.get_name(), data, "{}: Item: {}".format(word, label), result._task)

    def _result(self, result, word):
        self._record(result)
        if "results" in result._result and (result._task.loop or result._task.loop_with):
            # Each item was logged separately.
            if result._result.get("failed"):
                self._host_log(result._host.get_name(), "{}: All items completed".format(word))
            return
        self._log_result(result._host.get_name(), result._result, word, result._task)
        self._streamed.discard((result._host.get_name(), str(result._task._uuid)))

    def _log_result(self, host, data, word, task):
        streamed = (host, str(task._uuid)) in self._streamed
        output = [] if streamed else [data.get("stdout"), data.get("stderr")]
        for text in output:
            if isinstance(text, str) and text.strip("\n"):
                self._host_log(host, text.strip("\n"))
        for warning in data.get("warnings") or []:
            self._host_log(host, "[WARNING]: {}".format(warning))
        text = data.get("msg")
        if "assertion" in data and isinstance(text, str):
            text = "{}: {}".format(text, data["assertion"])
        if task.action.rsplit(".", 1)[-1] == "debug" and "msg" not in data:
            shown = {key: item for key, item in data.items() if key not in ORDINARY and not key.startswith("_")}
            text = json.dumps(shown, indent=2, sort_keys=True, default=str)
        elif not isinstance(text, str):
            text = json.dumps(text, indent=2, default=str) if text not in (None, "") else ""
        if data.get("censored"):
            text = "Output suppressed because no_log was given"
        if "rc" in data and word.startswith("ERROR"):
            text = (text + "\n" if text else "") + "exit code {}".format(data["rc"])
        text = text.strip("\n")
        if "\n" in text:
            self._host_log(host, "{}:\n{}".format(word, text))
        elif text:
            self._host_log(host, "{}: {}".format(word, text))
        else:
            self._host_log(host, word)
        if word.startswith("ERROR") and isinstance(data.get("module_stderr"), str) and data["module_stderr"].strip():
            self._host_log(host, data["module_stderr"].strip("\n"))
        if isinstance(data.get("delta"), str):
            self._host_log(host, "Runtime: {}".format(data["delta"]))

    def _record(self, result):
        data = shortened(result._result)
        data.pop("stdout_lines", None)
        data.pop("stderr_lines", None)
        data["action"] = result._task.action
        if result._task.no_log or "censored" in data:
            data = {key: data[key] for key in ("action", "changed", "failed", "skipped", "censored") if key in data}
        if data["action"].rsplit(".", 1)[-1] in ("setup", "gather_facts"):
            data.pop("ansible_facts", None)
        if len(json.dumps(data)) > RECORD_MAX:
            data = {key: data[key] for key in ("action", "changed", "failed", "skipped", "rc") if key in data}
        self._send("result", task=str(result._task._uuid), host=result._host.get_name(), result=data, at=now())
