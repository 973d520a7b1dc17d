//! What is refused before anything is written.

use std::fs;
use std::path::Path;

use percolator_tensorflow::convert::{
    Conversion, ConvertError, CopyOptions, Existing, Format, Model, NameRules, Options, Progress,
    copy_checkpoint,
};
use percolator_tensorflow::{CheckpointError, DataType, Tensor};
use tempfile::tempdir;

use crate::forge::Bundle;
use crate::tensors::{self, Named};

fn named(name: &str) -> Named {
    (name.to_owned(), Tensor::new(DataType::Uint8, [1], vec![7]).unwrap())
}

#[test]
fn a_source_is_not_written_over() {
    let folder = tempdir().unwrap();
    let checkpoint = tensors::checkpoint(folder.path(), &[named("a")]);
    let refused = |model: &Model, target: &std::path::Path, format| {
        let error = Conversion::plan(model, target, format, &Options::default()).unwrap_err().to_string();
        assert!(error.ends_with("it would be written over while it is read: give another path"), "{error}");
    };
    for format in [Format::Safetensors, Format::Npz, Format::Npy] {
        let path = tensors::convert(&checkpoint, folder.path(), format).unwrap();
        let model = Model::open(&path).unwrap();
        refused(&model, &path, format);
        let link = folder.path().join("link").with_extension(format.name());
        std::os::unix::fs::symlink(&path, &link).unwrap();
        refused(&model, &link, format);
    }
    let prefix = checkpoint.path();
    refused(&checkpoint, prefix, Format::Checkpoint);
    let spelled = prefix.parent().unwrap().join("../written/model");
    refused(&checkpoint, &spelled, Format::Checkpoint);
    refused(&checkpoint, &prefix.with_file_name("model.index"), Format::Npz);
    let progress = Progress::new();
    let error =
        copy_checkpoint(checkpoint.checkpoint().unwrap(), &spelled, &CopyOptions::default(), &progress)
            .unwrap_err();
    assert!(error.to_string().contains("written over"), "{error}");
}

#[test]
fn a_source_is_not_written_over_through_links() {
    let folder = tempdir().unwrap();
    let source = tensors::checkpoint(folder.path(), &[named("a")]);
    let prefix = source.path();
    for (number, endings) in [&[".index", ".data-00000-of-00001"][..], &[".data-00000-of-00001"], &[".index"]]
        .into_iter()
        .enumerate()
    {
        let link = folder.path().join(format!("link{number}"));
        std::fs::create_dir(&link).unwrap();
        for ending in [".index", ".data-00000-of-00001"] {
            let mut file = prefix.as_os_str().to_owned();
            file.push(ending);
            let to = link.join(format!("m{ending}"));
            if endings.contains(&ending) {
                std::os::unix::fs::symlink(file, to).unwrap();
            } else {
                std::fs::copy(file, to).unwrap();
            }
        }
        let target = link.join("m");
        // The source is read through the links, or by its own name.
        for model in [&source, &Model::open_as(&target, Format::Checkpoint).unwrap()] {
            let error = Conversion::plan(model, &target, Format::Checkpoint, &Options::default());
            assert!(error.unwrap_err().to_string().contains("written over"), "{endings:?}");
            let checkpoint = model.checkpoint().unwrap();
            let error = copy_checkpoint(checkpoint, &target, &CopyOptions::default(), &Progress::new());
            assert!(error.unwrap_err().to_string().contains("written over"), "{endings:?}");
        }
    }
}

#[test]
fn what_is_there_stays_unless_it_is_to_be_replaced() {
    let folder = tempdir().unwrap();
    let [old, new] =
        ["old", "new"].map(|name| tensors::checkpoint(&folder.path().join(name), &[named(name)]));
    let holds = |path: &Path, format| Model::open_as(path, format).unwrap().tensors()[0].name.clone();
    let over = Options { existing: Existing::Replace, ..Options::default() };
    for format in [Format::Safetensors, Format::Npz, Format::Checkpoint] {
        let path = tensors::target(folder.path(), format);
        // It appears after the conversion was planned.
        let late = Conversion::plan(&new, &path, format, &Options::default()).unwrap();
        tensors::convert(&old, folder.path(), format).unwrap();
        let is_there =
            |error: &ConvertError| matches!(error, ConvertError::Exists { path: at } if *at == path);
        let error = late.run(&Progress::new()).unwrap_err();
        assert!(is_there(&error), "{error}");
        let error = tensors::convert(&new, folder.path(), format).unwrap_err();
        assert!(is_there(&error), "{error}");
        assert_eq!(holds(&path, format), "old");
        tensors::convert_with(&new, folder.path(), format, &over).unwrap();
        assert_eq!(holds(&path, format), "new");
    }
    let prefix = tensors::target(folder.path(), Format::Checkpoint);
    let copy = |existing| {
        let options = CopyOptions { existing, ..CopyOptions::default() };
        copy_checkpoint(old.checkpoint().unwrap(), &prefix, &options, &Progress::new())
    };
    let error = copy(Existing::Refuse).unwrap_err();
    assert!(matches!(error, ConvertError::Exists { .. }), "{error}");
    assert_eq!(holds(&prefix, Format::Checkpoint), "new");
    copy(Existing::Replace).unwrap();
    assert_eq!(holds(&prefix, Format::Checkpoint), "old");
}

