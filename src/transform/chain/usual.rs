//! What most train on, by name: recipes, and operations as single options. The command and the Python package
//! have their options from here.

use percolator_image::resample::{Filter, Resampling, ResizeLaw};

use super::Operation;
use crate::transform::{ColorMode, Transform, TransformError};

/// The mean and the standard deviation of ImageNet's colours, red first, of levels from 0 to 1.
const IMAGENET: ([f32; 3], [f32; 3]) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);

/// Those of CIFAR-10.
const CIFAR: ([f32; 3], [f32; 3]) = ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]);

/// Names of recipes, and what may follow them.
const RECIPES: &str = "imagenet-train[:SIDE], imagenet-eval[:SHORTER:SIDE], cifar-train";

/// What torchvision's references crop to, and what they resize the shorter side to before that.
const SIDE: u32 = 224;
const SHORTER: u32 = 256;

impl Transform {
    /// What torchvision's references train ImageNet's models with: RGB,
    /// [`random_resized_crop`](Operation::random_resized_crop) to this side, a flip of every second image,
    /// ImageNet's normalization.
    #[must_use]
    pub fn imagenet_train(side: u32) -> Self {
        let operations = [Operation::random_resized_crop(side), Operation::horizontal_flip()];
        Self::new().color(ColorMode::Rgb).operations(operations).normalize(IMAGENET.0, IMAGENET.1)
    }

    /// What they are evaluated with: RGB, the shorter side resized to `resize`, a central square of `crop`,
    /// ImageNet's normalization.
    #[must_use]
    pub fn imagenet_eval(resize: u32, crop: u32) -> Self {
        let operations = [Operation::resize_shorter(resize), Operation::center_crop(crop)];
        Self::new().color(ColorMode::Rgb).operations(operations).normalize(IMAGENET.0, IMAGENET.1)
    }

    /// What most train CIFAR's models with: RGB, 32 pixels square out of 4 pixels of zeros around, a flip of
    /// every second image, CIFAR-10's normalization.
    #[must_use]
    pub fn cifar_train() -> Self {
        let operations = [Operation::random_crop(32, 4), Operation::horizontal_flip()];
        Self::new().color(ColorMode::Rgb).operations(operations).normalize(CIFAR.0, CIFAR.1)
    }

    /// A recipe by its name: `imagenet-train`, of 224 pixels, or `imagenet-train:176`; `imagenet-eval`, from
    /// 256 to 224, or `imagenet-eval:232:224`; `cifar-train`.
    ///
    /// # Errors
    ///
    /// [`TransformError::Recipe`] if there is none of this name.
    pub fn recipe(name: &str) -> Result<Self, TransformError> {
        let unknown = || TransformError::Recipe { found: name.to_owned(), known: RECIPES };
        let (recipe, sides) = name.split_once(':').map_or((name, None), |(name, sides)| (name, Some(sides)));
        let sides = sides.map(|sides| sides.split(':').map(str::parse).collect::<Result<Vec<u32>, _>>());
        let sides = sides.transpose().map_err(|_| unknown())?.unwrap_or_default();
        match (recipe, &*sides) {
            ("imagenet-train", []) => Ok(Self::imagenet_train(SIDE)),
            ("imagenet-train", &[side]) => Ok(Self::imagenet_train(side)),
            ("imagenet-eval", []) => Ok(Self::imagenet_eval(SHORTER, SIDE)),
            ("imagenet-eval", &[shorter, side]) => Ok(Self::imagenet_eval(shorter, side)),
            ("cifar-train", []) => Ok(Self::cifar_train()),
            _ => Err(unknown()),
        }
    }
}

/// The usual operations as options: those that are set, in the order in which they are written here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsualOperations {
    /// [`Operation::resize_shorter`].
    pub resize_shorter: Option<u32>,
    /// [`Operation::random_resized_crop`].
    pub random_resized_crop: Option<u32>,
    /// [`Operation::center_crop`].
    pub center_crop: Option<u32>,
    /// [`Operation::random_crop`].
    pub random_crop: Option<u32>,
    /// Its padding, if it is not 0.
    pub padding: Option<u32>,
    /// [`Operation::horizontal_flip`].
    pub flip: bool,
    /// The filter of everything that resizes, those of a recipe included.
    pub filter: Option<Filter>,
    /// Whether resizes are antialiased. Without, they follow PyTorch's law.
    pub antialias: Option<bool>,
    /// Whose resizes they are.
    pub law: Option<ResizeLaw>,
}

