//! Whether one result is better than another, beyond their noise.
//!
//! ```text
//! figures      what one round gave                                     Round -> RoundFigures
//! results      the rounds of jobs, as `percolator bench --json` prints them
//! comparison   two results of a job: each figure, the ratio, the verdict
//! ```

mod comparison;
mod error;
mod figures;
mod results;

pub use self::comparison::{Comparison, Row, Side, Verdict};
pub use self::error::ResultsError;
pub use self::figures::RoundFigures;
pub use self::results::{JobResult, Results};
