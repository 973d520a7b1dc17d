//! `percolator plan` prints a job's plan, and refuses an impossible one.

use std::io::Read as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common;

/// What TensorFlow gave each replica.
fn mirrored() -> Vec<Value> {
    let path = common::repository().join("tests/data/golden/distribute.json");
    let mut cases: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    serde_json::from_value(cases["mirrored"].take()).unwrap()
}

fn plan_command(arguments: &str) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_percolator"))
        .arg("plan")
        .args(arguments.split_whitespace())
        .current_dir(common::repository().join("tests/data"))
        .output()
        .unwrap();
    let [out, error] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.code().unwrap(), out, error)
}

#[test]
fn the_command_prints_what_the_plan_says() {
    let json = |arguments: &str| -> Value {
        let (code, out, error) = plan_command(arguments);
        assert_eq!((code, &*error), (0, ""), "{arguments}");
        serde_json::from_str(&out).unwrap()
    };
    for case in mirrored() {
        let arguments = format!(
            "--records {} --global-batch-size {} --replicas {} --last-batch {} --json",
            case["records"],
            case["global_batch"],
            case["replicas"],
            if case["drop_remainder"] == true { "drop" } else { "keep" },
        );
        let printed = json(&arguments);
        assert_eq!(
            (&printed["steps"], &printed["policy"]),
            (&case["steps"], &Value::from("data")),
            "{arguments}"
        );
    }
    let printed =
        json("--files 3,4,5 --per-replica-batch 3 --workers 3 --policy file --step 1 --replica 1 --json");
    assert_eq!((&printed["steps"], &printed["policy"]), (&serde_json::json!([[[6]]]), &Value::from("file")));
    let printed = json("golden/raw_leveldb_log golden/raw_leveldb_ldb --global-batch-size 100 --json");
    assert_eq!(printed["steps"][1][0], serde_json::json!((100..128).collect::<Vec<_>>()));
    let (code, out, _) =
        plan_command("golden/raw_lmdb --global-batch-size 8 --replicas 2 --shuffle global --seed 3");
    assert_eq!(code, 0);
    assert!(out.contains("64 records in 1 file") && out.contains("sharded by DATA"), "{out}");
    assert!(out.contains("step 0, replica 1 of worker 0: 4 record(s): "), "{out}");
    let (_, out, _) = plan_command("--records 100 --global-batch-size 10");
    assert!(out.contains("0-9\n") && out.contains("... and 2 more: give --step, or --json"), "{out}");
}

/// A step of more positions than fit in memory is streamed to its reader.
#[cfg(target_os = "linux")]
#[test]
fn the_command_prints_a_step_that_no_memory_holds() {
    let many = "--records 1000000000000 --global-batch-size 1000000000000 --step 0";
    for (arguments, due) in [
        (format!("{many} --json"), "{\"schema\": \"percolator.plan/1\", \"steps\": [[[0,1,2,3,"),
        (format!("{many} --shuffle global"), "1000000000000 records in 1 file"),
    ] {
        let script = format!("ulimit -v 1000000; exec \"$0\" plan {arguments}");
        let mut child = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_percolator")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut front = vec![0; 1 << 20];
        let mut out = child.stdout.take().unwrap();
        out.read_exact(&mut front).unwrap();
        assert!(front.starts_with(due.as_bytes()), "{arguments}: {}", String::from_utf8_lossy(&front[..200]));
        // The reader closes the pipe.
        drop(out);
        assert!(child.wait().unwrap().success(), "{arguments}");
    }
}

#[test]
fn the_command_refuses_what_cannot_be() {
    for (arguments, due) in [
        ("--records 10 --global-batch-size 4 --workers 0", "workers is 0"),
        (
            "--records 10 --global-batch-size 4 --workers 2 --replicas 3",
            "3 replicas cannot be divided evenly among 2 workers",
        ),
        ("--records 10 --global-batch-size 4 --step 9", "there is no step 9 in epoch 0: it has 3"),
        (
            "--records 10 --global-batch-size 4 --step 18446744073709551615",
            "there is no step 18446744073709551615",
        ),
        ("--records 10 --global-batch-size 4 --replica 1", "there is no replica 1 in a job of 1"),
        ("--records 10", "give --global-batch-size or --per-replica-batch"),
        ("--global-batch-size 4", "give PATH, --records M or --files M,M,...\n\nUsage: percolator plan"),
        ("none.prototxt --global-batch-size 4", "this is a net, and a plan is of data: give the data that"),
        ("--records 10 --global-batch-size 4 --shuffle window:0", "window:RECORDS (1 or more)"),
        ("golden/none --global-batch-size 4", "golden/none: cannot find it: No such file or directory"),
        (
            "--files 3,4 --workers 3 --replicas 3 --global-batch-size 4 --policy file",
            "there are 2 for 3 workers",
        ),
    ] {
        let (code, out, error) = plan_command(arguments);
        assert!(code != 0 && out.is_empty() && error.contains(due), "{arguments}: {code} {out} {error}");
    }
}

/// As earlier versions took them: several paths after one option, in this order.
#[test]
fn an_option_for_a_kind_of_data_takes_several_paths() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = [("a", 3), ("b", 5)].map(|(name, records)| {
        common::write_images(&folder.path().join(name), records, 1, 2, 2);
        folder.path().join(name).display().to_string()
    });
    let plan =
        |data: &str| plan_command(&format!("{data} --per-replica-batch 8 --workers 2 --policy file --json"));
    let due = plan("--files 3,5");
    assert_eq!(due.0, 0, "{due:?}");
    for data in [format!("--lmdb {a} {b}"), format!("--lmdb {a} --lmdb {b}"), format!("{a} {b}")] {
        assert_eq!(plan(&data), due, "{data}");
    }
}

#[test]
fn a_resumed_plan_has_what_was_not_delivered() {
    let folder = tempfile::tempdir().unwrap();
    common::write_images(&folder.path().join("db"), 20, 1, 2, 2);
    let run = |arguments: &str| -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        command.args(arguments.split_whitespace()).current_dir(folder.path()).env_remove("RUST_LOG");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let plan = |more: &str| -> Value {
        let job = "plan db --per-replica-batch 2 --replicas 2 --shuffle global --json";
        serde_json::from_str(&run(&format!("{job} {more}"))).unwrap()
    };
    let described = "feed db --devices host:0,host:1 --batch-size 2 --epochs 0 --shuffle global";
    run(&format!("{described} --batches 3 --snapshot s"));
    let (whole, rest) = (plan(""), plan("--resume s"));
    let steps = |plan: &Value| plan["steps"].as_array().unwrap().clone();
    assert_eq!((steps(&whole).len(), &whole["first_step"]), (5, &Value::from(0)));
    assert_eq!((&rest["first_step"], &rest["epoch_steps"]), (&Value::from(3), &Value::from(5)));
    assert_eq!(steps(&rest), steps(&whole)[3..]);
    // A delivered step has no records left, and the next epoch has them all.
    assert_eq!(steps(&plan("--resume s --step 1")), [serde_json::json!([[], []])]);
    assert_eq!(steps(&plan("--resume s --epoch 1")), steps(&plan("--epoch 1")));
    let text = run("plan db --per-replica-batch 2 --replicas 2 --shuffle global --resume s");
    assert!(text.contains("epoch 0: 5 steps, 2 left\nstep 3, replica 0"), "{text}");
    let text = run("plan db --per-replica-batch 2 --replicas 2 --shuffle global --resume s --step 0");
    assert!(text.contains("step 0, replica 1 of worker 0: delivered before\n"), "{text}");
}
