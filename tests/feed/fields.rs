//! Records of any kind: caller-implemented decoders, their fields, and what a training loop sees of them.
//! What is delivered is compared with lists that are computed separately; a decoder's mistake must name the
//! record and the field.

#![expect(unsafe_code, reason = "what a framework does with a tensor is C")]
#![allow(clippy::unwrap_used, clippy::multiple_unsafe_ops_per_block, reason = "tests")]

use std::collections::BTreeMap;

use percolator::batch::{Element, FieldError};
use percolator::batch::{FieldKind, FieldsError};
use percolator::decoder::Decoded;
use percolator::decoder::{RecordCause, WorkerSetup};
use percolator::feed::ConfigError;
use percolator::source::{FnSource, Record, SourceError};
use percolator::{
    DecodeFailure, Device, Dtype, Epochs, Feed, FeedBuilder, FeedError, Field, LastBatch, RawBytes,
    RecordDecoder, Row, Shuffle, Tokens, Transform,
};

use crate::common::process::must_end;

const RECORDS: u64 = 23;

/// The record at position `p`: 3 bytes of image, and `p % 5` tokens.
fn value(position: u64) -> Vec<u8> {
    let byte = u8::try_from(position).unwrap();
    let tokens = (0..byte % 5).map(|at| byte + at);
    [byte, byte + 1, byte + 2].into_iter().chain(tokens).collect()
}

fn source() -> FnSource {
    FnSource::new("made", RECORDS, |position, to| {
        to.extend(value(position));
        Ok(())
    })
}

fn fields() -> [Field; 5] {
    [
        Field::new("image", Dtype::U8, [3, 1]),
        Field::ragged("tokens", Dtype::I32, 4),
        Field::padded("padded", Dtype::I64, 4, -1),
        Field::scalar("noise", Dtype::F64),
        Field::scalar("is_even", Dtype::Bool),
    ]
}

fn decode(record: &Record<'_>, row: &mut Row<'_>) -> Decoded {
    let (image, tokens) = record.value.split_at_checked(3).ok_or_else(|| DecodeFailure::new("no image"))?;
    row.write("image", image)?;
    let tokens: Vec<i32> = tokens.iter().map(|&token| token.into()).collect();
    row.write("tokens", &tokens)?;
    let wide: Vec<i64> = tokens.iter().map(|&token| token.into()).collect();
    row.write("padded", &wide)?;
    row.set("noise", row.random().unit())?;
    row.set("is_even", image[0] % 2 == 0)?;
    Ok(())
}

fn feed() -> FeedBuilder {
    Feed::builder().source(source()).decode(fields(), decode).batch_size(4)
}

/// What a feed of one device delivers, by record.
type Row1 = (Vec<u8>, Vec<i32>, Vec<i64>, u64, bool);

fn rows(feed: FeedBuilder) -> BTreeMap<(u64, u64), Row1> {
    let mut rows = BTreeMap::new();
    for batch in feed.build().unwrap() {
        let batch = batch.unwrap();
        let (images, tokens) = (batch.get::<u8>("image").unwrap(), batch.ragged::<i32>("tokens").unwrap());
        let (padded, noise) = (batch.get::<i64>("padded").unwrap(), batch.get::<f64>("noise").unwrap());
        let evens = batch.get::<bool>("is_even").unwrap();
        assert_eq!(&*images.shape(), &[batch.rows(), 3, 1]);
        assert_eq!(tokens.rows().len(), batch.rows());
        let lengths = batch.field("padded").unwrap().lengths().unwrap();
        for (row, id) in batch.records().iter().enumerate() {
            assert_eq!(usize::try_from(lengths[row]).unwrap(), tokens.row(row).len());
            let seen = (
                images.row(row).to_vec(),
                tokens.row(row).to_vec(),
                padded.row(row).to_vec(),
                noise[row].to_bits(),
                evens[row],
            );
            assert!(rows.insert((id.epoch, id.index), seen).is_none(), "{id} came twice");
        }
    }
    rows
}

