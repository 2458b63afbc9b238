"""Where the socket of the embedded server lies: a short path in a folder that only this user can enter.

Not in the project folder: its path may be longer than a socket's can be, and its file system may hold none.
The temporary folder comes first, for XDG_RUNTIME_DIR goes away when its user logs out, while workers run on.
The name is made of the project folder's device and inode, which are as unique as the locks in that folder: a
folder has one socket by whatever path it is reached, and a folder that was deleted and made anew has another.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from stagebell.errors import ServerUnavailable

SOCKET_PATH_BYTES = 103  # the kernel's limit is 107 on Linux and 103 on macOS


def socket_path(folder: Path) -> str:
    """The socket's path for the server of an existing project folder; makes the private folder around it.

    Raises:
        ServerUnavailable: no place for sockets is both safe and short; the text has the reason for each.
    """
    inode = folder.stat()
    name = hashlib.blake2b(f"{inode.st_dev}:{inode.st_ino}".encode(), digest_size=8).hexdigest() + ".sock"
    reasons: list[str] = []
    for private in _candidates():
        path = str(private / name)
        reason = _objection(private, path)
        if reason is None:
            return path
        reasons.append(f"{private} {reason}")
    raise ServerUnavailable(
        f"no folder for the embedded server's socket: {'; '.join(reasons)}. Point TMPDIR at a short path that you own"
    )


def _candidates() -> Iterator[Path]:
    bases = (tempfile.gettempdir(), "/tmp", os.environ.get("XDG_RUNTIME_DIR", ""))
    for base in dict.fromkeys(filter(None, bases)):
        yield Path(base).absolute() / f"stagebell-{os.geteuid()}"


def _objection(private: Path, path: str) -> str | None:
    """Why the socket cannot lie there, or None if it can."""
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        return "is too long a path"
    try:
        private.mkdir(mode=0o700, exist_ok=True)
        found = private.lstat()
    except OSError as problem:
        return f"cannot be made ({problem.strerror})"
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return "belongs to somebody else"
    if stat.S_IMODE(found.st_mode) & 0o077:
        return "is open to others (chmod 700 it)"
    return None
