//! Variables that were saved in slices: the keys of the slices, and whether they make up the variable.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::{Range, RangeFull};

use super::ordered_code::{read_number, read_signed, read_string, write_number, write_signed, write_string};
use crate::proto::tensor_slice_proto::{self, extent::HasLengthHack};
use crate::tensor::{AXES_MAX, elements};

/// How the length of an extent is stored that takes the whole axis.
const WHOLE_AXIS: i64 = -1;

/// What a slice has of one axis of the whole tensor.
///
/// TensorFlow tells a whole axis from a part that has all of it: the index differs. Partitioned variables
/// have parts on all axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// The whole axis.
    All,
    /// These places.
    Part(Range<usize>),
}

impl From<Range<usize>> for Extent {
    fn from(part: Range<usize>) -> Self {
        Extent::Part(part)
    }
}

impl From<RangeFull> for Extent {
    fn from(_: RangeFull) -> Self {
        Extent::All
    }
}

impl Extent {
    /// The places on an axis of this size.
    pub(super) fn places(&self, size: usize) -> Range<usize> {
        match self {
            Extent::All => 0..size,
            Extent::Part(part) => part.clone(),
        }
    }

    /// The same as it is stored. Its places are on an axis, whose extent was checked.
    pub(super) fn stored(&self) -> Stored {
        let signed = |place: usize| i64::try_from(place).unwrap_or(i64::MAX);
        match self {
            Extent::All => Stored::default(),
            Extent::Part(part) => Stored {
                start: signed(part.start),
                has_length_hack: Some(HasLengthHack::Length(signed(part.len()))),
            },
        }
    }
}

/// An extent as it is stored; no length is the whole axis.
type Stored = tensor_slice_proto::Extent;

fn length_of(extent: &Stored) -> i64 {
    extent.has_length_hack.map_or(WHOLE_AXIS, |HasLengthHack::Length(length)| length)
}

/// Returns the key of a slice's entry.
pub(crate) fn key(name: &str, slice: &[Stored]) -> Vec<u8> {
    let mut key = Vec::new();
    write_number(&mut key, 0);
    write_string(&mut key, name.as_bytes());
    write_number(&mut key, slice.len() as u64);
    for extent in slice {
        write_signed(&mut key, extent.start);
        write_signed(&mut key, length_of(extent));
    }
    key
}

/// Returns the name of the variable if this is the key of a slice, or `None` if it is a name.
pub(super) fn name_of_key(mut key: &[u8]) -> Option<Vec<u8>> {
    if read_number(&mut key)? != 0 {
        return None;
    }
    let name = read_string(&mut key)?;
    let axes = read_number(&mut key).filter(|&axes| (1..=AXES_MAX as u64).contains(&axes))?;
    for _ in 0..axes {
        read_signed(&mut key)?;
        read_signed(&mut key)?;
    }
    key.is_empty().then_some(name)
}

/// Returns whether a slice takes every axis whole. Such a slice has no entry of its own.
pub(super) fn is_whole(slice: &[Stored]) -> bool {
    slice.iter().all(|extent| extent.start == 0 && length_of(extent) == WHOLE_AXIS)
}

/// Returns what a slice has of a tensor of this shape, or what is wrong with the slice.
pub(super) fn extents(slice: &[Stored], shape: &[usize]) -> Result<Vec<Extent>, String> {
    if slice.len() != shape.len() {
        return Err(format!("a slice has {} axes, and the shape {shape:?} has {}", slice.len(), shape.len()));
    }
    let extent = |(extent, &size): (&Stored, &usize)| {
        let start = usize::try_from(extent.start).ok();
        let length = length_of(extent);
        let found = match length {
            WHOLE_AXIS => start.filter(|&start| start == 0).map(|_| Extent::All),
            _ => start.and_then(|start| {
                let end = start.checked_add(usize::try_from(length).ok()?)?;
                (end <= size).then_some(Extent::Part(start..end))
            }),
        };
        found.ok_or_else(|| {
            format!("a slice has {length} from {} on, of an axis of {size} ({WHOLE_AXIS}: all)", extent.start)
        })
    };
    slice.iter().zip(shape).map(extent).collect()
}

