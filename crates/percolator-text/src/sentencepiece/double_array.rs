//! A trie of byte strings in two arrays. From a node, a byte leads to the place `base + byte`, if the node
//! there has the first node as its parent.

/// The value of a node at which no string ends, and the parent of a place that has no node.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Unit {
    base: u32,
    parent: u32,
    value: u32,
}

/// A set of byte strings, each with a number, that is searched for the prefixes of a text.
#[derive(Debug)]
pub(super) struct DoubleArray {
    units: Vec<Unit>,
}

impl DoubleArray {
    /// Strings must not be empty, and no two may be the same.
    pub(super) fn new(mut strings: Vec<(&[u8], u32)>) -> Self {
        strings.sort_unstable();
        let mut array = DoubleArray { units: Vec::new() };
        array.extend_to(0);
        array.units[0].parent = 0;
        // Nodes whose children are yet to be placed: the strings below the node, and the length of the node's
        // own string.
        let mut open = vec![(0_u32, 0, strings.len(), 0)];
        // All places below this one are taken.
        let mut free_from = 1;
        while let Some((node, from, to, depth)) = open.pop() {
            let mut groups: Vec<(u8, usize, usize)> = Vec::new();
            for (at, (string, value)) in (from..to).zip(&strings[from..to]) {
                match (string.get(depth), groups.last_mut()) {
                    (None, _) => array.units[node as usize].value = *value,
                    (Some(byte), Some((last, _, end))) if byte == last => *end = at + 1,
                    (Some(byte), _) => groups.push((*byte, at, at + 1)),
                }
            }
            if groups.is_empty() {
                continue;
            }
            let base = array.place(&groups, &mut free_from);
            array.units[node as usize].base = base;
            for (byte, from, to) in groups {
                let child = base + u32::from(byte);
                array.units[child as usize].parent = node;
                open.push((child, from, to, depth + 1));
            }
        }
        array
    }

    /// Finds a base from which the places of all these bytes are free.
    fn place(&mut self, groups: &[(u8, usize, usize)], free_from: &mut u32) -> u32 {
        let first = u32::from(groups.first().map_or(0, |group| group.0));
        let mut place = (*free_from).max(first);
        let mut taken = 0;
        let start = place;
        loop {
            self.extend_to(place + 255);
            let base = place - first;
            let mut places = groups.iter().map(|(byte, ..)| base + u32::from(*byte));
            if places.all(|place| place > 0 && self.units[place as usize].parent == NONE) {
                // Places that are nearly all taken are not searched again.
                if taken * 20 >= (place - start + 1) * 19 {
                    *free_from = (*free_from).max(place);
                }
                return base;
            }
            taken += u32::from(self.units[place as usize].parent != NONE);
            place += 1;
        }
    }

    fn extend_to(&mut self, place: u32) {
        if self.units.len() <= place as usize {
            self.units.resize(place as usize + 1, Unit { base: 0, parent: NONE, value: NONE });
        }
    }

    /// Whether a string starts with this byte.
    pub(super) fn has_start(&self, byte: u8) -> bool {
        self.child(0, &self.units[0], byte).is_some()
    }

    fn child(&self, node: u32, unit: &Unit, byte: u8) -> Option<(u32, Unit)> {
        let next = unit.base + u32::from(byte);
        let found = self.units.get(next as usize)?;
        (found.parent == node && next > 0).then_some((next, *found))
    }

    /// Calls `take` with the length and the number of each string that the text starts with, the shortest
    /// first.
    pub(super) fn prefixes(&self, text: &[u8], mut take: impl FnMut(usize, u32)) {
        let mut node = 0;
        let mut unit = self.units[0];
        for (at, byte) in text.iter().enumerate() {
            let Some(child) = self.child(node, &unit, *byte) else { return };
            (node, unit) = child;
            if unit.value != NONE {
                take(at + 1, unit.value);
            }
        }
    }
}
