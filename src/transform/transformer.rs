//! A [`Transform`] as the workers run it: first all checks that need no record, and then, record by record,
//! from pixels to a place in a batch.

use std::path::Path;

use half::{bf16, f16};

use super::kernels::{self, Contiguous, CropWindow, Element, RecordJob, Rows, Source, Spaced};
use super::sink::Stage;
use super::{Chain, Cut, Draw, Made, MeanChoice, MeanImage, Normalization, Transform, TransformError};
use crate::base::cache_lines::{LINE_BYTES, PAGE_BYTES};
use crate::base::shape::{BatchShape, Dtype, ImageShape, Layout, Phase};
use percolator_image::simd::InstructionSet;
use percolator_image::{ColorMode, Decode};
use percolator_messages::{Floats, Image, Pixels};

/// What is subtracted, which Caffe treats as exclusive, or what is done instead.
#[derive(Clone, Debug)]
pub(super) enum Mean {
    /// Never empty: no mean is a mean of 0, which changes no bit of any pixel.
    Values(Vec<f32>),
    Image(MeanImage),
    /// Means and standard deviations, as many of both.
    Normalized(Vec<f32>, Vec<f32>),
}

/// A [`Transform`] for one phase, element type and layout.
#[derive(Clone, Debug)]
pub(crate) struct Transformer {
    pub(super) crop: u32,
    pub(super) mirror: bool,
    pub(super) mean: Mean,
    pub(super) scale: f32,
    pub(super) phase: Phase,
    pub(super) dtype: Dtype,
    pub(super) layout: Layout,
    pub(super) decode: Decode,
    /// What is done to the whole image first. Then there is neither crop nor mirror.
    pub(super) chain: Option<Chain>,
    /// The detected instruction set, so that it is not detected again for each record.
    pub(super) instructions: InstructionSet,
}

/// Buffers that a worker keeps from record to record: they only grow, and are not freed.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// All floats of a record that stores them irregularly.
    gathered: Vec<f32>,
    /// One row of floats of a record that stores them with gaps.
    row: Vec<f32>,
    rooms: Rooms,
}

/// Buffers that any record may need.
#[derive(Debug, Default)]
struct Rooms {
    /// One row of every channel, in elements of at most four bytes.
    planes: Vec<f32>,
    /// Where rows are assembled into cache lines; `None` if batches stay in the caches.
    stage: Option<Box<Stage>>,
}

impl Scratch {
    /// The buffers of a worker whose batches are larger than the caches.
    pub(crate) fn past_caches() -> Self {
        let rooms = Rooms { stage: Some(Box::new(Stage::filled(0))), ..Rooms::default() };
        Scratch { rooms, ..Scratch::default() }
    }
}

impl Transformer {
    /// Creates a transformer, after all checks that need no record.
    ///
    /// # Errors
    ///
    /// Fails if images do not have elements of `dtype`, if there are both mean values and a mean image, if
    /// `dtype` is u8 and there is a mean or a scale, and if the mean file does not hold a mean image. A
    /// relative path of the mean file is resolved against `root`.
    pub(crate) fn new(
        transform: &Transform,
        root: &Path,
        phase: Phase,
        dtype: Dtype,
        layout: Layout,
    ) -> Result<Self, TransformError> {
        let Transform { crop, mirror, mean_values, mean_image, scale, decode, operations, normalize } =
            transform.clone();
        let chain = Chain::new(&operations)?;
        if chain.is_some() {
            if let Some(name) = chain.as_ref().and_then(Chain::takes_colours)
                && !(decode.color.is_rgb() || decode.color == ColorMode::Gray)
            {
                return Err(TransformError::OrderOfColours { name });
            }
            let excluded = [
                ("the crop", crop > 0),
                ("the mirror", mirror),
                ("the resize before the transform", decode.resize.is_some()),
                ("the mean image", mean_image.is_some()),
            ];
            if let Some((what, _)) = excluded.into_iter().find(|(_, is_set)| *is_set) {
                return Err(TransformError::OperationsWith { what });
            }
        }
        if !dtype.is_of_images() {
            return Err(TransformError::Dtype { dtype });
        }
        if dtype == Dtype::U8
            && let Some(value) = chain.as_ref().and_then(Chain::erases_to)
        {
            return Err(TransformError::ErasedBytes { found: value.clone() });
        }
        let mean_image = match mean_image {
            Some(MeanChoice::File(path)) => Some(MeanImage::open(root.join(path))?),
            Some(MeanChoice::Image(image)) => Some(image),
            None => None,
        };
        let mean = match &normalize {
            Some(normalize) => {
                let has_mean = mean_image.is_some() || !mean_values.is_empty();
                normalized(normalize, has_mean, scale, dtype)?
            }
            None => caffes_mean(mean_image, mean_values, dtype)?,
        };
        if dtype == Dtype::U8 && scale != 1.0 {
            return Err(TransformError::ScaleOfBytes { found: scale });
        }
        Ok(Self {
            crop,
            mirror,
            mean,
            scale,
            phase,
            dtype,
            layout,
            decode,
            chain,
            instructions: InstructionSet::widest(),
        })
    }

