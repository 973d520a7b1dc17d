//! What is wrong with a corpus, a model or the flags is said, and nothing half-written is left.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod example;

use std::collections::BTreeMap;
use std::error::Error as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;
use std::thread;

use percolator_text::sentencepiece::{ModelError, SentencePiece};
use percolator_text::xlnet::{
    Flags, Options, PrepareError, Progress, Split, Summary, Vocabulary, XlnetData, prepare,
};
use tempfile::TempDir;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");

/// A corpus of these files, and flags with which a few lines fill a batch.
fn corpus(files: &[(&str, &[u8])]) -> (TempDir, Flags) {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    let root = folder.path().to_str().unwrap();
    let flags = Flags {
        input_glob: format!("{root}/*.txt").into(),
        sp_path: format!("{DATA}/spiece.model").into(),
        save_dir: format!("{root}/out").into(),
        use_tpu: false,
        bsz_per_host: 2,
        seq_len: 32,
        reuse_len: 16,
        num_core_per_host: 1,
        num_predict: Some(5),
        ..Flags::default()
    };
    (folder, flags)
}

fn run(flags: &Flags) -> Result<Summary, PrepareError> {
    prepare(&Options { flags: flags.clone(), ..Options::default() }, &Progress::new())
}

/// The message with those of its causes.
fn message(error: &PrepareError) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        message += &format!(": {error}");
        cause = error.source();
    }
    message
}

/// The error of these flags, after which no file is there.
fn refused(flags: &Flags) -> String {
    let error = message(&run(flags).unwrap_err());
    assert_eq!(written(flags), [""; 0], "{error}");
    error
}

fn written(flags: &Flags) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![flags.save_dir.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    names.sort();
    names
}

fn text() -> Vec<u8> {
    fs::read(format!("{DATA}/text/part0.txt")).unwrap()
}

#[test]
fn text_that_is_not_utf8_is_named_by_line_and_byte() {
    let (_folder, flags) = corpus(&[("a.txt", &text()), ("b.txt", b"good\nbad \xe9t\xe9\n")]);
    let error = refused(&flags);
    assert!(error.contains("b.txt, line 2: not UTF-8: byte 9 of the file is 0xe9"), "{error}");
}

#[test]
fn a_corpus_may_be_too_short_or_empty() {
    let (_folder, flags) = corpus(&[("a.txt", b"In the beginning God created the heaven and the earth.\n")]);
    let error = refused(&flags);
    assert!(
        error.starts_with(
            "task 0 has 12 tokens, too few for one batch: they are cut into 1 rows of 12 tokens"
        ),
        "{error}"
    );
    let (_folder, flags) = corpus(&[("a.txt", b""), ("b.txt", "\u{301}\n".as_bytes())]);
    assert_eq!(refused(&flags), "task 0 has no text: none of its 2 files has a token");
    let (_folder, flags) = corpus(&[]);
    assert!(refused(&flags).starts_with("no file matches the input "));
}

#[test]
fn files_of_numbers_have_tokens_of_the_model() {
    for word in ["900", "-1", "x", "99999999999999999999", "1.5"] {
        let (_folder, flags) = corpus(&[("a.txt", format!("1 2 3\n\n4 {word}\n").as_bytes())]);
        let error = refused(&Flags { from_raw_text: false, ..flags });
        assert!(error.contains(&format!("a.txt, line 3: \"{word}\" is not a token")), "{error}");
    }
}

