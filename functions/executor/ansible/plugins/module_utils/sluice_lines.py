"""Bounds what a command prints: on the node for the log and the result, on the executor for scripts.

Needs nothing but Python 3.7, because a module takes it along to the node.
"""

# The length of a line in bytes; the rest of a longer line is dropped. The executor cuts lines further, after it has
# masked secrets, so that a secret across its own cut is still found.
LINE_BYTES_MAX = 64 << 10
# What a line takes in the log in addition to its text, for its time and host, in bytes.
LINE_OVERHEAD_BYTES = 48
# What is kept of the end of an output that is too long, in bytes.
TAIL_BYTES_MAX = 16 << 10
# What a result holds of the output of a command, in bytes.
RESULT_BYTES_MAX = 8 << 20


class LineCutter:
    """Splits an output into lines, and leaves out its middle if it takes more than `bytes_max` bytes in the log."""

    def __init__(self, bytes_max):
        self._left = bytes_max
        self._partial = b""
        self._cutting = False
        self._dropped_bytes = 0
        self._dropped_lines = 0
        self._tail = b""

    def feed(self, chunk):
        """Takes the next bytes, and returns the lines that are complete, without their ends."""
        if self._left <= 0:
            self._drop(chunk)
            return []
        lines = []
        *complete, rest = chunk.split(b"\n")
        for position, line in enumerate(complete):
            if self._left <= 0:
                self._drop(b"\n".join(complete[position:] + [rest]))
                return lines
            if not self._cutting:
                line = self._partial + line
                lines.append(line[:LINE_BYTES_MAX])
                self._left -= len(line) + LINE_OVERHEAD_BYTES
            self._partial, self._cutting = b"", False
        if self._cutting:
            return lines
        self._partial += rest
        if len(self._partial) >= LINE_BYTES_MAX:
            # A line without end is shown as soon as it is too long.
            lines.append(self._partial[:LINE_BYTES_MAX])
            self._left -= len(self._partial)
            self._partial, self._cutting = b"", True
        return lines

    def finish(self):
        """Returns the last lines: one without an end, and after a cut a note and the end of the output."""
        lines = [self._partial] if self._partial else []
        self._partial = b""
        if self._dropped_bytes:
            tail = self._tail.split(b"\n")
            if self._dropped_bytes > len(self._tail):
                # Its first line is not whole.
                tail = tail[1:]
            if tail and not tail[-1]:
                tail.pop()
            kept = sum(len(line) + 1 for line in tail)
            lines.append("[{} bytes of output are left out here]".format(max(self._dropped_bytes - kept, 0)).encode())
            lines.extend(line[:LINE_BYTES_MAX] for line in tail)
        return lines

    def _drop(self, chunk):
        chunk = self._partial + chunk
        self._partial = b""
        self._dropped_bytes += len(chunk)
        self._tail = (self._tail + chunk)[-TAIL_BYTES_MAX:]


class Kept:
    """Keeps the beginning and the end of an output, at most `bytes_max` bytes and a note."""

    def __init__(self, bytes_max=RESULT_BYTES_MAX):
        self._head_max = max(bytes_max - TAIL_BYTES_MAX, 0)
        self._head = bytearray()
        self._tail = b""
        self._dropped = 0

    def add(self, chunk):
        room = self._head_max - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if chunk:
            tail = self._tail + chunk
            self._dropped += max(len(tail) - TAIL_BYTES_MAX, 0)
            self._tail = tail[-TAIL_BYTES_MAX:]

    def value(self):
        note = "\n[{} bytes of output are left out here]\n".format(self._dropped).encode() if self._dropped else b""
        return bytes(self._head) + note + self._tail