    /// The number of elements of the mean image, or 0 if there is none.
    pub(crate) fn mean_elements(&self) -> usize {
        match &self.mean {
            Mean::Values(_) | Mean::Normalized(..) => 0,
            Mean::Image(image) => image.pixels().len(),
        }
    }

    /// How a record is decoded before the transform.
    pub(crate) fn decode(&self) -> &Decode {
        &self.decode
    }

    /// The operations on the whole image, if there are any.
    pub(crate) fn chain(&self) -> Option<&Chain> {
        self.chain.as_ref()
    }

    /// Whether the transform crops.
    pub(crate) fn crops(&self) -> bool {
        self.crop > 0
    }

    /// The shape of a batch of one record with the shape `image`.
    pub(crate) fn batch_shape(&self, image: ImageShape) -> BatchShape {
        BatchShape { records: 1, image, layout: self.layout, dtype: self.dtype }
    }

    /// The output shape of a record of shape `input`: its channels, with the height and width of the crop or
    /// else its own. It is the same for either layout.
    ///
    /// # Errors
    ///
    /// Fails if the transform cannot be applied to such a record: it is empty or smaller than the crop, or
    /// the mean has another shape.
    pub(crate) fn output_shape(&self, input: ImageShape) -> Result<ImageShape, TransformError> {
        let ImageShape { channels, height, width } = input;
        if channels == 0 || height == 0 || width == 0 {
            return Err(TransformError::EmptyImage { image: input });
        }
        match &self.mean {
            Mean::Values(values) if values.len() != 1 && values.len() != channels => {
                return Err(TransformError::MeanValueCount { found: values.len(), channels });
            }
            Mean::Normalized(mean, _) if mean.len() != 1 && mean.len() != channels => {
                return Err(TransformError::NormalizationCount { found: mean.len(), channels });
            }
            Mean::Image(mean) if mean.shape() != input => {
                return Err(TransformError::MeanImageShape { mean: mean.shape(), image: input });
            }
            _ => {}
        }
        if let Some(chain) = &self.chain {
            return chain.output(input);
        }
        match self.crop as usize {
            0 => Ok(input),
            crop if crop > height || crop > width => {
                Err(TransformError::CropTooLarge { crop: self.crop, image: input })
            }
            crop => Ok(ImageShape { channels, height: crop, width: crop }),
        }
    }

    /// Whether all images that the transform can be applied to have one output shape. `channels_are_fixed`
    /// asserts that they all have the same number of channels.
    pub(crate) fn has_one_shape(&self, channels_are_fixed: bool) -> bool {
        match &self.mean {
            Mean::Image(_) => true,
            Mean::Values(values) | Mean::Normalized(values, _) => {
                let is_sized = self.crops()
                    || self.decode.resize.is_some()
                    || self.chain.as_ref().is_some_and(Chain::fixes_size);
                is_sized && (channels_are_fixed || values.len() > 1)
            }
        }
    }