#[test]
fn models_of_other_kinds_are_refused() {
    let model = fs::read(format!("{DATA}/spiece.model")).unwrap();
    // The trainer's part of a model: a model_type that there is not. The last of a field counts.
    let other_kind = [&model[..], &[0x12, 0x02, 0x18, 0x09]].concat();
    let found = |bytes: &[u8]| SentencePiece::from_bytes(bytes).unwrap_err();
    assert!(matches!(found(&other_kind), ModelError::Kind { found } if found == "9"));
    assert!(matches!(found(b"some text, and no model"), ModelError::Damaged(_)));
    assert!(matches!(found(b""), ModelError::Damaged(_)));
    let (folder, flags) = corpus(&[("a.txt", &text()), ("other.model", &other_kind)]);
    let path = folder.path().join("other.model").to_str().unwrap().to_owned();
    let error = refused(&Flags { sp_path: (&path).into(), ..flags.clone() });
    assert_eq!(
        error,
        format!(
            "the model {path} cannot be used: it is a model of the kind 9, and kinds are 1 (unigram), \
             2 (BPE), 3 (word) and 4 (char)"
        )
    );
    let gone = format!("{path}.missing");
    let missing = refused(&Flags { sp_path: (&gone).into(), ..flags });
    let reason = fs::read(&gone).unwrap_err();
    assert!(missing.contains(&format!("it cannot be read: {reason}")), "{missing}");
    // A model without XLNet's symbols: a byte of a name is changed.
    let mut other = model.clone();
    let at = other.windows(5).position(|name| name == b"<cls>").unwrap();
    other[at + 1] = b'C';
    fs::write(folder.path().join("other.model"), other).unwrap();
    let error = Vocabulary::open(&folder.path().join("other.model")).unwrap_err().to_string();
    assert!(error.contains("its piece 3 is <Cls>, and must be <cls>"), "{error}");
}

#[test]
fn a_damaged_model_is_an_error_or_a_model_and_never_a_panic() {
    let model = fs::read(format!("{DATA}/spiece.model")).unwrap();
    let mut scratch = percolator_text::sentencepiece::Scratch::default();
    for at in (0..model.len()).step_by(997) {
        let mut cut = model.clone();
        cut.truncate(at);
        let _ = SentencePiece::from_bytes(&cut);
        for flipped in [0x01, 0x80, 0xff] {
            let mut damaged = model.clone();
            damaged[at] ^= flipped;
            if let Ok(model) = SentencePiece::from_bytes(&damaged) {
                let _ = model.encode("And God said, ﬁnd ＡＢＣ 1,000, é\0", &mut scratch, |_, _| {});
            }
        }
    }
}

/// The model with another table of replacements. The last of a field counts.
fn with_table(units: &[u32], replacements: &[u8]) -> SentencePiece {
    let trie: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
    let bytes = u32::try_from(trie.len()).unwrap().to_le_bytes();
    let table = [&bytes[..], &trie, replacements].concat();
    let field = |number: u8, value: &[u8]| {
        let mut field = vec![number << 3 | 2];
        let mut left = value.len();
        while left >= 0x80 {
            field.push(left.to_le_bytes()[0] | 0x80);
            left /= 0x80;
        }
        field.push(left.to_le_bytes()[0]);
        [&field[..], value].concat()
    };
    // ModelProto { normalizer_spec = 3 }, NormalizerSpec { precompiled_charsmap = 2 }
    let model = fs::read(format!("{DATA}/spiece.model")).unwrap();
    SentencePiece::from_bytes(&[&model[..], &field(3, &field(2, &table))].concat()).unwrap()
}

/// The units of a trie that has one text, `b`, or with `loops` any number of them.
fn trie_of_b(loops: bool) -> Vec<u32> {
    let mut units = vec![0_u32; 512];
    units[0] = 256 << 10;
    // Its leaf is the next unit; or the next level is the same unit again.
    units[256 ^ 98] = 98 | 1 << 8 | if loops { 98 << 10 } else { 1 << 10 };
    units[256 ^ 98 ^ 1] = 1 << 31;
    units
}

#[test]
fn a_table_of_replacements_may_not_blow_a_line_up() {
    let mut scratch = percolator_text::sentencepiece::Scratch::default();
    let count = |model: &SentencePiece, text: &str, scratch: &mut _| {
        let mut pieces = 0;
        model.encode(text, scratch, |_, _| pieces += 1).map(|()| pieces)
    };
    let kind = with_table(&trie_of_b(false), b"God\0");
    assert!(count(&kind, &"b".repeat(1000), &mut scratch).unwrap() > 0);
    let blows_up = with_table(&trie_of_b(false), &[b'x'; 20_000]);
    let wrong = count(&blows_up, &"b".repeat(1000), &mut scratch).unwrap_err();
    assert_eq!((wrong.bytes, wrong.allowed), (1000, 16 * 1000 + 256));
    assert!(wrong.to_string().contains("damaged"), "{wrong}");
    assert!(count(&blows_up, "a", &mut scratch).is_ok());
    // A trie that leads round in circles ends, too.
    let loops = with_table(&trie_of_b(true), b"God\0");
    let _ = count(&loops, &"b".repeat(5000), &mut scratch);
}

