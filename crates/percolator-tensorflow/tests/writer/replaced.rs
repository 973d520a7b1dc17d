//! A checkpoint takes the place of an earlier one, wherever and however it is spelled.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use percolator_tensorflow::{CheckpointWriter, DataType, Tensor};
use tempfile::tempdir;

use crate::bundle::{Content, read, with_ending};

fn write(prefix: &Path, number: u8) {
    let mut writer = CheckpointWriter::create(prefix).unwrap();
    writer.add("number", &Tensor::new(DataType::Uint8, [], vec![number]).unwrap()).unwrap();
    writer.finish().unwrap();
}

fn number(prefix: &Path) -> u8 {
    match &read(prefix).1[0].content {
        Content::Bytes(bytes) => bytes[0],
        Content::Strings(_) => panic!("it is a number"),
    }
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).unwrap().is_symlink()
}

#[test]
fn links_to_the_files_of_a_checkpoint_stay_and_lead_to_the_new_ones() {
    let folder = tempdir().unwrap();
    let (store, prefix) = (folder.path().join("store"), folder.path().join("model"));
    fs::create_dir(&store).unwrap();
    let endings = [".index", ".data-00000-of-00001"];
    // At first, the links lead to files that are not there.
    for ending in endings {
        symlink(with_ending(&store.join("model"), ending), with_ending(&prefix, ending)).unwrap();
    }
    for value in 1..=3 {
        write(&prefix, value);
        assert_eq!(number(&prefix), value);
        assert_eq!(number(&store.join("model")), value);
        assert!(endings.iter().all(|ending| is_link(&with_ending(&prefix, ending))));
        // The links, the store, and nothing of an earlier checkpoint.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        assert_eq!(fs::read_dir(&store).unwrap().count(), 2);
    }
}

#[test]
fn no_other_checkpoint_is_removed_with_the_one_that_is_replaced() {
    let folder = tempdir().unwrap();
    let [model, kept] = ["model", "model.previous"].map(|name| folder.path().join(name));
    write(&model, 1);
    write(&kept, 2);
    write(&model, 3);
    assert_eq!((number(&model), number(&kept)), (3, 2));
    for (name, due) in [
        ("model.percolator-previous", "names that end in `.percolator-previous`"),
        ("model.index", "give the name without `.index`"),
        (".index", "give the name without `.index`"),
    ] {
        let message = CheckpointWriter::create(folder.path().join(name)).unwrap_err().to_string();
        assert!(message.contains(due) && message.contains(name), "{message}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
}
