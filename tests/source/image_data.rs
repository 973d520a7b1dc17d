//! Caffe's `ImageData` layer: the files of a list give what Caffe's `convert_imageset`, which reads files
//! with the same function, made of them. The list is shuffled, and skipped into, as Caffe does it.
#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

use std::path::{Path, PathBuf};

use percolator::batch::ImageShape;
use percolator::decoder::RecordCause;
use percolator::proto::Datum;
use percolator::source::{ImageList, Lmdb, Source as _};
use percolator::transform::CaffeEra;
use percolator::{Feed, FeedBuilder, FeedError, Phase, Seed, Transform};
use prost::Message as _;
use tempfile::TempDir;

use crate::common::arrays;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden").join(name)
}

/// The PNG files that `png_color_lmdb` holds, and a list of them: names with a space, and their labels.
fn files() -> (TempDir, Vec<(String, i32)>) {
    let folder = tempfile::tempdir().unwrap();
    let mut lines = Vec::new();
    std::fs::create_dir(folder.path().join("a folder")).unwrap();
    let mut cursor = Lmdb::open_without_lock(golden("png_color_lmdb")).unwrap().cursor().unwrap();
    while let Some(entry) = cursor.advance().unwrap() {
        let datum = Datum::decode(entry.value()).unwrap();
        let name = format!("image {}.png", lines.len());
        std::fs::write(folder.path().join("a folder").join(&name), datum.data.unwrap()).unwrap();
        lines.push((name, datum.label.unwrap()));
    }
    let list: String = lines.iter().map(|(name, label)| format!("{name} {label}\n")).collect();
    std::fs::write(folder.path().join("list.txt"), list).unwrap();
    (folder, lines)
}

fn net(folder: &TempDir, options: &str, more: &str) -> FeedBuilder {
    let text = format!(
        "layer {{ name: 'data' type: 'ImageData' top: 'data' top: 'label' {more}\n\
         image_data_param {{ source: 'list.txt' root_folder: 'a folder/' batch_size: 4 {options} }} }}"
    );
    let path = folder.path().join("net.prototxt");
    std::fs::write(&path, text).unwrap();
    Feed::from_prototxt(&path, Phase::Train).unwrap().root(folder.path())
}

#[test]
fn the_files_become_what_convert_imageset_made_of_them() {
    let (folder, _) = files();
    for (options, database) in [
        ("", "imageset_raw_lmdb"),
        ("is_color: false", "imageset_gray_lmdb"),
        ("new_height: 32 new_width: 24", "imageset_resize_lmdb"),
    ] {
        let source = Lmdb::open_without_lock(golden(database)).unwrap();
        let wanted = arrays(Feed::builder().source(source).batch_size(4), 3);
        assert_eq!(arrays(net(&folder, options, ""), 3), wanted, "{database}");
    }
}

#[test]
fn what_is_resized_need_not_be_encoded() {
    let source = || Lmdb::open_without_lock(golden("imageset_raw_lmdb")).unwrap();
    let wanted = Lmdb::open_without_lock(golden("imageset_resize_lmdb")).unwrap();
    let resized =
        || Feed::builder().source(source()).transform(Transform::new().resize(32, 24)).batch_size(4);
    assert_eq!(arrays(resized(), 3), arrays(Feed::builder().source(wanted).batch_size(4), 3));
    let shape = resized().build().unwrap().input_shape();
    assert_eq!(shape, Some(ImageShape { channels: 3, height: 32, width: 24 }));
}

#[test]
fn a_list_is_shuffled_with_caffes_numbers() {
    let (folder, lines) = files();
    let labels = |feed: FeedBuilder| arrays(feed, 6).1;
    let plain: Vec<i32> = lines.iter().map(|(_, label)| *label).collect();
    // The shuffle's seed is the parent's first random number if nothing else in the layer is random, and its
    // second if the transformer draws too.
    for (more, number) in [("", 0), ("transform_param { mirror: true }", 1)] {
        let mut parent = rand_mt::Mt::new(1701);
        let seed = (0..=number).map(|_| parent.next_u32()).last().unwrap();
        let list = ImageList::open(folder.path().join("list.txt"))
            .unwrap()
            .root_folder("a folder/")
            .relative_to(folder.path())
            .shuffled(seed);
        let wanted = labels(Feed::builder().source(list).batch_size(4));
        let found = labels(
            net(&folder, "shuffle: true", more).seed(Seed::Caffe { seed: 1701, era: CaffeEra::Today }),
        );
        assert_eq!(found, wanted);
        let (first, second) = found.split_at(lines.len());
        assert_ne!(first, plain, "shuffled");
        assert_ne!(first, second, "shuffled again for the second pass");
        let sorted = |labels: &[i32]| {
            let mut labels = labels.to_vec();
            labels.sort_unstable();
            labels
        };
        assert_eq!([sorted(first), sorted(second)], [sorted(&plain), sorted(&plain)]);
    }
}

#[test]
fn a_list_is_begun_where_caffe_would() {
    let (folder, lines) = files();
    let skip = (rand_mt::Mt::new(1701).next_u32() % 7) as usize;
    assert!(skip > 0, "a seed that passes over some lines");
    let found =
        arrays(net(&folder, "rand_skip: 7", "").seed(Seed::Caffe { seed: 1701, era: CaffeEra::Today }), 3).1;
    let wanted: Vec<i32> =
        lines[skip..].iter().chain(&lines).map(|(_, label)| *label).take(found.len()).collect();
    assert_eq!(found, wanted);
}

#[test]
fn a_file_that_is_no_image_is_named() {
    let (folder, lines) = files();
    std::fs::write(folder.path().join("a folder").join(&lines[5].0), b"GIF88a not read").unwrap();
    let mut lane = net(&folder, "", "").build().unwrap().take_lanes().unwrap().remove(0);
    let error = lane.find_map(Result::err).unwrap();
    let message = error.to_string();
    let FeedError::Record(error) = error else { panic!("{message}") };
    assert!(matches!(error.cause, RecordCause::Decode(_)));
    assert!(message.contains("list.txt: epoch 0, record 5, key \"image 5.png\""), "{message}");
    assert!(message.contains("found a GIF file of another version: allowed are JPEG"), "{message}");
}

#[test]
fn a_batch_of_colour_and_grey_images_says_what_to_do() {
    let source = Lmdb::open_without_lock(golden("png_mixed_lmdb")).unwrap();
    let mut lane =
        Feed::builder().source(source).batch_size(12).build().unwrap().take_lanes().unwrap().remove(0);
    let message = lane.find_map(Result::err).unwrap().to_string();
    assert!(message.contains("all records of a batch have one shape"), "{message}");
    assert!(message.contains("decode all as color, or all as gray"), "{message}");
    assert!(
        message.contains("is gray") && message.contains("has 3") && !message.contains("crop"),
        "{message}"
    );
}

#[test]
fn a_bad_line_behind_a_good_one_is_told_as_such_whatever_the_list_looks_like() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.txt");
    let error = |text: &str| {
        std::fs::write(&list, text).unwrap();
        ImageList::open(&list).unwrap_err().to_string()
    };
    // Like a text in JSON, until its first line is read.
    for (bad, due) in [("b.jpg", "line 2: "), ("", "line 2"), ("b.jpg 2147483648", "line 2: the label 21474")]
    {
        let error = error(&format!("[train] a.jpg 3\n{bad}\nc.jpg 1\n"));
        assert!(error.contains(due) && !error.contains("JSON"), "{error}");
    }
    let error = error("[1, 2]\n[3, 4]\n");
    assert!(error.contains("JSON"), "{error}");
}
