//! What is done to images today, as options: recipes and single operations.

use crate::dumps::{Dump, golden};

/// The arguments of a feed of some JPEGs, to be dumped.
fn with_source(args: &[&str]) -> Vec<String> {
    let source = golden("jpg_color_lmdb").to_str().unwrap().to_owned();
    let usual = [&source, "--batches", "2", "--batch-size", "2"];
    usual.iter().chain(args).map(|arg| (*arg).to_owned()).collect()
}

fn pixels(args: &[&str]) -> Vec<u8> {
    let dump = Dump::new();
    dump.pass(with_source(args));
    dump.array("data.npy")
}

#[test]
fn a_recipe_is_the_options_that_it_stands_for() {
    let normalized = ["--mean", "0.485,0.456,0.406", "--std", "0.229,0.224,0.225", "--color", "rgb"];
    let eval = pixels(&["--recipe", "imagenet-eval:40:32"]);
    assert!(eval == pixels(&[&["--resize-shorter", "40", "--center-crop", "32"], &normalized[..]].concat()));
    assert_ne!(eval, pixels(&["--recipe", "imagenet-eval:40:32", "--filter", "bicubic"]));
    assert_ne!(eval, pixels(&["--recipe", "imagenet-eval:40:32", "--antialias=false"]));
    assert_ne!(eval, pixels(&["--recipe", "imagenet-eval:40:32", "--resize-law", "torch"]));
    let train = ["--recipe", "imagenet-train:32", "--seed", "3"];
    let options = [&["--random-resized-crop", "32", "--flip", "--seed", "3"], &normalized[..]].concat();
    assert!(pixels(&train) == pixels(&options));
    assert_ne!(pixels(&train), pixels(&["--recipe", "imagenet-train:32", "--seed", "4"]));
    let padded = pixels(&["--random-crop", "400", "--padding", "400"]);
    assert!(padded.windows(1600).any(|row| row == [0; 1600]), "rows of padding");
}

#[test]
fn what_does_not_go_together_is_refused() {
    let dump = Dump::new();
    let fail = |args: &[&str]| dump.fail(with_source(args));
    let refuse = |args: &[&str]| dump.refuse(with_source(args));
    assert!(fail(&["--recipe", "imagenet"]).contains("there is no recipe \"imagenet\": known are"));
    assert!(fail(&["--center-crop", "3", "--crop", "3"]).contains("operations take the place of the crop"));
    assert!(fail(&["--random-crop", "4000"]).contains("random_crop: 4000x4000 are cut out"));
    assert!(fail(&["--recipe", "cifar-train", "--filter", "box"]).contains("no operation resizes"));
    for args in [
        &["--recipe", "cifar-train", "--flip"][..],
        &["--recipe", "cifar-train", "--mean-value", "3"],
        &["--mean", "0.5"],
        &["--mean", "0.5", "--std", "0.5", "--scale", "2"],
        &["--padding", "4", "--flip"],
    ] {
        refuse(args);
    }
}
