//! Operations on whole images, as options.

use clap::Args;
use percolator::Transform;
use percolator::transform::{Filter, Operation, ResizeLaw, UsualOperations};
use serde_json::{Value, json};

use crate::args::{choices, finite};

/// Operations on whole images, in the order in which they are listed here, as torchvision with Pillow does
/// them.
#[derive(Debug, Default, Args)]
pub(super) struct OperationArgs {
    /// A usual transform: imagenet-train[:SIDE], imagenet-eval[:SHORTER:SIDE] or cifar-train.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["resize_shorter", "random_resized_crop",
        "center_crop", "random_crop", "flip", "mean_value", "mean_file", "scale"])]
    recipe: Option<String>,
    /// Resize every image so that its shorter side has this many pixels.
    #[arg(long, value_name = "SIDE")]
    resize_shorter: Option<u32>,
    /// Cut out a part of random size and shape, and resize it to a square with sides of this many pixels.
    #[arg(long, value_name = "SIDE")]
    random_resized_crop: Option<u32>,
    /// Cut a square out of the centre.
    #[arg(long, value_name = "SIDE")]
    center_crop: Option<u32>,
    /// Cut out a square at a random place.
    #[arg(long, value_name = "SIDE")]
    random_crop: Option<u32>,
    /// Before --random-crop, add this many pixels of zeros at each side.
    #[arg(long, value_name = "PIXELS", requires = "random_crop")]
    padding: Option<u32>,
    /// Mirror images at random, half of them on average.
    #[arg(long)]
    flip: bool,
    /// Any operation, after those of a recipe: its name, or as in a spec
    /// '{"random_rotation": {"degrees": [-10, 10]}}'; repeat for more.
    #[arg(long, value_name = "NAME|JSON", value_parser = operation)]
    operation: Vec<Operation>,
    /// How operations resize [default: bilinear].
    #[arg(long, value_enum)]
    filter: Option<FilterArg>,
    /// `--antialias=false` resizes without antialiasing, as PyTorch can and Pillow cannot.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    antialias: Option<bool>,
    /// Whose resizes they are, to the last bit [default: pillow].
    #[arg(long, value_enum)]
    resize_law: Option<LawArg>,
    /// Divide levels by 255 and subtract these: one for all channels, or one per channel.
    #[arg(long, value_delimiter = ',', value_parser = finite, allow_hyphen_values = true, requires = "std",
        conflicts_with_all = ["mean_value", "mean_file", "scale"])]
    mean: Vec<f32>,
    /// Divide by these after --mean.
    #[arg(long, value_delimiter = ',', value_parser = finite, requires = "mean")]
    std: Vec<f32>,
}

choices! {
    enum FilterArg for Filter {
        Nearest,
        NearestExact,
        Box,
        Bilinear,
        Hamming,
        Bicubic,
        Lanczos,
    }
}

choices! {
    enum LawArg for ResizeLaw {
        Pillow,
        Pillow13,
        Torch,
    }
}

/// An operation as in a spec. A name alone stands for an operation of which everything is as usual.
fn operation(text: &str) -> Result<Operation, String> {
    let of = |value: Value| serde_json::from_value(value).map_err(|error| error.to_string());
    if text.trim_start().starts_with('{') {
        return of(serde_json::from_str(text).map_err(|error| error.to_string())?);
    }
    of(Value::from(text)).or_else(|_| of(json!({ text: {} })))
}

impl OperationArgs {
    /// The transform with the recipe, or else with these operations added.
    pub(super) fn or(&self, transform: Transform) -> anyhow::Result<Transform> {
        let transform = match &self.recipe {
            Some(name) => Transform::recipe(name)?,
            None => transform,
        };
        let transform = transform.operations(self.operation.iter().cloned());
        let operations = UsualOperations {
            resize_shorter: self.resize_shorter,
            random_resized_crop: self.random_resized_crop,
            center_crop: self.center_crop,
            random_crop: self.random_crop,
            padding: self.padding,
            flip: self.flip,
            filter: self.filter.map(Filter::from),
            antialias: self.antialias,
            law: self.resize_law.map(ResizeLaw::from),
        };
        let transform = operations.added_to(transform)?;
        Ok(if self.mean.is_empty() { transform } else { transform.normalize(&*self.mean, &*self.std) })
    }

    /// Whether any of the options is given.
    pub(super) fn is_given(&self) -> bool {
        let OperationArgs { recipe, operation, mean, filter, antialias, resize_law, flip, .. } = self;
        let sides = [self.resize_shorter, self.random_resized_crop, self.center_crop, self.random_crop];
        recipe.is_some()
            || !operation.is_empty()
            || sides.iter().any(Option::is_some)
            || !mean.is_empty()
            || *flip
            || filter.is_some()
            || antialias.is_some()
            || resize_law.is_some()
    }
}
