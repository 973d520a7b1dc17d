//! The golden files are whole.

mod common;

use std::fs;

use sha2::{Digest as _, Sha256};

#[test]
fn every_file_of_the_manifest_is_there() {
    for format in ["webdataset", "mds", "npy", "recordio", "hdf5", "hdf5-caffe"] {
        for case in common::cases(format) {
            let files = case["files"].as_array().expect("a case has files");
            for (file, path) in files.iter().zip(common::files_of(case)) {
                let found: String = Sha256::digest(fs::read(&path).expect("it is there"))
                    .iter()
                    .map(|b| format!("{b:02x}"))
                    .collect();
                assert_eq!(file["sha256"], found, "{}", path.display());
            }
        }
    }
}

#[test]
fn every_variant_can_be_made() {
    assert!(
        common::damaged("mds")
            .iter()
            .all(|variant| variant.files().len() == common::files_of(variant.base).len())
    );
}
