//! The record that says which checkpoint counts.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::entry::{Entry, Writer};

/// The version of records that is written, and the highest that is understood.
pub const RECORD_VERSION: u64 = 1;
/// The most checkpoints that are kept.
pub const KEPT_MAX: usize = 64;
/// The most checkpoints that are spared.
pub const SPARED_MAX: usize = 16;

/// The record `/checkpoints/ID`: the newest checkpoint, and the older ones whose files are still needed.
///
/// Its text is JSON with the fields of the newest first:
///
/// ```text
/// {"uuid":"9f0c...","md5":"5d41...","timestamp":1795438800000000000,"sha256":"2cf2...","bytes":1048576,
///  "step":1200,"writer":{"host":"node-3","pid":4711},"version":1,"kept":[{"uuid":...}],"spared":[]}
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointRecord {
    /// The checkpoint that counts.
    pub newest: Entry,
    /// The ones before it that are kept, the newest first.
    pub kept: Vec<Entry>,
    /// Those that a restore could not read, although nothing shows that they are damaged: the store did not
    /// answer, or the program did not understand them. They stay until they are taken out of the record.
    pub spared: Vec<Entry>,
}

/// A record that is not understood.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It is no JSON, or no object.
    #[error("the record is no JSON object: {message}")]
    NotJson {
        /// What the parser says.
        message: String,
    },
    /// It has a version that this program does not know.
    #[error(
        "the record has version {found}, and versions up to {RECORD_VERSION} are known: use a newer program"
    )]
    Version {
        /// The version.
        found: String,
    },
    /// Its fields are not those of its version.
    #[error("the record's fields are not those of version {RECORD_VERSION}: {message}")]
    Fields {
        /// What is wrong with them.
        message: String,
    },
}

/// The record's fields, in their order.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    uuid: Uuid,
    md5: String,
    timestamp: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    writer: Option<Writer>,
    /// A record with the first three fields alone has none.
    #[serde(default)]
    version: Option<u64>,
    #[serde(default)]
    kept: Vec<Entry>,
    #[serde(default)]
    spared: Vec<Entry>,
}

impl CheckpointRecord {
    /// Reads a record's text.
    ///
    /// # Errors
    ///
    /// [`RecordError`] if it is not understood, even if it only has an unknown field, which would be lost
    /// when the next one is put.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let not_json = |message: String| RecordError::NotJson { message };
        let value: Value = serde_json::from_slice(bytes).map_err(|error| not_json(error.to_string()))?;
        let Value::Object(fields) = value else {
            return Err(not_json("it is another value".to_owned()));
        };
        // First the version: the fields of a later one are not faults.
        match fields.get("version") {
            None | Some(Value::Null) => {}
            Some(version) if version.as_u64() == Some(RECORD_VERSION) => {}
            Some(version) => {
                let found = version.to_string().chars().take(40).collect();
                return Err(RecordError::Version { found });
            }
        }
        let fault = |message: String| RecordError::Fields { message };
        let text: Text = serde_json::from_slice(bytes).map_err(|error| fault(error.to_string()))?;
        for (what, entries, most) in [("kept", &text.kept, KEPT_MAX), ("spared", &text.spared, SPARED_MAX)] {
            if entries.len() > most {
                return Err(fault(format!(
                    "{what} has {} checkpoints, and at most {most} are",
                    entries.len()
                )));
            }
        }
        let Text { uuid, md5, timestamp, sha256, bytes, step, writer, version: _, kept, spared } = text;
        let newest = Entry { uuid, md5, timestamp, sha256, bytes, step, writer };
        let record = CheckpointRecord { newest, kept, spared };
        record.entries().try_for_each(Entry::check).map_err(fault)?;
        Ok(record)
    }

    /// Returns the record's text.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "it has no panic: there is no value without a JSON in it")]
    pub fn to_json(&self) -> Vec<u8> {
        let Entry { uuid, md5, timestamp, sha256, bytes, step, writer } = self.newest.clone();
        let (version, kept, spared) = (Some(RECORD_VERSION), self.kept.clone(), self.spared.clone());
        let text = Text { uuid, md5, timestamp, sha256, bytes, step, writer, version, kept, spared };
        serde_json::to_vec(&text).expect("texts, numbers and lists have a JSON")
    }

    /// Returns all checkpoints that it names, in the order in which a restore tries them.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        std::iter::once(&self.newest).chain(&self.kept).chain(&self.spared)
    }

    /// Returns whether it names a file.
    #[must_use]
    pub fn names(&self, uuid: Uuid) -> bool {
        self.entries().any(|entry| entry.uuid == uuid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    const MD5: &str = "d41d8cd98f00b204e9800998ecf8427e";

    #[test]
    fn the_fields_are_in_the_order_of_the_design() {
        let writer = Some(Writer { host: "node".to_owned(), pid: 7 });
        let newest = Entry {
            uuid: UUID.parse().unwrap(),
            md5: MD5.to_owned(),
            timestamp: -3,
            sha256: Some("0".repeat(64)),
            bytes: Some(5),
            step: Some(9),
            writer,
        };
        let older = Entry { sha256: None, bytes: None, step: None, writer: None, ..newest.clone() };
        let record = CheckpointRecord { newest, kept: vec![older.clone()], spared: vec![older] };
        let text = String::from_utf8(record.to_json()).unwrap();
        let short = format!(r#"{{"uuid":"{UUID}","md5":"{MD5}","timestamp":-3}}"#);
        let start = short.strip_suffix('}').unwrap();
        let due = [
            start,
            r#","sha256":""#,
            &"0".repeat(64),
            r#"","bytes":5,"step":9,"writer":{"host":"node","pid":7},"version":1"#,
            &format!(r#","kept":[{short}],"spared":[{short}]}}"#),
        ];
        assert_eq!(text, due.concat());
        assert_eq!(CheckpointRecord::parse(text.as_bytes()).unwrap(), record);
        // The design's record, as another program writes it.
        let theirs = CheckpointRecord::parse(short.as_bytes()).unwrap();
        assert_eq!((theirs.newest.timestamp, theirs.kept.len()), (-3, 0));
    }

    #[test]
    fn what_is_not_understood_is_refused_with_the_reason() {
        let refused = |text: &str, due: &str| {
            let message = CheckpointRecord::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(message.contains(due), "{text}: {message}");
        };
        let with = |more: &str| format!(r#"{{"uuid":"{UUID}","md5":"{MD5}","timestamp":1{more}}}"#);
        refused("", "is no JSON object");
        refused("model-7", "is no JSON object");
        refused("[1]", "is no JSON object");
        refused(&with("")[..40], "is no JSON object");
        refused(&with(r#","version":2,"shards":[]"#), "version 2, and versions up to 1 are known");
        refused(&with(r#","version":"1""#), "version \"1\"");
        refused(&with(r#","colour":1"#), "unknown field `colour`");
        refused(&with(r#","timestamp":2"#), "duplicate field");
        refused(&with(r#","bytes":-1"#), "invalid value");
        refused(&with(r#","sha256":"00""#), "sha256 has 64 digits");
        refused(&with(r#","kept":[{"uuid":"x"}]"#), "UUID");
        refused(r#"{"uuid":"1","md5":""}"#, "not those of version 1");
        refused(&with("").replace(MD5, "D41D"), "md5 has 32 digits");
        let many = vec![with(""); KEPT_MAX + 1].join(",");
        refused(&with(&format!(r#","kept":[{many}]"#)), "65 checkpoints, and at most 64 are");
    }
}
