//! Measures a feed beside its machine's limits.
//!
//! ```text
//! job       what is measured: a feed, and the files that its records are in       job, stored, files
//! round     the limits of the machine, then the pipeline      machine, limits/; run, process
//! shares    how much of each limit was reached, what binds    shares, stages
//! ratio     whether two samples differ beyond their noise     noise
//! compare   two results side by side                          compare/
//! doctor    what binds, what would help, what looks wrong     doctor/
//! ```
//!
//! A rate says little by itself: machines differ, and are shared. So each round measures the machine first,
//! and a share is computed within its round.

pub mod compare;
pub mod doctor;
mod error;
mod files;
mod job;
pub mod limits;
mod machine;
mod noise;
mod process;
mod run;
mod shares;
mod stages;
mod stored;

pub use self::error::MeasureError;
pub use self::job::Job;
pub use self::machine::Limits;
pub use self::noise::{Ratio, median};
pub use self::run::Run;
pub use self::shares::{Binding, Limit, Round, binding, shares};
pub use self::stages::{Stage, Waited, stages};
pub use percolator::Progress;
