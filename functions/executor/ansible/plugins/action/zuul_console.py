"""Accepts tasks that start or stop a console daemon on a node, and does nothing.

The output of a command comes over the connection on which Ansible started it, so no daemon and no open port is needed.
"""

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        return dict(result, changed=False, msg="Nothing to start: output comes over Ansible's own connection.")