#[test]
fn a_sentence_may_have_millions_of_tokens() {
    let (_folder, flags) = corpus(&[("a.txt", "7 ".repeat(1 << 20).as_bytes())]);
    let flags = Flags { from_raw_text: false, bi_data: true, ..flags };
    let summary = run(&flags).unwrap();
    assert_eq!(summary.text.tokens, 1 << 20);
    assert!(summary.passes[0].batches > 1000);
}

#[test]
fn what_is_not_a_regular_file_is_refused() {
    let (folder, flags) = corpus(&[("a.txt", &text())]);
    let made = Command::new("mkfifo").arg(folder.path().join("b.txt")).status();
    assert!(made.unwrap().success());
    let error = refused(&flags);
    assert!(error.contains("b.txt: found a FIFO, but only regular files are read"), "{error}");
}

#[test]
fn a_model_is_read_from_a_regular_file_of_a_possible_length() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, long) = (folder.path().join("pipe.model"), folder.path().join("long.model"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // It takes no space on the disk.
    fs::File::create(&long).unwrap().set_len(1 << 42).unwrap();
    for (path, due) in [(pipe, "only regular files are read"), (long, "at most 67108864 are read")] {
        let error = SentencePiece::open(&path).unwrap_err();
        let error = error.source().unwrap().to_string();
        assert!(error.contains(due), "{error}");
    }
}

#[test]
fn passes_and_tasks_may_have_large_numbers() {
    let (_folder, flags) = corpus(&[("a.txt", &text())]);
    let last = Flags { pass_id: u32::MAX, ..flags.clone() };
    let summary = run(&last).unwrap();
    assert_eq!((summary.passes.len(), summary.passes[0].pass), (1, u32::MAX));
    let options = Options { flags: last, num_passes: 2, ..Options::default() };
    let error = message(&prepare(&options, &Progress::new()).unwrap_err());
    assert!(error.contains("NumPy's seeds end at 4294967295"), "{error}");
    let other = flags.save_dir.join("many");
    let many = Flags { num_task: 40_000_000, save_dir: other, ..flags.clone() };
    let options = Options { flags: many, all_tasks: true, ..Options::default() };
    let summary = prepare(&options, &Progress::new()).unwrap();
    assert_eq!((summary.passes.len(), summary.tasks_without_files), (1, 40_000_000 - 1));
    for (task, num_task) in [(1, 1), (5, 5), (3, 2)] {
        let error = message(&run(&Flags { task, num_task, ..flags.clone() }).unwrap_err());
        assert!(
            error.contains(&format!("--task {task}: with --num-task {num_task}, tasks are 0 to")),
            "{error}"
        );
    }
    let wide = Flags { bsz_per_host: u32::MAX - 3, ..flags };
    assert!(message(&run(&wide).unwrap_err()).contains("too few for one batch"));
}

#[test]
fn flags_that_do_not_agree_are_refused() {
    let (_folder, flags) = corpus(&[("a.txt", &text())]);
    type Change = fn(&mut Flags);
    let cases: [(Change, &str); 9] = [
        (|flags| flags.num_core_per_host = 3, "--bsz-per-host 2 is not a multiple of --num-core-per-host 3"),
        (|flags| flags.num_core_per_host = 0, "is not a multiple of --num-core-per-host 0"),
        (|flags| flags.bsz_per_host = 3, "is not a multiple of 2, twice the cores"),
        (|flags| flags.reuse_len = 8, "--reuse-len must be half of --seq-len"),
        (|flags| (flags.seq_len, flags.reuse_len) = (6, 3), "at least 8"),
        (|flags| flags.mask_beta = 7, "--mask-alpha 6 is less than --mask-beta 7"),
        (|flags| flags.num_predict = Some(33), "--num-predict 33 is more than the 32 tokens of a row"),
        (|flags| flags.num_task = 0, "--num-task is 0"),
        (|flags| (flags.task, flags.num_task) = (50_000_000, 60_000_000), "NumPy's seeds end at 4294967295"),
    ];
    for (change, expected) in cases {
        let mut flags = flags.clone();
        change(&mut flags);
        let error = refused(&flags);
        assert!(error.contains(expected), "{error}");
    }
    run(&flags).unwrap();
}

#[test]
fn what_is_skipped_is_counted() {
    let odd = "\n\n \u{3000}\n\u{301}\nGod said.\r\n".as_bytes();
    let (_folder, flags) = corpus(&[("a.txt", &text()), ("b.txt", b""), ("c.txt", b" \n\n"), ("d.txt", odd)]);
    let flags = Flags { use_eod: false, ..flags };
    let summary = run(&flags).unwrap();
    let blank = text().split(|byte| *byte == b'\n').filter(|line| line.is_empty()).count() as u64;
    let counts = summary.text;
    assert_eq!((counts.files, counts.empty_files, counts.files_without_tokens), (4, 1, 1));
    assert_eq!((counts.blank_lines_skipped, counts.lines_without_tokens), (blank + 5, 1));
    let batch = 16 * summary.passes[0].batches;
    assert_eq!(summary.passes[0].tokens_left + batch, counts.tokens);
    let nothing = run(&Flags { num_task: 9, task: 5, ..flags }).unwrap();
    assert_eq!((nothing.tasks_without_files, nothing.passes), (1, vec![]));
}

#[test]
fn a_stop_leaves_no_half_written_file() {
    let (_folder, flags) = corpus(&[("a.txt", &text())]);
    let progress = Progress::new();
    progress.stop();
    let options = Options { flags: flags.clone(), ..Options::default() };
    assert!(matches!(prepare(&options, &progress), Err(PrepareError::Stopped)));
    assert_eq!(written(&flags), [""; 0]);
    // Within the first of very many passes.
    let progress = Progress::new();
    let options = Options { num_passes: 1_000_000, ..options };
    let done = thread::scope(|scope| {
        let done = scope.spawn(|| prepare(&options, &progress));
        while progress.records() == 0 && !done.is_finished() {
            thread::yield_now();
        }
        progress.stop();
        done.join().unwrap()
    });
    assert!(matches!(done, Err(PrepareError::Stopped)));
    let names = written(&flags);
    assert!(names.iter().all(|name| name.ends_with(".json") || name.ends_with(".tfrecords")), "{names:?}");
}

#[test]
fn mended_quirks_mask_whole_words_and_are_written_down() {
    let (_folder, flags) = corpus(&[("a.txt", &text())]);
    let options = Options { flags: flags.clone(), ..Options::default() };
    let records = |fix_quirks| {
        let options = Options { fix_quirks, ..options.clone() };
        let summary = prepare(&options, &Progress::new()).unwrap();
        (fs::read(&summary.passes[0].records_path).unwrap(), summary.passes[0].batches)
    };
    let ((kept, count), (mended, same_count)) = (records(false), records(true));
    assert_eq!(count, same_count);
    assert_ne!(kept, mended);
    let corpus = fs::read_to_string(flags.save_dir.join("corpus_info.json")).unwrap();
    assert!(corpus.ends_with(", \"fix_quirks\": true}"), "{corpus}");

    // All tokens of all n-grams are masked, and no others; the rows run forwards.
    let flags = Flags { num_predict: None, bi_data: false, ..flags };
    let vocabulary = Vocabulary::open(&flags.sp_path).unwrap();
    let cut_words = |fix_quirks| {
        let options = Options { flags: flags.clone(), fix_quirks, ..Options::default() };
        let summary = prepare(&options, &Progress::new()).unwrap();
        let records = example::records(&fs::read(&summary.passes[0].records_path).unwrap());
        assert!(!records.is_empty());
        let cut = |record: &BTreeMap<String, Vec<u64>>| {
            let (tokens, masked) = (&record["input"], &record["is_masked"]);
            let ends = (1..tokens.len()).filter(|at| masked[at - 1] == 1 && masked[*at] == 0 && at % 16 != 0);
            ends.filter(|at| !vocabulary.is_start(u32::try_from(tokens[*at]).unwrap())).count()
        };
        records.iter().map(cut).sum::<usize>()
    };
    assert!(cut_words(false) > 0);
    assert_eq!(cut_words(true), 0);
}

#[test]
fn mended_and_kept_quirks_are_not_mixed() {
    let (_folder, flags) = corpus(&[("a.txt", &text())]);
    let pass = |pass_id, fix_quirks| {
        let flags = Flags { pass_id, ..flags.clone() };
        prepare(&Options { flags, fix_quirks, ..Options::default() }, &Progress::new())
    };
    pass(0, true).unwrap();
    assert!(XlnetData::open(&flags.save_dir, Split::Train, None).is_ok());
    let before = written(&flags);
    let error = pass(1, false).unwrap_err().to_string();
    assert!(error.contains("of another preparation: its records lack the script's quirks"), "{error}");
    assert_eq!(written(&flags), before);
    let corpus = || fs::read_to_string(flags.save_dir.join("corpus_info.json")).unwrap();
    assert!(corpus().contains("fix_quirks"), "what describes the records stays: {}", corpus());
    // An earlier version wrote it nevertheless.
    let first = flags.save_dir.join("tfrecords").join(flags.info_name(0, 0));
    let aside = first.with_extension("aside");
    fs::rename(&first, &aside).unwrap();
    pass(1, false).unwrap();
    fs::rename(&aside, &first).unwrap();
    assert!(!corpus().contains("fix_quirks"), "{}", corpus());
    let error = XlnetData::open(&flags.save_dir, Split::Train, None).unwrap_err();
    assert!(error.to_string().contains(" has records without the script's quirks, and "), "{error}");
}

/// A corpus of two files, which two tasks can share.
fn of_two_files() -> (TempDir, Flags) {
    let parts = ["part0", "part1"].map(|part| fs::read(format!("{DATA}/text/{part}.txt")).unwrap());
    corpus(&[("a.txt", &parts[0]), ("b.txt", &parts[1])])
}

fn all_tasks(flags: &Flags, num_passes: u32) -> Result<Summary, PrepareError> {
    let options = Options { flags: flags.clone(), num_passes, all_tasks: true, ..Options::default() };
    prepare(&options, &Progress::new())
}

#[test]
fn records_of_another_preparation_stay_and_are_not_mixed() {
    let (folder, flags) = of_two_files();
    let two = Flags { num_task: 2, ..flags.clone() };
    all_tasks(&two, 2).unwrap();
    let tfrecords = flags.save_dir.join("tfrecords");
    let files = || {
        let names = written(&flags).into_iter().filter(|name| name != "corpus_info.json");
        names.map(|name| (fs::read(tfrecords.join(&name)).unwrap(), name)).collect::<Vec<_>>()
    };
    let before = files();
    type Change = fn(&mut Flags);
    fn set_name(flags: &mut Flags, name: &str) {
        flags.input_glob.set_file_name(name);
    }
    let changes: [(Change, &str); 4] = [
        (|flags| flags.num_task = 1, "its num_task is 2 and not 1"),
        (|flags| flags.use_eod = false, "its use_eod is true and not false"),
        (|flags| set_name(flags, "?.txt"), ""),
        (|flags| set_name(flags, "a.txt"), "its input files have other names"),
    ];
    for (change, due) in changes {
        let mut changed = two.clone();
        change(&mut changed);
        // It writes task 0 alone, and task 1 stays.
        match run(&changed).map_err(|error| message(&error)) {
            Ok(_) => assert_eq!(due, "", "another name for the same files"),
            Err(error) => assert!(!due.is_empty() && error.contains(due), "{error}"),
        }
        assert_eq!(files(), before);
    }
    // The text grows.
    let grown = [&text()[..], b"One more line.\n"].concat();
    fs::write(folder.path().join("a.txt"), grown).unwrap();
    let error = message(&run(&two).unwrap_err());
    assert!(error.contains("its input files have other names or lengths"), "{error}");
    // What is replaced may be anything, and so may be what has other names.
    all_tasks(&two, 2).unwrap();
    run(&Flags { split: Split::Dev, num_task: 1, ..two.clone() }).unwrap();
    run(&Flags { mask_alpha: 5, num_task: 1, ..two.clone() }).unwrap();

    // Nothing is left to refuse where another process prepares at the same time, or a copy comes later.
    let elsewhere = Flags { save_dir: flags.save_dir.join("one"), ..flags.clone() };
    all_tasks(&elsewhere, 1).unwrap();
    for name in [flags.info_name(0, 0), flags.records_name(0, 0)] {
        let from = elsewhere.save_dir.join("tfrecords").join(&name);
        fs::copy(from, tfrecords.join(&name)).unwrap();
    }
    let open = |passes: Option<u32>| {
        XlnetData::open_with(&tfrecords, &(&flags).into(), Split::Train, passes)
            .map(|data| data.files().len())
    };
    for passes in [None, Some(1)] {
        let error = open(passes).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("are of different preparations"), "{said}");
        for part in [&flags.info_name(0, 0), "its num_task is 2 and not 1", "prepare into an empty folder"] {
            assert!(said.contains(part), "{said}");
        }
    }
    // Neither the script nor earlier versions state it. But where one task has all, there is no second one.
    let forget = |task, pass| {
        let path = tfrecords.join(flags.info_name(task, pass));
        let info = fs::read_to_string(&path).unwrap();
        fs::write(path, format!("{}}}", info.split_once(", \"preparation\"").unwrap().0)).unwrap();
    };
    [(0, 1), (1, 0), (1, 1)].iter().for_each(|(task, pass)| forget(*task, *pass));
    let error = open(None).unwrap_err().to_string();
    assert!(error.contains("it is of task 1, and num_task is 1"), "{error}");
    let error = message(&run(&flags).unwrap_err());
    assert!(error.contains("it is of task 1, and num_task is 1"), "{error}");
    forget(0, 0);
    assert_eq!(open(None).unwrap(), 4);
    // Some state it, and the others do not.
    all_tasks(&two, 1).unwrap();
    assert_eq!(open(None).unwrap(), 4);
}

