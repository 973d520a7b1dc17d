//! A stand-in for the CUDA driver: `libcuda.so` with the driver's symbols and no GPU, for tests only.
//!
//! Devices are memory of this process under addresses that fault when they are read; streams are threads.
//! What a test may conclude from it: the order of operations, the life of buffers and handles, and what
//! becomes of errors. What it may not: bandwidth, or how NVIDIA's driver behaves where its documentation is
//! silent. It says "stand-in" wherever it shows itself.
//!
//! The path of a call: a symbol ([`contexts`], [`memory`], [`copies`], [`streams`], [`events`], [`kernels`],
//! [`capture`]) enters through [`call`], which counts it and fails it if [`faults`] say so; it submits an
//! operation to a stream's queue, where [`clocks`] see whether it is ordered with what else touches its
//! buffers; the stream's [`worker`] carries it out, and [`ptx`] if it is a kernel. [`ledger`] keeps what was
//! done wrong. [`control`] has the symbols for tests.
//!
//! Where it differs from a GPU, on purpose:
//! - The null stream synchronises with nothing but itself.
//! - Only primary contexts exist, so a context and its device are the same thing here.
//! - A call that frees or destroys does so even where it returns an error.
//! - It is strict where the driver may be kind: cuMemFree and cuMemFreeHost wait for nothing, and freeing what
//!   nobody waited for is a violation even where it went well.
//! - Memory that was freed in flight stays alive until its operations end: the test goes on to its report.
//!
//! What it does not see:
//! - A host that reads pinned memory before the copy into it has ended, or that writes into it what it held.
//! - A race that only a missing order between threads of the host permits: see [`clocks`].
//! - What a registered kernel does beyond the buffers that its signature names. Of one that came as PTX every
//!   access is looked at.
//! - What a captured graph would do when it runs: it cannot be run.
//! - Managed memory, peers, external memory, pools of one's own: those symbols are missing.
#![expect(unsafe_code, reason = "it is called from C, under C's names, with C's pointers")]

mod abi;
mod bytes;
mod config;

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
