"""Runs a shell command on a host and writes its output to a file on the executor, in one round trip without a module.

Arguments: command, dest (a file on the executor).
"""

import os

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset(("command", "dest"))

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        done = self._low_level_execute_command("{ " + self._task.args["command"] + "; } 2>&1")
        if done["rc"]:
            return dict(result, failed=True, rc=done["rc"], msg="the command failed: {}".format(done["stdout"].strip()))
        dest = self._task.args["dest"]
        os.makedirs(os.path.dirname(dest), exist_ok=True)
        with open(dest, "w", encoding="utf-8") as file:
            file.write(done["stdout"])
        return dict(result, changed=False)