#[test]
fn tasks_and_passes_of_one_preparation_agree_whatever_their_seeds_are() {
    let (_folder, flags) = of_two_files();
    thread::scope(|scope| {
        for (task, pass_id) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let flags = Flags { num_task: 2, task, pass_id, ..flags.clone() };
            let python_seed = (pass_id == 1).then_some(i64::from(task) + 7);
            let options = Options { flags, python_seed, ..Options::default() };
            scope.spawn(move || prepare(&options, &Progress::new()).unwrap());
        }
    });
    assert_eq!(XlnetData::open(&flags.save_dir, Split::Train, 2).unwrap().files().len(), 4);
}

/// A process that ends at any time, or a disk that is full, must not leave new records with an old
/// `record_info`.
#[test]
fn no_record_info_describes_the_records_that_replaced_its_own() {
    let (_folder, flags) = corpus(&[("a.txt", &text())]);
    let path = |name| flags.save_dir.join("tfrecords").join(name);
    let (records, info) = (path(flags.records_name(0, 0)), path(flags.info_name(0, 0)));
    run(&flags).unwrap();
    let number = || fs::metadata(&records).unwrap().ino();
    for round in 0..20 {
        let before = number();
        let old = fs::read(&info).unwrap();
        let options = Options { flags: flags.clone(), fix_quirks: round % 2 == 0, ..Options::default() };
        thread::scope(|scope| {
            let done = scope.spawn(|| prepare(&options, &Progress::new()));
            while number() == before && !done.is_finished() {
                std::hint::spin_loop();
            }
            // What a process would find that came after this one's end.
            assert_ne!(fs::read(&info).unwrap_or_default(), old, "round {round}");
            done.join().unwrap().unwrap();
        });
        assert_ne!((number(), fs::read(&info).unwrap()), (before, old));
    }
    // If it cannot be removed, the records stay as well.
    let before = fs::read(&records).unwrap();
    fs::remove_file(&info).unwrap();
    fs::create_dir(&info).unwrap();
    let flags = Flags { use_eod: false, ..flags.clone() };
    let error = message(&run(&flags).unwrap_err());
    assert!(error.contains("record_info-train-0-0") && error.contains("a folder is there"), "{error}");
    assert!(fs::read(&records).unwrap() == before);
}

