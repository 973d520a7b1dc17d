//! What each record says, and what all of them say together.

use std::collections::BTreeMap;
use std::path::Path;

use percolator::batch::{ImageShape, RecordCause};
use percolator::decoder::ImageFileDecoder;
use percolator::example::Example;
use percolator::record::{Image, Key, Pixels};

use super::duplicates::{DuplicateTally, Hash, hash};
use super::features::{FeatureReport, FeatureTally};
use super::keys::KeyTally;
use super::report::{EncodingCount, LabelCount, Labels, Report, ShapeCount, Sizes};
use crate::content::{Content, Label, Parts, PictureEncoding, Values, caught};
use crate::open::DataSet;
use crate::scan::{ScanError, Seen};

/// The most shapes, and the most labels, that are counted each.
const SHAPES_MAX: usize = 1000;
const LABELS_MAX: usize = 1 << 20;

/// What is hashed of each record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WhatToHash {
    /// Only some records are read, and most of their duplicates are not.
    #[default]
    Nothing,
    Values,
    /// Each image is decoded.
    ValuesAndPixels,
}

/// What one record says.
#[derive(Debug)]
pub(super) struct Facts {
    number: u64,
    key: Vec<u8>,
    bytes: u64,
    label: Option<Label>,
    image: Option<(PictureEncoding, ImageShape)>,
    fault: Option<RecordCause>,
    value_hash: Option<Hash>,
    pixel_hash: Option<Hash>,
}

impl Facts {
    pub(super) fn of(
        seen: Seen<'_>,
        values: &Values,
        what: WhatToHash,
        decoder: &mut ImageFileDecoder,
        features: &mut FeatureTally,
    ) -> Self {
        let mut facts = Facts {
            number: seen.number,
            key: seen.key.to_owned(),
            bytes: seen.value.len() as u64,
            label: None,
            image: None,
            fault: None,
            value_hash: (what != WhatToHash::Nothing).then(|| hash(&[seen.value])),
            pixel_hash: None,
        };
        if values.content == Content::Example
            && let Ok(example) = Example::parse(seen.value)
        {
            features.add(&example);
        }
        if let Some((parts, _)) = &values.of_parts {
            features.add_parts(&**parts, seen.value);
        }
        let looked = caught(decoder, ImageFileDecoder::default, |decoder| {
            let parts = values.parts(seen.value)?;
            facts.label = parts.label;
            facts.look(parts, what, decoder)
        });
        facts.fault = looked.err();
        facts
    }

    /// Ends the scan if there was no memory for the record.
    pub(super) fn or_end_scan(self, path: &Path) -> Result<Self, ScanError> {
        let fault = self.fault.as_ref();
        let end = fault.and_then(|cause| ScanError::no_memory(path, self.number, &self.key, cause));
        end.map_or(Ok(self), Err)
    }

    fn look(
        &mut self,
        parts: Parts<'_>,
        what: WhatToHash,
        decoder: &mut ImageFileDecoder,
    ) -> Result<(), RecordCause> {
        if what == WhatToHash::ValuesAndPixels {
            parts.check_more(decoder)?;
        }
        let Some(picture) = parts.picture else { return Ok(()) };
        let encoding = picture.encoding();
        let shape = match what {
            WhatToHash::ValuesAndPixels => {
                let image = picture.decode(decoder)?;
                self.pixel_hash = Some(pixel_hash(&image));
                image.shape
            }
            _ => picture.shape(decoder)?,
        };
        self.image = Some((encoding, shape));
        Ok(())
    }
}

/// The hash of an image: its shape, its type, its elements.
fn pixel_hash(image: &Image<'_>) -> Hash {
    let ImageShape { channels, height, width } = image.shape;
    let shape = [channels, height, width].map(|side| (side as u64).to_le_bytes()).concat();
    match image.pixels {
        Pixels::U8(bytes) => hash(&[&shape, b"u8", bytes]),
        Pixels::F32(floats) => {
            let mut gathered = Vec::with_capacity(floats.len());
            floats.gather(&mut gathered);
            let bytes: Vec<u8> = gathered.iter().flat_map(|value| value.to_le_bytes()).collect();
            hash(&[&shape, b"f32", &bytes])
        }
    }
}

