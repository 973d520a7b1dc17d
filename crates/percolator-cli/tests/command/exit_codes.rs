//! The exit code of each subcommand says one thing: 0 all is well, 1 it looked and found something wrong, 2
//! it could not look, or was called wrongly. Nobody has to read the output for that.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use percolator::source::FnSource;
use percolator::{Feed, RawBytes};
use percolator_cluster::leases::Leases;
use percolator_tensorflow::CheckpointWriter;
use serde_json::json;
use tempfile::TempDir;

use crate::checkpoints::{Place, save};
use crate::common;
use crate::model::floats;

/// Command lines, one of each kind, and what they exit with. A subcommand that never finds anything wrong has
/// no line with 1. The order matters where one line makes what the next one reads.
const TABLE: &[(&str, i32)] = &[
    ("feed good --batch-size 4 --epochs 1 --receipt whole", 0),
    ("feed good --batch-size 4 --epochs 1 --batches 1 --receipt part", 0),
    ("feed bad --batch-size 4 --once", 2),
    ("feed bad --batch-size 4 --once --bad-records skip --bad-at-most 9", 0),
    ("feed gone", 2),
    ("cat good --head 1", 0),
    ("cat good --record 12345", 2),
    ("extract good --record 0 --part gone -o part", 2),
    ("convert shards good --out good.tar --quiet", 0),
    ("convert shards good --out good.tar --quiet", 2),
    ("feed good --watch", 2),
    ("feed good --once --metrics nowhere:x", 2),
    ("serve gone --listen 127.0.0.1:0", 2),
    ("serve . --listen 0.0.0.0:0", 2),
    ("serve . --config gone", 2),
    ("watch 127.0.0.1:9464 --json", 2),
    ("watch http://localhost", 2),
    ("watch grpc://127.0.0.1:1 --json", 2),
    ("bench good --batch-size 4 --seconds 0.01 --rounds 1 --quiet", 0),
    ("bench gone --quiet", 2),
    ("bench --compare fast.json fast.json", 0),
    ("bench --compare fast.json slow.json", 1),
    ("bench --compare fast.json other.json", 2),
    ("bench --compare fast.json gone", 2),
    ("doctor good --batch-size 4 --seconds 0.01 --at-most 0 --quiet", 0),
    ("doctor bad --batch-size 4 --seconds 0.01 --at-most 0 --quiet", 1),
    ("doctor gone --quiet", 2),
    ("dump good --batch-size 4 --out dumped", 0),
    ("dump good --batch-size 4 --out dumped", 2),
    ("dump bad --batch-size 4 --batches 3 --out dumped-bad", 2),
    ("convert records good converted --quiet", 0),
    ("convert list ./ list.txt images --quiet", 1),
    ("convert list ./ list.txt images --quiet --force --keep-going", 0),
    ("convert list ./ list.txt images --quiet", 2),
    ("convert idx gone gone out --quiet", 2),
    ("convert cifar10 gone out --quiet", 2),
    ("convert cifar100 gone out --quiet", 2),
    ("convert folders gone out --quiet", 2),
    ("prepare xlnet --input gone --sp-model gone --out out --quiet", 2),
    ("mean good mean.binaryproto --quiet", 0),
    ("mean good mean.binaryproto --quiet", 2),
    ("mean bad --quiet", 2),
    ("inspect good --quiet", 0),
    ("inspect gone --quiet", 2),
    ("inspect good --record 99 --quiet", 2),
    ("verify good --quiet", 0),
    ("verify bad --quiet", 1),
    ("verify bad --quiet --json", 1),
    ("verify bad --repair repaired --quiet", 1),
    ("verify bad --repair none/repaired --quiet", 2),
    ("verify gone --quiet", 2),
    ("plan --records 10 --per-replica-batch 2", 0),
    ("plan --records 100000 --per-replica-batch 2 --json", 0),
    ("plan gone --per-replica-batch 2", 2),
    ("plan --records 10 --per-replica-batch 2 --step 99", 2),
    ("verify-run whole", 0),
    ("verify-run part --epochs 1", 1),
    ("verify-run part --epochs 1 --json", 1),
    ("verify-run whole whole", 1),
    ("verify-run whole gone", 2),
    ("verify-run --job digits --metadata-folder records", 1),
    ("verify-run --job none --metadata-folder records", 2),
    ("leases status --job digits --metadata-folder records", 0),
    ("leases status --job none --metadata-folder records", 2),
    ("leases drain --job digits --metadata-folder records", 0),
    ("leases drain --job none --metadata-folder records", 2),
    ("leases reset --job digits --metadata-folder records", 0),
    ("leases reset --job none --metadata-folder gone", 2),
    ("checkpoints list --store store --metadata-folder records", 0),
    ("checkpoints list --store gone --metadata-folder records", 2),
    ("checkpoints verify whole --store store --metadata-folder records", 0),
    ("checkpoints verify --store store --metadata-folder records", 1),
    ("checkpoints verify --store store --metadata-folder gone", 2),
    ("checkpoints restore --id whole --out out --store store --metadata-folder records", 0),
    ("checkpoints restore --id cut --out out2 --store store --metadata-folder records", 2),
    ("checkpoints gc whole --store store --metadata-folder records", 0),
    ("checkpoints gc words --store store --metadata-folder records", 1),
    ("checkpoints gc --store gone --metadata-folder records", 2),
    ("digest good --quiet --out sum", 0),
    ("digest good --quiet", 0),
    ("digest gone --quiet", 2),
    ("model list one", 0),
    ("model list gone", 2),
    ("model show one", 0),
    ("model show one none", 2),
    ("model verify one", 0),
    ("model verify cut", 1),
    ("model verify gone", 2),
    ("model copy one copied", 0),
    ("model copy one copied", 2),
    ("model convert one one.npz", 0),
    ("model convert one one.npz", 2),
    ("model diff one one", 0),
    ("model diff one two", 1),
    ("model diff one gone", 2),
    ("model latest saved", 0),
    ("model latest good", 1),
    ("model latest gone", 2),
    ("devices --no-rates", 0),
    ("completions bash", 0),
    ("completions dos", 2),
    ("man pages", 0),
    ("man good/data.mdb", 2),
];

