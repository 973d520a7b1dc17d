//! What the writers write: byte for byte as TensorFlow does, whole whatever happens.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod bundle;
mod golden;
mod killed;
#[allow(dead_code, unreachable_pub, reason = "it is shared with other tests, which use the rest")]
#[path = "../../../../tests/common/process.rs"]
mod process;
mod refused;
mod replaced;
mod state;
mod tensorflow;

use std::path::{Path, PathBuf};

/// A folder of checkpoints that TensorFlow wrote.
fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}
