"""Fields on a GPU, on the stand-in CUDA driver of the repository's tests, whose memory is the host's.

The stand-in is built by `cargo build -p percolator-standin --example cuda`. Without it this is skipped
(STANDIN in conftest.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import HANGS_AFTER, REPOSITORY, missing


def standin() -> Path:
    """The folder of the stand-in driver."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    for folder in [target / "debug" / "examples", target / "release" / "examples"]:
        if (folder / "libcuda.so").exists():
            return folder
    missing("STANDIN", f"the stand-in CUDA driver is not built: {target}/debug/examples/libcuda.so")


def test_a_field_on_a_gpu_says_where_it_is(golden: Path) -> None:
    script = """
        import sys
        import percolator

        feed = percolator.Feed(lmdb=sys.argv[1], batch_size=4, devices="cuda:0", epochs=1)
        batches = iter(feed)
        batch = next(batches)
        field = batch["data"]
        assert (field.device, field.__dlpack_device__()) == ("cuda:0", (2, 0)), field
        assert field.shape == (4, 3, 40, 36)

        def refused(error, words, use):
            try:
                use()
            except error as found:
                assert words in str(found), found
            else:
                raise AssertionError(words)

        refused(TypeError, "is on cuda:0, which NumPy does not have", lambda: field.__array_interface__)
        refused(BufferError, "where percolator makes no copies", lambda: field.__dlpack__(copy=True))
        refused(BufferError, "TensorFlow does not say which of its streams", field.tensorflow)
        refused(BufferError, "is not copied to another device", lambda: field.__dlpack__(dl_device=(1, 0)))
        refused(ValueError, "0 is ambiguous", lambda: field.__dlpack__(stream=0))
        refused(percolator.DeviceError, "per-thread default stream", lambda: field.__dlpack__(stream=2))
        # The legacy default stream waits for the batch, and its work counts as the batch's use.
        for stream in [None, 1, -1]:
            assert '"dltensor_versioned"' in repr(field.__dlpack__(stream=stream, max_version=(1, 0)))
        del field, batch
        assert sum(batch.size for batch in batches) == 60
        refused(percolator.DeviceError, "there is no cuda:77", lambda: percolator.Feed(
            lmdb=sys.argv[1], devices="cuda:77"))
        print("done")
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(golden / "raw_lmdb")]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(standin())}
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER, env=environment)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
