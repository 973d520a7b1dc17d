//! What is known of an operation before any image: its name, what it takes, the sizes that it leaves.

use super::Operation;

impl Operation {
    /// Its name, as in a spec.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Resize { .. } => "resize",
            Operation::ResizeShorter { .. } => "resize_shorter",
            Operation::CenterCrop { .. } => "center_crop",
            Operation::Pad { .. } => "pad",
            Operation::RandomCrop { .. } => "random_crop",
            Operation::RandomResizedCrop { .. } => "random_resized_crop",
            Operation::HorizontalFlip { .. } => "horizontal_flip",
            Operation::VerticalFlip { .. } => "vertical_flip",
            Operation::RandomRotation { .. } => "random_rotation",
            Operation::RandomAffine { .. } => "random_affine",
            Operation::RandomPerspective { .. } => "random_perspective",
            Operation::ColorJitter { .. } => "color_jitter",
            Operation::Grayscale { .. } => "grayscale",
            Operation::GaussianBlur { .. } => "gaussian_blur",
            Operation::PillowBlur { .. } => "pillow_blur",
            Operation::Invert { .. } => "invert",
            Operation::Posterize { .. } => "posterize",
            Operation::Solarize { .. } => "solarize",
            Operation::Sharpness { .. } => "sharpness",
            Operation::AutoContrast { .. } => "auto_contrast",
            Operation::Equalize { .. } => "equalize",
            Operation::RandAugment { .. } => "rand_augment",
            Operation::TrivialAugmentWide => "trivial_augment_wide",
            Operation::AutoAugment { .. } => "auto_augment",
            Operation::AugMix { .. } => "aug_mix",
            Operation::TimmRandAugment { .. } => "timm_rand_augment",
            Operation::RandomErasing { .. } => "random_erasing",
        }
    }

    /// Whether it takes the first of three channels for red.
    pub(super) fn takes_colours(&self) -> bool {
        matches!(
            self,
            Operation::ColorJitter { .. }
                | Operation::Grayscale { .. }
                | Operation::RandAugment { .. }
                | Operation::TrivialAugmentWide
                | Operation::AutoAugment { .. }
                | Operation::AugMix { .. }
                | Operation::TimmRandAugment { .. }
        )
    }

    /// Whether it takes images of one or three channels alone.
    pub(super) fn takes_planes(&self) -> bool {
        self.takes_colours()
            || matches!(
                self,
                Operation::GaussianBlur { .. }
                    | Operation::PillowBlur { .. }
                    | Operation::Invert { .. }
                    | Operation::Posterize { .. }
                    | Operation::Solarize { .. }
                    | Operation::Sharpness { .. }
                    | Operation::AutoContrast { .. }
                    | Operation::Equalize { .. }
            )
    }

    /// The levels of what it adds to an image, if it adds any.
    pub(super) fn fill(&self) -> Option<&[u8]> {
        match self {
            Operation::Pad { fill, .. }
            | Operation::RandomCrop { fill, .. }
            | Operation::RandomRotation { fill, .. }
            | Operation::RandomAffine { fill, .. }
            | Operation::RandomPerspective { fill, .. }
            | Operation::AugMix { fill, .. }
            | Operation::TimmRandAugment { fill, .. } => Some(fill),
            _ => None,
        }
    }

    /// Whether it resizes.
    pub(in crate::transform) fn resizes(&self) -> bool {
        matches!(
            self,
            Operation::Resize { .. } | Operation::ResizeShorter { .. } | Operation::RandomResizedCrop { .. }
        )
    }

    /// How many pixels it adds to an image of this size before anything else: above, to the left, below and
    /// to the right.
    pub(super) fn padding(&self, [rows, columns]: [usize; 2]) -> [usize; 4] {
        match *self {
            // The odd pixel is at the end.
            Operation::CenterCrop { height, width } => {
                let lack = |side: usize, to: u32| (to as usize).saturating_sub(side);
                let [rows, columns] = [lack(rows, height), lack(columns, width)];
                [rows / 2, columns / 2, rows.div_ceil(2), columns.div_ceil(2)]
            }
            Operation::Pad { padding, .. } => {
                let [left, top, right, bottom] = padding.map(|pixels| pixels as usize);
                [top, left, bottom, right]
            }
            Operation::RandomCrop { height, width, padding, pad_if_needed, .. } => {
                let padding = padding as usize;
                let added = |side: usize, to: u32| {
                    let lack = (to as usize).saturating_sub(side + 2 * padding);
                    padding + if pad_if_needed { lack } else { 0 }
                };
                let [rows, columns] = [added(rows, height), added(columns, width)];
                [rows, columns, rows, columns]
            }
            _ => [0; 4],
        }
    }

    /// The size after that padding. Of a centre, that is its own: what it does not hold is cut off first.
    pub(super) fn padded(&self, size @ [rows, columns]: [usize; 2]) -> [usize; 2] {
        if let Operation::CenterCrop { height, width } = *self {
            return [height as usize, width as usize];
        }
        let [top, left, bottom, right] = self.padding(size);
        [rows + top + bottom, columns + left + right]
    }

    /// The size that it leaves, of an image of this size.
    pub(super) fn size_after(&self, size @ [height, width]: [usize; 2]) -> [usize; 2] {
        match *self {
            Operation::Resize { height, width, .. }
            | Operation::CenterCrop { height, width }
            | Operation::RandomCrop { height, width, .. }
            | Operation::RandomResizedCrop { height, width, .. } => [height as usize, width as usize],
            Operation::ResizeShorter { side, max_size, .. } => {
                let (mut side, shorter) = (side as usize, height.min(width));
                let mut longer = side.saturating_mul(height.max(width)) / shorter.max(1);
                if let Some(most) = max_size.map(|most| most as usize).filter(|most| longer > *most) {
                    // A thin image keeps a pixel.
                    (side, longer) = ((most * side / longer).max(1), most);
                }
                if height <= width { [side, longer] } else { [longer, side] }
            }
            Operation::Pad { .. } => self.padded(size),
            _ => size,
        }
    }

    /// Whether all images that it leaves have one size.
    pub(in crate::transform) fn fixes_size(&self) -> bool {
        matches!(
            self,
            Operation::Resize { .. }
                | Operation::CenterCrop { .. }
                | Operation::RandomCrop { .. }
                | Operation::RandomResizedCrop { .. }
        )
    }
}
