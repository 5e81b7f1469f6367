"""Runs a shell command on a host and writes its output to a file on the executor, in one round trip without a module.

Arguments: command, dest (a file on the executor, in the work directory). A link on its path is not followed.
"""

import os
import sys

from ansible.plugins.action import ActionBase

sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib")]

import sluice_files  # noqa: E402 (found on the path that is set above)


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset(("command", "dest"))

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        done = self._low_level_execute_command("{ " + self._task.args["command"] + "; } 2>&1")
        if done["rc"]:
            return dict(result, failed=True, rc=done["rc"], msg="the command failed: {}".format(done["stdout"].strip()))
        dest = self._task.args["dest"]
        try:
            sluice_files.write_text(task_vars["zuul"]["executor"]["work_root"], dest, done["stdout"])
        except (OSError, sluice_files.Refused) as error:
            return dict(result, failed=True, msg="could not write {}: {}".format(dest, error))
        return dict(result, changed=False)
