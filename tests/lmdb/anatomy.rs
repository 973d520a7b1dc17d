//! The parts of an LMDB's data file, so that they can be damaged.

use std::collections::BTreeSet;

use crate::common::lmdb_forge::{HEAD, Numbers, bytes_put, even, half, whole, word};
use crate::harness::{Guard, Number, Stated};

/// A data file whose parts are known, so that they can be damaged.
pub(crate) struct Anatomy {
    pub(crate) page_bytes: usize,
    pub(crate) branches: Vec<usize>,
    pub(crate) leaves: Vec<usize>,
    /// The first pages of values on overflow pages.
    pub(crate) overflows: Vec<usize>,
}

impl Anatomy {
    /// The anatomy of the newest commit of an undamaged file.
    pub(crate) fn of(file: &[u8]) -> Self {
        Self::of_tree(file, 88)
    }

    /// Of the same commit's list of free pages.
    pub(crate) fn of_free_list(file: &[u8]) -> Self {
        Self::of_tree(file, 40)
    }

    /// Of the tree that is described at this byte of the newest meta page.
    fn of_tree(file: &[u8], at: usize) -> Self {
        let page_bytes = word(file, 40) as usize;
        let newest = usize::from(whole(file, page_bytes + 144) > whole(file, 144)) * page_bytes;
        let (root, depth) = (whole(file, newest + at + 40), half(file, newest + at + 6));
        let mut anatomy = Anatomy { page_bytes, branches: vec![], leaves: vec![], overflows: vec![] };
        if root != u64::MAX {
            anatomy.enter(file, root as usize, depth);
        }
        assert!(anatomy.pages().collect::<BTreeSet<_>>().len() == anatomy.pages().count());
        anatomy
    }

    pub(crate) fn pages(&self) -> impl Iterator<Item = usize> {
        self.branches.iter().chain(&self.leaves).chain(&self.overflows).copied()
    }

    /// The offsets of a page's nodes.
    pub(crate) fn nodes(&self, file: &[u8], page: usize) -> Vec<usize> {
        let at = page * self.page_bytes;
        let count = (usize::from(half(file, at + 12)) - HEAD) / 2;
        (0..count).map(|node| at + usize::from(half(file, at + HEAD + 2 * node))).collect()
    }

    /// Marks the heads of the tree's pages, and the offsets of their nodes: these agree with each other.
    pub(crate) fn mark_heads(&self, file: &mut Stated) {
        let mut pages: Vec<usize> = self.pages().collect();
        pages.sort_unstable();
        for page in pages {
            let at = page * self.page_bytes;
            let mark = |file: &mut Stated, name, range: std::ops::Range<usize>| {
                file.mark_number(name, Guard::Structure, Number::Little, at + range.start..at + range.end);
            };
            mark(file, "number of a page", 0..8);
            mark(file, "flags of a page", 10..12);
            if self.overflows.contains(&page) {
                mark(file, "pages of a value", 12..16);
                continue;
            }
            mark(file, "end of the offsets", 12..14);
            mark(file, "start of the nodes", 14..16);
            let offsets = self.nodes(&file.bytes, page).len();
            file.mark("offsets", Guard::Structure, at + HEAD..at + HEAD + 2 * offsets);
        }
    }

    fn enter(&mut self, file: &[u8], page: usize, depth: u16) {
        let nodes = self.nodes(file, page);
        if depth > 1 {
            self.branches.push(page);
            for node in nodes {
                let child = u64::from(word(file, node)) | u64::from(half(file, node + 4)) << 32;
                self.enter(file, child as usize, depth - 1);
            }
            return;
        }
        self.leaves.push(page);
        for node in nodes {
            if half(file, node + 4) == 1 {
                let key_bytes = usize::from(half(file, node + 6));
                self.overflows.push(whole(file, node + 8 + key_bytes) as usize);
            }
        }
    }

    /// Changes one thing of the file's structure, and says what it was. The bytes of keys and values stay:
    /// LMDB does not protect them.
    pub(crate) fn damage(&self, file: &mut Vec<u8>, numbers: &mut Numbers) -> String {
        loop {
            if let Some(what) = self.try_damage(file, numbers) {
                return what;
            }
        }
    }

    fn try_damage(&self, file: &mut Vec<u8>, numbers: &mut Numbers) -> Option<String> {
        let (page, is_leaf) = match numbers.below(2) {
            0 if !self.branches.is_empty() => (numbers.of(&self.branches), false),
            _ => (numbers.of(&self.leaves), true),
        };
        let at = page * self.page_bytes;
        let nodes = self.nodes(file, page);
        let node = numbers.of(&nodes);
        match numbers.below(10) {
            0 => {
                let (field, bytes) = numbers.of(&[(0, 8), (10, 2), (12, 2), (14, 2)]);
                Some(format!("page {page}: head {field}: {}", change(file, at + field, bytes, numbers)))
            }
            1 => offset(file, at, nodes.len(), numbers),
            2 => Some(format!("page {page}: flags of a node: {}", change(file, node + 4, 2, numbers))),
            3 => key_length(file, node, is_leaf, numbers),
            4 if is_leaf => {
                Some(format!("page {page}: a value's length: {}", change(file, node, 4, numbers)))
            }
            4 | 5 if !is_leaf => self.child(file, &nodes, node, numbers),
            6 => self.meta(file, numbers),
            7 => self.exchange(file, numbers),
            8 => {
                let page = *self.overflows.get(numbers.below(self.overflows.len()))?;
                let (field, bytes) = numbers.of(&[(0, 8), (10, 2), (12, 4)]);
                let what = change(file, page * self.page_bytes + field, bytes, numbers);
                Some(format!("overflow page {page}: head {field}: {what}"))
            }
            9 => {
                let fill = numbers.of(&[0_u8, 0xff, 0x2a]);
                file[at..at + self.page_bytes].fill(fill);
                Some(format!("page {page}: all {fill:#x}"))
            }
            _ => None,
        }
    }

