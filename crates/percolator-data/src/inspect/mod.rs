//! What a data set holds: kind, keys, sizes, shapes, encodings, labels, duplicates, and what a net would say.
//!
//! ```text
//! tally        what one record says, worked out on all threads, and put together in order
//!   v          keys, features, duplicates: what is kept of the records; report: what becomes of it
//! net          the layer that would read the data set
//! text, html   the report to be read
//! pictures     a few records decoded, which html shows
//! record       one record by itself
//! samples      a few records as they are, to be fed
//! ```
//!
//! Memory is bounded for any data set: 2^20 labels, 1000 shapes, 1000 features, and the hashes of 2^23
//! records are kept, and the report says what exceeds them.

mod duplicates;
mod features;
mod html;
mod keys;
mod net;
mod pictures;
mod record;
mod report;
mod samples;
mod tally;
mod text;

use std::num::NonZeroUsize;

use percolator::decoder::ImageFileDecoder;

use self::features::FeatureTally;
use self::tally::{Facts, Tally, WhatToHash};
use crate::content::{Content, Values};
use crate::open::DataSet;
use crate::scan::{self, Progress, Scan, ScanError, Selection};

pub use self::duplicates::{DuplicateGroup, Duplicates};
pub use self::features::FeatureReport;
pub use self::html::html;
pub use self::keys::Keys;
pub use self::keys::key_text;
pub use self::pictures::{PICTURES_MAX, PictureOptions, Pixels, ShownPicture, pictures};
pub use self::record::{FieldText, Record, RecordError, Which, record};
pub use self::report::{EncodingCount, LabelCount, Labels, Report, ShapeCount, SizeCount, Sizes};
pub use self::samples::{Sample, samples};
pub use self::text::{INTERLEAVED, text};

/// How many records are read.
#[derive(Clone, Copy, Debug)]
pub struct InspectOptions {
    /// Looks at every record, and decodes it.
    pub all: bool,
    /// Otherwise, reads that many records, evenly spread, and only the headers of their images.
    pub sample: u64,
    /// What values are; by default what [most records](Content::of) are.
    pub content: Option<Content>,
    /// How many threads work; by default one for each processor.
    pub threads: Option<NonZeroUsize>,
}

impl Default for InspectOptions {
    fn default() -> Self {
        InspectOptions { all: false, sample: 10_000, content: None, threads: None }
    }
}

/// Looks at a data set.
///
/// ```no_run
/// use percolator_data::DataSet;
/// use percolator_data::inspect::{InspectOptions, inspect};
/// use percolator_data::scan::Progress;
///
/// let data = DataSet::open("train_lmdb")?;
/// let report = inspect(&data, &InspectOptions::default(), &Progress::new())?;
/// println!("{} records of {}", report.records, report.content);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`ScanError`] if the data set cannot be read, or there is no memory to decode an image. A record that
/// can be read, and not decoded, is counted.
pub fn inspect(data: &DataSet, options: &InspectOptions, progress: &Progress) -> Result<Report, ScanError> {
    let values = Values::find(data, options.content, progress)?;
    let records = scan::count(data, progress)?;
    let is_whole = options.all || records <= options.sample;
    let selection = match is_whole {
        true => Selection::All,
        false => Selection::Spread { wanted: options.sample, records },
    };
    let what = match (is_whole, options.all) {
        (_, true) => WhatToHash::ValuesAndPixels,
        (true, false) => WhatToHash::Values,
        (false, false) => WhatToHash::Nothing,
    };
    let scan = Scan { threads: options.threads, selection, ..Scan::default() };
    let mut tally = Tally::new(what);
    let start = || (ImageFileDecoder::default(), FeatureTally::default());
    let states = scan.run(
        data,
        progress,
        start,
        |(decoder, features), seen| Facts::of(seen, &values, what, decoder, features),
        |event| {
            tally.add(event.done()?.or_end_scan(data.path())?);
            Ok::<_, ScanError>(())
        },
    )?;
    let features = states.into_iter().map(|(_, features)| features);
    let features = features.fold(FeatureTally::default(), FeatureTally::merge).finish();
    let mut report = tally.finish(data, &values, records, features);
    report.net = net::net(data, &report, &values);
    Ok(report)
}