#[test]
fn records_become_the_fields_that_a_closure_writes() {
    must_end("feeds of own records", || {
        let once = rows(feed().epochs(2).threads(1));
        assert_eq!(once.len(), 2 * usize::try_from(RECORDS).unwrap());
        for (&(_, index), (image, tokens, padded, noise, is_even)) in &once {
            let value = value(index);
            let wanted: Vec<i32> = value[3..].iter().map(|&token| token.into()).collect();
            assert_eq!((&image[..], tokens), (&value[..3], &wanted));
            let filled: Vec<i64> = wanted.iter().map(|&token| token.into()).chain([-1; 4]).take(4).collect();
            assert_eq!((padded, *is_even), (&filled, index % 2 == 0));
            assert!((0.0..1.0).contains(&f64::from_bits(*noise)));
        }
        let noises: std::collections::BTreeSet<u64> = once.values().map(|row| row.3).collect();
        assert_eq!(
            noises.len(),
            once.len(),
            "each record has random numbers of its own, others in each epoch"
        );
        // Neither threads, nor the order, nor the batch size changes a record.
        assert_eq!(rows(feed().epochs(2).threads(3).shuffle(Shuffle::Global).batch_size(5)), once);
        assert_ne!(rows(feed().epochs(2).seed(1)), once, "the seed does");
    });
}

#[test]
fn short_batches_are_padded_field_by_field() {
    let mut feed = feed().batch_size(10).epochs(1).last_batch(LastBatch::Pad).build().unwrap();
    let last = feed.epoch().unwrap().last().unwrap().unwrap();
    assert_eq!((last.len(), last.rows(), last.mask().filter(|&is_real| is_real).count()), (3, 10, 3));
    let tokens = last.ragged::<i32>("tokens").unwrap();
    assert!(tokens.rows().skip(3).all(<[i32]>::is_empty));
    assert_eq!(tokens.offsets().len(), 11);
    assert_eq!(last.get::<i64>("padded").unwrap().row(9), [-1; 4]);
    assert!(last.get::<u8>("image").unwrap()[9..].iter().all(|&byte| byte == 0));
    assert_eq!(last.field("padded").unwrap().lengths().unwrap()[3..], [0; 7]);
}

#[test]
fn an_epoch_comes_again_and_a_feed_is_its_batches() {
    must_end("epochs of one feed", || {
        let names = |batch: Result<percolator::Batch, FeedError>| batch.unwrap().records().to_vec();
        let whole: Vec<_> = feed().epochs(1).build().unwrap().into_iter().map(names).collect();
        assert_eq!(whole.concat().len(), usize::try_from(RECORDS).unwrap());
        for of in [feed().epochs(1), feed().epochs(Epochs::OnePass)] {
            let mut feed = of.build().unwrap();
            for round in 0..3 {
                let epoch: Vec<_> = feed.epoch().unwrap().map(names).collect();
                assert_eq!(epoch, whole, "round {round}");
            }
        }
        // Whether or not its end was seen.
        let mut once = feed().epochs(Epochs::OnePass).build().unwrap();
        for _round in 0..2 {
            assert_eq!(once.epoch().unwrap().take(6).filter(Result::is_ok).count(), 6);
        }
        let mut broken = but_the_seventh(|_, _| Err(DecodeFailure::new("no"))).build().unwrap();
        let error = broken.epoch().unwrap().find_map(Result::err).unwrap();
        assert_eq!(broken.epoch().unwrap_err(), error, "it does not begin again after an error");
        let mut feed = feed().epochs(2).build().unwrap();
        let first = feed.epoch().unwrap().next().unwrap().map(|batch| batch.records()[0].index);
        assert_eq!(first, Ok(0));
        let rest: Vec<_> = feed.epoch().unwrap().map(names).collect();
        assert_eq!(rest, whole[1..], "what was left of the first");
        let next: Vec<_> = feed.epoch().unwrap().map(names).collect();
        assert_eq!((next.len(), next[0][0].epoch), (whole.len(), 1));
        assert_eq!(feed.epoch().unwrap().next().unwrap().unwrap().records()[0].epoch, 0);
    });
}

