//! What XLNet's own script and SentencePiece made of the same text: tokens, records and the files beside
//! them. `tests/data` has the flags of each case, the digest of all its values, and its first record.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod example;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use percolator_text::sentencepiece::{Scratch, SentencePiece};
use percolator_text::xlnet::{Flags, Options, Progress, Vocabulary, prepare};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

fn data(name: &str) -> String {
    format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn read_json(name: &str) -> Vec<Value> {
    serde_json::from_str(&fs::read_to_string(data(name)).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
}

/// The flags of a case. All are in it but `split`, which has its default.
fn flags(case: &Value) -> Flags {
    let flags = &case["flags"];
    let number = |name: &str| u32::try_from(flags[name].as_u64().unwrap()).unwrap();
    let is = |name: &str| flags[name].as_bool().unwrap();
    let path = |name: &str| flags[name].as_str().unwrap().into();
    Flags {
        input_glob: path("input_glob"),
        sp_path: path("sp_path"),
        save_dir: path("save_dir"),
        use_tpu: is("use_tpu"),
        bsz_per_host: number("bsz_per_host"),
        num_core_per_host: number("num_core_per_host"),
        seq_len: number("seq_len"),
        reuse_len: number("reuse_len"),
        uncased: is("uncased"),
        bi_data: is("bi_data"),
        mask_alpha: number("mask_alpha"),
        mask_beta: number("mask_beta"),
        num_predict: flags["num_predict"].as_u64().map(|tokens| u32::try_from(tokens).unwrap()),
        use_eod: is("use_eod"),
        from_raw_text: is("from_raw_text"),
        split: flags["split"].as_str().unwrap_or("train").parse().unwrap(),
        pass_id: number("pass_id"),
        num_task: number("num_task"),
        task: number("task"),
    }
}

/// The digest of all values, feature by feature in the order of their names; and the first record.
fn digest(path: &Path) -> (usize, String, BTreeMap<String, Vec<u64>>) {
    let records = example::records(&fs::read(path).unwrap());
    let mut digest = Sha256::new();
    for record in &records {
        for (name, values) in record {
            digest.update(name.as_bytes());
            digest.update((values.len() as u64).to_le_bytes());
            values.iter().for_each(|value| digest.update(value.to_le_bytes()));
        }
    }
    let digest = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    (records.len(), digest, records.into_iter().next().unwrap_or_default())
}

/// The text of a `record_info` without the field that the script does not have.
fn as_the_scripts(info: &str) -> String {
    let (scripts, ours) = info.split_once(", \"preparation\": {").unwrap();
    assert!(ours.ends_with("\"}}") && ours.matches('}').count() == 2, "nothing comes after it: {info}");
    format!("{scripts}}}")
}

/// Makes the working directory one in which the cases' relative paths are those of the script, for one test
/// at a time.
fn in_folder<T>(run: impl FnOnce() -> T) -> T {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("text")).unwrap();
    for name in ["empty.txt", "ids.ids", "part0.txt", "part1.txt", "part2.txt"] {
        fs::copy(data(&format!("text/{name}")), folder.path().join("text").join(name)).unwrap();
    }
    fs::copy(data("spiece.model"), folder.path().join("spiece.model")).unwrap();
    env::set_current_dir(folder.path()).unwrap();
    let done = run();
    env::set_current_dir(env!("CARGO_MANIFEST_DIR")).unwrap();
    done
}

#[test]
fn every_record_is_the_scripts() {
    in_folder(|| {
        for case in read_json("cases.json") {
            let (name, flags) = (&case["name"], flags(&case));
            let folder = flags.save_dir.clone();
            for threads in [1, 3] {
                let seed = case["python_seed"].as_i64();
                let options = Options {
                    flags: flags.clone(),
                    python_seed: seed,
                    threads: Some(threads),
                    ..Options::default()
                };
                let summary = prepare(&options, &Progress::new()).unwrap();
                let records = folder.join("tfrecords").join(case["records"].as_str().unwrap());
                assert_eq!(summary.passes[0].records_path, records, "{name}");
                let (count, sum, first) = digest(&records);
                for (feature, values) in &first {
                    assert_eq!(
                        *values,
                        numbers(&case["first"][feature]),
                        "{name}: {feature} of the first record"
                    );
                }
                assert_eq!(count as u64, case["count"].as_u64().unwrap(), "{name}");
                assert_eq!(sum, case["sha256"].as_str().unwrap(), "{name}: a later record differs");
                let info = folder.join("tfrecords").join(case["info"][0].as_str().unwrap());
                let info = as_the_scripts(&fs::read_to_string(info).unwrap());
                assert_eq!(info, case["info"][1].as_str().unwrap(), "{name}");
                let corpus = fs::read_to_string(folder.join("corpus_info.json")).ok();
                assert_eq!(corpus.as_deref(), case["corpus_info"].as_str(), "{name}");
                let files = fs::read_dir(folder.join("tfrecords")).unwrap().count();
                assert_eq!(files, 2, "{name}: nothing else is left");
                fs::remove_dir_all(&folder).unwrap();
            }
        }
    });
}

/// All passes and tasks of one call are what calls for each of them write.
#[test]
fn passes_and_tasks_at_once_are_those_one_by_one() {
    in_folder(|| {
        let case = read_json("cases.json").into_iter().find(|case| case["name"] == "task0of2").unwrap();
        let flags = Flags { save_dir: "one".into(), ..flags(&case) };
        for (task, pass) in [(0, 1), (0, 2), (1, 1), (1, 2)] {
            let flags = Flags { task, pass_id: pass, ..flags.clone() };
            prepare(&Options { flags, ..Options::default() }, &Progress::new()).unwrap();
        }
        for threads in [1, 2, 4] {
            let flags = Flags { save_dir: "all".into(), pass_id: 1, ..flags.clone() };
            let options = Options {
                flags,
                num_passes: 2,
                all_tasks: true,
                threads: Some(threads),
                ..Options::default()
            };
            let progress = Progress::new();
            let summary = prepare(&options, &progress).unwrap();
            let runs: Vec<_> = summary.passes.iter().map(|run| (run.task, run.pass)).collect();
            assert_eq!(runs, [(0, 1), (0, 2), (1, 1), (1, 2)]);
            assert_eq!(progress.done(), progress.total());
            assert_eq!(progress.records(), summary.passes.iter().map(|run| run.records).sum::<u64>());
            let mut names = Vec::new();
            for entry in fs::read_dir("one/tfrecords").unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                let [one, all] =
                    ["one", "all"].map(|folder| fs::read(format!("{folder}/tfrecords/{name}")).unwrap());
                let all = if name.ends_with(".json") {
                    String::from_utf8(all).unwrap().replace("all/", "one/").into_bytes()
                } else {
                    all
                };
                assert!(one == all, "{name}");
                names.push(name);
            }
            assert_eq!(names.len(), 8);
            assert_eq!(fs::read("one/corpus_info.json").unwrap(), fs::read("all/corpus_info.json").unwrap());
            fs::remove_dir_all("all").unwrap();
        }
    });
}

