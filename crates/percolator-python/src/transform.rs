//! The class `Transform`.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::options::{Keywords, json, transform_of};

/// What is done to every image. Channels are in the order BGR, as in OpenCV and Caffe, unless color is
/// "rgb" or "upright".
///
/// - `color`: how encoded images are decoded: `"rgb"` to 3 channels in the order RGB, as Pillow does;
///   `"upright"` the same, in the orientation that EXIF says; `"color"` to 3 in the order BGR, and
///   `"gray"` to 1, both in that orientation; `"native"` to as many as the file has, as it lies there
/// - `recipe`: `"imagenet-train[:SIDE]"`, `"imagenet-eval[:SHORTER:SIDE]"` or `"cifar-train"`
/// - operations, in this order: `resize_shorter`, `random_resized_crop`, `center_crop`, `random_crop` (after
///   `padding`), all of them sides in pixels; `flip`; or `operations`, a list of them as in a spec;
///   `filter`, `antialias` and `resize_law` say how all of them resize
/// - `mean` and `std`, of levels from 0 to 1, one or one for each channel, in the order of the channels
/// - `resize`: to (height, width); `scaled_decode`: to decode large JPEGs smaller
/// - `crop`: to a square, at a random place in phase train, and at the centre in phase test
/// - `mirror`: at random, in every phase, as in Caffe: leave it out for validation
/// - `mean_values` (one, or one for each channel, in the order BGR) or `mean_file`, which are subtracted;
///   `scale`, by which all is multiplied then
#[pyclass(frozen, eq, module = "percolator")]
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Transform {
    pub(crate) inner: percolator::Transform,
}

#[pymethods]
impl Transform {
    #[new]
    #[pyo3(signature = (**options))]
    fn new(py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut keywords = Keywords::of(py, options)?;
        let inner = transform_of(&mut keywords, percolator::Transform::new())?;
        keywords.finish("Transform")?;
        Ok(Transform { inner })
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Transform({})", json::spec_to(py, &self.inner)?))
    }
}
