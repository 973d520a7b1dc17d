//! A conversion that ends early keeps what it has, and one that goes on with it gives the same records.

use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use percolator_data::convert::{Convert, ConvertError, Progress};
use percolator_data::input::{Input, InputError, Item, ItemReader};
use percolator_data::store::{Backend, StoreError};

use crate::{BACKENDS, Records, names, read};

/// Records that stop being readable, or whose reader stops the conversion.
#[derive(Clone, Debug)]
struct Numbers {
    count: u64,
    identity: &'static str,
    fails_at: Option<u64>,
    stops_at: Option<(u64, Arc<Progress>)>,
    /// A file whose place a folder takes when they stop being readable.
    loses: Option<PathBuf>,
    /// The number of items read.
    read: Arc<AtomicU64>,
}

impl Numbers {
    fn new(count: u64) -> Self {
        let (identity, read) = ("numbers", Arc::default());
        Numbers { count, identity, fails_at: None, stops_at: None, loses: None, read }
    }

    fn records(&self) -> Records {
        (0..self.count).filter(|number| !is_bad(*number)).map(|number| (key(number), value(number))).collect()
    }
}

fn key(number: u64) -> Vec<u8> {
    // Some come out of order, and some twice.
    format!("{:08}", if number % 10 == 7 { number / 3 } else { number }).into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; (number % 3000) as usize]
}

/// Whether a record is skipped: its key is too long.
fn is_bad(number: u64) -> bool {
    number % 100 == 3
}

impl Input for Numbers {
    fn path(&self) -> &Path {
        Path::new("numbers")
    }

    fn identity(&self) -> String {
        self.identity.to_owned()
    }

    fn items(&self) -> Option<u64> {
        Some(self.count)
    }

    fn reader(&self, from: u64) -> Result<ItemReader<'_>, InputError> {
        Ok(Box::new((from..self.count).map(|number| {
            self.read.fetch_add(1, Ordering::Relaxed);
            if self.fails_at == Some(number) {
                if let Some(file) = &self.loses {
                    fs::rename(file, file.with_extension("away")).unwrap();
                    fs::create_dir(file).unwrap();
                }
                return Err(InputError::Format { path: "numbers".into(), found: "it ends here".to_owned() });
            }
            if let Some((_, progress)) = self.stops_at.as_ref().filter(|(at, _)| *at == number) {
                progress.stop();
            }
            let key = if is_bad(number) { vec![b'k'; 9000] } else { key(number) };
            Ok(Item::Record { key, value: value(number) })
        })))
    }
}

/// What a store of this kind has of the records.
fn wanted(backend: Backend, records: Records) -> Records {
    match backend {
        Backend::TfRecord => records
            .into_iter()
            .enumerate()
            .map(|(number, (_, value))| (format!("{number:08}").into_bytes(), value))
            .collect(),
        _ => records.into_iter().collect::<std::collections::BTreeMap<_, _>>().into_iter().collect(),
    }
}

#[test]
fn what_ended_early_is_gone_on_with() {
    for backend in [Backend::Lmdb, Backend::LevelDb] {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("made");
        let whole = Numbers::new(3500);
        let run = |input: Numbers| {
            Convert::new(input, &output, backend).resume(true).threads(2).run(&Progress::new())
        };
        for (number, fails_at) in [100, 1500, 1501, 3333].into_iter().enumerate() {
            let input = Numbers { fails_at: Some(fails_at), ..whole.clone() };
            let error = run(input).unwrap_err();
            assert!(matches!(&error, ConvertError::Kept { items, .. } if *items == fails_at), "{error}");
            assert_eq!(names(folder.path()), ["made.percolator-converting"], "{number}");
        }
        // One that is stopped says so.
        let progress = Arc::new(Progress::new());
        let input = Numbers { stops_at: Some((3400, progress.clone())), ..whole.clone() };
        let error = Convert::new(input, &output, backend).resume(true).run(&progress).unwrap_err();
        assert!(error.is_stop(), "{error}");

        let input = Numbers { read: Arc::default(), ..whole.clone() };
        let summary = run(input.clone()).unwrap();
        assert!(summary.done_before >= 3333 && input.read.load(Ordering::Relaxed) < 200, "{summary:?}");
        assert_eq!((summary.records, summary.skipped), (3465, 35));
        assert!(read(backend, &output) == wanted(backend, whole.records()), "{backend}");
        let listed = fs::read_to_string(summary.skipped_list.unwrap()).unwrap();
        let items: Vec<u64> =
            listed.lines().map(|line| line.split('\t').next().unwrap().parse().unwrap()).collect();
        assert_eq!(items, (0..35).map(|number| 100 * number + 3).collect::<Vec<_>>(), "each once");
        assert_eq!(names(folder.path()), ["made", "made.skipped.txt"]);
    }
}

