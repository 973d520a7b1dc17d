//! The command on GPUs, with the stand-in driver of `tests/standin`.

use std::process::Command;

use crate::{common, standin};

#[test]
fn the_command_says_how_long_a_gpu_waited() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    let options = "feed --lmdb tests/data/golden/raw_lmdb --crop 20 --mirror --mean-value 3 \
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
        assert!(said.contains(&format!("{device} was copied to at ")), "{said}");
    }
}

#[test]
fn the_command_measures_gpus_beside_their_copies() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    let options = "bench --lmdb tests/data/golden/raw_lmdb --crop 20 --mirror --transform-on device --json \
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
