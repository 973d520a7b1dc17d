//! What the shared test modules expect of `common`, and the stand-in NCCL.

pub(crate) mod nccl;
#[allow(dead_code, unreachable_pub, reason = "it is shared with other tests, which use the rest")]
#[path = "../../../../../tests/common/process.rs"]
pub mod process;

use std::path::Path;

/// The repository's folder.
pub(crate) fn repository() -> &'static Path {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.find(|folder| folder.join("tests/standin").is_dir()).expect("a package lies in the repository")
}
