"""Requests to stop: by signals, which are counted, and by time."""

from __future__ import annotations

import os
import signal

import pytest

from benchmark.runs.interrupt import StopRequest


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_signal_is_counted_and_its_handler_restored(number: int, code: int) -> None:
    before = signal.getsignal(number)
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})  # as a process inherits it from a server that blocks it
    with StopRequest() as stop:
        assert (stop.requested, stop.exit_code) == (False, 0)
        os.kill(os.getpid(), number)
        assert (stop.requested, stop.forced, stop.exit_code) == (True, False, code)
    assert signal.getsignal(number) is before
