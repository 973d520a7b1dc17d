//! What consumers have seen, label by label and pixel by pixel.

use std::collections::BTreeMap;
use std::fmt;

use percolator::Batch;
use percolator::batch::FieldError;

/// What the consumers have seen.
#[derive(Default)]
pub(crate) struct Tally {
    labels: BTreeMap<i32, u64>,
    pixels: u64,
    pixel_sum: f64,
}

impl Tally {
    pub(crate) fn add(&mut self, batch: &Batch) -> Result<(), FieldError> {
        let pixels = batch.pixels()?;
        self.pixels += pixels.len() as u64;
        self.pixel_sum += sum(pixels);
        for &label in batch.labels()? {
            *self.labels.entry(label).or_default() += 1;
        }
        Ok(())
    }

    pub(crate) fn merge(mut self, other: Tally) -> Tally {
        self.pixels += other.pixels;
        self.pixel_sum += other.pixel_sum;
        for (label, count) in other.labels {
            *self.labels.entry(label).or_default() += count;
        }
        self
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_count = || self.labels.iter().map(|(label, count)| (count, label));
        let (Some(first), Some(last), Some((rarest_count, rarest)), Some((commonest_count, commonest))) =
            (self.labels.keys().next(), self.labels.keys().next_back(), by_count().min(), by_count().max())
        else {
            return f.write_str("no record was seen");
        };
        let (records, labels) = (self.labels.values().sum::<u64>(), self.labels.len());
        writeln!(f, "the consumers saw {records} records of {labels} labels, {first} to {last}")?;
        writeln!(f, "the rarest label is {rarest}: {rarest_count} records")?;
        writeln!(f, "the commonest label is {commonest}: {commonest_count} records")?;
        #[expect(clippy::cast_precision_loss, reason = "a mean needs no more than 53 bits")]
        let mean = self.pixel_sum / self.pixels as f64;
        write!(f, "the mean pixel is {mean:.4}, after the transform")
    }
}

/// Sums eight numbers side by side. A single sum would be slower than the feed: additions of floats keep
/// their order, so each would wait for the one before it.
fn sum(pixels: &[f32]) -> f64 {
    let mut sums = [0.0; 8];
    for chunk in pixels.chunks(sums.len()) {
        for (sum, pixel) in sums.iter_mut().zip(chunk) {
            *sum += f64::from(*pixel);
        }
    }
    sums.iter().sum()
}
