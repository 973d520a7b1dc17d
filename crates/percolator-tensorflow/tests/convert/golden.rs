//! Checkpoints that TensorFlow wrote: converted and back, and copied.

use std::fs;
use std::path::{Path, PathBuf};

use percolator_tensorflow::convert::{CopyOptions, Format, Model, Options, Progress, copy_checkpoint};
use percolator_tensorflow::{Checkpoint, DataType};
use tempfile::tempdir;

use crate::harness::process::sample::is_all;
use crate::tensors;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

const PREFIXES: [&str; 8] = [
    "article_ref_saver/model",
    "article_resource_steps/model-40",
    "many/model",
    "module/variables/variables",
    "object/ckpt-3",
    "sharded/model",
    "sliced/model",
    "types/model",
];

/// The files of a checkpoint, by what follows the prefix.
fn files(prefix: &Path) -> Vec<(String, Vec<u8>)> {
    let name = prefix.file_name().unwrap().to_str().unwrap();
    let mut files = Vec::new();
    for entry in fs::read_dir(prefix.parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        let ending = path.file_name().unwrap().to_str().unwrap().strip_prefix(name).map(str::to_owned);
        if let Some(ending) = ending.filter(|ending| ending.starts_with(".data") || ending == ".index") {
            files.push((ending, fs::read(path).unwrap()));
        }
    }
    files.sort();
    files
}

#[test]
fn copies_have_the_bytes_that_tensorflow_wrote() {
    for prefix in PREFIXES {
        let folder = tempdir().unwrap();
        let copy = folder.path().join("model");
        let progress = Progress::new();
        let checkpoint = Checkpoint::open(data(prefix)).unwrap();
        let summary = copy_checkpoint(&checkpoint, &copy, &CopyOptions::default(), &progress).unwrap();
        assert_eq!(summary.tensors, checkpoint.len(), "{prefix}");
        assert_eq!(progress.done(), progress.total());
        assert!(files(&copy) == files(&data(prefix)), "{prefix}");
    }
}

#[test]
fn copies_in_other_numbers_of_data_files_have_the_same_tensors() {
    for prefix in PREFIXES {
        let folder = tempdir().unwrap();
        let original = Model::open(data(prefix)).unwrap();
        for shards in [1, 2, 5] {
            let copy = folder.path().join(format!("model-{shards}"));
            let progress = Progress::new();
            copy_checkpoint(
                original.checkpoint().unwrap(),
                &copy,
                &CopyOptions { shards: Some(shards), ..CopyOptions::default() },
                &progress,
            )
            .unwrap();
            assert_eq!(files(&copy).len(), shards + 1);
            let copy = Model::open(&copy).unwrap();
            assert_eq!(tensors::read(&copy), tensors::read(&original), "{prefix}");
        }
    }
}

#[test]
fn converted_and_back_they_have_the_same_bytes() {
    // Those that were written in one piece; numbers alone in safetensors.
    for prefix in ["article_ref_saver/model", "many/model", "object/ckpt-3", "types/model"] {
        let original = Model::open(data(prefix)).unwrap();
        let has_strings = original.tensors().iter().any(|info| info.data_type == DataType::String);
        for format in [Format::Npz, Format::NpyFolder, Format::Safetensors] {
            // A file for each of 3000 tensors, which is made sure of on the disk, takes half a minute.
            if format == Format::NpyFolder && prefix == "many/model" && !is_all() {
                continue;
            }
            let options = Options { leave_out: true, ..Options::default() };
            let [folder, back] = [(); 2].map(|()| tempdir().unwrap());
            let path = tensors::convert_with(&original, folder.path(), format, &options).unwrap();
            let converted = Model::open(&path).unwrap();
            let path = tensors::convert(&converted, back.path(), Format::Checkpoint).unwrap();
            let has_all = converted.tensors().len() == original.tensors().len();
            assert_eq!(has_all, format != Format::Safetensors || !has_strings, "{prefix} {format}");
            // An archive keeps the order of its tensors; other formats have one of their own.
            if format == Format::Npz {
                assert!(files(&path) == files(&data(prefix)), "{prefix}");
            }
            let is_kept = |name: &String| converted.tensors().iter().any(|info| info.name == *name);
            let mut expected = tensors::read(&original);
            expected.retain(|(name, _)| is_kept(name));
            assert_eq!(tensors::read(&Model::open(path).unwrap()), expected);
        }
    }
}

#[test]
fn a_model_is_found_by_any_of_its_paths() {
    let tensors_at = |path: &str| Model::open(data(path)).map(|model| model.tensors().len());
    for path in [
        "sharded/model",
        "sharded/model.index",
        "sharded/model.data-00001-of-00003",
        "sharded",
        "sharded/checkpoint",
    ] {
        assert_eq!(tensors_at(path).unwrap(), 6, "{path}");
    }
    for path in ["module", "module/saved_model.pb", "module/variables", "module/variables/variables"] {
        assert_eq!(tensors_at(path).unwrap(), 4, "{path}");
    }
    let latest = Model::open(data("article_ref_steps")).unwrap();
    assert!(latest.path().ends_with("article_ref_steps/model-40"), "{:?}", latest.path());
    assert_eq!(tensors_at("many").unwrap(), 3000);
    for (path, found) in [("nothing", "no such file"), ("", "neither a file")] {
        let error = tensors_at(path).unwrap_err().to_string();
        assert!(error.contains(found) && error.contains("safetensors"), "{error}");
    }
}
