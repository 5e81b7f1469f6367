"""Copies files and directories of a host to the executor as one archive; the host only needs tar.

Arguments: src (directory on the host, relative to the login's home), paths (relative to src; default everything), dest
(directory on the executor, in the work directory). Missing paths are skipped. The archive comes from the host and what
is in `dest` from earlier playbooks, so it is unpacked into a new directory, and its entries are moved without following
a link.
"""

import os
import shlex
import subprocess
import sys
import tempfile

from ansible import constants
from ansible.plugins.action import ActionBase

sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib")]

import sluice_files  # noqa: E402 (found on the path that is set above)


class ActionModule(ActionBase):
    TRANSFERS_FILES = True
    _VALID_ARGS = frozenset(("src", "paths", "dest"))

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        source, target = self._task.args.get("src", "."), self._task.args["dest"]
        paths = self._task.args.get("paths") or ["."]
        if isinstance(paths, str):
            paths = [paths]
        remote = self._connection._shell.join_path(self._make_tmp_path(), "tree.tar.gz")
        # Only existing paths; the login shell expands wildcards.
        listed = " ".join(self._pattern(path) for path in paths)
        command = (
            "cd {source} 2>/dev/null || exit 9; set --; for path in {listed}; do [ -e \"$path\" ] && set -- \"$@\" \"$path\"; done; "
            "[ $# -gt 0 ] || exit 9; tar -czf {remote} -- \"$@\" 2>&1"
        ).format(source=shlex.quote(source), listed=listed, remote=shlex.quote(remote))
        packed = self._low_level_execute_command(command)
        if packed["rc"] == 9:
            return dict(result, changed=False, msg="nothing to fetch")
        # 1: a file changed while it was read, which is normal for logs.
        if packed["rc"] not in (0, 1):
            return dict(result, failed=True, msg="could not pack {}: {}".format(source, packed["stdout"].strip()))
        handle, archive = tempfile.mkstemp(suffix=".tar.gz", dir=constants.DEFAULT_LOCAL_TMP)
        os.close(handle)
        try:
            self._connection.fetch_file(remote, archive)
            self._unpack(archive, task_vars["zuul"]["executor"]["work_root"], target)
            size = os.path.getsize(archive)
        except (OSError, sluice_files.Refused) as error:
            return dict(result, failed=True, msg="could not unpack to {}: {}".format(target, error))
        finally:
            os.unlink(archive)
        self._low_level_execute_command("rm -f {}".format(shlex.quote(remote)))
        return dict(result, changed=True, msg="{} bytes fetched".format(size))

    @staticmethod
    def _unpack(archive, root, target):
        with sluice_files.fresh_directory(root) as fresh:
            unpacked = subprocess.run(
                ["tar", "--extract", "--gzip", "--file", archive, "--no-same-owner", "--no-same-permissions", "--directory", fresh],
                capture_output=True, text=True, check=False,
            )
            if unpacked.returncode:
                raise OSError(unpacked.stderr.strip())
            sluice_files.move_entries(fresh, root, target)

    @staticmethod
    def _pattern(path):
        """Quotes everything but the two wildcards."""
        return "".join(part if part in ("*", "?") else shlex.quote(part) for part in _split(path))


def _split(path):
    part = ""
    for character in path:
        if character in "*?":
            if part:
                yield part
            yield character
            part = ""
        else:
            part += character
    if part:
        yield part
