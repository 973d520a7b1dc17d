//! XLNet's input function as a decoder: turns a record of `data_utils.py` into what the model takes.
//!
//! ```text
//! features     the record's five lists
//! order        a permutation, from the record's own random numbers
//! attention    which token may see which, and which are predicted
//! real         f32 or bf16
//! ```

mod attention;
mod features;
mod order;
mod real;

use percolator::batch::FieldError;
use percolator::decoder::{Decoded, WorkerSetup};
use percolator::half::bf16;
use percolator::source::Record;
use percolator::{DecodeFailure, Dtype, Field, RecordDecoder, Row};

use self::attention::Attention;
use self::features::Features;
use self::order::permutation;
use self::real::{Real, real};

/// The most tokens per row: `perm_mask` has the square of that, 4 GiB of f32.
const SEQ_LEN_MAX: usize = 1 << 15;

// The fields, by number.
const INPUT_K: usize = 0;
const INPUT_Q: usize = 1;
const PERM_MASK: usize = 2;
const TARGET: usize = 3;
const TARGET_MASK: usize = 4;
const SEG_ID: usize = 5;
const LABEL: usize = 6;
/// Present only with `num_predict`.
const TARGET_MAPPING: usize = 7;

/// The flags of XLNet's input function, with the script's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputFlags {
    /// Tokens per row.
    pub seq_len: usize,
    /// The length of a row's reused part: the tokens at its front, which the row of the next batch continues.
    pub reuse_len: usize,
    /// The length of a permutation. It must divide `reuse_len` and the number of the other tokens: both
    /// halves of a row are cut into blocks of this length, which are predicted one after the other. Usually
    /// it is `reuse_len`.
    pub perm_size: usize,
    /// How many predictions a row has room for. If not set, every token has a target, and `target_mask` marks
    /// those that count.
    pub num_predict: Option<usize>,
    /// Whether floats are bf16 instead of f32.
    pub use_bfloat16: bool,
}

/// Flags that no input can be made with: which one, what it is, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InputError(String);

/// Turns a record into the arrays that XLNet's input function returns for it. The permutation is drawn from
/// the feed's seed, the epoch and the record's position. So each epoch permutes a record differently, and the
/// bytes are the same for any number of threads.
///
/// | field | elements of a record | what it is |
/// |---|---|---|
/// | `input_k` | i32 \[seq_len\] | the tokens |
/// | `input_q` | float \[seq_len\] | 1 if the token is predicted: the model sees a query in its place |
/// | `perm_mask` | float \[seq_len, seq_len\] | 1 at `[i, j]` if token `i` must not look at token `j` |
/// | `target` | i32 \[num_predict\] or \[seq_len\] | the token to predict; 0 after the last prediction |
/// | `target_mask` | float \[num_predict\] or \[seq_len\] | 1 if the target counts |
/// | `seg_id` | i32 \[seq_len\] | 0 in the reused part and A, 1 in B, 2 for `<cls>` |
/// | `label` | i32 \[1\] | 1 if B follows A in the text |
/// | `target_mapping` | float \[num_predict, seq_len\] | 1 at each prediction's token; with `num_predict` |
///
/// Floats are f32 or bf16. XLNet's model takes the batch as the last axis (`[seq_len, batch]`): transpose the
/// arrays first, as the script does with what its input function returns.
///
/// `<sep>` and `<cls>` (tokens 4 and 3) are not predicted even if they are masked, so a row may have fewer
/// predictions than `num_predict`. More predictions than that are an error.
#[derive(Clone, Debug)]
pub struct XlnetDecoder {
    flags: InputFlags,
    host: u64,
}

impl XlnetDecoder {
    /// A decoder of rows with these flags.
    ///
    /// # Errors
    ///
    /// [`InputError`] if the flags do not agree.
    pub fn new(flags: InputFlags) -> Result<Self, InputError> {
        let InputFlags { seq_len, reuse_len, perm_size, num_predict, .. } = flags;
        if !(2..=SEQ_LEN_MAX).contains(&seq_len) {
            return Err(InputError(format!("seq_len is {seq_len}, and must be from 2 to {SEQ_LEN_MAX}")));
        }
        if !(1..seq_len).contains(&reuse_len) {
            let most = seq_len - 1;
            return Err(InputError(format!(
                "reuse_len is {reuse_len}, and must be from 1 to {most} with seq_len {seq_len}"
            )));
        }
        let rest = seq_len - reuse_len;
        if perm_size == 0 || !reuse_len.is_multiple_of(perm_size) || !rest.is_multiple_of(perm_size) {
            return Err(InputError(format!(
                "perm_size is {perm_size}, and must divide both the {reuse_len} tokens that are reused and \
                 the {rest} others of a row; reuse_len divides both in rows of two equal halves"
            )));
        }
        if let Some(found) = num_predict.filter(|predict| !(1..=seq_len).contains(predict)) {
            return Err(InputError(format!(
                "num_predict is {found}, and must be from 1 to {seq_len}, the tokens of a row"
            )));
        }
        Ok(XlnetDecoder { flags, host: 0 })
    }

