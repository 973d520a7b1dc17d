"""What pyarrow's own client sees of a server, printed as JSON for the test that runs this.

The one argument is a JSON object: what to do, the address, the request, and what else that takes.
"""

import hashlib
import json
import sys
import time

import pyarrow as pa
from pyarrow import flight

# Far longer than a client that has left needs to be gone.
HUNG_AFTER = 60


def connect(task):
    """A client, with the options that its address needs."""
    options = {}
    if task["url"].startswith("grpc+unix"):
        # Without it, gRPC sends the socket's path as the authority, which HTTP/2 does not allow.
        options["generic_options"] = [("grpc.default_authority", "localhost")]
    if "authority" in task:
        with open(task["authority"], "rb") as file:
            options["tls_root_certs"] = file.read()
        options["override_hostname"] = "localhost"
    return flight.FlightClient(task["url"], **options)


def call(task):
    headers = [(b"authorization", f"Bearer {task['token']}".encode())] if "token" in task else []
    return flight.FlightCallOptions(headers=headers, timeout=HUNG_AFTER)


def info(client, task):
    descriptor = flight.FlightDescriptor.for_command(json.dumps(task["request"]))
    return client.get_flight_info(descriptor, call(task))


def elements(column):
    """The elements of a column as they lie in memory, and the offsets of a ragged one."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_large_list(column.type):
        return column.values.to_numpy(zero_copy_only=True), column.offsets.to_numpy(zero_copy_only=True)
    if pa.types.is_fixed_size_list(column.type):
        column = column.values
    return column.to_numpy(zero_copy_only=True), None


def described(array):
    return [str(array.dtype), len(array), hashlib.sha256(array.tobytes()).hexdigest()]


def tensor(name, column):
    """The shape of a tensor, and whether NumPy has it where it came."""
    ndarray = column.to_numpy_ndarray()
    address = column.storage.values.buffers()[1].address
    return {"shape": ndarray.shape, "is_in_place": ndarray.ctypes.data == address}


def batch(chunk):
    columns, tensors = {}, {}
    for name, column in zip(chunk.data.schema.names, chunk.data.columns):
        assert column.null_count == 0 and column.offset == 0, name
        values, offsets = elements(column)
        columns[name] = described(values)
        if offsets is not None:
            columns[f"{name}.offsets"] = described(offsets)
        if isinstance(column.type, pa.FixedShapeTensorType):
            tensors[name] = tensor(name, column)
    metadata = json.loads(chunk.app_metadata.to_pybytes())
    return {"rows": chunk.data.num_rows, "columns": columns, "tensors": tensors, "metadata": metadata}


def chunks(reader):
    while True:
        try:
            yield reader.read_chunk()
        except StopIteration:
            return


def schema(task):
    with connect(task) as client:
        found = info(client, task)
        fields = [
            {"name": field.name, "type": str(field.type), "nullable": field.nullable,
             "about": json.loads((field.metadata or {}).get(b"percolator.field", b"null"))}
            for field in found.schema
        ]
        descriptor = flight.FlightDescriptor.for_command(json.dumps(task["request"]))
        again = client.get_schema(descriptor, call(task))
        return {
            "fields": fields,
            "metadata": {key.decode(): value.decode() for key, value in found.schema.metadata.items()},
            "is_schema_alone_the_same": again.schema.equals(found.schema, check_metadata=True),
            "tickets": [endpoint.ticket.ticket.decode() for endpoint in found.endpoints],
            "total_records": found.total_records,
            "is_ordered": found.ordered,
            "app_metadata": json.loads(found.app_metadata),
        }


def get(task):
    """All batches of a rank: at most once."""
    with connect(task) as client:
        ticket = info(client, task).endpoints[task.get("rank", 0)].ticket
        return [batch(chunk) for chunk in chunks(client.do_get(ticket, call(task)))]


def get_by_request(task):
    """The same, with the request in the place of the ticket."""
    with connect(task) as client:
        reader = client.do_get(flight.Ticket(json.dumps(task["request"])), call(task))
        return [batch(chunk) for chunk in chunks(reader)]


def exchange(client, task, ticket, acknowledge):
    """Takes batches and acknowledges them, up to so many; returns those that are acknowledged."""
    descriptor = flight.FlightDescriptor.for_command(ticket)
    writer, reader = client.do_exchange(descriptor, call(task))
    writer.write_metadata(json.dumps({"window": task["window"]}).encode())
    taken = []
    for chunk in chunks(reader):
        taken.append(batch(chunk))
        if len(taken) > acknowledge:
            # This one is not acknowledged: it comes again.
            reader.cancel()
            return taken[:-1]
        number = taken[-1]["metadata"]["number"]
        writer.write_metadata(json.dumps({"acknowledged": number}).encode())
    writer.done_writing()
    writer.close()
    return taken


def resumed(task):
    """Batches by two connections: the second goes on where the first one acknowledged."""
    with connect(task) as client:
        ticket = info(client, task).endpoints[0].ticket.ticket.decode()
        first = exchange(client, task, ticket, task["acknowledge"])
    stream = ".".join(ticket.split(".")[:3])
    start = time.monotonic()
    while True:
        try:
            with connect(task) as client:
                second = exchange(client, task, stream + first[-1]["metadata"]["ticket"], 1 << 30)
                ended = flight.Ticket((stream + second[-1]["metadata"]["ticket"]).encode())
                after = sum(1 for _ in chunks(client.do_get(ended, call(task))))
                return {"first": first, "second": second, "after": after}
        except flight.FlightUnavailableError:
            # The server may not know yet that the first connection is gone.
            if time.monotonic() - start > HUNG_AFTER:
                raise


def status(task):
    with connect(task) as client:
        [result] = client.do_action(flight.Action("status", b""), call(task))
        return json.loads(result.body.to_pybytes())


def refused(task):
    """The kind and the words of the error that the request gets."""
    try:
        with connect(task) as client:
            info(client, task)
    except (flight.FlightError, pa.ArrowException) as error:
        return [type(error).__name__, str(error)]
    return None


task = json.loads(sys.argv[1])
print(json.dumps(globals()[task["do"]](task)))
