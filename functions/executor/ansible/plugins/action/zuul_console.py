"""Accepts what jobs do to start or stop a console daemon on a node.

Output of commands is logged when their task ends, through the connection that Ansible has anyway, so no daemon and no
open port is needed. The task says so and changes nothing.
"""

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        return dict(result, changed=False, msg="Not needed: output is logged when a task ends.")
