//! Folders of arrays: what is in them that no conversion wrote, or that a killed one left.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use percolator_tensorflow::convert::{Conversion, ConvertError, Format, Model, Options, Progress};
use percolator_tensorflow::{DataType, Tensor};
use tempfile::tempdir;

use crate::tensors::{self, Named};

fn named(name: &str) -> Named {
    (name.to_owned(), Tensor::new(DataType::Uint8, [1], vec![7]).unwrap())
}

fn opened(path: &Path) -> String {
    Model::open(path).unwrap_err().to_string()
}

/// A folder of the arrays `a` and `b/c`.
fn arrays(folder: &Path) -> std::path::PathBuf {
    let model = tensors::checkpoint(folder, &[named("a"), named("b/c")]);
    tensors::convert(&model, folder, Format::NpyFolder).unwrap()
}

#[test]
fn a_link_to_a_folder_is_named_and_not_passed_over() {
    let folder = tempdir().unwrap();
    let arrays = arrays(folder.path());
    fs::rename(arrays.join("b"), folder.path().join("elsewhere")).unwrap();
    symlink("../elsewhere", arrays.join("b")).unwrap();
    let error = opened(&arrays);
    let link = arrays.join("b").display().to_string();
    assert!(error.starts_with(&link) && error.contains("a link to a folder"), "{error}");
    // A link to an array is followed, and beside a checkpoint nobody asks for arrays.
    fs::remove_file(arrays.join("b")).unwrap();
    symlink("../elsewhere/c.npy", arrays.join("d.npy")).unwrap();
    assert_eq!(Model::open(&arrays).unwrap().tensors().len(), 2);
    let checkpoint = folder.path().join("written");
    symlink("../elsewhere", checkpoint.join("logs")).unwrap();
    fs::remove_file(checkpoint.join("checkpoint")).ok();
    assert_eq!(Model::open(&checkpoint).unwrap().format(), Format::Checkpoint);
}

#[test]
fn a_folder_that_cannot_be_searched_is_not_taken_for_one_without_arrays() {
    let folder = tempdir().unwrap();
    let deep = folder.path().join("x/".repeat(102));
    fs::create_dir_all(&deep).unwrap();
    let error = opened(folder.path());
    assert!(error.contains("more than 100 folders deep"), "{error}");
}

#[test]
fn two_files_of_one_name_are_told_apart_by_renaming_one() {
    let folder = tempdir().unwrap();
    let arrays = arrays(folder.path());
    fs::copy(arrays.join("a.npy"), arrays.join("%61.npy")).unwrap();
    let error = opened(&arrays);
    assert!(error.contains("would both be named \"a\": rename one of the files"), "{error}");
}

#[test]
fn a_checkpoint_is_found_whatever_bytes_its_name_has() {
    let folder = tempdir().unwrap();
    let written = tensors::checkpoint(folder.path(), &[named("a")]).path().to_owned();
    let found = folder.path().join("found");
    fs::create_dir(&found).unwrap();
    for ending in [".index", ".data-00000-of-00001"] {
        let from = format!("{}{ending}", written.display());
        let name = [b"m\xff", ending.as_bytes()].concat();
        fs::copy(from, found.join(OsStr::from_bytes(&name))).unwrap();
    }
    assert_eq!(Model::open(&found).unwrap().path(), found.join(OsStr::from_bytes(b"m\xff")));
}

