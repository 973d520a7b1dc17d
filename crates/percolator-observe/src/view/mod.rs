//! The pipeline, drawn in the terminal: queues that fill and empty, rates, who waits for whom, the memory.
//!
//! ```no_run
//! use percolator::Feed;
//! use percolator_observe::view::{Local, Subject, watch};
//!
//! let mut feed = Feed::builder().lmdb("ilsvrc12_train_lmdb").batch_size(64).build()?;
//! let lanes = feed.take_lanes()?; // Each goes to a thread that trains.
//! watch(&mut Local::new("train", &feed), || false)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod draw;
mod history;
mod keys;
mod remote;
mod run;
mod subject;
mod writer;

pub use self::draw::draw;
pub use self::history::History;
pub use self::remote::Remote;
pub use self::run::{Left, NoTerminal, check_terminal, watch};
pub use self::subject::{Local, Subject};
pub use self::writer::give_back;