/// Returns the region of a tensor of this shape that extents are of.
pub(super) fn region(extents: &[Extent], shape: &[usize]) -> Vec<Range<usize>> {
    extents.iter().zip(shape).map(|(extent, &size)| extent.places(size)).collect()
}

/// Checks that regions make up a tensor: each element is in one of them, and in no more than one. They are
/// within the tensor.
///
/// That is so if they have as many elements as the tensor, and no two share one. Only regions that meet on
/// one axis, that of the most cuts, are compared. Each comparison of two ranges is taken from `budget`: it
/// bounds the time that a forged index can take.
pub(super) fn check_tiling(
    shape: &[usize],
    regions: &[&[Range<usize>]],
    budget: &mut usize,
) -> Result<(), String> {
    if shape.contains(&0) {
        // Regions are within their tensor, so these are empty too.
        return Ok(());
    }
    let total = elements(shape);
    let count = |sum: usize, region: &&[Range<usize>]| sum.checked_add(elements(&lengths(region))?);
    if total.is_none() || regions.iter().try_fold(0, count) != total {
        return Err(describe_fault(shape, regions));
    }
    match are_disjoint(shape.len(), regions, budget) {
        Some(true) => Ok(()),
        Some(false) => Err(describe_fault(shape, regions)),
        None => {
            let (count, axes) = (regions.len(), shape.len());
            Err(format!("it is cut into {count} slices along {axes} axes: that is too many to check"))
        }
    }
}

/// Returns whether no two regions share an element, or `None` if the budget does not last.
fn are_disjoint(axes: usize, regions: &[&[Range<usize>]], budget: &mut usize) -> Option<bool> {
    let range = |region: &[Range<usize>], axis: usize| region.get(axis).cloned().unwrap_or_default();
    let mut regions: Vec<_> =
        regions.iter().copied().filter(|region| !region.iter().any(Range::is_empty)).collect();
    let starts = |&axis: &usize| {
        let mut starts: Vec<_> = regions.iter().map(|region| range(region, axis).start).collect();
        starts.sort_unstable();
        starts.dedup();
        starts.len()
    };
    let sweep = (0..axes).max_by_key(starts).unwrap_or_default();
    regions.sort_unstable_by_key(|region| range(region, sweep).start);
    // The regions before this one that reach its start on the axis of the sweep.
    let mut open: Vec<&[Range<usize>]> = Vec::new();
    for region in regions {
        *budget = budget.checked_sub(open.len())?;
        open.retain(|other| axes == 0 || range(other, sweep).end > range(region, sweep).start);
        for other in &open {
            let mut pairs = region.iter().zip(*other);
            let apart = pairs.position(|(one, other)| one.end <= other.start || other.end <= one.start);
            let Some(apart) = apart else { return Some(false) };
            *budget = budget.checked_sub(apart.saturating_add(1))?;
        }
        open.push(region);
    }
    Some(true)
}

fn describe_fault(shape: &[usize], regions: &[&[Range<usize>]]) -> String {
    let count = |region: &&[Range<usize>]| elements(&lengths(region)).unwrap_or(usize::MAX);
    let found = regions.iter().map(count).fold(0, usize::saturating_add);
    let total = elements(shape).unwrap_or(usize::MAX);
    let fault = match found.cmp(&total) {
        std::cmp::Ordering::Less => "some are in none",
        std::cmp::Ordering::Equal => "some are in none, and others in two or more",
        std::cmp::Ordering::Greater => "some are in two or more",
    };
    format!("its {} slices have {found} elements for the {total} of shape {shape:?}: {fault}", regions.len())
}

