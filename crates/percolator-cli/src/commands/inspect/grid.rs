//! A sheet of pictures, as a transform makes them.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use percolator::record::{Image, Pixels as Elements};
use percolator::source::{FnSource, SourceError};
use percolator::{Dtype, Feed, Transform};
use percolator_data::inspect::{self, Pixels, Sample};
use percolator_data::scan::Progress;
use percolator_data::{ChannelOrder, DataSet};

use super::{Inspect, PICTURE_SIDE};

/// The most pictures on a sheet: more than anybody looks at.
const CELLS_MAX: u64 = 10_000;
/// Between pictures, in pixels.
const GAP: usize = 4;

impl Inspect {
    /// The file with the sheet: a row for each record, and in it what each of so many epochs makes of it.
    pub(super) fn sheet(&self, data: &DataSet, progress: &Progress) -> anyhow::Result<Vec<u8>> {
        let cells = self.pictures.saturating_mul(self.transformed);
        ensure!(
            cells <= CELLS_MAX,
            "--pictures {} times --transformed {} are {cells} pictures: a sheet has at most {CELLS_MAX}",
            self.pictures,
            self.transformed
        );
        let samples = inspect::samples(data, &self.picture_options(), progress)?;
        ensure!(!samples.is_empty(), "no record has an image: there is nothing to show");
        let transform = self.transform.or(Transform::new())?.levels();
        let mut rows = drawn(data.path(), samples, transform, self.transformed)?;
        // One picture of each record: as wide as it is high.
        if self.transformed == 1 {
            let all: Vec<Pixels> = rows.into_iter().flatten().collect();
            let side = (1..).find(|side| side * side >= all.len()).unwrap_or(1);
            rows = all.chunks(side).map(<[Pixels]>::to_vec).collect();
        }
        Ok(Pixels::sheet(&rows, PICTURE_SIDE, GAP).to_png()?)
    }
}

/// What each of so many epochs makes of each record, small.
fn drawn(
    path: &Path,
    samples: Vec<Sample>,
    transform: Transform,
    epochs: u64,
) -> anyhow::Result<Vec<Vec<Pixels>>> {
    let orders: Vec<ChannelOrder> = samples
        .iter()
        .map(|sample| match sample.channels {
            Some(stored) => stored,
            None if transform.decoded_to().is_rgb() => ChannelOrder::Rgb,
            None => ChannelOrder::Bgr,
        })
        .collect();
    let (records, samples) = (samples.len(), Arc::new(samples));
    let source = FnSource::new(path, records as u64, move |position, value| {
        let sample = usize::try_from(position).ok().and_then(|position| samples.get(position));
        let none = || SourceError::other("the samples", "there is no such sample");
        value.extend_from_slice(&sample.ok_or_else(none)?.datum);
        Ok(())
    });
    let feed =
        Feed::builder().source(source).transform(transform).dtype(Dtype::U8).batch_size(1).epochs(epochs);
    let mut rows = vec![Vec::new(); records];
    let lane = feed.build()?.take_lanes()?.remove(0);
    for (at, batch) in lane.enumerate() {
        let batch = batch.context("the transform cannot be shown")?;
        let row = at % records;
        let (shape, pixels) = (batch.shape().image, Elements::U8(batch.pixels::<u8>()?));
        let picture = Pixels::of(&Image { shape, pixels }, orders[row]);
        rows[row].push(picture.fitted(PICTURE_SIDE, PICTURE_SIDE));
    }
    Ok(rows)
}