#[test]
fn tokens_are_sentencepieces_after_the_scripts_cleaning() {
    let vocabulary = Vocabulary::open(Path::new(&data("spiece.model"))).unwrap();
    let mut scratch = Scratch::default();
    for file in ["tokens.json", "odd.json"] {
        let texts = read_json(file);
        assert!(texts.len() > 400);
        for text in texts {
            let mut clean = String::new();
            percolator_text::clean(
                text["text"].as_str().unwrap(),
                text["uncased"].as_bool().unwrap(),
                &mut clean,
            );
            assert_eq!(clean, text["clean"].as_str().unwrap(), "{text}");
            let mut tokens = Vec::new();
            vocabulary.encode(&clean, &mut scratch, &mut tokens).unwrap();
            let tokens: Vec<u64> = tokens.into_iter().map(u64::from).collect();
            assert_eq!(tokens, numbers(&text["ids"]), "{text}");
        }
    }
}

/// A model of 2,000 pieces, trained with the symbols `the`, `the b`, `1`, `2`, two blanks, `a`, `ab`, `abc`,
/// `ing` and `return x`.
#[test]
fn symbols_of_the_trainers_user_are_kept_whole() {
    let model = SentencePiece::open(Path::new(&data("user_defined.model"))).unwrap();
    let mut scratch = Scratch::default();
    for text in read_json("user_defined.json") {
        let mut pieces = Vec::new();
        let line = text["text"].as_str().unwrap();
        model.encode(line, &mut scratch, |piece, _| pieces.push(u64::from(piece))).unwrap();
        assert_eq!(pieces, numbers(&text["pieces"]), "{text}");
    }
}

/// Models that sentencepiece 0.2.3 trained on the text beside them, and what it makes of 495 texts: BPE
/// (plain; with bytes, symbols of its user and blanks that are kept; with blanks at the end of words; with
/// pieces left unused, and equal scores), word and char.
#[test]
fn models_of_every_kind_cut_as_sentencepiece_does() {
    let texts = read_json("kinds/expected.json");
    assert_eq!(texts.len(), 495);
    let mut scratch = Scratch::default();
    for name in ["bpe", "bpe_bytes", "bpe_suffix", "bpe_unused", "word", "char"] {
        let model = SentencePiece::open(Path::new(&data(&format!("kinds/{name}.model")))).unwrap();
        for text in &texts {
            let mut pieces = Vec::new();
            let line = text["text"].as_str().unwrap();
            model.encode(line, &mut scratch, |_, piece| pieces.push(u64::from(model.id_of(piece)))).unwrap();
            assert_eq!(pieces, numbers(&text[name]), "{name}: {line:?}");
        }
    }
}
