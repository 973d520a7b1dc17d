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
#[cfg(feature = "formats")]
mod formats;
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
#[cfg(feature = "serve")]
mod serve;
mod table;
mod texts;
mod tfrecord;
#[path = "../../percolator-messages/tests/messages/twin.rs"]
mod twin;

pub use replay::replay;

#[cfg(fuzzing)]
pub use libfuzzer_sys as libfuzzer;

/// A body, and the name that it has as a fuzz target and as a folder of the corpus.
pub type Target = (&'static str, fn(&[u8]));

/// Hands all targets to a macro, in the order of their names: the module of each, and its name.
macro_rules! each_target {
    ($macro:ident) => {
        $macro! {
            data::any_file
            #[cfg(feature = "formats")]
            formats::array_record
            #[cfg(feature = "formats")]
            formats::arrow_ipc
            #[cfg(feature = "formats")]
            formats::bagz
            images::bmp models::checkpoint cluster::checkpoint_parts cluster::checkpoint_record
            models::checkpoint_state data::cifar convert::convert_state
            #[cfg(feature = "formats")]
            formats::csv
            records::datum texts::digest records::example records::example_fields images::exif
            #[cfg(feature = "serve")]
            serve::feed_request
            texts::feed_spec
            #[cfg(feature = "serve")]
            serve::flight_stream
            images::gif
            #[cfg(feature = "serve")]
            serve::grpc_messages
            #[cfg(feature = "formats")]
            formats::hdf5
            data::idx texts::image_list cluster::job_records images::jpeg
            #[cfg(feature = "formats")]
            formats::json_lines
            leveldb::leveldb_log leveldb::leveldb_manifest leveldb::leveldb_sidecar leveldb::leveldb_table
            #[cfg(feature = "formats")]
            formats::litdata
            lmdb::lmdb lmdb::lmdb_sidecar
            #[cfg(feature = "serve")]
            serve::local_messages
            #[cfg(feature = "formats")]
            formats::lst
            #[cfg(feature = "formats")]
            formats::mds
            nets::mean
            #[cfg(feature = "formats")]
            formats::megatron
            models::meta_graph
            #[cfg(feature = "observe")]
            metrics::metrics
            nets::net_binary nets::net_text models::npy
            #[cfg(feature = "formats")]
            formats::npy_rows
            models::npz
            #[cfg(feature = "formats")]
            formats::npz_rows
            #[cfg(feature = "formats")]
            formats::parquet
            images::png images::pnm quarantine::quarantine texts::receipt language::record_info
            #[cfg(feature = "formats")]
            formats::recordio
            models::rename_rules texts::results models::saved_model models::saved_model_text
            language::sentencepiece records::sequence_example texts::snapshot table::table
            #[cfg(feature = "formats")]
            formats::tar
            models::tensors tfrecord::tfrecord tfrecord::tfrecord_packed tfrecord::tfrecord_sidecar
            #[cfg(feature = "serve")]
            serve::ticket
            images::tiff images::webp
        }
    };
}

macro_rules! list {
    ($($(#[$condition:meta])? $module:ident::$name:ident)*) => {
        /// All targets, in the order of their names.
        pub const TARGETS: &[Target] = &[$($(#[$condition])? (stringify!($name), $module::$name)),*];
    };
}

each_target!(list);

/// The body of the target with this name.
#[must_use]
pub fn body_of(name: &str) -> Option<fn(&[u8])> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, body)| *body)
}

#[cfg(test)]
mod paths;
#[cfg(test)]
mod tests;
