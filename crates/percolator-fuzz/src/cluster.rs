//! What the processes of a job write for each other: records, and the parts of a checkpoint.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use percolator::Snapshot;
use percolator_cluster::checkpoint::{Checkpoint, CheckpointRecord, Tensors, copy_part, read_parts};
use percolator_cluster::leases::Job;
use percolator_cluster::metadata::{MemoryMetadata, Metadata as _, Transaction};

use crate::accepted::accepted;
use crate::memory::{Budget, within};

/// A record of an id's checkpoints. What is read is written, and read again.
pub(crate) fn checkpoint_record(bytes: &[u8]) {
    let Ok(record) = within(bytes, Budget::per_byte(256), || CheckpointRecord::parse(bytes)) else { return };
    accepted();
    let written = record.to_json();
    let again = CheckpointRecord::parse(&written).expect("what was written is read");
    assert_eq!(again, record);
}

/// The parts of a checkpoint: tensors of any kind, and perhaps a snapshot.
pub(crate) fn checkpoint_parts(bytes: &[u8]) {
    within(bytes, Budget::mebibytes(4, 512), || {
        let (mut model, mut feed) = (Tensors::new(), None::<Snapshot>);
        let mut parts: [(&str, &mut dyn Checkpoint); 2] = [("model", &mut model), ("feed", &mut feed)];
        let read = read_parts(&mut &*bytes, &mut parts);
        let copied = copy_part(&mut &*bytes, "model", &mut io::sink());
        if read.is_ok() {
            accepted();
        }
        assert!(read.is_err() || copied.is_ok(), "parts that are read can be copied: {copied:?}");
    });
}

/// The records of a job whose blocks are leased, as a JSON object: the end of each key, and its value.
pub(crate) fn job_records(bytes: &[u8]) {
    let Ok(records) = serde_json::from_slice::<BTreeMap<String, serde_json::Value>>(bytes) else { return };
    let metadata = Arc::new(MemoryMetadata::new());
    for (key, value) in records {
        let put = Transaction::new().put(format!("/leases/job/{key}"), value.to_string());
        let _ = metadata.transact(&put);
    }
    let Ok(job) = Job::open(metadata, "job") else { return };
    within(bytes, Budget::mebibytes(4, 512), || {
        if let Ok(status) = job.status() {
            accepted();
            assert!(status.blocks().is_none_or(|blocks| status.done <= blocks), "more is done than there is");
        }
        let _ = job.receipts().map(|receipts| receipts.len());
    });
}