/// Whatever the lines of the table need.
fn place() -> TempDir {
    // The folders of metadata and checkpoints.
    let place = Place::new();
    let whole = save(&place.begin("whole", 1), b"state");
    let cut = save(&place.begin("cut", 1), b"state");
    fs::write(place.file("cut", &cut), "cut").unwrap();
    assert!(place.file("whole", &whole).exists());
    place.put("/checkpoints/words", b"no record");
    fs::create_dir(place.path().join("store/words")).unwrap();
    fs::write(place.path().join("store/words/67e55044-10b1-426f-9247-bb680e5fe0c8"), "state").unwrap();
    let source = FnSource::new("numbers", 20, |position, value| {
        value.extend(position.to_le_bytes());
        Ok(())
    });
    let feed = Feed::builder().source(source).decoder(RawBytes::fixed()).batch_size(4).epochs(1).threads(1);
    drop(Leases::of(std::sync::Arc::new(place.metadata()), "digits").worker("me").feed(feed).unwrap());
    let folder = place.into_folder();

    let at = |name: &str| folder.path().join(name);
    let mix = |index: usize| (((index * 7919) >> 3) % 10).try_into().unwrap();
    let datum = |index| (common::key(index), common::datum(3, 4, 4, mix(index), (0..48).collect()));
    common::write_lmdb(&at("good"), (0..64).map(datum));
    let torn = |index| match datum(index) {
        (key, value) if index == 7 => (key, value[..9].to_vec()),
        whole => whole,
    };
    common::write_lmdb(&at("bad"), (0..64).map(torn));
    let image = common::repository().join("tests/data/images/rgb.jpg");
    fs::copy(image, at("image.jpg")).unwrap();
    fs::write(at("list.txt"), "image.jpg 0\nnone.jpg 1\n").unwrap();
    for (name, job, rate) in [("fast", "a", 1000.0), ("slow", "a", 500.0), ("other", "b", 1000.0)] {
        let round = |turn: i32| {
            json!({
                "records_per_s": rate + f64::from(turn), "cpu_s_per_1000": 1.0, "first_batch_ms": 2.0,
                "limits": {}, "share_of": {},
            })
        };
        let rounds: Vec<_> = (0..5).map(round).collect();
        let line = json!({ "job": job, "rounds": 5, "threads": 1, "each_round": rounds });
        fs::write(at(&format!("{name}.json")), format!("{line}\n")).unwrap();
    }
    fs::create_dir(at("saved")).unwrap();
    for (name, value) in [("one", 1.0), ("two", 2.0), ("cut", 1.0), ("saved/m", 1.0)] {
        let mut writer = CheckpointWriter::create(at(name)).unwrap();
        writer.add("a", &floats(&[value])).unwrap();
        writer.finish().unwrap();
    }
    let data = at("cut.data-00000-of-00001");
    fs::write(&data, [9; 4]).unwrap();
    fs::write(at("saved/checkpoint"), "model_checkpoint_path: \"m\"\n").unwrap();
    folder
}

fn command(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    command.args(line.split(' ')).current_dir(folder).env("RUST_LOG", "error").stdin(Stdio::null());
    command
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

#[test]
fn the_exit_code_says_one_thing() {
    let folder = place();
    let mut wrong = Vec::new();
    for &(line, code) in TABLE {
        let output = command(folder.path(), line).output().unwrap();
        // What is said of a failure is said where it belongs.
        if output.status.code() != Some(code) || code == 2 && output.stderr.is_empty() {
            wrong.push(format!("{line}: {}, not {code}: {}", output.status, said(&output)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nobody_has_to_read_what_is_said() {
    let folder = place();
    let mut wrong = Vec::new();
    for &(line, code) in TABLE {
        let (read, write) = std::io::pipe().unwrap();
        drop(read);
        let mut command = command(folder.path(), line);
        let status = command.stdout(write.try_clone().unwrap()).stderr(write).status().unwrap();
        if status.code() != Some(code) {
            wrong.push(format!("{line}: {status}, not {code}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_subcommand_is_in_the_table_and_is_called_wrongly() {
    let folder = tempfile::tempdir().unwrap();
    let pages = command(folder.path(), "man pages").output().unwrap();
    assert!(pages.status.success(), "{}", said(&pages));
    let pages = fs::read_dir(folder.path().join("pages")).unwrap();
    let mut names: BTreeSet<String> =
        pages.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.remove("percolator.1"));
    let mut tested = 0;
    for name in names {
        // A subcommand's page is named after it; the only hyphen within a name is that of verify-run.
        let words = name.trim_end_matches(".1").trim_start_matches("percolator-");
        let words = words.replace('-', " ").replace("verify run", "verify-run");
        let output = command(folder.path(), &format!("{words} --no-such-option")).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words}: {}", said(&output));
        let of_it = |line: &str| line.starts_with(&format!("{words} "));
        assert!(TABLE.iter().any(|(line, _)| of_it(line)), "{words} is not in the table");
        tested += 1;
    }
    assert!(tested > 30, "{tested}");
}
