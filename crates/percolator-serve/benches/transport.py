"""pyarrow's own server and client, for the benchmark `transport`, which starts them.

transport.py serve                       sends batches that are ready, each as one message, for ever
transport.py take URL TICKET SECONDS     takes them, says when it begins, and then how many bytes came
"""

import os
import sys
import time

import numpy as np
import pyarrow as pa
from pyarrow import flight

# As in transport.rs.
ROWS = 224
PIXELS = 3 * 224 * 224
WARM_UP = 8


def batch(number):
    pixels = np.random.default_rng(number).integers(0, 256, ROWS * PIXELS, dtype=np.uint8)
    pixels = pa.FixedSizeListArray.from_arrays(pa.array(pixels), PIXELS)
    return pa.record_batch([pixels, pa.array(np.arange(ROWS, dtype=np.int32))], names=["data", "label"])


class Server(flight.FlightServerBase):
    def __init__(self):
        super().__init__("grpc://127.0.0.1:0")
        self.batches = [batch(number) for number in range(4)]

    def do_get(self, context, ticket):
        def for_ever():
            while True:
                yield from self.batches

        return flight.GeneratorStream(self.batches[0].schema, for_ever())


def serve():
    server = Server()
    print(f"127.0.0.1:{server.port}", flush=True)
    wait_for_end()


def take(url, ticket, seconds):
    reader = flight.connect(url).do_get(flight.Ticket(ticket.encode()))
    for _ in range(WARM_UP):
        reader.read_chunk()
    print("begin", flush=True)
    begun, count, elapsed = time.monotonic(), 0, 0.0
    while elapsed < float(seconds):
        count += reader.read_chunk().data.nbytes
        elapsed = time.monotonic() - begun
    print(f"end {count} {elapsed}", flush=True)
    wait_for_end()


def wait_for_end():
    """Waits until the benchmark has looked at this process. Streams may be open: nothing is awaited."""
    sys.stdin.read()
    sys.stdout.flush()
    os._exit(0)


{"serve": serve, "take": take}[sys.argv[1]](*sys.argv[2:])
