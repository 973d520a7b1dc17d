//! What the stand-in driver's helpers expect of a test.

#[path = "../../../../tests/common/process.rs"]
pub(crate) mod process;

use std::path::Path;

pub(crate) fn repository() -> &'static Path {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.find(|folder| folder.join("tests/standin").is_dir()).expect("a package lies in the repository")
}
