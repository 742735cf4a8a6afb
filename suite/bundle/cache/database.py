"""The one SQLite file in which everything is kept: the table of runs, and bytes by name. Whole, or not there.

Whatever goes wrong with it costs time, never a figure: what cannot be read is not there, what cannot be written is not
kept, and a file that is damaged is made anew. It has a rollback journal and no memory that processes share, because
homes are often on network file systems.
"""

import hashlib
import os
import sqlite3
import stat
from contextlib import suppress
from pathlib import Path

from suite.bundle.cache.place import is_own

#: A new one where the meaning of what is kept changes.
FILE = "runs-2.sqlite"
#: A file that has grown beyond it, to about a hundred thousand runs, is begun anew.
MOST_BYTES = 1 << 30
#: How long to wait for another process that writes.
_WAIT_SECONDS = 5.0
_PAGE_BYTES = 16384
_CHECK_BYTES = 16
#: A run by the folder that its bundle lies in and its own name there; ``suite.bundle.cache.table`` says what is in it.
_TABLES = (
    "CREATE TABLE IF NOT EXISTS kept (name BLOB PRIMARY KEY, body BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS runs (parent BLOB NOT NULL, name BLOB NOT NULL, state BLOB NOT NULL, "
    "content BLOB NOT NULL, line BLOB, site BLOB, export BLOB, record BLOB, "
    "PRIMARY KEY (parent, name))",
    "CREATE INDEX IF NOT EXISTS runs_by_content ON runs (content)",
)
_ERROR, _CORRUPT, _NOT_A_DATABASE = 1, 11, 26


class Database:
    """What is kept in a folder; without a folder nothing is. Never raises for what the file or the disk is like."""

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / FILE
        self._connection: sqlite3.Connection | None = None
        self._changes: list[tuple[str, tuple]] = []
        self._is_reading = False
        if self._path is not None:
            self._open(self._path)

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def get(self, name: bytes) -> bytes | None:
        """What was kept under a name; null where nothing was, and where it is damaged."""
        found = self.rows("SELECT body FROM kept WHERE name = ?", name)
        return unchecked(name, found[0][0]) if found else None

    def put(self, name: bytes, value: bytes) -> None:
        """Keep a value under a name from the next ``flush`` on."""
        self.change("INSERT OR REPLACE INTO kept (name, body) VALUES (?, ?)", name, checked(name, value))

    def flush(self) -> None:
        """Write what is new, all at once."""
        changes, self._changes = self._changes, []
        connection = self._connection
        if connection is None:
            return
        try:
            if self._is_reading:
                self._is_reading = False
                connection.execute("COMMIT")
            if changes:
                connection.execute("BEGIN IMMEDIATE")
                for line, values in changes:
                    connection.execute(line, values)
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._give_up(error)

    def close(self) -> None:
        self.flush()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def rows(self, line: str, *values: bytes | int) -> list[tuple]:
        """What a query finds of what was flushed; nothing where it cannot be read."""
        if self._connection is None:
            return []
        try:
            if not self._is_reading:  # one lock for all that is read until the next flush, not one for each
                self._connection.execute("BEGIN")
                self._is_reading = True
            return self._connection.execute(line, values).fetchall()
        except sqlite3.Error as error:
            self._give_up(error)
            return []

    def change(self, line: str, *values: bytes | int | None) -> None:
        """A statement that takes part in the next ``flush``."""
        if self._connection is not None:
            self._changes.append((line, values))

    def _open(self, path: Path) -> None:
        """A file that is not the user's own alone is left alone, and nothing is kept."""
        for _ in range(2):  # the second time in place of a damaged one, or one that has grown too large
            with suppress(OSError):  # made before SQLite does, so that nobody else can read it
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            if not is_own(path, stat.S_ISREG):
                return
            try:
                if path.stat().st_size <= MOST_BYTES:
                    self._connection = _connected(path)
                    return
                _remove(path)
            except (sqlite3.Error, OSError) as error:
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """No more in this process; a damaged file is removed, so that the next one makes it anew."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
        self._is_reading = False
        if self._path is not None and _is_damage(error):
            _remove(self._path)


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)
    connection.text_factory = bytes  # where somebody else made it, nothing is to be decoded
    try:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        for line in (
            # of another file than a new one it would ask for a lock that a reader does not need
            *(() if pages else (f"PRAGMA page_size = {_PAGE_BYTES}",)),
            "PRAGMA trusted_schema = OFF",
            "PRAGMA synchronous = NORMAL",
            *_TABLES,
        ):
            connection.execute(line)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _remove(path: Path) -> None:
    for name in (path, path.with_name(f"{path.name}-journal")):
        with suppress(OSError):
            name.unlink()


def checked(name: bytes, value: bytes) -> bytes:
    """The value behind a check of it, and of the name that it is kept under."""
    return _check(name, value) + value


def unchecked(name: bytes, body: object) -> bytes | None:
    """The value of what ``checked`` gave; null for anything else."""
    if type(body) is not bytes:
        return None
    value = body[_CHECK_BYTES:]
    return value if body[:_CHECK_BYTES] == _check(name, value) else None


def _check(name: bytes, value: bytes) -> bytes:
    check = hashlib.blake2b(b"%d " % len(name) + name, digest_size=_CHECK_BYTES)
    check.update(value)
    return check.digest()


def _is_damage(error: Exception) -> bool:
    """No database, a damaged one, or one with other tables."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (_ERROR, _CORRUPT, _NOT_A_DATABASE)
