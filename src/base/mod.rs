//! What all stages use and none owns: locks and queues, the accounts that prove conservation, small files and
//! texts, the shapes and types of arrays. Nothing here depends on records.

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