#[test]
fn a_feed_of_several_devices_is_no_iterator_of_batches() {
    let devices = || feed().devices((0..2).map(Device::host)).epochs(1).build().unwrap();
    let error = FeedError::Config(ConfigError::SeveralLanes { devices: 2 });
    assert_eq!(devices().epoch().unwrap_err(), error);
    let mut batches = devices().into_iter();
    assert_eq!(batches.next().unwrap().unwrap_err(), error);
    assert!(batches.next().is_none());
    let mut taken = feed().epochs(1).build().unwrap();
    drop(taken.take_lanes().unwrap());
    assert_eq!(taken.epoch().unwrap_err(), FeedError::LanesTaken);
}

fn failure(feed: FeedBuilder) -> FeedError {
    let batches = feed.build().unwrap();
    batches.into_iter().find_map(Result::err).expect("one of the records is wrong")
}

fn cause(feed: FeedBuilder) -> (u64, RecordCause, String) {
    let error = failure(feed);
    let message = error.to_string();
    let FeedError::Record(record) = error else { panic!("{message}") };
    assert!(message.starts_with("made: epoch 0, record 7, key \"00000007\": "), "{message}");
    (record.id.index, record.cause.clone(), message)
}

/// A feed whose record 7 another decoder handles.
fn but_the_seventh(
    bad: impl Fn(&Record<'_>, &mut Row<'_>) -> Decoded + Send + Sync + 'static,
) -> FeedBuilder {
    let decode = move |record: &Record<'_>, row: &mut Row<'_>| match record.id.index {
        7 => bad(record, row),
        _ => decode(record, row),
    };
    Feed::builder().source(source()).decode(fields(), decode).batch_size(4).epochs(1)
}

#[test]
fn what_a_decoder_does_wrong_names_record_and_field() {
    must_end("decoders that fail", || {
        let (_, found, message) = cause(but_the_seventh(|record, row| {
            decode(record, row)?;
            row.write("tokens", &[1_i32; 5]).map_err(DecodeFailure::from)
        }));
        let field = || "tokens".to_owned();
        let length = FieldError::Length { field: field(), found: 5, allowed: 4, is_most: true };
        assert_eq!(found, RecordCause::Field(length));
        assert!(
            message.ends_with("field \"tokens\" takes at most 4 element(s) a record, but was given 5"),
            "{message}"
        );

        let (_, found, _) = cause(but_the_seventh(|_, row| Ok(row.write("image", &[1_u8; 3])?)));
        assert_eq!(found, RecordCause::Field(FieldError::NotWritten { field: field() }));

        // The memory there still holds an earlier batch.
        let unwritten = RecordCause::Field(FieldError::NotWritten { field: field() });
        let (_, found, _) = cause(but_the_seventh(|_, row| Ok(row.set_len("tokens", 2)?)));
        assert_eq!(found, unwritten);
        let (_, found, _) = cause(but_the_seventh(|record, row| {
            decode(record, row)?;
            row.set_len("image", 3)?;
            row.set_len("tokens", 4).map_err(DecodeFailure::from)
        }));
        assert_eq!(found, unwritten);

        let (_, found, _) = cause(but_the_seventh(|_, row| Ok(row.set("noise", 1_f32)?)));
        let dtype = FieldError::Dtype { field: "noise".to_owned(), found: Dtype::F64, wanted: Dtype::F32 };
        assert_eq!(found, RecordCause::Field(dtype));

        let (_, found, _) = cause(but_the_seventh(|_, _| Err("7x".parse::<i32>().unwrap_err().into())));
        assert_eq!(found, RecordCause::Other { message: "invalid digit found in string".to_owned() });

        let (_, found, message) = cause(but_the_seventh(|_, _| panic!("seven")));
        assert!(matches!(found, RecordCause::Panicked { .. }) && message.contains("seven"), "{message}");
    });
}

