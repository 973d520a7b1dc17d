//! Images whose shapes do not suit the feed.

use percolator::batch::ImageShape;

use super::{Finding, Use};
use crate::doctor::sample::Sample;

/// Images whose shorter side is so many times that of what is used are much larger.
const MUCH_LARGER: f64 = 2.0;

pub(super) fn shapes(samples: &[&Sample], used: &Use) -> Option<Finding> {
    let first = samples.first()?.shape;
    if let (Some(crop), None) = (used.crop, used.resize) {
        let is_smaller = |shape: &ImageShape| shape.height.min(shape.width) < crop;
        if let Some(shape) = samples.iter().map(|sample| sample.shape).find(is_smaller) {
            return Some(Finding::SmallerThanCrop { shape: shape.to_string(), crop });
        }
    }
    let is_fixed = used.resize.is_some() || used.crop.is_some() || used.is_sized;
    let differs = |shape: &ImageShape| match is_fixed {
        true => shape.channels != first.channels,
        false => *shape != first,
    };
    let other = samples.iter().map(|sample| sample.shape).find(differs)?;
    (used.batch_size > 1).then(|| Finding::ShapesDiffer { one: first.to_string(), other: other.to_string() })
}

pub(super) fn larger(samples: &[&Sample], used: &Use) -> Option<Finding> {
    let mut sides: Vec<usize> =
        samples.iter().map(|sample| sample.shape.height.min(sample.shape.width)).collect();
    sides.sort_unstable();
    let side = *sides.get(sides.len() / 2)?;
    let smallest = used.resize.map(|[height, width]| height.min(width)).or(used.crop)?;
    let is_much = side as f64 >= MUCH_LARGER * smallest as f64;
    is_much.then_some(Finding::MuchLarger { side, used: smallest, is_resized: used.resize.is_some() })
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::super::made::{mixed, photos, sample, training};
    use super::*;

    #[test]
    fn shapes_must_agree_if_nothing_makes_them_agree() {
        let mut samples = photos(1000, mixed);
        samples.runs[3][7] = sample(1, [3, 61, 80]);
        let differ = Finding::ShapesDiffer { one: "3x60x80".to_owned(), other: "3x61x80".to_owned() };
        assert_eq!(findings(&samples, &training()), [differ]);
        for used in [
            Use { crop: Some(40), ..training() },
            Use { resize: Some([40, 40]), ..training() },
            Use { is_sized: true, ..training() },
            Use { batch_size: 1, ..training() },
        ] {
            assert_eq!(findings(&samples, &used), [], "{used:?}");
        }
        let smaller = findings(&samples, &Use { crop: Some(61), ..training() });
        assert_eq!(smaller, [Finding::SmallerThanCrop { shape: "3x60x80".to_owned(), crop: 61 }]);
        samples.runs[3][8] = sample(1, [1, 60, 80]);
        let used = Use { crop: Some(40), ..training() };
        assert_eq!(findings(&samples, &used).len(), 1, "a grey image among coloured");
    }

    #[test]
    fn images_that_are_much_larger_than_what_is_used_waste_time() {
        let samples = photos(1000, mixed);
        let with_crop = findings(&samples, &Use { crop: Some(30), ..training() });
        assert_eq!(with_crop, [Finding::MuchLarger { side: 60, used: 30, is_resized: false }]);
        assert!(!with_crop[0].is_wrong());
        let resized = findings(&samples, &Use { crop: Some(20), resize: Some([30, 30]), ..training() });
        assert_eq!(resized, [Finding::MuchLarger { side: 60, used: 30, is_resized: true }]);
        assert_eq!(findings(&samples, &Use { crop: Some(31), ..training() }), []);
    }
}
