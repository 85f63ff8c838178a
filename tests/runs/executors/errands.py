"""Works for executors, in a module that other processes can import."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from phaze.errors import InfeasibleError, Shortfall


@dataclass
class Powers:
    """Powers of numbers, and which process has worked them out; it writes down when it is unpacked."""

    exponent: int
    read_only: MappingProxyType = field(default_factory=lambda: MappingProxyType({0: "zero"}))
    log: str | None = None

    def do(self, number):
        if number < 0:
            raise InfeasibleError(f"{number} is negative", (Shortfall("sign", number, 0.0, "", ("more",)),))
        return number**self.exponent, os.getpid()

    def __setstate__(self, state):
        self.__dict__.update(state)
        if self.log:
            with Path(self.log).open("a") as file:
                file.write(f"{os.getpid()}\n")


@dataclass
class Fragile:
    """Kills its process at one number: `always`, or the first time that a file is not there yet."""

    at: int
    file: str
    always: bool = False

    def do(self, number):
        if number == self.at and (self.always or not Path(self.file).exists()):
            Path(self.file).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return 2 * number


@dataclass
class Endless:
    """Works at everything but nought for longer than anybody waits; says in a file that it has begun."""

    file: str

    def do(self, number):
        if number:
            Path(self.file).touch()
            time.sleep(600)
        return number
