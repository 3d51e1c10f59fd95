"""NVIDIA's MPS daemon, under which several processes compute on one GPU at the same time instead of in turns."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

log = logging.getLogger(__name__)

CONTROL = "nvidia-cuda-mps-control"
PIPES = "CUDA_MPS_PIPE_DIRECTORY"


@contextlib.contextmanager
def running(wanted: bool) -> Iterator[bool]:
    """A daemon for the processes started meanwhile, where it may be started and none is there; whether it is ours.

    One that the user started is left alone: it is found by CUDA_MPS_PIPE_DIRECTORY or in its usual folder.
    """
    theirs = PIPES in os.environ or os.path.exists("/tmp/nvidia-mps/control")
    if not wanted or theirs or shutil.which(CONTROL) is None:
        yield False
        return
    with tempfile.TemporaryDirectory(prefix="oodml-mps-") as folder:
        place = {PIPES: folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        os.environ |= place
        try:
            started = _control("-d")
            if not started:
                log.warning("NVIDIA's MPS daemon could not be started: runs that share a GPU take turns")
            try:
                yield started
            finally:
                if started:
                    _control(text="quit\n")
        finally:
            for name in place:
                os.environ.pop(name, None)


def join(folder: str | None) -> None:
    """Have this process compute under the daemon of this folder, if any: what it was forked from may be older."""
    os.environ.pop(PIPES, None)
    if folder is not None:
        os.environ[PIPES] = folder


def _control(*arguments: str, text: str = "") -> bool:
    """Whether a call of the daemon's control program went well."""
    try:
        done = subprocess.run([CONTROL, *arguments], input=text, capture_output=True, text=True, timeout=30,
                              check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
