"""Accepts tasks that start or stop a console daemon on a node, and does nothing.

The output of a command is logged when its task ends, over Ansible's own connection, so no daemon and no open port is
needed.
"""

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        return dict(result, changed=False, msg="Not needed: output is logged when a task ends.")