#[test]
fn sources_of_functions_say_what_is_wrong_with_them() {
    let source = FnSource::new("remote", 9, |position, value| match position {
        5 => Err(SourceError::other("remote", "the line is dead")),
        _ => {
            value.push(1);
            Ok(())
        }
    });
    let error = failure(Feed::builder().source(source).decoder(RawBytes::fixed()).batch_size(2).epochs(1));
    assert!(error.to_string().contains("remote: the line is dead"), "{error}");
}

#[test]
fn what_cannot_be_decoded_so_is_refused_when_the_feed_is_built() {
    let build = |feed: FeedBuilder| feed.build().map(drop).unwrap_err();
    let over = || Feed::builder().source(source());
    let both = over().decoder(RawBytes::fixed()).decode(fields(), decode);
    let (one, other) = (".decoder(...)", ".decode(...)");
    assert_eq!(build(both), FeedError::Config(ConfigError::TwoDecoders { one, other }));
    for (option, feed) in [
        ("transform", feed().transform(Transform::new().crop(1))),
        ("dtype", feed().dtype(Dtype::F16)),
        ("labels_i64", feed().labels_i64(true)),
    ] {
        assert_eq!(build(feed), FeedError::Config(ConfigError::ImageOption { option }));
    }
    let twice = over().decode([Field::scalar("a", Dtype::I8), Field::scalar("a", Dtype::I8)], decode);
    let error = FieldsError::Twice { field: "a".to_owned() };
    assert_eq!(build(twice), FeedError::Config(ConfigError::Fields(error)));
    let image = over().dtype(Dtype::I64);
    assert!(build(image).to_string().contains("no image has elements of i64"));
    let large = over().decode([Field::new("a", Dtype::I64, [usize::MAX / 64])], decode).batch_size(9);
    assert!(matches!(build(large), FeedError::Config(ConfigError::BatchTooLarge { .. })));
}

