//! What several stages use and none owns. Nothing here depends on records.
//!
//! - Threads: locks and queues ([`sync`]), the first error of several threads ([`first_error`]), one living
//!   value per key ([`keyed`]), work that idle workers do ahead of the reader ([`offload`]).
//! - Slots: an account asserts that none is lost ([`slot_account`]), and a queue returns each to its ring's
//!   thread ([`return_queue`]).
//! - The machine: its memory limit ([`memory_limit`]), its NUMA nodes ([`numa`]), writes past its caches
//!   ([`cache_lines`]).
//! - Numbers and arrays: [`splitmix`], the origin of all random numbers but Caffe's, and shapes and element
//!   types ([`shape`]).
//! - Observation: counters ([`meter`]), and spans and events for whoever listens ([`trace`]).

pub(crate) mod cache_lines;
pub(crate) mod first_error;
pub(crate) mod keyed;
pub(crate) mod memory_limit;
pub(crate) mod meter;
pub(crate) mod numa;
pub(crate) mod offload;
pub(crate) mod return_queue;
pub(crate) mod shape;
pub(crate) mod slot_account;
pub(crate) mod splitmix;
pub(crate) mod sync;
pub mod trace;
