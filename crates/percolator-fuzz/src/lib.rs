//! Hostile bytes for every parser of Percolator's.
//!
//! Each function of this package takes any bytes, gives them to one parser, and checks what holds whatever
//! they are:
//!
//! - There is an answer or an error: no panic, no abort, no endless loop.
//! - Memory is bounded by the length of the input, however large the sizes are that it states.
//! - What is read is what another decoder of the same format reads (prost, `safetensors`, a naive twin), or
//!   comes back the same after it was written, or is the same by every way of reading.
//! - A file of which every checksum is right is as harmless as another: repaired inputs are tried
//!   as well.
//!
//! The same functions are the fuzz targets of `cargo fuzz` (`fuzz_targets/fuzz.rs`) and, with inputs of a
//! fixed number, the tests of this package on a stable toolchain. The README has the commands.

mod accepted;
mod cluster;
mod convert;
mod data;
mod files;
mod frames;
mod images;
mod language;
mod leveldb;
mod lmdb;
mod memory;
#[cfg(feature = "observe")]
mod metrics;
mod models;
mod nets;
mod quarantine;
mod records;
mod repair;
mod replay;
mod table;
mod texts;
mod tfrecord;
#[path = "../../percolator-messages/tests/messages/twin.rs"]
mod twin;

pub use cluster::{checkpoint_parts, checkpoint_record, job_records};
pub use convert::convert_state;
pub use data::{any_file, cifar, idx};
pub use images::{exif, jpeg, png};
pub use language::{record_info, sentencepiece};
pub use leveldb::{leveldb_log, leveldb_manifest, leveldb_sidecar, leveldb_table};
pub use lmdb::{lmdb, lmdb_sidecar};
#[cfg(feature = "observe")]
pub use metrics::metrics;
pub use models::{
    checkpoint, checkpoint_state, meta_graph, npy, npz, rename_rules, saved_model, saved_model_text, tensors,
};
pub use nets::{mean, net_binary, net_text};
pub use quarantine::quarantine;
pub use records::{datum, example, example_fields, sequence_example};
pub use replay::replay;
pub use table::table;
pub use texts::{digest, feed_spec, image_list, receipt, results, snapshot};
pub use tfrecord::{tfrecord, tfrecord_packed, tfrecord_sidecar};

#[cfg(fuzzing)]
pub use libfuzzer_sys as libfuzzer;

/// A body, and the name that it has as a fuzz target and as a folder of the corpus.
pub type Target = (&'static str, fn(&[u8]));

/// All targets, in the order of their names.
pub const TARGETS: &[Target] = &[
    ("any_file", any_file),
    ("checkpoint", checkpoint),
    ("checkpoint_parts", checkpoint_parts),
    ("checkpoint_record", checkpoint_record),
    ("checkpoint_state", checkpoint_state),
    ("cifar", cifar),
    ("convert_state", convert_state),
    ("datum", datum),
    ("digest", digest),
    ("example", example),
    ("example_fields", example_fields),
    ("exif", exif),
    ("feed_spec", feed_spec),
    ("idx", idx),
    ("image_list", image_list),
    ("job_records", job_records),
    ("jpeg", jpeg),
    ("leveldb_log", leveldb_log),
    ("leveldb_manifest", leveldb_manifest),
    ("leveldb_sidecar", leveldb_sidecar),
    ("leveldb_table", leveldb_table),
    ("lmdb", lmdb),
    ("lmdb_sidecar", lmdb_sidecar),
    ("mean", mean),
    ("meta_graph", meta_graph),
    #[cfg(feature = "observe")]
    ("metrics", metrics),
    ("net_binary", net_binary),
    ("net_text", net_text),
    ("npy", npy),
    ("npz", npz),
    ("png", png),
    ("quarantine", quarantine),
    ("receipt", receipt),
    ("record_info", record_info),
    ("rename_rules", rename_rules),
    ("results", results),
    ("saved_model", saved_model),
    ("saved_model_text", saved_model_text),
    ("sentencepiece", sentencepiece),
    ("sequence_example", sequence_example),
    ("snapshot", snapshot),
    ("table", table),
    ("tensors", tensors),
    ("tfrecord", tfrecord),
    ("tfrecord_packed", tfrecord_packed),
    ("tfrecord_sidecar", tfrecord_sidecar),
];

/// The body of the target with this name.
#[must_use]
pub fn body_of(name: &str) -> Option<fn(&[u8])> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, body)| *body)
}

#[cfg(test)]
mod paths;
#[cfg(test)]
mod tests;
