//! The module `percolator._core`: Percolator for Python.
//!
//! Every class here is a thin wrapper of a value of the crate `percolator`. The classes have this in common:
//!
//! - A value that has threads, or memory that other threads fill, belongs to the process that made it
//!   ([`process`]): a forked child gets an error, and drops it without touching the threads it does not have.
//! - No thread waits while it holds the interpreter's lock. A wait is a sequence of short ones, between which
//!   the interpreter handles signals ([`running`]).
//! - Errors become exceptions with the place in the data as attributes ([`errors`]).
//!
//! A feed runs here ([`feed`]), or at a server ([`server_feed`]), which may be this process ([`server`]).

mod batch;
mod capsule;
mod decoder;
mod environment;
mod errors;
mod feed;
mod field;
mod iterators;
mod log;
mod numbers;
mod options;
mod order;
mod process;
mod receipt;
mod running;
mod server;
mod server_feed;
mod snapshot;
mod stats;
mod transform;
mod values;
mod writer;

use pyo3::prelude::*;

/// What `percolator` consists of. The package re-exports it.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    percolator_files::caller::is(percolator_files::caller::Caller::Python);
    log::listen();
    running::close_at_exit(module.py())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<decoder::Record>()?;
    module.add_class::<environment::Process>()?;
    module.add_class::<feed::Feed>()?;
    module.add_class::<field::Field>()?;
    module.add_class::<iterators::Batches>()?;
    module.add_class::<iterators::Steps>()?;
    module.add_class::<iterators::Lane>()?;
    module.add_class::<order::Plan>()?;
    module.add_class::<receipt::Receipt>()?;
    module.add_class::<receipt::Verdict>()?;
    module.add_class::<server::Server>()?;
    module.add_class::<server_feed::ServerFeed>()?;
    module.add_class::<snapshot::Snapshot>()?;
    module.add_class::<stats::Stats>()?;
    module.add_class::<transform::Transform>()?;
    module.add_class::<writer::TfRecordWriter>()?;
    module.add_function(wrap_pyfunction!(environment::environment, module)?)?;
    module.add_function(wrap_pyfunction!(receipt::verify, module)?)?;
    module.add_function(wrap_pyfunction!(writer::example, module)?)?;
    Ok(())
}
