//! Folders of Hugging Face's `save_to_disk`.
#![cfg(feature = "arrow")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, too")]

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use common::{case, check, damaged, golden, rows_of};
use percolator_formats::{Options, Shard, hugging_face};

fn with_split(split: &str) -> Options {
    let mut options = Options::default();
    options.settings.push(("split".to_owned(), split.to_owned()));
    options
}

/// The number of records of a folder.
fn records(folder: &Path, options: &Options) -> usize {
    let shards = hugging_face::open(folder, options).unwrap();
    let count = |shard: &Arc<dyn Shard>| {
        let mut cursor = Arc::clone(shard).cursor().unwrap();
        std::iter::from_fn(|| cursor.skip().unwrap()).count()
    };
    shards.iter().map(count).sum()
}

#[test]
fn every_case_is_read() {
    for (name, folder) in [("arrow_hf_disk", "arrow/hf_disk"), ("arrow_hf_dict", "arrow/hf_dict")] {
        check(case(name), &|options| hugging_face::open(&golden(folder), options));
        assert!(hugging_face::is(&golden(folder), &[]));
    }
}

#[test]
fn a_folder_is_opened_by_its_index() {
    for index in ["arrow/hf_disk/state.json", "arrow/hf_dict/dataset_dict.json"] {
        assert!(hugging_face::is(&golden(index), b"{"));
        assert!(!hugging_face::open(&golden(index), &Options::default()).unwrap().is_empty());
    }
    assert!(!hugging_face::is(&golden("arrow"), &[]));
    assert!(!hugging_face::is(&golden("arrow/hf_disk/data-00000-of-00003.arrow"), &[0xFF; 4]));
}

#[test]
fn one_split_is_chosen() {
    let folder = golden("arrow/hf_dict");
    let of = |split| rows_of(case("arrow_hf_dict")).iter().filter(|row| row["split"] == split).count();
    for split in ["train", "test"] {
        assert_eq!(records(&folder, &with_split(split)), of(split));
    }
    let error = hugging_face::open(&folder, &with_split("valid")).unwrap_err().to_string();
    assert!(error.contains("valid") && error.contains("train, test"), "{error}");
    let error = hugging_face::open(&folder.join("test"), &with_split("train")).unwrap_err().to_string();
    assert!(error.contains("without name") && error.contains("train"), "{error}");
}

#[test]
fn every_damage_is_told() {
    for variant in damaged("hf-disk") {
        let words: &[&str] = match variant.name {
            "arrow_hf_missing_shard" => &["state.json", "data-00001-of-00003.arrow"],
            "arrow_hf_state" => &["state.json", "no JSON"],
            other => panic!("{other} is new: {}", variant.honest),
        };
        variant.fails(&|options| hugging_face::open(&variant.file("arrow/hf_disk"), options), words);
    }
}

#[test]
fn a_name_stays_in_its_folder() {
    for name in ["../a.arrow", "/etc/a.arrow", "", "a/../../b.arrow"] {
        let folder = tempfile::tempdir().unwrap();
        let state = serde_json::json!({"_data_files": [{"filename": name}]});
        fs::write(folder.path().join("state.json"), state.to_string()).unwrap();
        let error = hugging_face::open(folder.path(), &Options::default()).unwrap_err().to_string();
        assert!(error.contains("outside of the folder"), "{error}");
        let dict = serde_json::json!({"splits": [name]});
        fs::write(folder.path().join("dataset_dict.json"), dict.to_string()).unwrap();
        let error = hugging_face::open(folder.path(), &Options::default()).unwrap_err().to_string();
        assert!(error.contains("outside of the folder"), "{error}");
    }
}

#[test]
fn indices_and_unknown_settings_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let state = serde_json::json!({"_data_files": [], "_indices_data_files": [{"filename": "i.arrow"}]});
    fs::write(folder.path().join("state.json"), state.to_string()).unwrap();
    let error = hugging_face::open(folder.path(), &Options::default()).unwrap_err().to_string();
    assert!(error.contains("flatten_indices"), "{error}");

    let mut options = Options::default();
    options.settings.push(("block".to_owned(), "1".to_owned()));
    let error = hugging_face::open(&golden("arrow/hf_disk"), &options).unwrap_err().to_string();
    assert!(error.contains("block") && error.contains("split"), "{error}");
}