#[test]
fn what_is_read_needs_no_path_of_text_and_what_is_written_does() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    let (folder, plain) = corpus(&[("a.txt", &text())]);
    let written = |flags: &Flags| fs::read(&run(flags).unwrap().passes[0].records_path).unwrap();
    let due = written(&plain);
    let odd = folder.path().join(OsStr::from_bytes(b"odd\xff"));
    fs::create_dir(&odd).unwrap();
    fs::copy(folder.path().join("a.txt"), odd.join("a.txt")).unwrap();
    fs::copy(&plain.sp_path, odd.join("model")).unwrap();
    let (input_glob, sp_path) = (odd.join("*.txt"), odd.join("model"));
    let flags = Flags { input_glob, sp_path, save_dir: folder.path().join("other"), ..plain };
    assert!(written(&flags) == due);
    assert!(XlnetData::open(&flags.save_dir, Split::Train, None).is_ok());
    // In JSON, which is text, what is none of it is replaced.
    let corpus = fs::read_to_string(flags.save_dir.join("corpus_info.json")).unwrap();
    assert!(corpus.contains("odd\\ufffd/*.txt"), "{corpus}");
    // `record_info` names the records by their paths, so it could only name other ones.
    let flags = Flags { save_dir: odd.join("out"), ..flags };
    let refused = run(&flags).unwrap_err();
    assert!(
        refused.to_string().contains("odd") && refused.to_string().contains("the path is not UTF-8"),
        "{refused:?}"
    );
    assert!(!flags.save_dir.exists());
}