    /// Writes the transformed pixels of one record to its place in the batch, each element once.
    ///
    /// Allocates nothing once `scratch` has seen the largest record.
    ///
    /// # Errors
    ///
    /// Fails as [`output_shape`](Self::output_shape) does; if the record's number of pixels does not match
    /// its shape; if it holds floats and the batch bytes; and if the output is not as long as `out`.
    ///
    /// # Panics
    ///
    /// Panics if `out` is not aligned for the elements of the batch.
    pub(crate) fn apply(
        &self,
        image: &Image<'_>,
        draw: Draw,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<(), TransformError> {
        let output = self.output_shape(image.shape)?;
        self.fill(image, self.window(image.shape, output, draw), out, scratch)
    }

    /// Writes what a chain has made to its place in the batch, as [`apply`](Self::apply).
    pub(crate) fn finish(
        &self,
        made: Made<'_>,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<(), TransformError> {
        let Made { planes, window, is_mirrored, erased } = made;
        let percolator_image::Window { top, left, height, width } = window;
        let window = CropWindow { top, left, height, width, mirrored: is_mirrored };
        self.fill(&planes.into(), window, out, scratch)?;
        if let Some(erased) = erased {
            self.erase(erased, planes.shape.channels, width, out);
        }
        Ok(())
    }

    /// Writes the window of an image to its place in the batch.
    fn fill(
        &self,
        image: &Image<'_>,
        window: CropWindow,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<(), TransformError> {
        let output = ImageShape { height: window.height, width: window.width, ..image.shape };
        let found = match &image.pixels {
            Pixels::U8(bytes) => bytes.len(),
            Pixels::F32(floats) => floats.len(),
        };
        if image.shape.checked_elements() != Some(found) {
            return Err(TransformError::PixelCount { image: image.shape, found });
        }
        // There are no more elements than `found`. Only their size can overflow, and no place is that large.
        let found_bytes = (output.channels * output.height * output.width).saturating_mul(self.dtype.size());
        if out.len() != found_bytes {
            return Err(TransformError::PlaceSize { output, place_bytes: out.len(), found_bytes });
        }
        let task = Task { input: image.shape, window, out };
        match &image.pixels {
            Pixels::U8(bytes) => {
                self.apply_bytes(bytes, task, &mut scratch.rooms);
                Ok(())
            }
            Pixels::F32(_) if matches!(self.mean, Mean::Normalized(..)) => {
                Err(TransformError::OfFloats { what: "normalizations" })
            }
            Pixels::F32(floats) => self.apply_floats(floats, task, scratch),
        }
    }

    /// The window to cut out of a record for the device to transform.
    ///
    /// # Errors
    ///
    /// Fails as [`apply`](Self::apply) does for the device's part of the work; the host only cuts.
    pub(crate) fn cut(&self, image: &Image<'_>, draw: Draw) -> Result<Cut, TransformError> {
        let output = self.output_shape(image.shape)?;
        if self.dtype == Dtype::U8 && matches!(image.pixels, Pixels::F32(_)) {
            return Err(TransformError::BytesOfFloats);
        }
        let CropWindow { top, left, mirrored, .. } = self.window(image.shape, output, draw);
        let offset = |pixels| u32::try_from(pixels).expect("a side of an image has 32 bits in its record");
        Ok(Cut { top: offset(top), left: offset(left), mirrored: mirrored.into() })
    }

    /// The part of an image of this shape that the transform reads, if it can be applied.
    pub(crate) fn part(&self, image: ImageShape, draw: Draw) -> Option<percolator_image::Window> {
        let output = self.output_shape(image).ok()?;
        let CropWindow { top, left, height, width, .. } = self.window(image, output, draw);
        Some(percolator_image::Window { top, left, height, width })
    }

    /// The part of the image that is transformed.
    fn window(&self, input: ImageShape, output: ImageShape, draw: Draw) -> CropWindow {
        let (rows, columns) = (input.height - output.height, input.width - output.width);
        let (top, left) = match self.phase {
            Phase::Train => (draw.top(rows + 1), draw.left(columns + 1)),
            Phase::Test => (rows / 2, columns / 2),
        };
        let mirrored = self.mirror && draw.mirrored();
        CropWindow { top, left, height: output.height, width: output.width, mirrored }
    }

    fn apply_bytes(&self, bytes: &[u8], task: Task<'_>, rooms: &mut Rooms) {
        let rows = Contiguous(bytes);
        match self.dtype {
            Dtype::F32 => self.run::<_, f32>(rows, task, rooms),
            Dtype::U8 => self.run::<_, u8>(rows, task, rooms),
            Dtype::F16 => self.run::<_, f16>(rows, task, rooms),
            Dtype::Bf16 => self.run::<_, bf16>(rows, task, rooms),
            _ => unreachable!("`new` refuses element types that images do not have"),
        }
    }

    fn apply_floats(
        &self,
        floats: &Floats<'_>,
        task: Task<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), TransformError> {
        let Scratch { gathered, row, rooms } = scratch;
        if let Some(floats) = floats.strided() {
            row.resize(task.window.width.max(row.len()), 0.0);
            self.run_floats(Spaced { floats, row }, task, rooms)
        } else {
            gathered.clear();
            floats.gather(gathered);
            self.run_floats(Contiguous(gathered), task, rooms)
        }
    }

    fn run_floats<R: Rows<Pixel = f32>>(
        &self,
        rows: R,
        task: Task<'_>,
        rooms: &mut Rooms,
    ) -> Result<(), TransformError> {
        match self.dtype {
            Dtype::F32 => self.run::<_, f32>(rows, task, rooms),
            Dtype::U8 => return Err(TransformError::BytesOfFloats),
            Dtype::F16 => self.run::<_, f16>(rows, task, rooms),
            Dtype::Bf16 => self.run::<_, bf16>(rows, task, rooms),
            _ => unreachable!("`new` refuses element types that images do not have"),
        }
        Ok(())
    }

    fn run<R: Rows, E: Element<R::Pixel>>(&self, rows: R, task: Task<'_>, rooms: &mut Rooms) {
        let Task { input, window, out } = task;
        let mean = match &self.mean {
            Mean::Values(values) => kernels::Mean::Values(values),
            Mean::Image(image) => kernels::Mean::Image(image.pixels()),
            Mean::Normalized(mean, std) => kernels::Mean::Normalized(mean, std),
        };
        let Rooms { planes, stage } = rooms;
        let planes = match self.layout {
            // One channel is the same in either layout.
            Layout::Nhwc if input.channels > 1 => {
                let elements = input.channels * window.width;
                planes.resize(elements.max(planes.len()), 0.0);
                Some(&mut bytemuck::cast_slice_mut(planes)[..elements])
            }
            Layout::Nchw | Layout::Nhwc => None,
        };
        let out: &mut [E] = bytemuck::cast_slice_mut(out);
        let source = Source { rows, input, window, mean, scale: self.scale };
        // A row of all channels must fit the stage beside the partial line left from the previous row.
        let fits = |planes: &[E]| size_of_val(planes) <= PAGE_BYTES - LINE_BYTES;
        let stage = stage.as_deref_mut().filter(|_| planes.as_deref().is_none_or(fits));
        self.instructions.run(RecordJob { source, stage, planes, out });
    }
}

/// What Caffe subtracts.
fn caffes_mean(
    mean_image: Option<MeanImage>,
    mean_values: Vec<f32>,
    dtype: Dtype,
) -> Result<Mean, TransformError> {
    Ok(match mean_image {
        Some(image) if !mean_values.is_empty() => {
            return Err(TransformError::TwoMeans { image: image.shape(), values: mean_values.len() });
        }
        Some(image) if dtype == Dtype::U8 => {
            return Err(TransformError::MeanOfBytes { found: format!("a mean image of {}", image.shape()) });
        }
        Some(image) => Mean::Image(image),
        None if mean_values.is_empty() => Mean::Values(vec![0.0]),
        None if dtype == Dtype::U8 => {
            return Err(TransformError::MeanOfBytes { found: format!("mean_value {mean_values:?}") });
        }
        None => Mean::Values(mean_values),
    })
}

/// What a normalization does, if nothing contradicts it.
fn normalized(
    Normalization { mean, std }: &Normalization,
    has_mean: bool,
    scale: f32,
    dtype: Dtype,
) -> Result<Mean, TransformError> {
    let twice = [("a mean", has_mean), ("a scale", scale != 1.0)];
    if let Some((found, _)) = twice.into_iter().find(|(_, is_set)| *is_set) {
        return Err(TransformError::NormalizedTwice { found });
    }
    let is_possible = mean.len() == std.len()
        && !mean.is_empty()
        && mean.iter().all(|mean| mean.is_finite())
        && std.iter().all(|std| std.is_finite() && *std != 0.0);
    if !is_possible {
        return Err(TransformError::Normalization { mean: mean.clone(), std: std.clone() });
    }
    if dtype == Dtype::U8 {
        return Err(TransformError::MeanOfBytes {
            found: format!("a normalization by {mean:?} and {std:?}"),
        });
    }
    Ok(Mean::Normalized(mean.clone(), std.clone()))
}

/// The part of a record's work that does not depend on the pixel type: what is read and where it goes.
struct Task<'a> {
    input: ImageShape,
    window: CropWindow,
    out: &'a mut [u8],
}

#[cfg(test)]
mod tests {
    use super::*;

