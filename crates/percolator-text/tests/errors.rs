//! What is wrong with a corpus, a model or the flags is said, and nothing half-written is left.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::error::Error as _;
use std::fs;
use std::path::Path;
use std::thread;

use percolator_text::sentencepiece::{ModelError, SentencePiece};
use percolator_text::xlnet::{Flags, Options, PrepareError, Progress, Summary, Vocabulary, prepare};
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
        input_glob: format!("{root}/*.txt"),
        sp_path: format!("{DATA}/spiece.model"),
        save_dir: format!("{root}/out"),
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
    let mut folders = vec![Path::new(&flags.save_dir).to_owned()];
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
    // The trainer's part of a model: model_type = BPE. The last of a field counts.
    let bpe = [&model[..], &[0x12, 0x02, 0x18, 0x02]].concat();
    let found = |bytes: &[u8]| SentencePiece::from_bytes(bytes).unwrap_err();
    assert!(matches!(found(&bpe), ModelError::Kind { found } if found == "BPE"));
    assert!(matches!(found(b"some text, and no model"), ModelError::Damaged(_)));
    assert!(matches!(found(b""), ModelError::Damaged(_)));
    let (folder, flags) = corpus(&[("a.txt", &text()), ("bpe.model", &bpe)]);
    let path = folder.path().join("bpe.model").to_str().unwrap().to_owned();
    let error = refused(&Flags { sp_path: path.clone(), ..flags.clone() });
    assert_eq!(
        error,
        format!(
            "the model {path} cannot be used: it is a model of the kind BPE, and only unigram models are \
             supported"
        )
    );
    let missing = refused(&Flags { sp_path: format!("{path}.missing"), ..flags });
    assert!(missing.contains("it cannot be read: No such file"), "{missing}");
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
                model.encode("And God said, ﬁnd ＡＢＣ 1,000, é\0", &mut scratch, |_, _| {});
            }
        }
    }
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
    let batch = 16 * summary.runs[0].batches;
    assert_eq!(summary.runs[0].tokens_left + batch, counts.tokens);
    let nothing = run(&Flags { num_task: 9, task: 5, ..flags }).unwrap();
    assert_eq!((nothing.tasks_without_files, nothing.runs), (vec![5], vec![]));
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
        (fs::read(&summary.runs[0].records_path).unwrap(), summary.runs[0].batches)
    };
    let ((kept, count), (mended, same_count)) = (records(false), records(true));
    assert_eq!(count, same_count);
    assert_ne!(kept, mended);
    let corpus = fs::read_to_string(Path::new(&flags.save_dir).join("corpus_info.json")).unwrap();
    assert!(corpus.ends_with(", \"fix_quirks\": true}"), "{corpus}");
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
    assert!(error.contains("b.txt: Is a directory"), "{error}");
}
