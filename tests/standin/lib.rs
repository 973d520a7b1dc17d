//! A stand-in for the CUDA driver: `libcuda.so` with the driver's symbols and no GPU, for tests only.
//!
//! Devices are memory of this process, under addresses that fault when they are read; streams are threads. A
//! test may draw conclusions about the order of operations, the lifetimes of buffers and handles, and the
//! handling of errors. It may draw none about bandwidth, or about NVIDIA's driver where its documentation is
//! silent. It calls itself "stand-in" wherever it shows a name.
//!
//! The path of a call: a symbol ([`contexts`], [`memory`], [`copies`], [`streams`], [`events`], [`kernels`],
//! [`capture`]) enters through [`call`], which counts it, and fails it if [`faults`] say so. The call submits
//! an operation to a stream's queue, and [`clocks`] check that it is ordered with other uses of its buffers.
//! The stream's [`worker`] carries it out, with [`ptx`] if it is a kernel. [`ledger`] records misuses.
//! [`control`] has the symbols for tests.
//!
//! Intended differences from a GPU:
//! - The null stream synchronises with nothing but itself.
//! - Only primary contexts exist, so a context and its device are the same thing here.
//! - A call that frees or destroys does so even if it returns an error.
//! - It is strict where the driver may be lenient: cuMemFree and cuMemFreeHost wait for nothing, and freeing
//!   what nobody waited for is a violation even if it went well.
//! - Memory that was freed in flight stays alive until its operations end, so that the test reaches its
//!   report.
//!
//! What it does not see:
//! - A host that reads pinned memory before the copy into it has ended, or that overwrites it with equal
//!   bytes.
//! - A race that only a missing order between threads of the host permits: see [`clocks`].
//! - What a registered kernel accesses beyond the buffers in its signature. Of a kernel loaded as PTX, every
//!   access is checked.
//! - What a captured graph would do when it runs: it cannot be run.
//! - Managed memory, peers, external memory, and user-created pools: those symbols are missing.
#![expect(unsafe_code, reason = "it is called from C, under C's names, with C's pointers")]

mod abi;
mod bytes;
mod config;
mod ending;

mod call;
mod faults;
mod ledger;
mod world;

mod contexts;
mod info;

mod clocks;
mod copies;
mod kernels;
mod memory;
mod pointers;
mod ptx;

mod capture;
mod events;
mod streams;
mod worker;

mod control;
