//! What states there are, and what is wrong with bytes that are none.

use std::io::{self, Read, Write};

use percolator::source::FnSource;
use percolator::{Feed, FeedBuilder, RawBytes, Shuffle, Snapshot, Steps};
use percolator_cluster::checkpoint::{
    Checkpoint, Dtype, Parts, Tensor, TensorError, Tensors, read_parts, write_parts,
};
use proptest::prelude::*;

fn bytes_of(state: &dyn Checkpoint) -> Vec<u8> {
    let mut bytes = Vec::new();
    state.write(&mut bytes).unwrap();
    bytes
}

fn fault_of(state: &mut dyn Checkpoint, bytes: &[u8]) -> String {
    let error = state.read(&mut &bytes[..]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    error.to_string()
}

/// A state that is written in steps of these lengths.
struct InSteps(Vec<u8>, usize);

impl Checkpoint for InSteps {
    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        self.0.chunks(self.1).try_for_each(|step| to.write_all(step))
    }

    fn read(&mut self, from: &mut dyn Read) -> io::Result<()> {
        self.0.read(from)
    }
}

fn parts_of(one: &[u8], other: &[u8], step: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (one, other) = (InSteps(one.to_vec(), step), InSteps(other.to_vec(), 100_000));
    write_parts(&mut bytes, &[("one", &one), ("other", &other)]).unwrap();
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// In whatever steps parts are written, and in whatever order they are asked for.
    #[test]
    fn parts_come_back(seed: u8, lengths in (0..300_000_usize, 0..300_000_usize), step in 1..100_000_usize) {
        let bytes = || (0..=u8::MAX).cycle().map(|byte| byte.wrapping_mul(seed));
        let filled = |length: usize| bytes().take(length).collect::<Vec<_>>();
        let (one, other) = (filled(lengths.0), filled(lengths.1));
        let bytes = parts_of(&one, &other, step);
        let (mut found_one, mut found_other) = (vec![1], vec![2]);
        read_parts(&mut &bytes[..], &mut [("other", &mut found_other), ("one", &mut found_one)]).unwrap();
        prop_assert!(found_one == one && found_other == other);
    }

    /// Any byte that is changed is noticed, or is a part's name that is asked for.
    #[test]
    fn a_damaged_byte_of_parts_is_noticed(place: prop::sample::Index, flip in 1..=255_u8) {
        let mut bytes = parts_of(&[7; 300], b"", 9);
        let place = place.index(bytes.len());
        bytes[place] ^= flip;
        let (mut one, mut other) = (Vec::new(), Vec::new());
        let done = read_parts(&mut &bytes[..], &mut [("one", &mut one), ("other", &mut other)]);
        prop_assert!(done.is_err(), "byte {place}");
    }
}

