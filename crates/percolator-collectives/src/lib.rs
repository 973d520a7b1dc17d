//! The processes of a job agree over MPI or over NCCL. Each is a
//! [`Collective`](percolator_distribute::Collective), for [`percolator_distribute`].
//!
//! A round is one exchange of 256 bytes; a round of more than 28 words is two. All processes get all numbers,
//! and add them in the order of ranks, so sums are the same bit for bit in each process, and for any number
//! of nodes.
//!
//! # Cargo features
//!
//! None is a default.
//!
//! - `mpi`: the module `mpi`. It needs MPI's headers and libclang to build.
//! - `nccl`: the module `nccl`, with the bindings of CUDA 12.8; `nccl-driver` leaves these to another crate.

#[cfg(feature = "mpi")]
pub mod mpi;
#[cfg(feature = "nccl-driver")]
pub mod nccl;

/// The README's code compiles.
#[cfg(all(doctest, feature = "mpi", feature = "nccl-driver"))]
#[doc = include_str!("../README.md")]
pub struct Readme;
