//! What is known about one checkpoint, and about its writer.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A checkpoint, as its record describes it. The first three fields are those of the design that this
/// follows; a record that was written by another program may have no others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Entry {
    /// The name of its file.
    pub uuid: Uuid,
    /// The MD5 sum of its file: 32 hexadecimal digits.
    pub md5: String,
    /// When it was written, by its writer's clock: nanoseconds since 1970. It decides nothing.
    pub timestamp: i64,
    /// The SHA-256 sum of its file: 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The bytes of its file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// How many steps had been counted when it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// Who wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<Writer>,
}

/// A process that writes checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writer {
    /// The name of its machine.
    pub host: String,
    /// Its number there.
    pub pid: u32,
}

impl Writer {
    /// Returns this process.
    #[must_use]
    pub fn this() -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Writer { host, pid: std::process::id() }
    }
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {:?}", self.pid, self.host)
    }
}

/// Who holds an id: the record under the lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) host: String,
    pub(super) pid: u32,
    pub(super) since: i64,
}

/// A moment as a record has it.
pub(super) fn nanoseconds(time: SystemTime) -> i64 {
    let counted = |passed: std::time::Duration| i64::try_from(passed.as_nanos()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => counted(after),
        Err(error) => counted(error.duration()).saturating_neg(),
    }
}

impl Entry {
    /// Checks what a type does not say.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_sum = |text: &str, digits: usize| {
            text.len() == digits && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
        };
        if !is_sum(&self.md5, 32) {
            return Err(format!("md5 has 32 digits of 0 to 9 and a to f, and not {:?}", self.md5));
        }
        match &self.sha256 {
            Some(sum) if !is_sum(sum, 64) => {
                Err(format!("sha256 has 64 digits of 0 to 9 and a to f, and not {sum:?}"))
            }
            _ => Ok(()),
        }
    }
}