#[test]
fn raw_bytes_and_tokens_are_what_lies_in_the_records() {
    let of = |records, bytes: fn(u64) -> Vec<u8>| {
        FnSource::new("made", records, move |position, value| {
            value.extend(bytes(position));
            Ok(())
        })
    };
    fn all<T: Element + Copy>(feed: FeedBuilder, field: &str) -> Vec<T> {
        let batches = feed.batch_size(2).epochs(1).build().unwrap().into_iter();
        batches.flat_map(|batch| batch.unwrap().get::<T>(field).unwrap().to_vec()).collect()
    }
    let four = |position: u64| u32::try_from(position).unwrap().to_le_bytes().to_vec();
    let fixed = Feed::builder().source(of(3, four)).decoder(RawBytes::fixed());
    assert_eq!(all::<u8>(fixed, "data"), [0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]);
    let any = |position: u64| vec![7; usize::try_from(position).unwrap()];
    let ragged = Feed::builder().source(of(4, any)).decoder(RawBytes::up_to(3)).batch_size(4).epochs(1);
    let batch = ragged.build().unwrap().into_iter().next().unwrap().unwrap();
    assert_eq!(batch.ragged::<u8>("data").unwrap().rows().map(<[u8]>::len).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let error = FieldError::Ragged { field: "data".to_owned() };
    assert_eq!(batch.get::<u8>("data").unwrap_err(), error);
    let too_long = Feed::builder().source(of(5, any)).decoder(RawBytes::up_to(3)).epochs(1);
    assert!(failure(too_long).to_string().contains("at most 3"));

    let words = |position: u64| [0xfffe, u16::try_from(position).unwrap()].map(u16::to_le_bytes).concat();
    let tokens = || Feed::builder().source(of(3, words));
    assert_eq!(all::<i32>(tokens().decoder(Tokens::u16(2)), "tokens"), [0xfffe, 0, 0xfffe, 1, 0xfffe, 2]);
    assert_eq!(all::<i64>(tokens().decoder(Tokens::u16(2).as_i64()), "tokens")[4..], [0xfffe, 2]);
    assert_eq!(all::<u16>(tokens().decoder(Tokens::u16(2).as_stored()), "tokens")[2..4], [0xfffe, 1]);
    assert_eq!(all::<i32>(tokens().decoder(Tokens::i32(1)), "tokens"), [0xfffe, 0x1_fffe, 0x2_fffe]);
    assert_eq!(all::<i64>(tokens().decoder(Tokens::i32(1).as_i64()), "tokens")[2], 0x2_fffe);
    let short = failure(tokens().decoder(Tokens::u16(3)).epochs(1)).to_string();
    assert!(short.contains("exactly 3 element(s) a record, but was given 2"), "{short}");
    let odd = Feed::builder().source(of(3, |_| vec![1; 3])).decoder(Tokens::u16(1)).epochs(1);
    assert!(failure(odd).to_string().contains("3 bytes are not 1 tokens of 2 bytes each"));
}

/// Records as long as the first one, decoded with scratch memory.
struct Summing;

impl RecordDecoder for Summing {
    type Scratch = Vec<u64>;

    fn fields(&self, first: &Record<'_>) -> Decoded<Vec<Field>> {
        Ok(vec![Field::new("sums", Dtype::U64, [first.value.len()])])
    }

    fn scratch(&self, _setup: WorkerSetup) -> Vec<u64> {
        Vec::new()
    }

    fn decode(&self, record: &Record<'_>, row: &mut Row<'_>, scratch: &mut Vec<u64>) -> Decoded {
        scratch.clear();
        scratch.extend(record.value.iter().scan(0, |sum, &byte| {
            *sum += u64::from(byte);
            Some(*sum)
        }));
        Ok(row.write(0, scratch)?)
    }

    fn scratch_bytes(&self, first: &Record<'_>) -> Decoded<Vec<(&'static str, usize)>> {
        Ok(vec![("workers: sums", 8 * first.value.len())])
    }
}

#[test]
fn a_decoder_of_ones_own_has_scratch_memory_that_is_budgeted() {
    let source = FnSource::new("made", 40, |position, value| {
        value.extend([1, 2, u8::try_from(position).unwrap()]);
        Ok(())
    });
    let mut feed =
        Feed::builder().source(source).decoder(Summing).batch_size(8).threads(2).epochs(1).build().unwrap();
    let line = feed.memory_budget().lines.iter().find(|line| line.holder == "workers: sums").unwrap();
    assert_eq!((line.count, line.bytes_each), (2, 24));
    assert!(matches!(feed.layout().fields()[0].kind(), FieldKind::Fixed(shape) if *shape == [3]));
    let mut seen = 0;
    for batch in feed.epoch().unwrap() {
        let batch = batch.unwrap();
        let sums = batch.get::<u64>("sums").unwrap();
        for (row, id) in batch.records().iter().enumerate() {
            assert_eq!(sums.row(row), [1, 3, 3 + id.index]);
            seen += 1;
        }
    }
    assert_eq!(seen, 40);
}

#[test]
fn arrays_that_own_their_memory_give_the_batch_back_when_the_last_goes() {
    must_end("a ring of one batch", || {
        let mut feed = feed().prefetch(1).epochs(1).build().unwrap();
        let mut lane = feed.take_lanes().unwrap().remove(0);
        let mut arrays = lane.next().unwrap().unwrap().into_bytes().unwrap();
        let named: Vec<String> = arrays.iter().map(|array| format!("{array:?}")).collect();
        let wanted = [
            "OwnedArray(image: u8 4x3x1)",
            "OwnedArray(tokens: i32 6)",
            "OwnedArray(tokens.offsets: i64 5)",
            "OwnedArray(padded: i64 4x4)",
            "OwnedArray(padded.lengths: i64 4)",
            "OwnedArray(noise: f64 4)",
            "OwnedArray(is_even: bool 4)",
        ];
        assert_eq!(named, wanted);
        let last = arrays.swap_remove(0);
        drop(arrays);
        let batch = last.batch();
        assert_eq!((batch.records().len(), batch.mask().filter(|is_record| *is_record).count()), (4, 4));
        assert!(lane.try_next().unwrap().batch().is_none(), "one of them is still there");
        let image = std::thread::spawn(move || last.as_ref().to_vec()).join().unwrap();
        assert_eq!(image, [0, 1, 2, 1, 2, 3, 2, 3, 4, 3, 4, 5]);
        assert_eq!(lane.next().unwrap().unwrap().records()[0].index, 4);
    });
}

#[test]
fn a_batch_lends_the_arrays_that_it_can_be_split_into() {
    for batch in feed().batch_size(10).epochs(1).last_batch(LastBatch::Pad).build().unwrap() {
        let batch = batch.unwrap();
        let lent: Vec<_> = batch
            .arrays()
            .map(|array| (array.name.to_owned(), array.dtype, array.shape, array.bytes.to_vec()))
            .collect();
        let owned = batch.into_bytes().unwrap();
        let owned: Vec<_> = owned
            .iter()
            .map(|array| (array.name().to_owned(), array.dtype(), array.shape(), array.as_ref().to_vec()))
            .collect();
        assert_eq!((lent.len(), &lent), (7, &owned));
    }
}

#[test]
fn tensors_of_all_arrays_are_handed_on_with_a_version_and_without() {
    let mut feed = feed().epochs(1).build().unwrap();
    let batch = feed.epoch().unwrap().next().unwrap().unwrap();
    let mut tensors = batch.into_dlpack().unwrap();
    assert_eq!(tensors.names().len(), 7);
    let code = |name: &str| {
        let dtype = tensors.get(name).unwrap().tensor().dtype;
        (dtype.code, dtype.bits)
    };
    assert_eq!([code("noise"), code("is_even"), code("tokens.offsets")], [(2, 64), (6, 8), (0, 64)]);
    let raw = tensors.take("tokens").unwrap().into_raw_unversioned();
    drop(tensors);
    // SAFETY: the tensor lives until its deleter is called.
    let tensor = unsafe { &(*raw).dl_tensor };
    // SAFETY: a tensor has `ndim` extents, here one.
    assert_eq!((tensor.ndim, unsafe { *tensor.shape }), (1, 6));
    // SAFETY: it has six elements of 32 bits.
    let tokens = unsafe { std::slice::from_raw_parts(tensor.data.cast::<i32>(), 6) };
    assert_eq!(tokens, [1, 2, 3, 3, 4, 5]);
    // SAFETY: as above.
    let deleter = unsafe { (*raw).deleter }.unwrap();
    // SAFETY: it is called once.
    unsafe { deleter(raw) };
}

/// A loop over nothing trains on nothing: what is not there, or of another type, is an error that names what
/// there is.
#[test]
fn a_batch_without_labels_or_lengths_says_so_and_names_its_fields() {
    let batch = feed().build().unwrap().into_iter().next().unwrap().unwrap();
    for error in [batch.labels().unwrap_err(), batch.labels_f32().unwrap_err()] {
        let FieldError::Unknown { wanted, fields } = &error else { panic!("{error}") };
        assert!(wanted.contains("label"), "{error}");
        for field in batch.fields() {
            assert!(fields.contains(&field.to_string()), "{error}");
        }
    }
    for name in ["image", "tokens", "noise"] {
        let field = batch.fields().iter().find(|field| field.name() == name).unwrap().to_string();
        let error = batch.field(name).unwrap().lengths().unwrap_err();
        assert_eq!(error, FieldError::NotPadded { field });
    }
    assert_eq!(batch.field("padded").unwrap().lengths().unwrap(), [0, 1, 2, 3]);

    let field = |dtype| [Field::scalar("label", dtype), Field::scalar("label_f32", dtype)];
    let zeros = |_: &Record<'_>, row: &mut Row<'_>| {
        row.set("label", 0_i64)?;
        row.set("label_f32", 0_i64)?;
        Ok(())
    };
    let feed = Feed::builder().source(source()).decode(field(Dtype::I64), zeros);
    let batch = feed.build().unwrap().into_iter().next().unwrap().unwrap();
    let of_type = |wanted, field: &str| FieldError::Dtype { field: field.into(), found: Dtype::I64, wanted };
    assert_eq!(batch.labels().unwrap_err(), of_type(Dtype::I32, "label"));
    assert_eq!(batch.labels_f32().unwrap_err(), of_type(Dtype::F32, "label_f32"));
}