/// Returns the shape of a region.
pub(super) fn lengths(region: &[Range<usize>]) -> Vec<usize> {
    region.iter().map(ExactSizeIterator::len).collect()
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extent(start: i64, length: i64) -> Stored {
        Stored { start, has_length_hack: Some(HasLengthHack::Length(length)) }
    }

    #[test]
    fn keys_are_tensorflows() {
        let whole = Stored::default();
        // From the index of a variable that TensorFlow saved in slices.
        let due = b"\0p/rows\0\x01\x01\x02\x80\x84\x80\x7f";
        assert_eq!(key("p/rows", &[extent(0, 4), whole]), due);
        assert_eq!(key("p/rows", &[extent(0, 4), extent(0, -1)]), due);
        assert_eq!(name_of_key(due), Some(b"p/rows".to_vec()));
        assert_eq!(name_of_key(&due[..due.len() - 1]), None);
        assert_eq!(name_of_key(&[&due[..], b"x"].concat()), None);
        assert_eq!(name_of_key(b"\0abc"), None, "a name that begins with a zero");
        assert_eq!(name_of_key(b"abc"), None);
        assert_eq!(name_of_key(b"\0a\0\x01\0"), None, "a scalar has no slices");
    }

    #[test]
    fn slices_are_regions_of_their_tensor() {
        let whole = Stored::default();
        let found = extents(&[extent(1, 2), whole], &[3, 7]).unwrap();
        assert_eq!(found, [Extent::Part(1..3), Extent::All]);
        assert_eq!(region(&found, &[3, 7]), [1..3, 0..7]);
        assert!(is_whole(&[whole, extent(0, -1)]) && !is_whole(&[extent(0, 3)]) && is_whole(&[]));
        let refused = |slice: &[Stored], shape: &[usize], due: &str| {
            let message = extents(slice, shape).unwrap_err();
            assert!(message.contains(due), "{message}");
        };
        refused(&[whole], &[3, 7], "a slice has 1 axes, and the shape [3, 7] has 2");
        refused(&[extent(2, 2)], &[3], "2 from 2 on, of an axis of 3");
        refused(&[extent(-1, 2)], &[3], "2 from -1 on");
        refused(&[extent(0, -2)], &[3], "-2 from 0 on");
        refused(&[Stored { start: 1, has_length_hack: None }], &[3], "-1 from 1 on");
        refused(&[extent(i64::MAX, i64::MAX)], &[3], "of an axis of 3");
    }

    type Region = Vec<Range<usize>>;

    fn check(shape: &[usize], regions: &[Region]) -> Result<(), String> {
        let mut budget = usize::MAX;
        check_tiling(shape, &regions.iter().map(|region| &region[..]).collect::<Vec<_>>(), &mut budget)
    }

    #[test]
    fn faults_of_a_tiling_are_told_apart() {
        // A pinwheel, which no straight cut divides.
        let mut wheel =
            vec![vec![0..1, 0..2], vec![0..2, 2..3], vec![2..3, 1..3], vec![1..3, 0..1], vec![1..2, 1..2]];
        assert_eq!(check(&[3, 3], &wheel), Ok(()));
        let middle = wheel.pop().unwrap();
        assert!(check(&[3, 3], &wheel).unwrap_err().contains("8 elements for the 9 of shape [3, 3]"));
        wheel.extend([middle.clone(), middle.clone()]);
        assert!(check(&[3, 3], &wheel).unwrap_err().contains("two or more"));
        wheel[0] = middle;
        wheel.push(vec![0..0, 1..3]);
        assert!(check(&[3, 3], &wheel).unwrap_err().contains("some are in none"));
        assert_eq!(check(&[0, 3], &[]), Ok(()));
        assert_eq!(check(&[], &[vec![]]), Ok(()));
        assert!(check(&[2], &[]).is_err());
        assert!(check(&[], &[vec![], vec![]]).unwrap_err().contains("two or more"));
        assert!(check(&[usize::MAX, 2], &[vec![0..usize::MAX, 0..2]]).is_err());
    }

    /// All slices of one element of a tensor that is 2 long on each axis.
    fn singles(axes: usize) -> Vec<Region> {
        let bit = |number: usize, axis: usize| number >> axis & 1;
        let region = |number: usize| {
            (0..axes).map(|axis| bit(number, axis)..bit(number, axis) + 1).collect::<Region>()
        };
        (0..1 << axes).map(region).collect()
    }

    #[test]
    fn many_axes_and_many_slices_take_bounded_work() {
        // 2^62 corners, and one slice.
        assert!(check(&[2; 62], &[vec![0..1; 62]]).unwrap_err().contains("some are in none"));
        let mut halves = vec![vec![0..2; 62]; 2];
        (halves[0][61], halves[1][61]) = (0..1, 1..2);
        assert_eq!(check(&[2; 62], &halves), Ok(()));
        let rows: Vec<Region> = (0..20_000).map(|row| vec![row..row + 1, 0..3]).collect();
        let rows: Vec<&[_]> = rows.iter().map(|row| &row[..]).collect();
        assert_eq!(check_tiling(&[20_000, 3], &rows, &mut 40_000), Ok(()), "two comparisons a row");
        let slices = singles(10);
        assert_eq!(check(&[2; 10], &slices), Ok(()));
        let slices: Vec<&[_]> = slices.iter().map(|slice| &slice[..]).collect();
        let message = check_tiling(&[2; 10], &slices, &mut 1000).unwrap_err();
        assert!(message.contains("1024 slices along 10 axes: that is too many to check"), "{message}");
    }

    /// The number of regions that each element is in, counted one by one.
    fn naive(shape: &[usize], regions: &[Region]) -> bool {
        let mut at = vec![0; shape.len()];
        let total: usize = shape.iter().product();
        (0..total).all(|number| {
            let mut rest = number;
            for (axis, size) in shape.iter().enumerate().rev() {
                at[axis] = rest % size;
                rest /= size;
            }
            let is_in = |region: &&Region| region.iter().zip(&at).all(|(range, at)| range.contains(at));
            regions.iter().filter(is_in).count() == 1
        })
    }

    /// A shape, and regions that come of cutting it again and again.
    fn tilings() -> impl Strategy<Value = (Vec<usize>, Vec<Region>)> {
        let cuts = prop::collection::vec(any::<[prop::sample::Index; 3]>(), 0..8);
        (prop::collection::vec(1..5_usize, 1..4), cuts).prop_map(|(shape, cuts)| {
            let mut regions: Vec<Region> = vec![shape.iter().map(|&size| 0..size).collect()];
            for [which, axis, at] in cuts {
                let which = which.index(regions.len());
                let axis = axis.index(shape.len());
                let Range { start, end } = regions[which][axis];
                let at = start + at.index(end - start + 1);
                let mut other = regions[which].clone();
                (regions[which][axis], other[axis]) = (start..at, at..end);
                regions.push(other);
            }
            (shape, regions.into_iter().filter(|region| !region.iter().any(Range::is_empty)).collect())
        })
    }

    proptest! {
        #[test]
        fn a_key_tells_its_variable(
            name in ".{0,8}", slice in prop::collection::vec((0..300_i64, -1..300_i64), 1..4),
        ) {
            let slice: Vec<_> = slice.into_iter().map(|(start, length)| extent(start, length)).collect();
            prop_assert_eq!(name_of_key(&key(&name, &slice)), Some(name.into_bytes()));
        }

        #[test]
        fn what_was_cut_makes_up_the_whole((shape, regions) in tilings()) {
            prop_assert_eq!(check(&shape, &regions), Ok(()));
        }

        #[test]
        fn regions_are_counted_as_one_by_one(
            (shape, mut regions) in tilings(), which: prop::sample::Index, by: [prop::sample::Index; 3],
        ) {
            let which = which.index(regions.len());
            let axis = by[0].index(shape.len());
            let start = by[1].index(shape[axis]);
            regions[which][axis] = start..start + by[2].index(shape[axis] - start + 1);
            prop_assert_eq!(check(&shape, &regions).is_ok(), naive(&shape, &regions));
        }
    }
}
