//! XLNet's data, fed: whole passes over prepared text, token by token; the laws of the arrays; what is
//! refused.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]
#![allow(clippy::cast_possible_truncation, reason = "the numbers of a test are small")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use percolator::example::ExampleWriter;
use percolator::half::bf16;
use percolator::tfrecord::{Compression, TfRecordWriter};
use percolator::{Batch, Device, Epochs, Feed, FeedBuilder, Shuffle};
use percolator_text::sentencepiece::Scratch;
use percolator_text::xlnet::{
    DataError, DataFlags, Flags, InputFlags, Options, Progress, Split, Vocabulary, XlnetData, XlnetDecoder,
    prepare,
};
use tempfile::TempDir;

const SEP: i32 = 4;
const CLS: i32 = 3;
const ROWS: usize = 8;

fn data(name: &str) -> String {
    format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Prepared text, in a folder that is removed with it.
struct Prepared {
    folder: TempDir,
    /// Of each task's pass, in the order of the files' names: the task, and how many batches there are.
    files: Vec<(usize, usize)>,
    flags: Flags,
}

/// The three parts of the text, a task each, in two passes.
fn prepared(change: impl FnOnce(&mut Flags)) -> Prepared {
    let folder = tempfile::tempdir().unwrap();
    let mut flags = Flags {
        input_glob: data("text/part*.txt").into(),
        sp_path: data("spiece.model").into(),
        save_dir: folder.path().to_owned(),
        use_tpu: false,
        bsz_per_host: u32::try_from(ROWS).unwrap(),
        num_core_per_host: 1,
        seq_len: 32,
        reuse_len: 16,
        num_predict: Some(6),
        num_task: 3,
        ..Flags::default()
    };
    change(&mut flags);
    let options = Options {
        flags: flags.clone(),
        all_tasks: true,
        num_passes: 2,
        threads: Some(2),
        ..Options::default()
    };
    let summary = prepare(&options, &Progress::new()).unwrap();
    let number = |count: u64| usize::try_from(count).unwrap();
    let files = summary.passes.iter().map(|run| (run.task as usize, number(run.batches))).collect();
    Prepared { folder, files, flags }
}

impl Prepared {
    fn open(&self) -> XlnetData {
        XlnetData::open(self.folder.path(), Split::Train, None).unwrap()
    }

    fn seq_len(&self) -> usize {
        self.flags.seq_len as usize
    }

    fn reuse(&self) -> usize {
        self.flags.reuse_len as usize
    }

    /// The tokens of each row of a batch from which a task's batches are cut, as the script lays them out.
    fn rows(&self, task: usize) -> Vec<Vec<i32>> {
        let text = fs::read_to_string(data(&format!("text/part{task}.txt"))).unwrap();
        let vocabulary = Vocabulary::open(&self.flags.sp_path).unwrap();
        let (mut tokens, mut clean, mut scratch) = (Vec::new(), String::new(), Scratch::default());
        for line in text.split_terminator('\n').map(str::trim) {
            if line.is_empty() {
                tokens.push(7);
                continue;
            }
            clean.clear();
            percolator_text::clean(line, true, &mut clean);
            vocabulary.encode(&clean, &mut scratch, &mut tokens).unwrap();
        }
        let tokens: Vec<i32> = tokens.into_iter().map(|token| i32::try_from(token).unwrap()).collect();
        let cores = if self.flags.use_tpu { self.flags.num_core_per_host as usize } else { 1 };
        if !self.flags.bi_data {
            return tokens.chunks_exact(tokens.len() / ROWS).take(ROWS).map(<[i32]>::to_vec).collect();
        }
        let cut: Vec<_> = tokens.chunks_exact(tokens.len() / (ROWS / 2)).take(ROWS / 2).collect();
        let of_core = |core: &[&[i32]]| -> Vec<Vec<i32>> {
            let forward = core.iter().map(|row| row.to_vec());
            let backward = core.iter().map(|row| row.iter().rev().copied().collect());
            forward.chain(backward).collect()
        };
        cut.chunks(ROWS / 2 / cores).flat_map(of_core).collect()
    }
}

fn threads(feed: FeedBuilder, threads: usize, devices: usize) -> FeedBuilder {
    feed.threads(threads).devices((0..devices).map(Device::host))
}

/// What a row of a batch must be if its reused part starts at `at` of these tokens.
fn check_row(prepared: &Prepared, batch: &Batch, row: usize, tokens: &[i32], at: usize, what: &str) {
    let (len, reuse) = (prepared.seq_len(), prepared.reuse());
    let input = batch.get::<i32>("input_k").unwrap().row(row);
    assert_eq!(input[..reuse], tokens[at..at + reuse], "{what}");
    // A is what follows, as the reused part of the next batch is.
    let a = input[reuse..].iter().position(|token| *token == SEP).unwrap();
    assert!(a >= 1, "{what}");
    assert_eq!(input[reuse..reuse + a], tokens[at + reuse..at + reuse + a], "{what}");
    // B is somewhere in the same row of the text.
    let b = &input[reuse + a + 1..len - 2];
    assert!(!b.is_empty() && tokens.windows(b.len()).any(|found| found == b), "{what}");
    assert_eq!(input[len - 2..], [SEP, CLS], "{what}");
    let segments = [vec![0; reuse + a + 1], vec![1; b.len() + 1], vec![2]].concat();
    assert_eq!(batch.get::<i32>("seg_id").unwrap().row(row), segments, "{what}");
    assert!(matches!(batch.get::<i32>("label").unwrap().row(row), [0 | 1]), "{what}");
}

/// Walks all batches of a host for some epochs, and returns how often each of its files came.
fn walk(prepared: &Prepared, data: &XlnetData, devices: usize, epochs: usize) -> Vec<usize> {
    let numbers: Vec<usize> = data.files().iter().map(|path| number_of(prepared, path)).collect();
    let files: Vec<(usize, usize)> = numbers.iter().map(|number| prepared.files[*number]).collect();
    let texts: Vec<_> = (0..3).map(|task| prepared.rows(task)).collect();
    let feed = threads(data.builder().unwrap(), 2, devices).epochs(epochs as u64).seed(3);
    let mut feed = feed.build().unwrap();
    let mut came = vec![0; files.len()];
    let mut order = Vec::new();
    // The file, and the batch of it that comes next.
    let mut next: Option<(usize, usize)> = None;
    for step in feed.steps() {
        let step = step.unwrap();
        assert_eq!(step.len(), devices);
        let first = usize::try_from(step[0].records()[0].index).unwrap();
        let (mut file, mut begin) = (0, 0);
        while first >= begin + files[file].1 * ROWS {
            begin += files[file].1 * ROWS;
            file += 1;
        }
        let number = (first - begin) / ROWS;
        match next {
            Some(expected) => assert_eq!((file, number), expected),
            None => {
                assert_eq!(number, 0, "a file begins with its first batch");
                order.push(file);
            }
        }
        let (task, batches) = files[file];
        let mut row = 0;
        for (lane, batch) in step.iter().enumerate() {
            // Contiguous parts, of as many rows as can be equal.
            let each = ROWS.div_ceil(devices);
            assert_eq!(batch.len(), each.min(ROWS - lane * each));
            for here in 0..batch.len() {
                assert_eq!(batch.records()[here].index as usize, begin + number * ROWS + row);
                let (tokens, at) = (&texts[task][row], number * prepared.reuse());
                check_row(
                    prepared,
                    batch,
                    here,
                    tokens,
                    at,
                    &format!("file {file}, batch {number}, row {row}"),
                );
                row += 1;
            }
        }
        assert_eq!(row, ROWS);
        next = (number + 1 < batches).then_some((file, number + 1));
        if next.is_none() {
            came[file] += 1;
        }
    }
    assert_eq!(next, None, "a file is not interrupted");
    for epoch in order.chunks(files.len()) {
        assert_eq!(epoch.iter().collect::<BTreeSet<_>>().len(), files.len(), "each epoch has each file once");
    }
    came
}

/// The number of a file in the order of tasks and passes.
fn number_of(prepared: &Prepared, path: &Path) -> usize {
    let name = path.file_name().unwrap().to_str().unwrap();
    let is_it = |(task, pass): &(u32, u32)| name == prepared.flags.records_name(*task, *pass);
    let places: Vec<(u32, u32)> = (0..3).flat_map(|task| (0..2).map(move |pass| (task, pass))).collect();
    places.iter().position(is_it).unwrap()
}

#[test]
fn each_batch_goes_on_where_the_one_before_ended() {
    let cores = |flags: &mut Flags| (flags.use_tpu, flags.num_core_per_host) = (true, 2);
    let prepared_of = [prepared(|_| {}), prepared(cores), prepared(|flags| flags.bi_data = false)];
    for prepared in prepared_of {
        let data = prepared.open();
        assert_eq!(data.files().len(), 6);
        let batches: usize = prepared.files.iter().map(|(_, batches)| batches).sum();
        assert_eq!(data.num_batch(), batches as u64);
        for devices in [1, 2, 3, 4] {
            assert_eq!(walk(&prepared, &data, devices, 2), [2; 6]);
        }
        for hosts in [2, 4, 5, 6] {
            let mut all = Vec::new();
            for host in 0..hosts {
                let part = data.of_host(host, hosts).unwrap();
                // As the script: the same number for each, and the last has the rest.
                let count = if host + 1 == hosts { 6 - 6 / hosts * (hosts - 1) } else { 6 / hosts };
                assert_eq!(walk(&prepared, &part, 2, 1), vec![1; count], "host {host} of {hosts}");
                all.extend(part.files().to_vec());
            }
            assert_eq!(all, data.files(), "{hosts} hosts");
        }
        for (host, hosts) in [(0, 0), (2, 2), (0, 7)] {
            let error = data.of_host(host, hosts).unwrap_err().to_string();
            assert!(error.contains("gets no file of"), "{error}");
        }
    }
}

/// All bytes of all batches.
fn bytes(feed: FeedBuilder) -> Vec<Vec<u8>> {
    let of_batch = |batch: &Batch| {
        let names = batch.fields().iter().map(|field| batch.field(field.name()).unwrap().bytes());
        names.collect::<Vec<_>>().concat()
    };
    feed.build().unwrap().into_iter().map(|batch| of_batch(&batch.unwrap())).collect()
}

#[test]
fn threads_change_nothing_and_epochs_permute_anew() {
    let prepared = prepared(|_| {});
    let data = prepared.open();
    let feed = |seed: u64| data.builder().unwrap().shuffle(Shuffle::No).epochs(2).seed(seed);
    let one = bytes(threads(feed(1), 1, 1));
    for count in [2, 4] {
        assert!(one == bytes(threads(feed(1), count, 1)), "{count} threads");
    }
    let (first, second) = one.split_at(one.len() / 2);
    assert!(first.iter().zip(second).all(|(first, second)| first != second));
    assert!(one.iter().zip(bytes(feed(2))).all(|(one, other)| *one != other), "another seed");
    // Another host draws other permutations for the same records.
    let of_host = |host: usize| {
        let decoder = data.decoder().unwrap().host(host);
        bytes(feed(1).decoder(decoder))
    };
    assert!(one == of_host(0));
    assert!(one.iter().zip(of_host(1)).all(|(one, other)| *one != other));
    // What is not drawn stays.
    let mut batches = feed(1).build().unwrap().into_iter().map(Result::unwrap);
    let first: Vec<_> = batches.by_ref().take(one.len() / 2).map(|batch| fixed(&batch)).collect();
    let second: Vec<_> = batches.map(|batch| fixed(&batch)).collect();
    assert_eq!(first, second);
}

/// What does not depend on the permutation.
fn fixed(batch: &Batch) -> Vec<Vec<i32>> {
    let ints = ["input_k", "seg_id", "label", "target"];
    let mut all: Vec<_> = ints.iter().map(|name| batch.get::<i32>(*name).unwrap().to_vec()).collect();
    #[expect(clippy::cast_possible_truncation, reason = "0 or 1")]
    let whole = |name: &str| batch.get::<f32>(name).unwrap().iter().map(|real| *real as i32).collect();
    all.extend(["input_q", "target_mask", "target_mapping"].map(whole));
    all
}

/// The order in which tokens are predicted is a permutation of each block, the blocks one after the other.
#[test]
fn what_is_seen_follows_one_order() {
    let prepared = prepared(|flags| flags.num_predict = Some(14));
    let (len, reuse) = (prepared.seq_len(), prepared.reuse());
    for perm_size in [16, 8, 4] {
        let data = prepared.open().perm_size(perm_size);
        let mut orders = BTreeSet::new();
        for batch in data.builder().unwrap().epochs(1).build().unwrap() {
            let batch = batch.unwrap();
            let (mask, query) =
                (batch.get::<f32>("perm_mask").unwrap(), batch.get::<f32>("input_q").unwrap());
            for row in 0..batch.len() {
                let sees = |i: usize, j: usize| mask.row(row)[i * len + j] == 0.0;
                for half in [0..reuse, reuse..len] {
                    let predicted: Vec<_> = half.filter(|at| query.row(row)[*at] == 1.0).collect();
                    let seen: Vec<usize> = predicted
                        .iter()
                        .map(|i| predicted.iter().filter(|j| sees(*i, **j)).count())
                        .collect();
                    let mut sorted = seen.clone();
                    sorted.sort_unstable();
                    assert!(sorted.into_iter().eq(0..seen.len()), "{seen:?}");
                    for (i, j) in predicted.iter().flat_map(|i| predicted.iter().map(move |j| (*i, *j))) {
                        assert!(i / perm_size <= j / perm_size || sees(i, j));
                        assert!(i / perm_size >= j / perm_size || !sees(i, j));
                    }
                    orders.insert(seen);
                }
            }
        }
        assert!(orders.len() > 100, "{} orders with blocks of {perm_size}", orders.len());
    }
}

#[test]
fn targets_are_the_masked_tokens_themselves() {
    let prepared = prepared(|_| {});
    let (len, room) = (prepared.seq_len(), 6);
    let mut fewer = 0;
    for batch in prepared.open().builder().unwrap().epochs(1).build().unwrap() {
        let batch = batch.unwrap();
        for row in 0..batch.len() {
            let reals = |name: &str| batch.get::<f32>(name).unwrap().row(row);
            let (query, mapping, counts) = (reals("input_q"), reals("target_mapping"), reals("target_mask"));
            let input = batch.get::<i32>("input_k").unwrap().row(row);
            let target = batch.get::<i32>("target").unwrap().row(row);
            let predicted: Vec<usize> = (0..len).filter(|at| query[*at] == 1.0).collect();
            assert!(query.iter().all(|real| [0.0, 1.0].contains(real)));
            assert!(predicted.iter().all(|at| ![SEP, CLS].contains(&input[*at])));
            for number in 0..room {
                let line = &mapping[number * len..][..len];
                let ones: Vec<usize> = (0..len).filter(|at| line[*at] == 1.0).collect();
                assert!(line.iter().all(|real| [0.0, 1.0].contains(real)));
                match predicted.get(number) {
                    Some(at) => {
                        assert_eq!(
                            (&ones[..], target[number], counts[number]),
                            (&[*at][..], input[*at], 1.0)
                        );
                    }
                    None => assert_eq!((&ones[..], target[number], counts[number]), (&[][..], 0, 0.0)),
                }
            }
            fewer += usize::from(predicted.len() < room);
        }
    }
    assert!(fewer > 0, "a mask falls on a separator at times");
}

#[test]
fn without_num_predict_each_token_has_a_target() {
    let prepared = prepared(|flags| flags.num_predict = None);
    let data = prepared.open();
    assert_eq!(data.flags().num_predict, None);
    let mut feed = data.builder().unwrap().epochs(1).build().unwrap();
    let fields: Vec<String> = feed.layout().fields().iter().map(ToString::to_string).collect();
    let expected = [
        "input_k: i32 [32]",
        "input_q: f32 [32]",
        "perm_mask: f32 [32x32]",
        "target: i32 [32]",
        "target_mask: f32 [32]",
        "seg_id: i32 [32]",
        "label: i32 [1]",
    ];
    assert_eq!(fields, expected);
    for step in feed.steps() {
        let batch = &step.unwrap()[0];
        let query = batch.get::<f32>("input_q").unwrap();
        assert_eq!(query.to_vec(), batch.get::<f32>("target_mask").unwrap().to_vec());
        for row in 0..batch.len() {
            let input = batch.get::<i32>("input_k").unwrap().row(row);
            let target = batch.get::<i32>("target").unwrap().row(row);
            let reuse = prepared.reuse();
            assert_eq!(target[..=reuse], input[..=reuse]);
            let masked = (0..32).filter(|at| query.row(row)[*at] == 1.0);
            masked.for_each(|at| assert_eq!(target[at], input[at]));
        }
    }
}

#[test]
fn bfloat16_has_the_same_values() {
    let prepared = prepared(|_| {});
    let data = prepared.open();
    let floats = data.builder().unwrap().epochs(1).build().unwrap();
    let halves = data.clone().use_bfloat16(true).builder().unwrap().epochs(1).build().unwrap();
    let mut count = 0;
    for (float, half) in floats.into_iter().zip(halves) {
        let (float, half) = (float.unwrap(), half.unwrap());
        for name in ["input_q", "perm_mask", "target_mask", "target_mapping"] {
            let expected = float.get::<f32>(name).unwrap();
            let found: Vec<f32> = half.get::<bf16>(name).unwrap().iter().map(|real| real.to_f32()).collect();
            assert_eq!(expected.to_vec(), found, "{name}");
        }
        for name in ["input_k", "target", "seg_id", "label"] {
            let ints = |batch: &Batch| batch.get::<i32>(name).unwrap().to_vec();
            assert_eq!(ints(&float), ints(&half), "{name}");
        }
        count += 1;
    }
    assert_eq!(count, data.num_batch());
}

/// The features of a good record of 8 tokens, which a test may change.
fn record(change: impl FnOnce(&mut ExampleWriter)) -> Vec<u8> {
    let mut writer = ExampleWriter::new();
    writer.ints("input", [10, 11, 12, 13, 14, SEP.into(), SEP.into(), CLS.into()]);
    writer.ints("target", [11, 12, 13, 14, 15, 16, 3, 3]).ints("seg_id", [0; 8]).ints("label", [1]);
    writer.ints("is_masked", [0, 1, 0, 0, 1, 0, 0, 0]);
    change(&mut writer);
    writer.to_bytes()
}

fn small(num_predict: Option<usize>) -> XlnetDecoder {
    let flags = InputFlags { seq_len: 8, reuse_len: 4, perm_size: 4, num_predict, use_bfloat16: false };
    XlnetDecoder::new(flags).unwrap()
}

fn feed_of(folder: &Path, record: &[u8], decoder: XlnetDecoder) -> Result<Batch, String> {
    let path = folder.join("records.tfrecord");
    let mut writer = TfRecordWriter::create(&path, Compression::Plain).unwrap();
    writer.write(record).unwrap();
    writer.finish().unwrap();
    let feed = Feed::builder().tfrecord(&path).decoder(decoder).epochs(1).build();
    let next = feed.map_err(|error| error.to_string())?.into_iter().next().unwrap();
    next.map_err(|error| error.to_string())
}

#[test]
fn a_record_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    // The last feature of a name counts.
    let record = record(|writer| {
        writer.ints("label", [0]).floats("other", [1.0]);
    });
    let batch = feed_of(folder.path(), &record, small(Some(3))).unwrap();
    let ints = |name: &str| batch.get::<i32>(name).unwrap().to_vec();
    let reals = |name: &str| batch.get::<f32>(name).unwrap().to_vec();
    assert_eq!(ints("input_k"), [10, 11, 12, 13, 14, SEP, SEP, CLS]);
    assert_eq!((ints("label"), ints("target")), (vec![0], vec![11, 14, 0]));
    assert_eq!(reals("input_q"), [0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
    assert_eq!(reals("target_mask"), [1.0, 1.0, 0.0]);
    let mask = reals("perm_mask");
    // One token of the first half is masked. No other has a place in the order, so it hides from all.
    for i in 0..4 {
        assert_eq!(mask[i * 8..][..8], [0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
    }
    for i in 4..8 {
        assert_eq!(mask[i * 8..][..4], [0.0; 4]);
        assert_eq!(
            mask[i * 8 + i],
            if i == 4 { 1.0 } else { 0.0 },
            "only what is predicted hides from itself"
        );
    }
}

#[test]
fn records_that_do_not_fit_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |record: &[u8], num_predict: Option<usize>, parts: &[&str]| {
        let error = feed_of(folder.path(), record, small(num_predict)).unwrap_err();
        for part in ["records.tfrecord", "00000000"].iter().chain(parts) {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
    };
    let with = |name: &'static str, values: Vec<i64>| {
        record(move |writer| {
            writer.ints(name, values);
        })
    };
    refused(&with("input", vec![1; 7]), None, &["\"input\"", "7 value", "takes 8"]);
    refused(&with("target", vec![1; 9]), None, &["\"target\"", "9 value", "takes 8"]);
    refused(&with("label", vec![]), None, &["\"label\"", "0 value", "takes 1"]);
    refused(&with("seg_id", vec![1 << 31; 8]), None, &["\"seg_id\"", "2147483648", "i32"]);
    refused(&with("is_masked", vec![1; 8]), Some(4), &["5 tokens are predicted", "num_predict is 4"]);
    assert!(feed_of(folder.path(), &with("is_masked", vec![i64::MIN; 8]), small(Some(5))).is_ok());
    let floats = record(|writer| {
        writer.floats("input", [1.0; 8]);
    });
    refused(&floats, None, &["\"input\"", "float_list", "int64_list"]);
    let unset = record(|writer| {
        writer.unset("label");
    });
    refused(&unset, None, &["\"label\"", "no kind"]);
    let mut other = ExampleWriter::new();
    refused(&other.ints("tokens", [1]).to_bytes(), None, &["\"input\"", "missing", "tokens"]);
    refused(&[0xff; 20], None, &["not a tf.train.Example"]);
}

#[test]
fn flags_that_do_not_agree_are_refused() {
    let flags = InputFlags { seq_len: 8, reuse_len: 4, perm_size: 4, num_predict: None, use_bfloat16: false };
    assert!(XlnetDecoder::new(flags).is_ok());
    let error = |flags: InputFlags| XlnetDecoder::new(flags).unwrap_err().to_string();
    let perm_size = |perm_size: usize| error(InputFlags { perm_size, ..flags });
    assert!([0, 3, 8].into_iter().all(|size| perm_size(size).starts_with("perm_size is ")));
    for reuse_len in [0, 8, 9] {
        assert!(error(InputFlags { reuse_len, ..flags }).starts_with("reuse_len is "));
    }
    for seq_len in [0, 1, usize::MAX] {
        assert!(error(InputFlags { seq_len, ..flags }).starts_with("seq_len is "));
    }
    for predict in [0, 9] {
        let flags = InputFlags { num_predict: Some(predict), ..flags };
        assert!(error(flags).starts_with("num_predict is "));
    }
    // Blocks of two thirds are no whole blocks of both parts.
    let uneven = InputFlags { seq_len: 12, reuse_len: 8, perm_size: 4, ..flags };
    assert!(XlnetDecoder::new(uneven).is_ok());
}

fn names(data: &XlnetData) -> Vec<String> {
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap()[..9].to_owned();
    data.files().iter().map(name).collect()
}

#[test]
fn a_folder_is_a_data_set() {
    let one = prepared(|_| {});
    let folder = one.folder.path();
    let all = ["train-0-0", "train-0-1", "train-1-0", "train-1-1", "train-2-0", "train-2-1"];
    let records = folder.join("tfrecords");
    let open = |passes: Option<u32>| XlnetData::open(&records, Split::Train, passes);
    assert_eq!(names(&open(None).unwrap()), all);
    assert_eq!(names(&open(Some(2)).unwrap()), all);
    let first = open(Some(1)).unwrap();
    assert_eq!(names(&first), ["train-0-0", "train-1-0", "train-2-0"]);
    let of_first: usize = one.files.iter().step_by(2).map(|(_, batches)| batches).sum();
    assert_eq!(first.num_batch(), of_first as u64);
    assert_eq!(*first.flags(), DataFlags::from(&one.flags));
    let missing =
        |passes| open(Some(passes)).unwrap_err().to_string().contains("has no pass 2 of task 0, and");
    assert!(missing(3) && missing(u32::MAX));
    assert!(open(Some(0)).unwrap_err().to_string().starts_with("0 passes were asked for"));
    // Another split is another data set.
    let dev = XlnetData::open(folder, Split::Dev, None).unwrap_err();
    assert!(dev.to_string().contains("record_info-dev-*.json"), "{dev}");
    // Another folder's come after these.
    let two = prepared(|_| {});
    assert_eq!(one.open().and(two.open()).unwrap().files().len(), 12);
    let other = prepared(|flags| flags.uncased = false);
    let error = one.open().and(other.open()).unwrap_err();
    assert!(error.to_string().contains("records of one data set have the same flags"), "{error}");

    // Several in one folder are told apart by their flags.
    for entry in fs::read_dir(other.folder.path().join("tfrecords")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, records.join(path.file_name().unwrap())).unwrap();
    }
    let error = open(None).unwrap_err().to_string();
    assert!(error.contains("reuse-16.bi") && error.contains("reuse-16.uncased.bi"), "{error}");
    for prepared in [&one, &other] {
        let flags = DataFlags::from(&prepared.flags);
        let data = XlnetData::open_with(folder, &flags, Split::Train, None).unwrap();
        assert_eq!((names(&data), *data.flags()), (all.map(str::to_owned).to_vec(), flags));
    }
    let none = DataFlags { seq_len: 64, ..DataFlags::from(&one.flags) };
    let error = XlnetData::open_with(folder, &none, Split::Train, None).unwrap_err();
    assert!(error.to_string().contains("seqlen-64") && error.to_string().contains("seqlen-32"), "{error}");
}

#[test]
fn folders_that_are_no_data_sets_are_refused() {
    let prepared = prepared(|_| {});
    let records = prepared.folder.path().join("tfrecords");
    let info = records.join(prepared.flags.info_name(1, 0));
    let error = || XlnetData::open(&records, Split::Train, None).unwrap_err();
    let text = fs::read_to_string(&info).unwrap();
    for wrong in ["", "{}", "{\"filenames\": [\"..\"], \"num_batch\": 1}"] {
        fs::write(&info, wrong).unwrap();
        let said = error().to_string();
        assert!(said.starts_with(&format!("{} is not a record_info", info.display())), "{wrong}: {said}");
    }
    fs::write(&info, text).unwrap();
    let odd = records.join("record_info-train-9-0.json");
    fs::write(&odd, "{}").unwrap();
    let said = error().to_string();
    assert!(said.starts_with(&format!("{} is not named as", odd.display())), "{said}");
    fs::remove_file(odd).unwrap();
    let lost = records.join(prepared.flags.records_name(1, 0));
    fs::remove_file(&lost).unwrap();
    assert!(matches!(error(), DataError::MissingRecords { records, .. } if records == lost));
    fs::remove_file(info).unwrap();
    assert_eq!(XlnetData::open(&records, Split::Train, None).unwrap().files().len(), 5);
    for task in 0..3 {
        for pass in 0..2 {
            let none = "{\"filenames\": [], \"num_batch\": 0}";
            fs::write(records.join(prepared.flags.info_name(task, pass)), none).unwrap();
        }
    }
    assert!(error().to_string().contains(" has no batch: "));
    let nothing = records.join("nothing");
    let error = XlnetData::open(&nothing, Split::Train, None).unwrap_err();
    assert!(matches!(error, DataError::Read { path, .. } if path == nothing));
    let none = " has no record_info-test-*.json";
    let error = XlnetData::open(prepared.folder.path(), Split::Test, 1).unwrap_err();
    assert!(error.to_string().contains(none), "{error}");
    let data =
        XlnetData::open_with(prepared.folder.path(), &DataFlags::from(&prepared.flags), Split::Test, None);
    let said = data.unwrap_err().to_string();
    assert!(said.contains(none) && !said.contains("there is one with the flags"), "{said}");
}

#[test]
fn a_feed_keeps_its_epochs_and_may_have_no_other_data() {
    let prepared = prepared(|_| ());
    let data = prepared.open();
    for (feed, epochs) in
        [(Feed::builder(), 0), (Feed::builder().epochs(Epochs::OnePass), 1), (Feed::builder().epochs(3), 3)]
    {
        let feed = data.feed(feed).unwrap();
        assert_eq!((feed.spec().schedule.epochs, feed.spec().schedule.once), (Some(epochs), false));
        assert!(feed.resolve().is_ok());
    }
    for taken in [Feed::builder().lmdb("other data"), data.builder().unwrap()] {
        let error = data.feed(taken).unwrap_err();
        assert!(matches!(&error, DataError::Refused(_)), "{error}");
        assert!(error.to_string().contains("the feed has data already"), "{error}");
    }
}

/// One `record_info` may name a file for each pass, as the script reads it.
#[test]
fn a_record_info_of_several_files_has_a_pass_in_each() {
    let prepared = prepared(|flags| flags.num_predict = Some(5));
    let records = prepared.folder.path().join("tfrecords");
    let file = |pass| prepared.flags.records_name(0, pass);
    let both = format!("{{\"filenames\": [\"/old/{}\", \"/old/{}\"], \"num_batch\": 9}}", file(0), file(1));
    fs::write(records.join(prepared.flags.info_name(0, 0)), both).unwrap();
    for task in 0..3 {
        let _ = fs::remove_file(records.join(prepared.flags.info_name(task, 1)));
        if task > 0 {
            fs::remove_file(records.join(prepared.flags.info_name(task, 0))).unwrap();
        }
    }
    let open = |passes: Option<u32>| XlnetData::open(&records, Split::Train, passes).unwrap();
    assert_eq!((names(&open(None)).len(), open(None).num_batch()), (2, 9));
    assert_eq!((names(&open(Some(1))), open(Some(1)).num_batch()), (vec!["train-0-0".to_owned()], 4));
}
