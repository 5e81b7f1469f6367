"""Expands job variables once, before the first playbook, and writes their values for this host to a file.

Privileged playbooks (trusted or with secrets) use these values. Otherwise a template in a job variable could read a
secret in a trusted playbook. A variable that cannot be expanded yet, because it refers to a later fact, is left out.

Arguments: names (variables), dest (a directory; the file is named after the host).
"""

import json
import os

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset(("names", "dest"))

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        frozen, left_out = {}, []
        for name in self._task.args["names"]:
            if name not in task_vars:
                continue
            try:
                value = self._templar.template(task_vars[name], fail_on_undefined=True)
                frozen[name] = json.loads(json.dumps(value))
            except (AnsibleError, TypeError, ValueError):
                left_out.append(name)
        path = os.path.join(self._task.args["dest"], task_vars["inventory_hostname"] + ".json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(frozen, file)
        return dict(result, changed=False, left_out=left_out)