#[test]
fn parts_that_are_not_those_are_named() {
    let bytes = parts_of(b"first", b"second", 2);
    let read = |bytes: &[u8], names: &[&str]| {
        let mut states = vec![Vec::new(); names.len()];
        let mut parts: Vec<_> = names
            .iter()
            .zip(&mut states)
            .map(|(name, state)| (*name, state as &mut dyn Checkpoint))
            .collect();
        read_parts(&mut &bytes[..], &mut parts).unwrap_err().to_string()
    };
    assert_eq!(read(&bytes, &["one"]), r#"the part "other" is not known: there can be ["one"]"#);
    assert_eq!(read(&bytes, &["one", "other", "third"]), r#"the part "third" is missing"#);
    assert!(read(b"model weights go here", &["one"]).contains("parts begin with"));
    for length in 0..bytes.len() {
        let message = read(&bytes[..length], &["one", "other"]);
        assert!(message.contains("ends within"), "{length}: {message}");
    }
    // A state that stops early.
    struct Short;
    impl Checkpoint for Short {
        fn write(&self, _: &mut dyn Write) -> io::Result<()> {
            Ok(())
        }
        fn read(&mut self, from: &mut dyn Read) -> io::Result<()> {
            from.read_exact(&mut [0; 2])
        }
    }
    let mut other = Vec::new();
    let short = read_parts(&mut &bytes[..], &mut [("one", &mut Short), ("other", &mut other)]);
    assert!(short.unwrap_err().to_string().contains(r#"the part "one" has more bytes than its state"#));
    let state = Vec::new();
    for (names, due) in [(["a", "a"], "two parts"), (["", "a"], "1 to 255 bytes")] {
        let error = write_parts(&mut io::sink(), &names.map(|name| (name, &state as &dyn Checkpoint)));
        assert!(error.unwrap_err().to_string().contains(due));
    }
    let mut typed = Parts::new().with("one", vec![0_u8]);
    assert!(typed.get::<String>("one").is_none() && typed.get_mut::<Vec<u8>>("one").is_some());
    assert!(fault_of(&mut typed, &bytes).contains("is not known"));
}

fn tensors() -> Tensors {
    let mut tensors = Tensors::new();
    tensors.insert("layer/W", &[2, 3], &[1.0_f32, -2.0, 3.5, f32::NAN, 0.0, -0.0]).unwrap();
    tensors.insert("layer/b", &[3], &[1_u8, 2, 3]).unwrap();
    tensors.insert("step", &[], &[7_i64]).unwrap();
    tensors.insert("none", &[0, 4], &[0_f64; 0]).unwrap();
    tensors.insert_tensor("half", Tensor::from_bytes(Dtype::BF16, &[2], &[0, 1, 2, 3]).unwrap());
    tensors
}

#[test]
fn tensors_are_a_file_of_the_crate_safetensors() {
    let tensors = tensors();
    let bytes = bytes_of(&tensors);
    let views = tensors.iter().map(|(name, tensor)| {
        let view =
            safetensors::tensor::TensorView::new(tensor.dtype(), tensor.shape().to_vec(), tensor.bytes());
        (name, view.unwrap())
    });
    assert_eq!(bytes, safetensors::serialize(views, None).unwrap());
    let mut taken = Tensors::new();
    taken.read(&mut &bytes[..]).unwrap();
    assert_eq!(taken, tensors);
    assert_eq!(taken.values::<i64>("step").unwrap(), [7]);
    // Into the memory that is there.
    taken.values_mut::<u8>("layer/b").unwrap().fill(9);
    let place = taken.get("layer/b").unwrap().bytes().as_ptr();
    taken.read(&mut &bytes[..]).unwrap();
    assert_eq!((taken.get("layer/b").unwrap().bytes().as_ptr(), &taken), (place, &tensors));
}

#[test]
fn tensors_that_are_not_those_are_named() {
    let bytes = bytes_of(&tensors());
    let fault = |change: fn(&mut Tensors)| {
        let mut state = tensors();
        change(&mut state);
        fault_of(&mut state, &bytes)
    };
    assert_eq!(
        fault(|state| state.insert_tensor("layer/W", Tensor::zeros(Dtype::F32, &[3, 2]).unwrap())),
        r#"the tensor "layer/W" is F32[2, 3], and not F32[3, 2]"#
    );
    assert_eq!(
        fault(|state| state.insert_tensor("step", Tensor::zeros(Dtype::U64, &[]).unwrap())),
        r#"the tensor "step" is I64[], and not U64[]"#
    );
    assert!(
        fault(|state| state.insert_tensor("new", Tensor::zeros(Dtype::U8, &[]).unwrap())).contains("\"new\"")
    );
    assert_eq!(
        fault(|state| *state = {
            let mut fewer = Tensors::new();
            fewer.insert("step", &[], &[0_i64]).unwrap();
            fewer
        }),
        r#"the tensor "half" is not known"#
    );
    for length in 0..bytes.len() {
        let message = fault_of(&mut Tensors::new(), &bytes[..length]);
        assert!(message.contains("end within"), "{length}: {message}");
    }
    // Sizes that only the header has.
    let huge = r#"{"a":{"dtype":"U8","shape":[1125899906842624],"data_offsets":[0,1125899906842624]}}"#;
    let stated = [&(huge.len() as u64).to_le_bytes()[..], huge.as_bytes()].concat();
    assert!(fault_of(&mut Tensors::new(), &stated).contains("end within the tensor \"a\""));
    assert!(fault_of(&mut Tensors::new(), &u64::MAX.to_le_bytes()).contains("100000000 are allowed"));
    assert!(fault_of(&mut Tensors::new(), b"\x02\0\0\0\0\0\0\0[]").contains("the header of the tensors"));

    let mut tensors = tensors();
    let wrong = tensors.insert("x", &[2], &[1.0_f64]);
    assert!(matches!(wrong, Err(TensorError::Size { bytes: 8, .. })));
    assert!(matches!(tensors.values::<f64>("layer/W"), Err(TensorError::Type { .. })));
    assert!(matches!(tensors.values::<f64>("x"), Err(TensorError::Missing { .. })));
    assert!(Tensor::zeros(Dtype::F64, &[usize::MAX, 2]).is_err());
}

fn feed() -> FeedBuilder {
    let numbers = FnSource::new("numbers", 100, |position, value| {
        value.extend_from_slice(&position.to_le_bytes());
        Ok(())
    });
    Feed::builder()
        .source(numbers)
        .decoder(RawBytes::fixed())
        .shuffle(Shuffle::Global)
        .epochs(3)
        .batch_size(7)
}

fn records(steps: &mut Steps<'_>) -> Vec<u64> {
    let batches = steps.next().unwrap().unwrap();
    batches[0].records().iter().map(|record| record.index).collect()
}

/// A model and the place of its feed, restored together, go on as if nothing had been.
#[test]
fn model_and_feed_are_one_state() {
    let parts = || Parts::new().with("model", Tensors::new()).with("feed", None::<Snapshot>);
    let mut training = parts();
    let mut running = feed().build().unwrap();
    let mut steps = running.steps();
    let seen = records(&mut steps);
    *training.get_mut::<Option<Snapshot>>("feed").unwrap() = Some(steps.snapshot().unwrap());
    *training.get_mut::<Tensors>("model").unwrap() = tensors();
    let bytes = bytes_of(&training);
    let due = [records(&mut steps), records(&mut steps)];

    let mut restored = parts();
    restored.read(&mut &bytes[..]).unwrap();
    let snapshot = restored.get::<Option<Snapshot>>("feed").unwrap().clone().unwrap();
    assert_eq!(restored.get::<Tensors>("model"), Some(&tensors()));
    let mut resumed = feed().resume(&snapshot).build().unwrap();
    let mut steps = resumed.steps();
    assert_eq!([records(&mut steps), records(&mut steps)], due);
    assert!(due[0] != seen);

    // Alone it is its text, and one that is there takes another.
    let mut alone = snapshot.clone();
    alone.read(&mut &bytes_of(&snapshot)[..]).unwrap();
    assert_eq!((bytes_of(&snapshot), &alone), (snapshot.to_string().into_bytes(), &snapshot));
    assert!(fault_of(&mut alone, &bytes_of(&snapshot)[..50]).len() > 10);
}

#[test]
fn bytes_that_are_no_snapshot_are_refused() {
    let mut snapshot = None::<Snapshot>;
    assert!(fault_of(&mut snapshot, b"percolator snapshot 9\n").contains("snapshot"));
    assert!(fault_of(&mut snapshot, b"\xff\xfe").contains("UTF-8"));
    snapshot.read(&mut &b""[..]).unwrap();
    assert_eq!(snapshot, None);
    let mut text = "old".to_owned();
    text.read(&mut &b"new"[..]).unwrap();
    assert_eq!(text, "new");
}

/// The format keeps one name for itself: a file with a tensor of that name could be read by nobody.
#[test]
fn a_tensor_with_the_name_of_the_metadata_is_not_written() {
    let mut model = tensors();
    model.insert("__metadata__", &[1], &[1_f32]).unwrap();
    let error = model.write(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("no tensor may have the name \"__metadata__\""), "{error}");
}
