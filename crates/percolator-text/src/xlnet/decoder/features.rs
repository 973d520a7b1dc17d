//! A record's five features, as `tf.io.parse_single_example` reads them.

use percolator::Dtype;
use percolator::batch::RecordCause;
use percolator::example::{Example, Feature, FeatureError, Int64List, Kind};

/// The user of the features, as messages name it.
const WANTED: &str = "XLNet's input function";

const NAMES: [&str; 5] = ["input", "target", "seg_id", "label", "is_masked"];

/// The features of a record. Kept from record to record, as scratch memory.
#[derive(Clone, Debug)]
pub(super) struct Features {
    pub(super) input: Vec<i32>,
    /// The token that follows each token.
    pub(super) target: Vec<i32>,
    pub(super) seg_id: Vec<i32>,
    /// Whether B follows A. One number.
    pub(super) label: [i32; 1],
    pub(super) is_masked: Vec<bool>,
}

impl Features {
    pub(super) fn new(seq_len: usize) -> Self {
        let tokens = vec![0; seq_len];
        Features {
            input: tokens.clone(),
            target: tokens.clone(),
            seg_id: tokens,
            label: [0],
            is_masked: vec![false; seq_len],
        }
    }

    /// The size in bytes of a value for rows of this many tokens.
    pub(super) fn bytes(seq_len: usize) -> usize {
        (3 * size_of::<i32>() + 1).saturating_mul(seq_len)
    }

    /// Reads a record.
    pub(super) fn read(&mut self, record: &[u8]) -> Result<(), RecordCause> {
        let example = Example::parse(record)?;
        let mut found = [None; NAMES.len()];
        // Of several features with one name, the last one counts.
        for (name, feature) in example.features().entries() {
            if let Some(number) = NAMES.iter().position(|known| *known == name) {
                found[number] = Some(feature);
            }
        }
        let list = |number: usize| match found[number] {
            Some(Feature::Ints(list)) => Ok((NAMES[number], list)),
            other => Err(unfit(example, NAMES[number], other)),
        };
        read_tokens(list(0)?, &mut self.input)?;
        read_tokens(list(1)?, &mut self.target)?;
        read_tokens(list(2)?, &mut self.seg_id)?;
        read_tokens(list(3)?, &mut self.label)?;
        read(list(4)?, &mut self.is_masked, |value| Ok(value != 0))
    }
}

fn read_tokens((name, list): (&'static str, Int64List<'_>), out: &mut [i32]) -> Result<(), RecordCause> {
    read((name, list), out, |value| value.try_into().map_err(|_| value))
}

/// Reads a list of exactly as many values as there is room for. A value that `as_element` refuses is an
/// error.
fn read<T>(
    (name, list): (&'static str, Int64List<'_>),
    out: &mut [T],
    as_element: impl Fn(i64) -> Result<T, i64>,
) -> Result<(), RecordCause> {
    let allowed = out.len();
    let (mut values, mut room) = (list.iter(), out.iter_mut());
    for (index, to) in room.by_ref().enumerate() {
        let Some(value) = values.next() else { return Err(wrong_count(name, index, allowed)) };
        *to = as_element(value).map_err(|found| out_of_range(name, index, found))?;
    }
    match values.count() {
        0 => Ok(()),
        more => Err(wrong_count(name, allowed + more, allowed)),
    }
}

#[cold]
fn wrong_count(name: &str, found: usize, allowed: usize) -> RecordCause {
    let (feature, wanted) = (name.to_owned(), WANTED.to_owned());
    FeatureError::Count { feature, wanted, found, allowed, is_most: false }.into()
}

#[cold]
fn out_of_range(name: &str, index: usize, found: i64) -> RecordCause {
    let (feature, wanted) = (name.to_owned(), WANTED.to_owned());
    FeatureError::Range { feature, wanted, index, found, dtype: Dtype::I32 }.into()
}

/// The error for a feature that is not a list of integers.
#[cold]
fn unfit(example: Example<'_>, name: &str, found: Option<Feature<'_>>) -> RecordCause {
    let (feature, wanted) = (name.to_owned(), WANTED.to_owned());
    let error = match found.map(Feature::kind) {
        None => {
            let mut features: Vec<String> =
                example.features().entries().map(|(name, _)| name.to_owned()).collect();
            features.sort();
            features.dedup();
            FeatureError::Missing { feature, wanted, features }
        }
        Some(None) => FeatureError::Unset { feature, wanted },
        Some(Some(found)) => FeatureError::Kind { feature, wanted, found, allowed: Kind::Int64 },
    };
    error.into()
}
