"""Returns data from a job: log_url, artifacts, child_jobs, file comments, variables for dependent jobs."""

import copy
import json
import os
import sys
import tempfile

from ansible.plugins.action import ActionBase

sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib")]

import sluice_files  # noqa: E402 (found on the path that is set above)

# What a job may return for masking: the executor searches every line of the log for it.
REDACTIONS_MAX = 1000
REDACTION_BYTES_MAX = 64 << 10

# Lists that are appended by each call. For all other keys the newer value wins.
APPENDED = (("zuul", "artifacts"), ("zuul", "warnings"), ("zuul", "redactions"))


def merged(old, new):
    """Returns `old` with `new` merged into it, dictionaries by key."""
    result = dict(old)
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


def combined(old, new):
    """Returns the data after a call that adds `new` to `old`."""
    result = merged(old, new)
    ours, theirs = old.get("zuul") or {}, new.get("zuul") or {}
    for _, key in APPENDED:
        if key in ours and key in theirs:
            result["zuul"][key] = list(ours[key]) + list(theirs[key])
    comments = theirs.get("file_comments")
    if isinstance(comments, dict):
        for path, entries in (ours.get("file_comments") or {}).items():
            if path in comments:
                result["zuul"]["file_comments"][path] = list(entries) + list(comments[path])
    return result


def errors(data):
    """Yields the errors in the `zuul` part of returned data."""
    zuul = data.get("zuul", {})
    if not isinstance(zuul, dict):
        yield "zuul must be a dictionary"
        return
    if not isinstance(zuul.get("log_url", ""), (str, type(None))):
        yield "zuul.log_url must be a string"
    for key in ("warnings", "redactions", "child_jobs"):
        value = zuul.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            yield "zuul.{} must be a list of strings".format(key)
    artifacts = zuul.get("artifacts", [])
    if not isinstance(artifacts, list):
        yield "zuul.artifacts must be a list"
        return
    for artifact in artifacts:
        fits = (
            isinstance(artifact, dict)
            and isinstance(artifact.get("name"), str)
            and isinstance(artifact.get("url"), str)
            and isinstance(artifact.get("metadata", {}), dict)
            and not set(artifact) - {"name", "url", "metadata"}
        )
        if not fits:
            yield "an artifact must have name and url as strings, and may have metadata as a dictionary: {}".format(artifact)


def redaction_errors(data):
    """Yields an error if all calls together return more for masking than the executor takes."""
    redactions = (data.get("zuul") or {}).get("redactions") or []
    size = sum(len(value.encode("utf-8", "replace")) for value in redactions)
    if len(redactions) > REDACTIONS_MAX or size > REDACTION_BYTES_MAX:
        yield "zuul.redactions would have {} values and {} bytes, and the limits are {} and {}: return fewer".format(
            len(redactions), size, REDACTIONS_MAX, REDACTION_BYTES_MAX
        )


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset(("data", "secret_data", "file", "secret_file", "path"))

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        unknown = set(self._task.args) - self._VALID_ARGS
        if unknown:
            return dict(result, failed=True, msg="unknown arguments: {}".format(", ".join(sorted(unknown))))
        path = self._task.args.get("path") or task_vars["zuul"]["executor"]["result_data_file"]
        try:
            given = {"data": {}, "secret_data": {}}
            for part, file_argument in (("data", "file"), ("secret_data", "secret_file")):
                if self._task.args.get(file_argument):
                    with open(self._task.args[file_argument], encoding="utf-8") as file:
                        given[part] = combined(given[part], json.load(file))
                given[part] = combined(given[part], self._task.args.get(part) or {})
            wrong = list(errors(given["data"]))
            if wrong:
                return dict(result, failed=True, msg="; ".join(wrong))
            wrong = self._store(path, given)
            if wrong:
                return dict(result, failed=True, msg="; ".join(wrong))
        except (OSError, ValueError, AttributeError, TypeError) as error:
            return dict(result, failed=True, msg="could not return data through {}: {}".format(path, error))
        return dict(result, changed=True)

    def _store(self, path, given):
        # A link, which another playbook may have left in its place, is replaced and not read.
        known = json.loads(sluice_files.read_regular(path) or "{}")
        stored = {part: combined(known.get(part, {}), copy.deepcopy(given[part])) for part in ("data", "secret_data")}
        wrong = list(redaction_errors(stored["data"]))
        if wrong:
            return wrong
        # Written to a new file and renamed, because another task may read it at any moment.
        handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(stored, file)
        os.rename(temporary, path)
        return []
