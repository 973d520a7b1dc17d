"""Compiles the CUDA files beside this one to PTX, which the crate embeds: no toolkit is needed to build it.

    python3 -m venv /tmp/nvrtc
    /tmp/nvrtc/bin/pip install nvidia-cuda-nvrtc-cu11==11.7.99
    /tmp/nvrtc/bin/python src/device/cuda/kernels/compile.py

No GPU is needed. The compiler is an old one and targets the oldest GPUs that a CUDA 11 driver supports, so that every
driver and GPU that Percolator supports can read the result. The driver compiles it for its GPU.
"""

import ctypes
import glob
import hashlib
import os

OPTIONS = [b"--gpu-architecture=compute_35", b"--fmad=false", b"--std=c++14"]

# The PTX version that NVRTC 11.7 declares, and the oldest one that has every instruction in use: CUDA 11.0
# reads it.
WRITTEN, NEEDED = ".version 7.7", ".version 6.5"


def nvrtc():
    import nvidia.cuda_nvrtc.lib as package

    return ctypes.CDLL(os.path.join(list(package.__path__)[0], "libnvrtc.so.11.2"))


def compiled(library, path):
    """The PTX of a CUDA file."""
    with open(path, "rb") as file:
        source = file.read()
    program = ctypes.c_void_p()
    name = os.path.basename(path).encode()
    assert library.nvrtcCreateProgram(ctypes.byref(program), source, name, 0, None, None) == 0
    options = (ctypes.c_char_p * len(OPTIONS))(*OPTIONS)
    failed = library.nvrtcCompileProgram(program, len(OPTIONS), options)
    log = text(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program)
    if failed:
        raise SystemExit(log)
    ptx = text(library.nvrtcGetPTXSize, library.nvrtcGetPTX, program)
    assert ptx.count(WRITTEN) == 1, "a different compiler: check which PTX version its output needs"
    ptx = ptx.replace(WRITTEN, NEEDED)
    made = f"// Made of {name.decode()} by compile.py; do not edit. SHA-256 of the source, and of what follows here:\n"
    return f"{made}// {digest(source)}\n// {digest(ptx.encode())}\n{ptx}"


def digest(data):
    return hashlib.sha256(data).hexdigest()


def text(size_of, get, program):
    """Returns the text that an NVRTC function writes to a buffer; another function returns its size."""
    size = ctypes.c_size_t()
    assert size_of(program, ctypes.byref(size)) == 0
    buffer = ctypes.create_string_buffer(size.value)
    assert get(program, buffer) == 0
    return buffer.value.decode().strip("\n") + "\n"


def main():
    library = nvrtc()
    for path in sorted(glob.glob(os.path.join(os.path.dirname(os.path.abspath(__file__)), "*.cu"))):
        with open(path.removesuffix(".cu") + ".ptx", "w", encoding="ascii") as file:
            file.write(compiled(library, path))


if __name__ == "__main__":
    main()