    const RGB: ImageShape = ImageShape { channels: 3, height: 4, width: 6 };

    fn transformer(transform: &Transform, dtype: Dtype) -> Result<Transformer, TransformError> {
        Transformer::new(transform, Path::new(""), Phase::Test, dtype, Layout::Nchw)
    }

    fn apply(transformer: &Transformer, pixels: Pixels<'_>, out: &mut [f32]) -> Result<(), TransformError> {
        let draw = Draw::default();
        let out = bytemuck::cast_slice_mut(out);
        transformer.apply(&Image { shape: RGB, pixels }, draw, out, &mut Scratch::default())
    }

    #[test]
    fn a_contradiction_is_refused_before_any_record() {
        let mean = MeanImage::new(RGB, vec![1.0; 72]).unwrap();
        let refused = |transform: &Transform, dtype, message: &str| {
            assert_eq!(transformer(transform, dtype).unwrap_err().to_string(), message);
        };
        let both = Transform::new().mean_image(mean.clone()).mean_value(1.0);
        refused(
            &both,
            Dtype::F32,
            "cannot specify mean_file and mean_value at the same time: found 3x4x6 and 1 mean_value",
        );
        let bytes = "u8 output takes no mean, found";
        let allowed = "f32, f16 and bf16 output take one";
        refused(
            &Transform::new().mean_image(mean),
            Dtype::U8,
            &format!("{bytes} a mean image of 3x4x6; {allowed}"),
        );
        refused(
            &Transform::new().mean_value(0.0).mean_value(2.5),
            Dtype::U8,
            &format!("{bytes} mean_value [0.0, 2.5]; {allowed}"),
        );
        refused(
            &Transform::new().scale(0.5),
            Dtype::U8,
            "u8 output takes no scale but 1, found 0.5; f32, f16 and bf16 output take any",
        );
    }