    /// A branch leads elsewhere: to a sibling, to another page of the tree, or to any page.
    fn child(&self, file: &mut [u8], nodes: &[usize], node: usize, numbers: &mut Numbers) -> Option<String> {
        let tree: Vec<usize> = self.branches.iter().chain(&self.leaves).copied().collect();
        let child = match numbers.below(4) {
            0 => u64::from(word(file, numbers.of(nodes))),
            1 => numbers.of(&tree) as u64,
            2 => numbers.below(file.len() / self.page_bytes + 2) as u64,
            _ => numbers.next() & 0xffff_ffff_ffff,
        };
        let differs = child != u64::from(word(file, node));
        bytes_put(file, node, &child.to_le_bytes()[..6]);
        differs.then(|| format!("a branch leads to page {child}"))
    }

    fn meta(&self, file: &mut Vec<u8>, numbers: &mut Numbers) -> Option<String> {
        const FIELDS: [(usize, usize); 20] = [
            (0, 8),
            (10, 2),
            (16, 4),
            (20, 4),
            (24, 8),
            (32, 8),
            (40, 4),
            (44, 2),
            (46, 2),
            (72, 8),
            (80, 8),
            (88, 4),
            (92, 2),
            (94, 2),
            (96, 8),
            (104, 8),
            (120, 8),
            (128, 8),
            (136, 8),
            (144, 8),
        ];
        let number = numbers.below(2);
        let (field, bytes) = numbers.of(&FIELDS);
        let before = file.clone();
        let what = change(file, number * self.page_bytes + field, bytes, numbers);
        let [zero, one] = [0, self.page_bytes].map(|at| whole(file, at + 144));
        if field == 144 && zero.abs_diff(one) == 1 {
            // With this change the other meta page is the newer one: it describes another, earlier commit.
            *file = before;
            return None;
        }
        Some(format!("meta page {number}: byte {field}: {what}"))
    }

    /// Two pages are exchanged, or one overwrites another.
    fn exchange(&self, file: &mut [u8], numbers: &mut Numbers) -> Option<String> {
        let page_bytes = self.page_bytes;
        let all: Vec<usize> = self.pages().collect();
        let (one, other) = (numbers.of(&all), numbers.below(file.len() / page_bytes));
        if one == other || other < 2 && numbers.below(4) > 0 {
            return None;
        }
        let [first, second] = [one, other].map(|page| file[page * page_bytes..][..page_bytes].to_vec());
        bytes_put(file, one * page_bytes, &second);
        if numbers.below(2) == 0 {
            bytes_put(file, other * page_bytes, &first);
            return Some(format!("pages {one} and {other} exchanged"));
        }
        Some(format!("page {other} in the place of {one}"))
    }
}

/// Moves a node's offset: to another node's, or anywhere.
fn offset(file: &mut [u8], page: usize, nodes: usize, numbers: &mut Numbers) -> Option<String> {
    let at = page + HEAD + 2 * numbers.below(nodes);
    if numbers.below(2) == 0 {
        let other = half(file, page + HEAD + 2 * numbers.below(nodes));
        let differs = other != half(file, at);
        bytes_put(file, at, &other.to_le_bytes());
        return differs.then(|| format!("byte {at}: a node is where another is"));
    }
    Some(format!("byte {at}: a node's offset: {}", change(file, at, 2, numbers)))
}

fn key_length(file: &mut Vec<u8>, node: usize, is_leaf: bool, numbers: &mut Numbers) -> Option<String> {
    let before = file.clone();
    let what = change(file, node + 6, 2, numbers);
    let [was, is] = [&before, &*file].map(|file| usize::from(half(file, node + 6)));
    // A change within the padding that makes a node's length even alters a key and nothing else: undone.
    let rest = if is_leaf && half(file, node + 4) == 0 { word(file, node) as usize } else { 0 };
    if even(was + rest) == even(is + rest) {
        *file = before;
        return None;
    }
    Some(format!("byte {node}: a key's length: {what}"))
}

/// Changes a number: a bit, a little more or less, or anything.
fn change(file: &mut [u8], at: usize, bytes: usize, numbers: &mut Numbers) -> String {
    let mut raw = [0; 8];
    raw[..bytes].copy_from_slice(&file[at..at + bytes]);
    let was = u64::from_le_bytes(raw);
    let mask = if bytes == 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 };
    let is = loop {
        let is = match numbers.below(5) {
            0 => was ^ 1 << numbers.below(8 * bytes),
            1 => was.wrapping_add(1 + numbers.next() % 8),
            2 => was.wrapping_sub(1 + numbers.next() % 8),
            3 => numbers.of(&[0, u64::MAX, 1 << (8 * bytes - 1), 4096]),
            _ => numbers.next(),
        } & mask;
        if is != was {
            break is;
        }
    };
    file[at..at + bytes].copy_from_slice(&is.to_le_bytes()[..bytes]);
    format!("{was:#x} -> {is:#x}")
}
