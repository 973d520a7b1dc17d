//! Copies of an earlier checkpoint, `PREFIX.percolator-previous`: a writer that was about to replace it was
//! killed.

use std::fs;
use std::path::{Path, PathBuf};

use percolator_tensorflow::convert::{
    Conversion, ConvertError, CopyOptions, Existing, Format, Model, Options, Progress, Summary,
    copy_checkpoint,
};
use percolator_tensorflow::{Checkpoint, DataType, Tensor};
use tempfile::tempdir;

use crate::tensors;

const ENDINGS: [&str; 2] = [".index", ".data-00000-of-00001"];

fn with(prefix: &Path, ending: &str) -> PathBuf {
    PathBuf::from(format!("{}{ending}", prefix.display()))
}

/// A checkpoint with a graph, put aside by a writer that was killed; returns the prefix without the ending.
fn kept(folder: &Path) -> PathBuf {
    let tensor = Tensor::new(DataType::Uint8, [1], vec![7]).unwrap();
    let prefix = tensors::checkpoint(folder, &[("a".to_owned(), tensor)]).path().to_owned();
    for ending in ENDINGS {
        fs::rename(with(&prefix, ending), with(&prefix, &format!(".percolator-previous{ending}"))).unwrap();
    }
    fs::write(with(&prefix, ".meta"), "graph").unwrap();
    prefix
}

fn copy(prefix: &Path, to: &Path) -> Result<Summary, ConvertError> {
    let checkpoint = Checkpoint::open(with(prefix, ".percolator-previous")).unwrap();
    let options = CopyOptions { existing: Existing::Replace, ..CopyOptions::default() };
    copy_checkpoint(&checkpoint, to, &options, &Progress::new())
}

#[test]
fn its_graph_is_copied_along() {
    let folder = tempdir().unwrap();
    let prefix = kept(folder.path());
    let to = folder.path().join("copy/model");
    assert!(copy(&prefix, &to).unwrap().has_graph);
    assert_eq!(fs::read(with(&to, ".meta")).unwrap(), b"graph");
}

#[test]
fn it_is_not_replaced_by_its_copy() {
    let folder = tempdir().unwrap();
    let prefix = kept(folder.path());
    for is_whole in [false, true] {
        if is_whole {
            for ending in ENDINGS {
                let from = with(&prefix, &format!(".percolator-previous{ending}"));
                fs::copy(from, with(&prefix, ending)).unwrap();
            }
        }
        let error = copy(&prefix, &prefix).unwrap_err();
        assert!(matches!(&error, ConvertError::SamePlace { path } if *path == prefix), "{error}");
        let model = Model::open(with(&prefix, ".percolator-previous")).unwrap();
        let options = Options { existing: Existing::Replace, ..Options::default() };
        let error = Conversion::plan(&model, &prefix, Format::Checkpoint, &options).unwrap_err();
        assert!(matches!(&error, ConvertError::SamePlace { path } if *path == prefix), "{error}");
        assert_eq!(fs::read(with(&prefix, ".meta")).unwrap(), b"graph");
        assert!(with(&prefix, ".percolator-previous.index").exists());
    }
}
