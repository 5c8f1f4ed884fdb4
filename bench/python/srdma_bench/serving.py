"""A thread that serves one client; wait() reports how it ended."""

from __future__ import annotations

import threading
import traceback

from srdma.errors import DeviceError, Error


class Serving(threading.Thread):
    """A daemon thread that runs serve(), which a subclass defines."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._failed = ""

    def serve(self) -> None:
        raise NotImplementedError

    def run(self) -> None:
        try:
            self.serve()
        except Error as error:
            self._failed = str(error)
        except Exception:
            self._failed = traceback.format_exc()

    def wait(self, seconds: float) -> None:
        """Wait for the end of the thread. Raises DeviceError after `seconds`, or if it failed."""
        self.join(seconds)
        if self.is_alive():
            raise DeviceError(f"the server of a client did not end in {seconds:g} s")
        if self._failed:
            raise DeviceError(self._failed)
