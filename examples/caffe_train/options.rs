//! The command line. Names are those of Caffe's solver, where it has them.

use std::path::PathBuf;

use clap::Parser;

/// Trains from a Caffe net as it stands. Without a NET it trains on the digits that ship with Percolator,
/// which it first writes as a Caffe project would have them.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// The net: a train_val.prototxt [default: examples/caffe_train/digits_train_test.prototxt].
    pub(crate) net: Option<PathBuf>,
    /// Where the relative paths in NET begin [default: the working directory, as in Caffe].
    #[arg(long, value_name = "DIR", requires = "net")]
    pub(crate) root: Option<PathBuf>,
    /// The solver's max_iter.
    #[arg(long, value_name = "N", default_value_t = 920, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) iterations: u32,
    /// The solver's base_lr. The policy is "fixed".
    #[arg(long, value_name = "LR", default_value_t = 1.0, allow_negative_numbers = true)]
    pub(crate) base_lr: f32,
    /// The solver's random_seed: crops and mirroring are those that Caffe draws from it.
    #[arg(long, value_name = "S", default_value_t = 1701)]
    pub(crate) seed: u32,
}
