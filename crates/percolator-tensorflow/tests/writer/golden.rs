//! What TensorFlow wrote, read and written again: the same bytes.

use tempfile::tempdir;

use crate::bundle::{assert_same, read, write};
use crate::data;

/// Each with the number of tensors and slices, so that none is passed over.
const CHECKPOINTS: [(&str, usize, usize); 13] = [
    ("article_ref_saver/model", 1, 2),
    ("article_ref_steps/model-30", 1, 2),
    ("article_ref_steps/model-40", 1, 2),
    ("article_resource_saver/model", 1, 2),
    ("article_resource_steps/model-30", 1, 2),
    ("article_resource_steps/model-40", 1, 2),
    ("types/model", 1, 17),
    ("many/model", 1, 3000),
    ("sharded/model", 3, 6),
    ("sliced/model", 1, 5),
    ("object/ckpt-2", 1, 5),
    ("object/ckpt-3", 1, 5),
    ("module/variables/variables", 1, 4),
];

#[test]
fn checkpoints_of_tensorflow_are_written_byte_for_byte() {
    let folder = tempdir().unwrap();
    for (name, shards_due, count_due) in CHECKPOINTS {
        let (shards, all) = read(&data(name));
        assert_eq!((shards, all.len()), (shards_due, count_due), "{name}");
        let prefix = folder.path().join(name);
        write(&prefix, shards, &all);
        assert_same(&prefix, &data(name), shards);
    }
}