/// What all records say together.
#[derive(Debug, Default)]
pub(super) struct Tally {
    what: WhatToHash,
    records: u64,
    keys: KeyTally,
    sizes: Sizes,
    shapes: BTreeMap<[usize; 3], u64>,
    other_shapes: u64,
    encodings: BTreeMap<PictureEncoding, u64>,
    without_image: u64,
    damaged: u64,
    first_damaged: Option<String>,
    labels: BTreeMap<Label, u64>,
    other_labels: u64,
    without_label: u64,
    values: DuplicateTally,
    pixels: DuplicateTally,
}

impl Tally {
    pub(super) fn new(what: WhatToHash) -> Self {
        Tally { what, ..Tally::default() }
    }

    pub(super) fn add(&mut self, facts: Facts) {
        let Facts { number, key, bytes, label, image, fault, value_hash, pixel_hash } = facts;
        self.records += 1;
        self.keys.add(number, &key);
        self.sizes.add(bytes);
        match (image, &fault) {
            (Some((encoding, shape)), _) => {
                *self.encodings.entry(encoding).or_default() += 1;
                let shape = [shape.channels, shape.height, shape.width];
                count(&mut self.shapes, shape, SHAPES_MAX, &mut self.other_shapes);
            }
            (None, None) => self.without_image += 1,
            (None, Some(fault)) => {
                self.damaged += 1;
                self.first_damaged
                    .get_or_insert_with(|| format!("record {number}, key {}: {fault}", Key(key)));
            }
        }
        match label {
            Some(label) => count(&mut self.labels, label, LABELS_MAX, &mut self.other_labels),
            None => self.without_label += 1,
        }
        // Records without labels agree in having none.
        let label = label.unwrap_or_default();
        if let Some(hash) = value_hash {
            self.values.add(hash, number, label);
        }
        if let Some(hash) = pixel_hash {
            self.pixels.add(hash, number, label);
        }
    }

    /// The report, without its net.
    pub(super) fn finish(
        self,
        data: &DataSet,
        values: &Values,
        records: u64,
        (features, other_features): (Vec<FeatureReport>, u64),
    ) -> Report {
        let shape = |([channels, height, width], records): ([usize; 3], u64)| ShapeCount {
            shape: ImageShape { channels, height, width },
            records,
        };
        let mut shapes: Vec<_> = self.shapes.into_iter().map(shape).collect();
        shapes.sort_by_key(|count| std::cmp::Reverse(count.records));
        let encoding = |(encoding, records)| EncodingCount { encoding, records };
        let mut encodings: Vec<_> = self.encodings.into_iter().map(encoding).collect();
        encodings.sort_by_key(|count| std::cmp::Reverse(count.records));
        let has_labels = !self.labels.is_empty();
        let counts = self.labels.into_iter().map(|(label, records)| LabelCount { label, records });
        let counts = counts.collect();
        let labels = Labels { counts, others: self.other_labels, without: self.without_label };
        Report {
            path: data.path().to_string_lossy().into_owned(),
            kind: data.kind(),
            files: data.sources().len(),
            file_bytes: data.file_bytes(),
            records,
            looked_at: self.records,
            content: values.content,
            keys: self.keys.finish(),
            sizes: self.sizes,
            shapes,
            other_shapes: self.other_shapes,
            encodings,
            is_interleaved: values.is_interleaved,
            without_image: self.without_image,
            damaged: self.damaged,
            first_damaged: self.first_damaged,
            labels: has_labels.then_some(labels),
            image_features: values.images.clone(),
            features,
            other_features,
            same_values: (self.what != WhatToHash::Nothing).then(|| self.values.finish()),
            same_pixels: (self.what == WhatToHash::ValuesAndPixels).then(|| self.pixels.finish()),
            net: String::new(),
        }
    }
}

/// Counts something, unless there are too many different ones already.
fn count<T: Ord>(counts: &mut BTreeMap<T, u64>, found: T, max: usize, others: &mut u64) {
    match counts.len() < max || counts.contains_key(&found) {
        true => *counts.entry(found).or_default() += 1,
        false => *others += 1,
    }
}