/// Of two files, the task of number 7 has none.
#[test]
fn a_task_without_files_leaves_what_describes_the_records() {
    let (_folder, flags) = of_two_files();
    run(&flags).unwrap();
    let path = flags.save_dir.join("corpus_info.json");
    let before = (fs::read(&path).unwrap(), written(&flags));
    let other = Flags { num_task: 8, task: 7, use_eod: false, ..flags.clone() };
    let summary = run(&other).unwrap();
    assert_eq!((summary.tasks_without_files, summary.passes.len()), (1, 0));
    assert_eq!((fs::read(&path).unwrap(), written(&flags)), before);
}

#[test]
fn a_corpus_info_that_cannot_be_read_is_an_error() {
    let (_folder, flags) = of_two_files();
    let path = flags.save_dir.join("corpus_info.json");
    fs::create_dir_all(&path).unwrap();
    // Task 1 does not write it.
    let flags = Flags { num_task: 2, task: 1, ..flags };
    let error = refused(&flags);
    let reason = fs::read(&path).unwrap_err();
    let due = format!("corpus_info.json: {reason}");
    assert!(error.contains("cannot read ") && error.contains(&due), "{error}");
    fs::remove_dir(&path).unwrap();
    run(&flags).unwrap();
}

#[test]
fn a_file_with_fewer_batches_than_stated_is_refused() {
    let (_folder, flags) = corpus(&[("a.txt", &text())]);
    let passes = run(&flags).unwrap().passes;
    let path = &passes[0].records_path;
    let data = || XlnetData::open(&flags.save_dir, Split::Train, None).unwrap().builder();
    assert!(data().is_ok());
    // Without its last batch, it is a file of whole records.
    let bytes = fs::read(path).unwrap();
    let mut ends = vec![0];
    while let Some(head) = bytes[ends[ends.len() - 1]..].first_chunk::<8>() {
        ends.push(ends[ends.len() - 1] + usize::try_from(u64::from_le_bytes(*head)).unwrap() + 16);
    }
    fs::write(path, &bytes[..ends[ends.len() - 3]]).unwrap();
    let error = data().unwrap_err();
    let stated = passes[0].batches;
    let said = format!(" has {} records, and must have {stated} batches of 2: ", 2 * stated - 2);
    assert!(error.to_string().contains(&said), "{error}");
}

#[test]
fn what_cannot_be_written_or_read_is_named() {
    let (folder, flags) = corpus(&[("a.txt", &text())]);
    fs::write(folder.path().join("out"), "a file").unwrap();
    let error = message(&run(&flags).unwrap_err());
    assert!(error.starts_with("cannot write ") && error.contains("out/tfrecords: "), "{error}");
    fs::remove_file(folder.path().join("out")).unwrap();
    fs::create_dir(folder.path().join("b.txt")).unwrap();
    let error = refused(&flags);
    assert!(error.contains("b.txt: found a folder, but only regular files are read"), "{error}");
}
