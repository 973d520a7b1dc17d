//! Digests as text.

use std::fmt::Write as _;

/// Returns bytes as hexadecimal digits, in lower case.
pub(crate) fn hexadecimal(digest: impl AsRef<[u8]>) -> String {
    let bytes = digest.as_ref();
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