#[test]
fn what_is_written_stays_if_its_state_cannot_be_read() {
    for backend in [Backend::Lmdb, Backend::LevelDb] {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("made");
        let whole = Numbers::new(500);
        let run = |input: Numbers| Convert::new(input, &output, backend).resume(true).run(&Progress::new());
        run(Numbers { fails_at: Some(300), ..whole.clone() }).unwrap_err();
        let kept = folder.path().join("made.percolator-converting");
        let state = kept.join("state.json");
        let input = Numbers { fails_at: Some(400), loses: Some(state.clone()), ..whole.clone() };
        let error = run(input).unwrap_err();
        assert!(matches!(&error, ConvertError::StateUnread { partial, .. } if *partial == kept), "{error}");
        let (said, kept) = (error.to_string(), kept.display());
        assert!(said.starts_with("numbers: it ends here; what was written stays in "), "{said}");
        assert!(said.contains(&format!("{kept}: ")) && said.contains("state.json: cannot read"), "{said}");
        // It can be read again.
        fs::remove_dir(&state).unwrap();
        fs::rename(state.with_extension("away"), &state).unwrap();
        let summary = run(whole.clone()).unwrap();
        assert_eq!(summary.done_before, 300);
        assert!(read(backend, &output) == wanted(backend, whole.records()), "{backend}");
    }
}

#[test]
fn a_state_that_no_run_leaves_is_refused_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("made");
    let run = |input: Numbers| {
        let convert = Convert::new(input, &output, Backend::LevelDb).resume(true);
        convert.shards(NonZeroU32::new(2).unwrap()).run(&Progress::new())
    };
    run(Numbers { fails_at: Some(300), ..Numbers::new(500) }).unwrap_err();
    let path = folder.path().join("made.percolator-converting/state.json");
    let whole: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!((&whole["next"], &whole["records"], &whole["skipped"]), (&300.into(), &297.into(), &3.into()));
    let forged = |changes: &[(&str, serde_json::Value)]| {
        let mut state = whole.clone();
        for (name, value) in changes {
            state[*name] = value.clone();
        }
        state.to_string()
    };
    let most = || serde_json::Value::from(u64::MAX);
    let mut unknown_mark = whole["mark"].clone();
    unknown_mark["leveldb"]["tables"] = 1.into();
    for (changes, said) in [
        (vec![("records", most())], "but 300 items in all"),
        (vec![("next", 299.into())], "but 299 items in all"),
        (vec![("next", 501.into()), ("records", 498.into())], "the state has 501 items, of 500"),
        (vec![("next", most()), ("records", most()), ("skipped", 0.into())], "items, of 500"),
        (vec![("shard", 2.into())], "of output number 2, counted from 0, of 2"),
        (vec![("shard", u32::MAX.into()), ("mark", ().into())], "of output number 4294967295,"),
        (vec![("mark", ().into())], "does not say how far the output is"),
        (vec![("mark", unknown_mark)], "unknown field `tables`"),
    ] {
        let text = forged(&changes);
        fs::write(&path, &text).unwrap();
        let error = run(Numbers::new(500)).unwrap_err();
        let ConvertError::Store(StoreError::Changed { path: named, found }) = &error else {
            panic!("{error}")
        };
        assert!(*named == path && found.contains(said), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    // What the values have together is only told.
    fs::write(&path, forged(&[("bytes", most())])).unwrap();
    let summary = run(Numbers::new(500)).unwrap();
    assert_eq!((summary.records, summary.skipped, summary.bytes), (495, 5, u64::MAX));
}

#[test]
fn a_list_of_what_was_skipped_that_was_cut_is_not_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("made");
    let run = |input: Numbers| Convert::new(input, &output, Backend::LevelDb).resume(true);
    run(Numbers { fails_at: Some(300), ..Numbers::new(500) }).run(&Progress::new()).unwrap_err();
    let list = folder.path().join("made.percolator-converting/skipped.txt");
    let whole = fs::read_to_string(&list).unwrap();
    assert_eq!(whole.lines().count(), 3);
    for left in [None, Some(0), Some(whole.len() - 1)] {
        match left {
            None => fs::remove_file(&list).unwrap(),
            Some(left) => fs::write(&list, &whole[..left]).unwrap(),
        }
        let error = run(Numbers::new(500)).run(&Progress::new()).unwrap_err();
        let ConvertError::Store(StoreError::Changed { path, found }) = &error else { panic!("{error}") };
        assert_eq!(path, &list);
        let found_bytes = left.unwrap_or(0);
        assert_eq!(*found, format!("it has {found_bytes} bytes, and had {} before", whole.len()));
    }
    // What was skipped after the commit is listed again.
    fs::write(&list, format!("{whole}403")).unwrap();
    let summary = run(Numbers::new(500)).run(&Progress::new()).unwrap();
    assert_eq!(fs::read_to_string(summary.skipped_list.unwrap()).unwrap().lines().count(), 5);
}

#[test]
fn files_beside_an_output_go_only_with_the_output_to_which_they_belong() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("made");
    let files = ["made.labels.txt", "made.skipped.txt"].map(|name| folder.path().join(name));
    let run = || {
        files.iter().for_each(|file| fs::write(file, "somebody's").unwrap());
        Convert::new(Numbers::new(3), &output, Backend::Lmdb).force(true).run(&Progress::new()).unwrap();
    };
    run();
    assert!(files.iter().all(|file| fs::read(file).unwrap() == b"somebody's"), "no output was there");
    run();
    assert_eq!(names(folder.path()), ["made"], "they may be those of the one before");
}

