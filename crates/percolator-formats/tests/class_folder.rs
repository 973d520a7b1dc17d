//! Folders of images, one for each class.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;
mod mutations;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use common::{case, check, damaged, golden};
use mutations::{options, records};
use percolator_files::Access;
use percolator_formats::{Key, class_folder};
use serde_json::json;

fn write(root: &Path, files: &[&str]) {
    for file in files {
        fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
        fs::write(root.join(file), file).unwrap();
    }
}

fn keys(root: &Path) -> Vec<String> {
    let shard = class_folder::open(root, &options(Access::Read, &[])).unwrap().remove(0);
    let mut cursor = shard.cursor().unwrap();
    let mut keys = Vec::new();
    while let Some(record) = cursor.advance().unwrap() {
        let Key::Bytes(key) = record.key else { panic!("a key") };
        keys.push(String::from_utf8_lossy(key).into_owned());
    }
    keys
}

#[test]
fn images_are_those_of_torchvision_in_its_order() {
    let root = golden("imagefolder/tree");
    assert!(class_folder::is(&root, b""));
    assert!(!class_folder::is(&golden("webdataset"), b""));
    check(case("imagefolder_tree"), &|options| class_folder::open(&root, options));
}

#[test]
fn folders_below_a_class_come_in_the_order_of_whole_paths() {
    let folder = tempfile::tempdir().unwrap();
    // A hyphen comes before a slash, so the folder a-b before a/b.
    write(
        folder.path(),
        &["c/a/2.png", "c/a-b/1.png", "c/z.PNG", "c/a/b/3.TIFF", "c/.jpg", "c/x.gif", "d/y.webp"],
    );
    assert_eq!(
        keys(folder.path()),
        ["c/.jpg", "c/z.PNG", "c/a/2.png", "c/a-b/1.png", "c/a/b/3.TIFF", "d/y.webp"]
    );
}

#[test]
fn damage_is_said() {
    for variant in damaged("imagefolder") {
        let root = variant.file("imagefolder/tree");
        let open = |options: &_| class_folder::open(&root, options);
        match variant.name {
            "imagefolder_empty_file" => variant.fails(&open, &["Bee/img_10.jpeg, record 0", "is empty"]),
            // The file is whole as a file. Its decoder says that the image is not.
            "imagefolder_cut_image" => assert_eq!(variant.read(&open), Ok(23)),
            "imagefolder_no_images" => {
                variant.fails(&open, &["the class über has no image", ".webp", "allow_empty=true"]);
                let read =
                    records(&root, &options(Access::Read, &[("allow_empty", "true")]), &class_folder::open);
                assert_eq!(read.unwrap().len(), 20);
            }
            other => panic!("{other} is not expected"),
        }
    }
}

#[test]
fn links_are_followed_but_not_in_circles() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    write(&root, &["a/1.png"]);
    write(folder.path(), &["elsewhere/2.png"]);
    symlink(folder.path().join("elsewhere"), root.join("b")).unwrap();
    symlink(folder.path().join("elsewhere/2.png"), root.join("a/link.png")).unwrap();
    assert_eq!(keys(&root), ["a/1.png", "a/link.png", "b/2.png"]);

    symlink(&root, root.join("a/up")).unwrap();
    let error = class_folder::open(&root, &options(Access::Read, &[])).unwrap_err().to_string();
    assert!(error.contains("a link leads back"), "{error}");
    fs::remove_file(root.join("a/up")).unwrap();

    symlink("nowhere", root.join("a/0.png")).unwrap();
    let shard = class_folder::open(&root, &options(Access::Read, &[])).unwrap().remove(0);
    let mut cursor = shard.cursor().unwrap();
    let error = cursor.advance().unwrap_err();
    assert!(error.to_string().contains("a/0.png"), "{error}");
    assert_eq!(cursor.advance().unwrap_err(), error, "the same error");
    cursor.seek([1, 0], 1).unwrap();
    assert_eq!(cursor.advance().unwrap().unwrap().key, Key::Bytes(b"a/1.png"));
}

#[test]
fn only_the_parts_that_are_used_are_read() {
    let variant = damaged("imagefolder").into_iter().find(|v| v.name == "imagefolder_empty_file").unwrap();
    let mut options = options(Access::Read, &[]);
    options.parts = Some(vec!["label".to_owned()]);
    let root = variant.file("imagefolder/tree");
    let read = records(&root, &options, &class_folder::open).unwrap();
    assert_eq!((read.len(), &read[22]), (23, &json!({"label": 3})));
    let shard = class_folder::open(&root, &options).unwrap().remove(0);
    assert_eq!(shard.grammar().names(), Some(vec!["label".to_owned()]));
    assert_eq!(shard.files().len(), 23);
}

#[test]
fn what_is_no_image_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let open =
        || class_folder::open(folder.path(), &options(Access::Read, &[])).map(|mut shards| shards.remove(0));
    assert!(open().unwrap_err().to_string().contains("no folder"));
    write(folder.path(), &["a/1.png"]);
    let huge = fs::File::options().write(true).open(folder.path().join("a/1.png")).unwrap();
    huge.set_len(1 << 40).unwrap();
    let error = open().unwrap().cursor().unwrap().advance().unwrap_err().to_string();
    assert!(error.contains("at most 2147483648"), "{error}");
    fs::remove_file(folder.path().join("a/1.png")).unwrap();
    assert!(
        std::process::Command::new("mkfifo").arg(folder.path().join("a/1.png")).status().unwrap().success()
    );
    let error = open().unwrap().cursor().unwrap().advance().unwrap_err();
    assert!(percolator_files::shown::with_sources(&error).contains("FIFO"), "{error}");
}
