//! Verifies the hashes that an index has of a shard.

use std::hash::Hasher as _;

use md5::Md5;
use percolator_files::shown;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use twox_hash::XxHash64;

use super::index::Hashes;
use crate::{DataFile, FormatError};

/// Compares bytes with their hashes. One by an algorithm that is not known here is passed over.
pub(super) fn verify(file: &DataFile, what: &str, bytes: &[u8], hashes: &Hashes) -> Result<(), FormatError> {
    for (algorithm, stated) in hashes {
        let Some(found) = hash(algorithm, bytes) else {
            tracing::debug!(file = %shown::path(file.path()), algorithm, "a hash that is not verified");
            continue;
        };
        if !found.eq_ignore_ascii_case(stated) {
            let what = format!(
                "the {algorithm} of {what} is {found}, and the index says {stated}: the file is damaged; \
                 copy it again from where it came"
            );
            return Err(FormatError::damaged(file.path(), what));
        }
    }
    Ok(())
}

fn hash(algorithm: &str, bytes: &[u8]) -> Option<String> {
    Some(match algorithm {
        "md5" => hex(&Md5::digest(bytes)),
        "sha1" => hex(&Sha1::digest(bytes)),
        "sha256" => hex(&Sha256::digest(bytes)),
        "sha512" => hex(&Sha512::digest(bytes)),
        "xxh64" => {
            let mut hasher = XxHash64::with_seed(0);
            hasher.write(bytes);
            format!("{:016x}", hasher.finish())
        }
        _ => return None,
    })
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;

    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