#[test]
fn shards_have_ranges() {
    for backend in BACKENDS {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("made");
        let run = |input: Numbers| {
            Convert::new(input, &output, backend)
                .shards(7.try_into().unwrap())
                .resume(true)
                .run(&Progress::new())
        };
        let whole = Numbers { count: 100, ..Numbers::new(0) };
        // In the middle of a shard, and at the beginning of one.
        for fails_at in [20, 57] {
            let error = run(Numbers { fails_at: Some(fails_at), ..whole.clone() }).unwrap_err();
            assert!(matches!(error, ConvertError::Kept { .. }), "{error}");
        }
        let summary = run(whole.clone()).unwrap();
        assert_eq!(summary.outputs.len(), 7);
        for (shard, path) in (0..).zip(&summary.outputs) {
            assert!(path.ends_with(format!("made-{shard:05}-of-00007")), "{path:?}");
            let range = shard * 100 / 7..(shard + 1) * 100 / 7;
            let records = range.filter(|number| backend == Backend::TfRecord || !is_bad(*number));
            let value_of = |number| (if is_bad(number) { b"?".to_vec() } else { key(number) }, value(number));
            let records = records.map(value_of).collect();
            assert!(read(backend, path) == wanted(backend, records), "{backend}, {path:?}");
        }
        let error = Convert::new(Numbers::new(3), folder.path().join("few"), backend)
            .shards(4.try_into().unwrap())
            .run(&Progress::new())
            .unwrap_err();
        assert_eq!(error.to_string(), "numbers: 4 shards cannot be made of 3 items");
    }
}

#[test]
fn what_another_run_left_is_not_taken_for_this_ones() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("made");
    let convert = |input| Convert::new(input, &output, Backend::Lmdb);
    let fail = || Numbers { fails_at: Some(50), ..Numbers::new(100) };
    convert(fail()).run(&Progress::new()).unwrap_err();
    let error = convert(Numbers::new(100)).run(&Progress::new()).unwrap_err();
    assert!(matches!(error, ConvertError::Store(StoreError::Partial { .. })), "{error}");
    let other = Numbers { identity: "other numbers", ..Numbers::new(100) };
    let error = convert(other).resume(true).run(&Progress::new()).unwrap_err().to_string();
    assert!(error.contains("its input: numbers; this one's: other numbers; --force starts over"), "{error}");
    let summary = convert(Numbers::new(100)).force(true).run(&Progress::new()).unwrap();
    assert_eq!(summary.done_before, 0);
    // A run that has nothing is removed.
    let at_once = Numbers { fails_at: Some(0), ..Numbers::new(100) };
    let error = convert(at_once).force(true).run(&Progress::new()).unwrap_err();
    assert!(matches!(error, ConvertError::Removed { .. }), "{error}");
    let error = convert(Numbers::new(100)).run(&Progress::new()).unwrap_err();
    assert!(matches!(error, ConvertError::Store(StoreError::Exists { .. })), "{error}");
    assert_eq!(names(folder.path()), ["made", "made.skipped.txt"], "the old one stays");
}

#[test]
fn outputs_that_were_being_moved_get_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("made");
    let run = |resume| {
        Convert::new(Numbers::new(200), &output, Backend::Lmdb)
            .shards(2.try_into().unwrap())
            .resume(resume)
            .run(&Progress::new())
    };
    let partial = folder.path().join("made.percolator-converting");
    let outputs = run(false).unwrap().outputs;
    let whole = fs::read_to_string(folder.path().join("made.skipped.txt")).unwrap();
    // Its state, as it was after the last commit.
    let error = Convert::new(Numbers { fails_at: Some(199), ..Numbers::new(200) }, &output, Backend::Lmdb)
        .shards(2.try_into().unwrap())
        .force(true)
        .run(&Progress::new())
        .unwrap_err();
    assert!(matches!(error, ConvertError::Kept { .. }), "{error}");
    // The first output and the list have been moved, and the second output not yet.
    fs::write(partial.join("whole"), r#"["store-00000","store-00001","skipped.txt"]"#).unwrap();
    fs::remove_dir_all(partial.join("store-00000")).unwrap();
    fs::remove_file(partial.join("skipped.txt")).unwrap();
    fs::remove_dir_all(partial.join("store-00001")).unwrap();
    fs::rename(&outputs[1], partial.join("store-00001")).unwrap();
    let error = run(false).unwrap_err();
    assert!(matches!(error, ConvertError::Store(StoreError::Exists { .. })), "{error}");
    let summary = run(true).unwrap();
    assert_eq!(summary.outputs, outputs);
    for (path, first) in outputs.iter().zip([0, 100]) {
        assert_eq!(read(Backend::Lmdb, path).last().unwrap().0, key(first + 99), "{path:?}");
    }
    assert_eq!(fs::read_to_string(folder.path().join("made.skipped.txt")).unwrap(), whole);
    assert_eq!(names(folder.path()), ["made-00000-of-00002", "made-00001-of-00002", "made.skipped.txt"]);
}