/// A graph that cannot be looked at is not taken for none: with another checkpoint's beside the copy, that
/// would be removed.
#[test]
fn a_graph_that_cannot_be_looked_at_ends_a_copy() {
    let folder = tempdir().unwrap();
    let [from, to] =
        ["from", "to"].map(|name| tensors::checkpoint(&folder.path().join(name), &[named(name)]));
    let [graph, other] =
        [&from, &to].map(|model| std::path::PathBuf::from(format!("{}.meta", model.path().display())));
    fs::write(&other, "another's").unwrap();
    let copy = || {
        let options = CopyOptions { existing: Existing::Replace, ..CopyOptions::default() };
        copy_checkpoint(from.checkpoint().unwrap(), to.path(), &options, &Progress::new())
    };
    // One link leads round in a circle, the other nowhere.
    for target in [&graph, &folder.path().join("none")] {
        std::os::unix::fs::symlink(target, &graph).unwrap();
        let error = copy().unwrap_err();
        assert!(matches!(&error, ConvertError::Io { path, action: "read", .. } if *path == graph), "{error}");
        assert_eq!(fs::read(&other).unwrap(), b"another's");
        fs::remove_file(&graph).unwrap();
    }
    assert!(!copy().unwrap().has_graph && !other.exists());
}

#[test]
fn a_folder_that_is_not_empty_stays() {
    let folder = tempdir().unwrap();
    let model = tensors::checkpoint(folder.path(), &[named("a")]);
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    let plan = || Conversion::plan(&model, &out, Format::NpyFolder, &Options::default());
    assert_eq!(plan().unwrap().run(&Progress::new()).unwrap().tensors, 1);
    assert_eq!(fs::read(out.join("a.npy")).unwrap().last(), Some(&7));
    let error = plan().unwrap_err().to_string();
    assert!(error.contains("the folder is not empty"), "{error}");
}

#[test]
fn a_folder_that_cannot_be_made_is_refused_before_anything_is_read() {
    let folder = tempdir().unwrap();
    let model = tensors::checkpoint(folder.path(), &[named("a")]);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("none", &link).unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    for (target, found) in [
        ("link/", "it is a link to none, which is not there; make that folder first"),
        ("link", "it is a link to none"),
        ("link/arrays", "link is a link to none, which is not there; make that folder first"),
        ("link/deep/arrays/", "link is a link to none"),
        ("new/..", "it ends in no name"),
        ("file", "cannot write it"),
        ("file/", "cannot write it"),
    ] {
        let target = folder.path().join(target);
        let error = Conversion::plan(&model, &target, Format::NpyFolder, &Options::default()).unwrap_err();
        assert!(error.to_string().contains(found), "{error}");
    }
    let error = Conversion::plan(&model, "", Format::NpyFolder, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("it ends in no name"), "{error}");
}

#[test]
fn an_empty_folder_stays_where_it_is() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    let folder = tempdir().unwrap();
    let model = tensors::checkpoint(folder.path(), &[named("a"), named("b/c")]);
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::set_permissions(&out, fs::Permissions::from_mode(0o750)).unwrap();
    let before = fs::metadata(&out).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("out", &link).unwrap();
    let plan = || Conversion::plan(&model, &link, Format::NpyFolder, &Options::default());
    // One that is stopped, or fails at its last step, leaves nothing.
    let conversion = plan().unwrap();
    let progress = Progress::new();
    progress.stop();
    conversion.run(&progress).unwrap_err();
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
    plan().unwrap().run(&Progress::new()).unwrap();
    let after = fs::metadata(&out).unwrap();
    assert_eq!((after.ino(), after.mode()), (before.ino(), before.mode()));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let names = |model: &Model| model.tensors().iter().map(|info| info.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&Model::open(&link).unwrap()), ["a", "b/c"]);
    assert_eq!(fs::read_dir(&out).unwrap().count(), 2);
    // Files that came since it was planned are not mixed with the model's.
    for path in ["a.npy", "b/c.npy"] {
        fs::remove_file(out.join(path)).unwrap();
    }
    fs::remove_dir(out.join("b")).unwrap();
    let conversion = plan().unwrap();
    fs::write(out.join("b"), "").unwrap();
    let error = conversion.run(&Progress::new()).unwrap_err();
    assert!(error.to_string().contains("the folder is not empty"), "{error}");
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
}