#[test]
fn an_array_that_was_replaced_since_its_header_was_read_is_an_error() {
    let folder = tempdir().unwrap();
    let array = |data_type, shape: &[usize]| Tensor::new(data_type, shape, vec![1; 6]).unwrap();
    let written = |tensor: Tensor<'static>| {
        let folder = tempdir().unwrap();
        let model = tensors::checkpoint(folder.path(), &[("a".to_owned(), tensor)]);
        fs::read(tensors::convert(&model, folder.path(), Format::Npy).unwrap()).unwrap()
    };
    let path = folder.path().join("a.npy");
    let first = written(array(DataType::Uint8, &[2, 3]));
    for other in [array(DataType::Int8, &[2, 3]), array(DataType::Uint8, &[3, 2])] {
        fs::write(&path, &first).unwrap();
        let model = Model::open(folder.path()).unwrap();
        model.read(0).unwrap();
        fs::write(&path, written(other)).unwrap();
        let error = model.read(0).unwrap_err().to_string();
        assert!(error.starts_with(&path.display().to_string()) && error.contains("header"), "{error}");
    }
}

#[test]
fn a_tensor_whose_name_has_that_of_a_temporary_folder_is_written_and_read() {
    let folder = tempdir().unwrap();
    let boot = this_boot();
    let names: Vec<_> = ["deadbeef", &boot]
        .iter()
        .flat_map(|boot| [format!("x{}/w", unfinished(boot)), format!("{}/v/w", unfinished(boot))])
        .collect();
    let mut wanted: Vec<_> = names.iter().map(|name| named(name)).collect();
    wanted.sort_by(|one, other| one.0.cmp(&other.0));
    let model = tensors::checkpoint(folder.path(), &wanted);
    let arrays = tensors::convert(&model, folder.path(), Format::NpyFolder).unwrap();
    assert_eq!(tensors::read(&Model::open(&arrays).unwrap()), wanted);
}

/// The name of the folder in which a conversion of this boot works that is to fill the folder around it.
fn unfinished(boot: &str) -> String {
    format!(".{boot}-7f-1a2b-0.percolator-partial")
}

fn this_boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap()[..8].to_owned()
}

#[test]
fn what_a_killed_conversion_left_is_no_model_and_says_so() {
    let folder = tempdir().unwrap();
    let model = tensors::checkpoint(folder.path(), &[named("a"), named("b")]);
    let out = folder.path().join("out");
    // Nobody can tell here whether a conversion of another machine still works.
    let left = out.join(unfinished("ffffffff"));
    fs::create_dir_all(&left).unwrap();
    let array = arrays(folder.path()).join("a.npy");
    fs::copy(&array, left.join("a.npy")).unwrap();
    let error = opened(&out);
    assert!(error.contains("ffffffff-7f-1a2b-0.percolator-partial"), "{error}");
    assert!(error.contains("killed"), "{error}");
    let plan = || Conversion::plan(&model, &out, Format::NpyFolder, &Options::default());
    let error = plan().unwrap_err();
    assert!(matches!(&error, ConvertError::Unfinished { path } if *path == left), "{error}");
    // Beside the folder, it is none of its tensors.
    fs::remove_dir_all(&left).unwrap();
    fs::copy(&array, out.join("a.npy")).unwrap();
    let beside = out.join(format!("other{}", unfinished("ffffffff")));
    fs::create_dir(&beside).unwrap();
    fs::copy(&array, beside.join("b.npy")).unwrap();
    assert_eq!(Model::open(&out).unwrap().tensors().len(), 1);
}

#[test]
fn what_a_killed_conversion_of_this_machine_left_is_swept() {
    let folder = tempdir().unwrap();
    let model = tensors::checkpoint(folder.path(), &[named("a"), named("b")]);
    let out = folder.path().join("out");
    for left in
        [out.join(unfinished(&this_boot())), folder.path().join(format!("out{}", unfinished(&this_boot())))]
    {
        let array = left.join("x/W.npy");
        fs::create_dir_all(array.parent().unwrap()).unwrap();
        fs::write(&array, "half").unwrap();
        let conversion = Conversion::plan(&model, &out, Format::NpyFolder, &Options::default()).unwrap();
        conversion.run(&Progress::new()).unwrap();
        assert!(!left.exists());
        assert_eq!(fs::read_dir(&out).unwrap().count(), 2);
        fs::remove_dir_all(&out).unwrap();
    }
}
