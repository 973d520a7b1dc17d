//! What is done to images today, as options: recipes and single operations.

use std::process::Command;

use serde_json::Value;

use crate::dumps::{Dump, golden, split};

const SOURCE: &str = "jpg_color_lmdb";

/// The arguments of a feed of some JPEGs, to be dumped.
fn with_source(args: &[&str]) -> Vec<String> {
    let source = golden(SOURCE).to_str().unwrap().to_owned();
    let usual = [&source, "--batches", "2"];
    usual.iter().chain(args).map(|arg| (*arg).to_owned()).collect()
}

fn pixels(args: &[&str]) -> Vec<u8> {
    pixels_of(2, args)
}

/// Those of two batches.
fn pixels_of(batch_size: usize, args: &[&str]) -> Vec<u8> {
    let (dump, batch_size) = (Dump::new(), batch_size.to_string());
    dump.pass(with_source(&[args, &["--batch-size", &batch_size]].concat()));
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
fn any_operation_is_given_by_its_name_or_as_in_a_spec() {
    let crop = r#"{"center_crop": {"height": 24, "width": 24}}"#;
    let listed = pixels(&["--operation", r#"{"resize_shorter": {"side": 40}}"#, "--operation", crop]);
    assert!(listed == pixels(&["--resize-shorter", "40", "--center-crop", "24"]), "in this order");
    let flip = r#"{"horizontal_flip": {"probability": 0.5}}"#;
    let flipped = |flip| pixels(&["--operation", crop, "--operation", flip]);
    assert!(flipped("horizontal_flip") == flipped(flip), "as usual");
    let wide = ["--color", "rgb", "--operation", crop, "--operation", "trivial_augment_wide"];
    assert_ne!(pixels(&wide), pixels(&wide[..4]));
    let erased = ["--recipe", "imagenet-eval:40:32", "--operation"];
    let always = r#"{"random_erasing": {"probability": 1.0, "value": "random"}}"#;
    let whole = pixels(&erased[..2]);
    assert_ne!(pixels(&[&erased[..], &[always]].concat()), whole, "after a recipe");
    let dump = Dump::new();
    for (operation, words) in [
        ("rotate", "unknown variant `rotate`, expected one of `resize`"),
        ("resize", "missing field `height`"),
        (r#"{"pad": {"padding": [-1, 0, 0, 0]}}"#, "integer `-1`, expected u32"),
        (r#"{"invert": {"p": 1}}"#, "unknown field `p`, expected `probability`"),
        (r#"{"invert": "#, "EOF while parsing"),
    ] {
        let refused = dump.refuse(with_source(&["--operation", operation]));
        assert!(refused.contains(words) && refused.contains("--operation"), "{refused}");
    }
    let failed = dump.fail(with_source(&["--operation", crop, "--flip"]));
    assert!(failed.contains("a recipe, or a list of operations, says what is done"), "{failed}");
    let failed = dump.fail(with_source(&["--operation", r#"{"random_rotation": {"degrees": [9, 3]}}"#]));
    assert!(failed.contains("operation 1, random_rotation: degrees from 9 to 3: allowed are"), "{failed}");
}

#[test]
fn what_mean_found_is_applied_by_the_options_that_it_prints() {
    let printed = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        let output = command.arg("mean").arg(golden(SOURCE)).args(args).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let options = |args: &[&str]| {
        let printed = printed(args);
        let line = printed.lines().find(|line| line.starts_with("  --color rgb --mean ")).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{printed}"))
    };
    let found = options(&[]);
    assert_eq!(found, options(&["--color", "rgb"]), "of either order");
    let counted: Value = serde_json::from_str(&printed(&["--json"])).unwrap();
    let records = usize::try_from(counted["records"].as_u64().unwrap()).unwrap();
    // Each image twice.
    let normalized = pixels_of(records, &found.split_whitespace().collect::<Vec<_>>());
    let elements = split(&normalized).1.as_chunks().0.iter().map(|element| f32::from_le_bytes(*element));
    let elements: Vec<f64> = elements.map(f64::from).collect();
    let mean = |of: fn(f64) -> f64| elements.iter().copied().map(of).sum::<f64>() / elements.len() as f64;
    let (mean, square) = (mean(|element| element), mean(|element| element * element));
    assert!(mean.abs() < 1e-4 && (square - 1.0).abs() < 1e-3, "{mean} {square}");
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

#[test]
fn batches_are_mixed_by_options() {
    let feed = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        let source = golden(SOURCE);
        let common = ["--epochs", "1", "--recipe", "imagenet-train:32", "--batch-size", "2", "--json"];
        let output = command.arg("feed").arg(source).args(common).args(args).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, said) = feed(&["--mixup", "0.2", "--cutmix", "1", "--soft-labels", "10000"]);
    assert_eq!(code, Some(0), "{said}");
    for (args, words) in [
        (["--mixup", "0"], "mixing: the alpha of mixup is 0; it must be from 0.001 to 1000"),
        (["--mix-probability", "0.5"], "mixing: neither mixup nor cutmix is set"),
        (["--soft-labels", "0"], "soft_labels is 0"),
        (["--soft-labels", "1"], "soft labels are of 1 classes"),
    ] {
        let (code, said) = feed(&args);
        assert!(code != Some(0) && said.contains(words), "{said}");
    }
}

/// The columns and rows of a PNG file.
fn sides(file: &[u8]) -> [u32; 2] {
    assert_eq!(file[..8], *b"\x89PNG\r\n\x1a\n");
    [16, 20].map(|at| u32::from_be_bytes(file[at..at + 4].try_into().unwrap()))
}

#[test]
fn a_grid_shows_what_a_transform_makes() {
    let folder = tempfile::tempdir().unwrap();
    let sheet = |name: &str, args: &[&str]| {
        let path = folder.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        let output =
            command.arg("inspect").arg(golden(SOURCE)).arg("--grid").arg(&path).args(args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), said, std::fs::read(path).unwrap_or_default())
    };
    let drawn = ["--pictures", "3", "--transformed", "4", "--recipe", "imagenet-train:48"];
    let (code, said, four) = sheet("four.png", &drawn);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(sides(&four), [4 * 116 + 4, 3 * 116 + 4]);
    assert!(sheet("again.png", &drawn).2 == four, "the same every time");
    let (_, said, one) = sheet("one.png", &["--pictures", "4"]);
    assert_eq!(sides(&one), [2 * 116 + 4; 2], "{said}");
    assert_ne!(one, sheet("crop.png", &["--pictures", "4", "--crop", "9"]).2);
    for (args, words) in [
        (&["--pictures", "2000", "--transformed", "100"][..], "200000 pictures: a sheet has at most 10000"),
        (&["--crop", "5000"], "crop"),
        (&["--recipe", "none"], "there is no recipe"),
    ] {
        let (code, said, file) = sheet("none.png", args);
        assert!(code == Some(2) && said.contains(words) && file.is_empty(), "{said}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    let output = command.arg("inspect").arg(golden(SOURCE)).args(["--crop", "9"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && said.contains("are for --grid"), "{said}");
}
