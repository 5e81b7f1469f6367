"""Writes and reads files below the work directory without following links.

An untrusted playbook, or an archive of a node, may have left a link anywhere below the work directory; a trusted
playbook that follows it writes into its own home, from which Ansible loads plugins. So each part of a path is opened
relative to the one before, and a link is refused.
"""

import contextlib
import errno
import os
import shutil
import stat
import tempfile

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Refused(Exception):
    """A path leads out of the work directory."""


def _parts(root, path):
    """Returns the parts of `path` relative to `root`; refuses a path that is not below it as written."""
    parts = path.rstrip("/").split("/")
    if not path.startswith("/") or ".." in parts:
        raise Refused("{} is refused: it must be an absolute path without '..'".format(path))
    wanted = [part for part in parts if part not in ("", ".")]
    known = [part for part in root.split("/") if part not in ("", ".")]
    if wanted[: len(known)] != known:
        raise Refused("{} is refused: it must lie in the work directory {}".format(path, root))
    return wanted[len(known):]


@contextlib.contextmanager
def opened_directory(root, path, create=False):
    """Yields a descriptor of the directory at `path`, which must lie in `root` and may be created with its parents."""
    at = os.open(root, _DIRECTORY)
    try:
        for part in _parts(root, path):
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=at)
            try:
                below = os.open(part, _DIRECTORY, dir_fd=at)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise Refused("{} is refused: {} is a link, or not a directory".format(path, part)) from error
                raise
            os.close(at)
            at = below
        yield at
    finally:
        os.close(at)


def write_text(root, path, text):
    """Writes a file below `root`, in place of whatever entry is there; creates its directory."""
    with opened_directory(root, os.path.dirname(path), create=True) as directory:
        name = os.path.basename(path)
        if name in ("", ".", ".."):
            raise Refused("{} is refused: it is no path of a file".format(path))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(name, flags, 0o644, dir_fd=directory)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)


def read_regular(path):
    """Returns the text of the regular file at `path`; None if there is none, or a link or something else is there."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        with os.fdopen(handle, encoding="utf-8", closefd=False) as file:
            return file.read()
    finally:
        os.close(handle)


@contextlib.contextmanager
def fresh_directory(root):
    """Yields the path of a new directory directly below `root`, and removes it with what is left in it."""
    path = tempfile.mkdtemp(prefix=".fetch-", dir=root)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def move_entries(source, root, path):
    """Moves what is in the directory `source` into the directory at `path` below `root`.

    Directories are merged; any other entry replaces the one of its name. A link in the way is replaced, not followed,
    and links that are moved stay links.
    """
    with opened_directory(root, path, create=True) as target:
        # A mode of the archive must not keep us from moving.
        os.chmod(source, 0o700)
        origin = os.open(source, _DIRECTORY)
        try:
            _move(origin, target)
        finally:
            os.close(origin)


def _move(origin, target):
    for name in os.listdir(origin):
        if not _is_directory(name, origin):
            # Fails if a directory is in the way.
            os.rename(name, name, src_dir_fd=origin, dst_dir_fd=target)
            continue
        os.chmod(name, 0o700 | os.stat(name, dir_fd=origin).st_mode & 0o777, dir_fd=origin)
        try:
            # Replaces an empty directory, and fails for any other entry in the way.
            os.rename(name, name, src_dir_fd=origin, dst_dir_fd=target)
            continue
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        if not _is_directory(name, target):
            os.unlink(name, dir_fd=target)
            os.rename(name, name, src_dir_fd=origin, dst_dir_fd=target)
            continue
        inner, below = os.open(name, _DIRECTORY, dir_fd=origin), os.open(name, _DIRECTORY, dir_fd=target)
        try:
            _move(inner, below)
        finally:
            os.close(inner)
            os.close(below)


def _is_directory(name, directory):
    return stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