    #[test]
    fn a_record_that_does_not_fit_is_refused() {
        let refused = |transform: Transform, image, message: &str| {
            let transformer = transformer(&transform, Dtype::F32).unwrap();
            assert_eq!(transformer.output_shape(image).unwrap_err().to_string(), message);
        };
        refused(
            Transform::new().mean_values([1.0, 2.0]),
            RGB,
            "specify either 1 mean_value or as many as channels: 3, found 2",
        );
        refused(
            Transform::new().crop(5),
            RGB,
            "crop_size must be at most the height and width of the image: 3x4x6, found 5",
        );
        let cropped = ImageShape { channels: 3, height: 4, width: 4 };
        refused(
            Transform::new().crop(4).mean_image(MeanImage::new(cropped, vec![0.0; 48]).unwrap()),
            RGB,
            "the mean image must have the shape of the uncropped image: 3x4x6, found 3x4x4",
        );
        refused(
            Transform::new(),
            ImageShape { height: 0, ..RGB },
            "an image has at least 1 channel, row and column, found 3x0x6",
        );
    }

    #[test]
    fn pixels_that_do_not_fit_are_refused() {
        let floats = transformer(&Transform::new(), Dtype::F32).unwrap();
        let short = apply(&floats, Pixels::U8(&[0; 71]), &mut [0.0; 72]);
        assert_eq!(short, Err(TransformError::PixelCount { image: RGB, found: 71 }));
        let place = apply(&floats, Pixels::U8(&[0; 72]), &mut [0.0; 71]);
        assert_eq!(
            place.unwrap_err().to_string(),
            "a record of 3x4x6 must fill its place in the batch: 284 bytes, found 288"
        );

        let bytes = transformer(&Transform::new(), Dtype::U8).unwrap();
        let record = [&[0x08, 3, 0x10, 4, 0x18, 6][..], &[0x35, 0, 0, 0, 0].repeat(72)].concat();
        let record = percolator_messages::Datum::parse(&record).unwrap().image().unwrap();
        assert_eq!(apply(&bytes, record.pixels, &mut [0.0; 18]), Err(TransformError::BytesOfFloats));
    }