impl UsualOperations {
    /// Adds them to a transform.
    ///
    /// # Errors
    ///
    /// [`TransformError::Unused`] for a padding without a random crop, a filter without anything that
    /// resizes, or operations beside those that the transform has.
    pub fn added_to(self, transform: Transform) -> Result<Transform, TransformError> {
        if self.padding.is_some() && self.random_crop.is_none() {
            let what = "the padding of a random crop";
            return Err(TransformError::Unused { what, why: "there is no random crop" });
        }
        let padding = self.padding.unwrap_or_default();
        let operations = [
            self.resize_shorter.map(Operation::resize_shorter),
            self.random_resized_crop.map(Operation::random_resized_crop),
            self.center_crop.map(Operation::center_crop),
            self.random_crop.map(|side| Operation::random_crop(side, padding)),
            self.flip.then(Operation::horizontal_flip),
        ];
        if transform.has_operations() && operations.iter().any(Option::is_some) {
            let why = "a recipe, or a list of operations, says what is done";
            return Err(TransformError::Unused { what: "single operations", why });
        }
        let transform = transform.operations(operations.into_iter().flatten());
        if (self.filter, self.antialias, self.law) == (None, None, None) {
            return Ok(transform);
        }
        if !transform.resizes_by_operations() {
            let why = "no operation resizes";
            return Err(TransformError::Unused { what: "a filter, or another way to resize,", why });
        }
        let usual = Resampling::default();
        let antialias = self.antialias.unwrap_or(usual.antialias);
        let filter = self.filter.unwrap_or(usual.filter);
        // A nearest pixel is never antialiased.
        let is_plain = !antialias && !matches!(filter, Filter::Nearest | Filter::NearestExact);
        let law = self.law.unwrap_or(if is_plain { ResizeLaw::Torch } else { usual.law });
        Ok(transform.resampled(Resampling { filter, antialias, law }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_have_names() {
        let of = |name| Transform::recipe(name).ok();
        assert_eq!(of("imagenet-train"), Some(Transform::imagenet_train(224)));
        assert_eq!(of("imagenet-train:176"), Some(Transform::imagenet_train(176)));
        assert_eq!(of("imagenet-eval"), Some(Transform::imagenet_eval(256, 224)));
        assert_eq!(of("imagenet-eval:232:224"), Some(Transform::imagenet_eval(232, 224)));
        assert_eq!(of("cifar-train"), Some(Transform::cifar_train()));
        for wrong in
            ["", "imagenet", "imagenet-train:", "imagenet-eval:9", "cifar-train:32", "imagenet-train:-1"]
        {
            let error = Transform::recipe(wrong).unwrap_err().to_string();
            assert!(error.contains("imagenet-train[:SIDE]"), "{error}");
        }
    }

    #[test]
    fn options_are_the_operations_of_recipes() {
        let options =
            UsualOperations { resize_shorter: Some(256), center_crop: Some(224), ..Default::default() };
        let plain = Transform::new().color(ColorMode::Rgb).normalize(IMAGENET.0, IMAGENET.1);
        assert_eq!(options.added_to(plain.clone()), Ok(Transform::imagenet_eval(256, 224)));
        let options =
            UsualOperations { random_resized_crop: Some(224), flip: true, ..UsualOperations::default() };
        assert_eq!(options.added_to(plain), Ok(Transform::imagenet_train(224)));
        let rough = UsualOperations { antialias: Some(false), ..UsualOperations::default() };
        let how = Resampling { antialias: false, law: ResizeLaw::Torch, ..Resampling::default() };
        let eval = || Transform::imagenet_eval(256, 224);
        assert_eq!(rough.added_to(eval()), Ok(eval().resampled(how)));
        let padded = UsualOperations { padding: Some(4), ..UsualOperations::default() };
        assert!(padded.added_to(eval()).is_err());
        let flipped = UsualOperations { flip: true, ..UsualOperations::default() };
        assert!(flipped.added_to(eval()).is_err(), "twice");
        let filtered = UsualOperations { filter: Some(Filter::Bicubic), ..UsualOperations::default() };
        assert!(filtered.added_to(Transform::cifar_train()).is_err(), "nothing is resized");
        let nearest = UsualOperations { filter: Some(Filter::Nearest), ..rough };
        let how = Resampling { filter: Filter::Nearest, antialias: false, ..Resampling::default() };
        assert_eq!(nearest.added_to(eval()), Ok(eval().resampled(how)));
    }
}