    /// Draws this host's own permutations (default: host 0). Each feed numbers its records from 0, so without
    /// this, hosts with different files would draw the same permutations.
    #[must_use]
    pub fn host(self, host: usize) -> Self {
        XlnetDecoder { host: host as u64, ..self }
    }

    /// The flags.
    #[must_use]
    pub fn flags(&self) -> &InputFlags {
        &self.flags
    }

    /// Writes all floats, and the targets.
    fn write<T: Real>(&self, known: &XlnetScratch, row: &mut Row<'_>) -> Result<(), FieldError> {
        let XlnetScratch { features: Features { input, target, .. }, attention, predictions, .. } = known;
        attention.write_predicted(row.values_mut::<T>(INPUT_Q)?);
        attention.write_perm_mask(row.values_mut::<T>(PERM_MASK)?);
        if self.flags.num_predict.is_none() {
            attention.write_targets(input, target, row.values_mut(TARGET)?);
            attention.write_predicted(row.values_mut::<T>(TARGET_MASK)?);
            return Ok(());
        }
        attention.write_predicted_targets(input, target, row.values_mut(TARGET)?);
        let mask = row.values_mut::<T>(TARGET_MASK)?;
        mask.iter_mut().enumerate().for_each(|(number, to)| *to = real(number < *predictions));
        attention.write_mapping(row.values_mut::<T>(TARGET_MAPPING)?);
        Ok(())
    }
}

/// What a worker keeps between records.
#[derive(Clone, Debug)]
pub struct XlnetScratch {
    features: Features,
    attention: Attention,
    order: Vec<i32>,
    predictions: usize,
}

impl RecordDecoder for XlnetDecoder {
    type Scratch = XlnetScratch;

    fn fields(&self, _first: &Record<'_>) -> Decoded<Vec<Field>> {
        let InputFlags { seq_len, num_predict, use_bfloat16, .. } = self.flags;
        let float = if use_bfloat16 { Dtype::Bf16 } else { Dtype::F32 };
        let targets = num_predict.unwrap_or(seq_len);
        let mut fields = vec![
            Field::new("input_k", Dtype::I32, [seq_len]),
            Field::new("input_q", float, [seq_len]),
            Field::new("perm_mask", float, [seq_len, seq_len]),
            Field::new("target", Dtype::I32, [targets]),
            Field::new("target_mask", float, [targets]),
            Field::new("seg_id", Dtype::I32, [seq_len]),
            Field::new("label", Dtype::I32, [1]),
        ];
        fields.extend(num_predict.map(|predict| Field::new("target_mapping", float, [predict, seq_len])));
        Ok(fields)
    }

    fn may_reshape(&self) -> bool {
        false
    }

    fn scratch(&self, _setup: WorkerSetup) -> XlnetScratch {
        let InputFlags { seq_len, reuse_len, perm_size, .. } = self.flags;
        XlnetScratch {
            features: Features::new(seq_len),
            attention: Attention::new(seq_len, reuse_len),
            order: vec![0; perm_size],
            predictions: 0,
        }
    }

    fn scratch_bytes(&self, _first: &Record<'_>) -> Decoded<Vec<(&'static str, usize)>> {
        let InputFlags { seq_len, perm_size, .. } = self.flags;
        let bytes = Features::bytes(seq_len) + Attention::bytes(seq_len) + size_of::<i32>() * perm_size;
        Ok(vec![("workers: the tokens of an XLNet row", bytes)])
    }

    fn decode(&self, record: &Record<'_>, row: &mut Row<'_>, scratch: &mut XlnetScratch) -> Decoded {
        let XlnetScratch { features, attention, order, predictions } = scratch;
        features.read(record.value)?;
        // Hosts number the records of their own files: records of several hosts have the same number.
        let mut draws = row.random().fork(self.host);
        for half in [0..self.flags.reuse_len, self.flags.reuse_len..self.flags.seq_len] {
            permutation(|end| draws.below(end), order);
            attention.set(half.start, &features.input[half.clone()], &features.is_masked[half], order);
        }
        *predictions = attention.predictions();
        if let Some(allowed) = self.flags.num_predict.filter(|allowed| *predictions > *allowed) {
            return Err(DecodeFailure::new(format!(
                "{predictions} tokens are predicted, but num_predict is {allowed}; set it to the num_predict \
                 that the record was made with"
            )));
        }
        row.write(INPUT_K, &features.input)?;
        row.write(SEG_ID, &features.seg_id)?;
        row.write(LABEL, &features.label)?;
        match self.flags.use_bfloat16 {
            true => self.write::<bf16>(scratch, row)?,
            false => self.write::<f32>(scratch, row)?,
        }
        Ok(())
    }
}
