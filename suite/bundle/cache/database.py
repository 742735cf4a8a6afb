"""The one SQLite file in which everything is kept: the table of runs, and bytes by name. Whole, or not there.

Whatever goes wrong with it costs time, never a figure: what cannot be read is not there, what cannot be written is not
kept, and a file that is damaged is made anew. It has a rollback journal and no memory that processes share, because
homes are often on network file systems.
"""

import hashlib
import os
import sqlite3
import stat
import time
from contextlib import suppress
from pathlib import Path

from suite.bundle.cache.place import is_own

#: A new one where the meaning of what is kept changes.
FILE = "runs-1.sqlite"
#: When the file has grown beyond it, what was used last is kept, half as much.
MOST_BYTES = 512 << 20
#: The time of the last use is kept no more exactly than that, so that a report that finds all it needs writes nothing.
USE_SECONDS = 24 * 3600
#: How long to wait for another process that writes.
_WAIT_SECONDS = 5.0
_PAGE_BYTES = 16384
_CHECK_BYTES = 16
#: A run by the folder that its bundle lies in and its own name there; ``suite.bundle.cache.table`` says what is in it.
_TABLES = (
    "CREATE TABLE IF NOT EXISTS kept (id INTEGER PRIMARY KEY, body BLOB NOT NULL, used INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS runs (parent BLOB NOT NULL, name BLOB NOT NULL, state BLOB NOT NULL, "
    "content BLOB NOT NULL, used INTEGER NOT NULL, line BLOB, site BLOB, export BLOB, record BLOB, "
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
        self.now = int(time.time())
        self._is_reading = False
        if self._path is not None:
            self._open(self._path)

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def get(self, name: bytes) -> bytes | None:
        """What was kept under a name; null where nothing was, and where it is damaged."""
        number = _number(name)
        found = self.rows("SELECT body, used FROM kept WHERE id = ?", number)
        if not found:
            return None
        body, used = found[0]
        value = unchecked(name, body)
        if value is None or type(used) is not int:
            return None
        if used < self.now - USE_SECONDS:
            self.change("UPDATE kept SET used = ? WHERE id = ?", self.now, number)
        return value

    def put(self, name: bytes, value: bytes) -> None:
        """Keep a value under a name from the next ``flush`` on."""
        line = "INSERT OR REPLACE INTO kept (id, body, used) VALUES (?, ?, ?)"
        self.change(line, _number(name), checked(name, value), self.now)

    def flush(self) -> None:
        """Write what is new, all at once, and keep to ``MOST_BYTES``."""
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
                _shrink(connection)
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
        for _ in range(2):  # the second time in place of a damaged one
            with suppress(OSError):  # made before SQLite does, so that nobody else can read it
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            if not is_own(path, stat.S_ISREG):
                return
            try:
                self._connection = _connected(path)
            except sqlite3.Error as error:
                self._give_up(error)
            else:
                return

    def _give_up(self, error: sqlite3.Error) -> None:
        """No more in this process; a damaged file is removed, so that the next one makes it anew."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
        self._is_reading = False
        if self._path is not None and _is_damage(error):
            for name in (self._path, self._path.with_name(f"{self._path.name}-journal")):
                with suppress(OSError):
                    name.unlink()


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)
    connection.text_factory = bytes  # where somebody else made it, nothing is to be decoded
    try:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        of_a_new_file = (f"PRAGMA page_size = {_PAGE_BYTES}", "PRAGMA auto_vacuum = INCREMENTAL")
        for line in (
            *(() if pages else of_a_new_file),  # of another they would ask for a lock that a reader does not need
            "PRAGMA trusted_schema = OFF",
            "PRAGMA synchronous = NORMAL",
            *_TABLES,
        ):
            connection.execute(line)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _shrink(connection: sqlite3.Connection) -> None:
    """Let go of what was not used for longest, until half of what is allowed is left."""
    if _bytes(connection) <= MOST_BYTES:
        return
    share = 1 - MOST_BYTES / 2 / _bytes(connection)
    connection.execute("BEGIN IMMEDIATE")
    for table in ("kept", "runs"):
        (rows,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        oldest = f"SELECT rowid FROM {table} ORDER BY used, rowid LIMIT ?"
        connection.execute(f"DELETE FROM {table} WHERE rowid IN ({oldest})", (max(1, round(rows * share)),))
    connection.execute("COMMIT")
    connection.execute("PRAGMA incremental_vacuum").fetchall()


def _bytes(connection: sqlite3.Connection) -> int:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    return int(pages) * int(size)


def _number(name: bytes) -> int:
    """Where a name is: names that fall together are told apart by their checks."""
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big", signed=True)


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


def _is_damage(error: sqlite3.Error) -> bool:
    """No database, a damaged one, or one with other tables."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (_ERROR, _CORRUPT, _NOT_A_DATABASE)
