//! What the shared test modules expect of `common`.

#[allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    reason = "it is shared with other tests"
)]
#[path = "../../../../../tests/common/process.rs"]
pub(crate) mod process;

use std::path::Path;

/// The repository's folder.
pub(crate) fn repository() -> &'static Path {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.find(|folder| folder.join("tests/standin").is_dir()).expect("a package lies in the repository")
}
