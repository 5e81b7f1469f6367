"""Copies a directory of the executor to a host as one archive; the host only needs tar.

Arguments: src (directory on the executor, in the work directory; no link is followed to it), dest (directory on the
host, relative to the login's home), delete (removes dest first).
"""

import os
import shlex
import subprocess
import sys
import tempfile

from ansible import constants
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib")]

import sluice_files  # noqa: E402 (found on the path that is set above)


class ActionModule(ActionBase):
    TRANSFERS_FILES = True
    _VALID_ARGS = frozenset(("src", "dest", "delete"))

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        source, target = self._task.args["src"], self._task.args["dest"]
        handle, archive = tempfile.mkstemp(suffix=".tar.gz", dir=constants.DEFAULT_LOCAL_TMP)
        os.close(handle)
        try:
            # Git packs are compressed already; level 1 is enough for the rest.
            with sluice_files.opened_directory(task_vars["zuul"]["executor"]["work_root"], source) as directory:
                packed = subprocess.run(
                    ["tar", "--create", "--file", archive, "--use-compress-program", "gzip -1",
                     "--directory", "/proc/self/fd/{}".format(directory), "."],
                    capture_output=True, text=True, check=False, pass_fds=(directory,),
                )
            if packed.returncode:
                return dict(result, failed=True, msg="could not pack {}: {}".format(source, packed.stderr.strip()))
            return dict(result, **self._unpack(archive, target))
        except (OSError, sluice_files.Refused) as error:
            return dict(result, failed=True, msg="could not pack {}: {}".format(source, error))
        finally:
            os.unlink(archive)

    def _unpack(self, archive, target):
        remote = self._connection._shell.join_path(self._make_tmp_path(), "workspace.tar.gz")
        self._transfer_file(archive, remote)
        there = shlex.quote(target)
        steps = ["mkdir -p {}".format(there), "tar -xzf {} --no-same-owner -C {}".format(shlex.quote(remote), there)]
        if boolean(self._task.args.get("delete", False)):
            steps.insert(0, "rm -rf -- {}".format(there))
        done = self._low_level_execute_command("{{ {}; }} 2>&1; code=$?; rm -f {}; exit $code".format(" && ".join(steps), shlex.quote(remote)))
        size = os.path.getsize(archive)
        if done["rc"]:
            return {"failed": True, "msg": "could not unpack on the host: {}".format(done["stdout"].strip())}
        return {"changed": True, "msg": "{} bytes sent".format(size)}