#[test]
fn names_that_a_format_cannot_have_are_refused() {
    let folder = tempdir().unwrap();
    let long = "x".repeat(70_000);
    for (name, format, found) in [
        ("__metadata__", Format::Safetensors, "keeps this name for itself"),
        ("a\0b", Format::Npz, "a zero byte"),
        (&*long, Format::Npz, "its name has 70000 bytes"),
        (&*long, Format::NpyFolder, "a part of 70004 bytes"),
    ] {
        let model = tensors::checkpoint(folder.path(), &[named(name)]);
        let error = tensors::convert(&model, folder.path(), format).unwrap_err().to_string();
        assert!(error.contains(found), "{error}");
    }
}

#[test]
fn tensors_that_claim_the_same_bytes_are_neither_converted_nor_copied() {
    let folder = tempdir().unwrap();
    let mut bundle = Bundle::new();
    bundle.add("a", DataType::Uint8, &[1000], &[1; 1000]);
    let entry = bundle.entry("a").clone();
    bundle.entries.insert(b"b".to_vec(), entry);
    let model = Model::open(bundle.write(folder.path())).unwrap();
    let is_shared = |error: &ConvertError| {
        let shared = |error: &CheckpointError| matches!(error, CheckpointError::Shared { .. });
        matches!(error, ConvertError::Checkpoint(error) if shared(error))
    };
    for format in [Format::Npz, Format::NpyFolder, Format::Checkpoint, Format::Safetensors] {
        let error = tensors::convert(&model, folder.path(), format).unwrap_err();
        assert!(is_shared(&error), "{error}");
    }
    let copy = folder.path().join("copy");
    let options = CopyOptions::default();
    let error = copy_checkpoint(model.checkpoint().unwrap(), copy, &options, &Progress::new()).unwrap_err();
    assert!(is_shared(&error), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn an_array_is_one_tensor() {
    let folder = tempdir().unwrap();
    let model = tensors::checkpoint(folder.path(), &[named("a"), named("b")]);
    let error = tensors::convert(&model, folder.path(), Format::Npy).unwrap_err().to_string();
    assert!(error.contains(".npy holds one tensor, and there are 2"), "{error}");
    let options = Options { rules: NameRules::none().drop("a").unwrap(), ..Options::default() };
    tensors::convert_with(&model, folder.path(), Format::Npy, &options).unwrap();
}

#[test]
fn two_tensors_do_not_get_one_name() {
    let folder = tempdir().unwrap();
    let model = tensors::checkpoint(folder.path(), &[named("a/1"), named("a.1")]);
    let options = Options { rules: NameRules::none().rename("/=.").unwrap(), ..Options::default() };
    let error = tensors::convert_with(&model, folder.path(), Format::Npz, &options).unwrap_err().to_string();
    assert!(error.contains("\"a/1\" and \"a.1\" would both be named \"a.1\""), "{error}");
    assert!(!tensors::target(folder.path(), Format::Npz).exists());
}

#[test]
fn rules_must_give_a_tensor_a_new_name() {
    let folder = tempdir().unwrap();
    let model = tensors::checkpoint(folder.path(), &[named("a"), named("b")]);
    let rename = |rule: &str| NameRules::none().rename(rule).unwrap();
    let plan = |rules: NameRules| {
        let options = Options { rules, ..Options::default() };
        let planned = Conversion::plan(&model, folder.path().join("out.npz"), Format::Npz, &options);
        planned.map(drop).map_err(|error| error.to_string())
    };
    plan(rename("a=x").rename("b=y").unwrap().drop("d").unwrap()).unwrap();
    let error = plan(rename("c=x").rename("b=y").unwrap()).unwrap_err();
    assert!(error.starts_with("the rule \"c\": it matches no tensor"), "{error}");
    // A rule for a tensor that is left out for its type is used.
    let typed = Tensor::new(DataType::Complex128, [1], vec![0; 16]).unwrap();
    let model = tensors::checkpoint(folder.path(), &[named("a"), ("c".to_owned(), typed)]);
    let rules = rename("a=b").rename("c=d").unwrap();
    let options = Options { rules, leave_out: true, ..Options::default() };
    let target = folder.path().join("out.safetensors");
    Conversion::plan(&model, target, Format::Safetensors, &options).unwrap();
}
