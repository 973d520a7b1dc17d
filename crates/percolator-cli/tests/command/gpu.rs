//! The command on GPUs, with the stand-in driver of `tests/standin`.

use std::process::Command;

use crate::{common, standin};

#[test]
fn the_command_says_how_long_a_gpu_waited() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    let options = "feed tests/data/golden/raw_lmdb --crop 20 --mirror --mean-value 3 \
                   --dtype bf16 --layout nhwc --transform-on device --devices cuda:0,cuda:1 --step-ms 0.5 \
                   --batches 12 --batch-size 3";
    command.args(options.split_whitespace()).current_dir(common::repository());
    standin::load_in(&mut command, "devices=2");
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("batches of 3x20x20x3 NHWC bf16"), "{said}");
    for device in ["cuda:0", "cuda:1"] {
        assert!(said.contains(&format!("{device} took 12 steps of ")), "{said}");
    }
}

#[test]
fn the_command_measures_gpus_beside_their_copies() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    let options = "bench tests/data/golden/raw_lmdb --crop 20 --mirror --transform-on device --json \
                   --devices cuda:0,cuda:1 --batch-size 3 --seconds 0.1 --rounds 2";
    command.args(options.split_whitespace()).current_dir(common::repository());
    standin::load_in(&mut command, "devices=2");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let job: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(job["devices"], serde_json::json!(["cuda:0", "cuda:1"]));
    assert_eq!(job["transform_on"], "device");
    for figure in [&job["limits"]["pinned_copy_gb_s"], &job["share_of"]["pinned_copy"], &job["share"]] {
        assert!(figure.as_f64().is_some_and(|figure| figure > 0.0), "{job}");
    }
}

#[test]
fn the_devices_are_listed_for_people_and_for_programs() {
    let listed = |options: &[&str], driver: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        command.arg("devices").args(options);
        standin::load_in(&mut command, driver);
        let output = command.output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = listed(&[], "devices=2");
    let lines: Vec<_> = text.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(lines, ["host", "cuda:0", "cuda:1"], "{text}");
    assert!(text.contains("page-locked memory copied at "), "{text}");
    let json = |options: &[&str], driver| -> serde_json::Value {
        serde_json::from_str(&listed(&[options, &["--json"]].concat(), driver)).unwrap()
    };
    let found = json(&[], "devices=2");
    let gpus = found["cuda"].as_array().unwrap();
    let names: Vec<_> = gpus.iter().map(|gpu| gpu["device"].as_str().unwrap()).collect();
    assert_eq!(names, ["cuda:0", "cuda:1"]);
    assert!(gpus.iter().all(|gpu| gpu["copy_bytes_per_s"].as_f64().unwrap() > 0.0), "{found}");
    assert!(found["cores"].as_u64().unwrap() > 0 && found["no_cuda"].is_null());
    let unmeasured = json(&["--no-rates"], "devices=2");
    assert!(unmeasured["cuda"][0]["copy_bytes_per_s"].is_null());
    let none = json(&[], "devices=0");
    assert_eq!((&none["cuda"], none["no_cuda"].is_string()), (&serde_json::json!([]), true), "{none}");
}

#[test]
fn a_long_version_says_which_driver_there_is() {
    for (driver, due) in
        [("devices=2", ", 2 GPUs\n"), ("devices=0", "CUDA:     the driver lists no device\n")]
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        standin::load_in(command.arg("--version"), driver);
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert!(said.contains(due) && said.contains("\nfeatures: cuda\n"), "{said}");
    }
}