    #[test]
    fn the_crop_of_a_test_is_central() {
        let transformer = transformer(&Transform::new().crop(3), Dtype::F32).unwrap();
        let pixels: Vec<u8> = (0..72).collect();
        let mut out = [0.0; 27];
        apply(&transformer, Pixels::U8(&pixels), &mut out).unwrap();
        // One row of 4 and three columns of 6 are left over: floor(1 / 2) above, floor(3 / 2) to the left.
        assert_eq!(out[..9], [1.0, 2.0, 3.0, 7.0, 8.0, 9.0, 13.0, 14.0, 15.0]);
    }

    /// Rows shorter and longer than a vector, mirrored and not, of a window, on every instruction set.
    #[test]
    fn a_normalization_is_what_it_says_of_each_pixel() {
        let (mean, std) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
        let transform = Transform::new().color(ColorMode::Rgb).normalize(mean, std);
        for (width, mirrored, layout) in
            [1, 7, 15, 16, 17, 40].into_iter().flat_map(|width| [(width, false), (width, true)]).flat_map(
                |(width, mirrored)| [Layout::Nchw, Layout::Nhwc].map(|layout| (width, mirrored, layout)),
            )
        {
            let shape = ImageShape { channels: 3, height: 5, width: width + 3 };
            let bytes: Vec<u8> = (0..=250).cycle().step_by(37).take(3 * 5 * (width + 3)).collect();
            let window = percolator_image::Window { top: 1, left: 2, height: 3, width };
            let planes = percolator_image::Planes { shape, bytes: &bytes };
            let made = Made { planes, window, is_mirrored: mirrored, erased: None };
            let places = (0..3).flat_map(|c| (0..3).flat_map(move |y| (0..width).map(move |x| (c, y, x))));
            let mut wanted = vec![0.0; 9 * width];
            for (c, y, x) in places {
                let from = 2 + if mirrored { width - 1 - x } else { x };
                let level = f32::from(bytes[(c * 5 + 1 + y) * (width + 3) + from]);
                let at = match layout {
                    Layout::Nchw => (c * 3 + y) * width + x,
                    Layout::Nhwc => (y * width + x) * 3 + c,
                };
                wanted[at] = (level * (1.0 / 255.0) - mean[c]) / std[c];
            }
            let mut transformer =
                Transformer::new(&transform, Path::new(""), Phase::Train, Dtype::F32, layout).unwrap();
            for set in InstructionSet::all().into_iter().flatten() {
                transformer.instructions = set;
                let mut out = vec![0.0_f32; 9 * width];
                transformer
                    .finish(made, bytemuck::cast_slice_mut(&mut out), &mut Scratch::default())
                    .unwrap();
                assert_eq!(out, wanted, "{set:?} {width} {mirrored} {layout:?}");
            }
        }
    }
}
