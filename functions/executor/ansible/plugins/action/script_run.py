"""Runs a script on a host with the login shell only; no Ansible module is built and sent.

Arguments: command, directory (relative to the login's home). The task's `environment` is set.
"""

import datetime
import shlex
import time

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset(("command", "directory"))

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        command, directory = self._task.args["command"], self._task.args["directory"]
        # Merges stderr into stdout, so that the log shows both in order.
        line = "cd {} && {} /bin/bash -c {} 2>&1".format(
            shlex.quote(directory), self._compute_environment_string(), shlex.quote(command)
        )
        started = time.monotonic()
        done = self._low_level_execute_command(line)
        delta = str(datetime.timedelta(seconds=time.monotonic() - started))
        result.update(changed=True, cmd=command, rc=done["rc"], stdout=done["stdout"].rstrip("\r\n"), stderr=done["stderr"], delta=delta)
        if done["rc"]:
            result.update(failed=True, msg="non-zero return code")
        return result
