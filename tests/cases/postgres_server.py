"""A PostgreSQL server of one's own: on a socket in a folder of its own, with a password, gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

PASSWORD = "s3cret-of-mine"
_OPTIONS = "-c listen_addresses='' -c fsync=off -c shared_buffers=16MB -c max_connections=40"


def programs():
    """The folder of PostgreSQL's programs; None where there are none."""
    for folder in (*map(Path, os.get_exec_path()), *sorted(Path("/usr/lib/postgresql").glob("*/bin"))):
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    return None


@dataclass
class PostgresServer:
    """It refuses to run as root, so that root lends it another user."""

    bin: Path = field(default_factory=programs)
    # Not below pytest's folder, which only its own user may enter.
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp")))
    _made: int = 0

    def __enter__(self):
        (self.folder / "password").write_text(PASSWORD, encoding="utf-8")
        if self._as:
            account = pwd.getpwnam(self._as["user"])
            for path in (self.folder, self.folder / "password"):
                os.chown(path, account.pw_uid, account.pw_gid)
        login = ["--username=dse", f"--pwfile={self.folder / 'password'}", "--auth=scram-sha-256"]
        self._run("initdb", *login, "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.folder)

    def start(self):
        log = ("-l", str(self.folder / "log"))
        self._run("pg_ctl", "start", "-w", *log, "-o", f"{_OPTIONS} -k {self.folder}")

    def stop(self):
        """At once, as a crash would."""
        self._run("pg_ctl", "stop", "-m", "immediate", check=False)

    def database(self):
        """The URL of a new database."""
        import psycopg

        self._made += 1
        with psycopg.connect(**self._login, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE studies{self._made}")
        return f"postgresql://dse:{PASSWORD}@/studies{self._made}?host={self.folder}"

    def connections(self):
        """Number of connections to the latest database."""
        import psycopg

        asked = f"SELECT count(*) FROM pg_stat_activity WHERE datname = 'studies{self._made}'"
        with psycopg.connect(**self._login) as connection:
            return connection.execute(asked).fetchone()[0]

    @property
    def _login(self):
        return {"host": str(self.folder), "user": "dse", "password": PASSWORD, "dbname": "postgres"}

    @property
    def _as(self):
        if os.geteuid():
            return {}
        names = {account.pw_name for account in pwd.getpwall()}
        user = "postgres" if "postgres" in names else "nobody"
        return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}

    def _run(self, program, *arguments, check=True):
        command = [str(self.bin / program), *arguments, "-D", str(self.folder / "data")]
        subprocess.run(command, check=check, cwd="/", stdout=subprocess.DEVNULL, **self._as)
