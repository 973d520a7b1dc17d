//! Names that are similar to one that does not exist.

/// The most names that a message shows.
const NAMES_MAX: usize = 5;
/// The most letters in which a name may differ.
const EDITS_MAX: usize = 3;
/// Longer names are not compared letter by letter.
const BYTES_MAX: usize = 256;

/// Returns the names that may have been meant, the likeliest first.
pub(super) fn near<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut found: Vec<(usize, &str)> = Vec::new();
    for name in names {
        let Some(distance) = distance(wanted, name) else { continue };
        let place = found.partition_point(|&(other, _)| other <= distance);
        if place < NAMES_MAX {
            found.insert(place, (distance, name));
            found.truncate(NAMES_MAX);
        }
    }
    found.into_iter().map(|(_, name)| name.to_owned()).collect()
}

/// Returns how unlike two names are, or `None` if one was hardly meant by the other.
fn distance(wanted: &str, name: &str) -> Option<usize> {
    if name.eq_ignore_ascii_case(wanted) {
        return Some(0);
    }
    // `net/w` for `net/w/.ATTRIBUTES/VARIABLE_VALUE`, `w:0` (an output of a graph) for `w`, `w` for `net/w`.
    let continues = |long: &str, short: &str| {
        let rest = long.strip_prefix(short).is_some_and(|rest| rest.starts_with(['/', ':']));
        rest || long.strip_suffix(short).is_some_and(|front| front.ends_with('/'))
    };
    if !wanted.is_empty() && (continues(name, wanted) || continues(wanted, name)) {
        return Some(1);
    }
    // The keys of a table begin with what its object says (`table` for `table-keys`).
    if !wanted.is_empty() && name.starts_with(wanted) {
        return Some(2);
    }
    if wanted.len().max(name.len()) > BYTES_MAX || wanted.len().abs_diff(name.len()) > EDITS_MAX {
        return None;
    }
    let edits = edits(wanted.as_bytes(), name.as_bytes());
    let allowed = EDITS_MAX.min(wanted.len() / 3);
    (edits <= allowed).then_some(edits + 1)
}

/// Returns how many letters must be changed, added or removed to make one name of the other, or some number
/// above `EDITS_MAX` if they are more.
fn edits(one: &[u8], other: &[u8]) -> usize {
    let same = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let (one, other) = (&one[same..], &other[same..]);
    let mut costs: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.iter().enumerate() {
        let mut diagonal = row;
        let mut left = row + 1;
        let mut least = left;
        costs[0] = left;
        for (cost, is_other) in costs[1..].iter_mut().zip(other.iter().map(|other| other != letter)) {
            left = (diagonal + usize::from(is_other)).min(*cost + 1).min(left + 1);
            least = least.min(left);
            diagonal = std::mem::replace(cost, left);
        }
        // No row has less than the least of the row before it.
        if least > EDITS_MAX {
            return least;
        }
    }
    costs[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_were_meant_are_found() {
        let names = ["layer1/W", "layer2/W", "net/w/.ATTRIBUTES/VARIABLE_VALUE", "step", "x"];
        let found = |wanted| near(wanted, names.into_iter());
        assert_eq!(found("layer1/w"), ["layer1/W", "layer2/W"]);
        assert_eq!(found("layer1/W:0"), ["layer1/W", "layer2/W"]);
        assert_eq!(found("net/w"), ["net/w/.ATTRIBUTES/VARIABLE_VALUE"]);
        assert_eq!(found("W"), ["layer1/W", "layer2/W"]);
        assert_eq!(found("stpe"), [""; 0], "of four letters, one may differ");
        assert_eq!(found("stepp"), ["step"]);
        assert_eq!(found("lay"), ["layer1/W", "layer2/W"]);
        assert_eq!(found(""), [""; 0]);
        assert_eq!(found(&"y".repeat(1000)), [""; 0]);
        assert_eq!(near("a", ["b/a"; 9].into_iter()).len(), NAMES_MAX);
    }

    #[test]
    fn edits_are_counted() {
        for (one, other, due) in
            [("", "abc", 3), ("kitten", "sitting", 3), ("same", "same", 0), ("ab", "ba", 2), ("abc", "", 3)]
        {
            assert_eq!(edits(one.as_bytes(), other.as_bytes()), due, "{one} {other}");
        }
    }
}
