//! LMDB data files assembled by hand, with pages of any size.

pub const HEAD: usize = 16;
pub const BRANCH: u16 = 1;
pub const LEAF: u16 = 2;
pub const OVERFLOW: u16 = 4;
const META: u16 = 8;
const MAGIC: u32 = 0xbeef_c0de;

pub fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

pub fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub fn whole(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

pub fn even(bytes: usize) -> usize {
    bytes + bytes % 2
}

/// A file of one commit with these records, which must be in key order.
pub fn forge(page_bytes: usize, records: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut file = Forge { page_bytes, bytes: vec![0; 2 * page_bytes], counts: [0; 3] };
    let inline_max = (((page_bytes - HEAD) / 2) & !1) - 2;
    let mut nodes: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for (key, value) in records {
        let is_inline = 8 + key.len() + value.len() <= inline_max;
        let (flags, rest) = match is_inline {
            true => (0_u16, value.clone()),
            false => (1, file.overflow(value).to_le_bytes().to_vec()),
        };
        let mut node = (value.len() as u32).to_le_bytes().to_vec();
        node.extend(flags.to_le_bytes());
        node.extend((key.len() as u16).to_le_bytes());
        node.extend(key);
        node.extend(rest);
        nodes.push((key.clone(), node));
    }
    let mut depth = 0_u16;
    let mut root = u64::MAX;
    let mut kind = LEAF;
    while !nodes.is_empty() {
        depth += 1;
        let pages = file.level(kind, &nodes);
        if let [(_, only)] = &pages[..] {
            root = *only;
            break;
        }
        kind = BRANCH;
        nodes = pages
            .into_iter()
            .map(|(key, page)| {
                let mut node = page.to_le_bytes()[..6].to_vec();
                node.extend((key.len() as u16).to_le_bytes());
                node.extend(&key);
                (key, node)
            })
            .collect();
    }
    file.metas(root, depth, records.len() as u64);
    file.bytes
}

struct Forge {
    page_bytes: usize,
    bytes: Vec<u8>,
    /// Branches, leaves, overflow pages.
    counts: [u64; 3],
}

impl Forge {
    fn begin(&mut self, flags: u16, pages: usize) -> (u64, usize) {
        let (number, at) = ((self.bytes.len() / self.page_bytes) as u64, self.bytes.len());
        self.bytes.resize(at + pages * self.page_bytes, 0);
        self.bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        self.bytes[at + 10..at + 12].copy_from_slice(&flags.to_le_bytes());
        (number, at)
    }

    fn overflow(&mut self, value: &[u8]) -> u64 {
        let pages = (HEAD + value.len()).div_ceil(self.page_bytes);
        let (number, at) = self.begin(OVERFLOW, pages);
        self.bytes[at + 12..at + 16].copy_from_slice(&(pages as u32).to_le_bytes());
        self.bytes[at + HEAD..][..value.len()].copy_from_slice(value);
        self.counts[2] += pages as u64;
        number
    }

    /// Writes pages of these nodes; returns each page's first key and number.
    fn level(&mut self, kind: u16, nodes: &[(Vec<u8>, Vec<u8>)]) -> Vec<(Vec<u8>, u64)> {
        let mut pages = Vec::new();
        let mut rest = nodes;
        while !rest.is_empty() {
            let mut capacity = self.page_bytes - HEAD;
            let fits = rest
                .iter()
                .take_while(|(_, node)| {
                    let needed = even(node.len()) + 2;
                    let fits = needed <= capacity;
                    capacity = capacity.saturating_sub(needed);
                    fits
                })
                .count();
            // A branch has at least two pages below it.
            let left = rest.len() - fits;
            let count = if kind == BRANCH && left == 1 { fits - 1 } else { fits };
            assert!(count >= if kind == BRANCH { 2 } else { 1 }, "nodes are too long for a page");
            let (page_nodes, others) = rest.split_at(count);
            rest = others;
            let (number, at) = self.begin(kind, 1);
            let mut upper = self.page_bytes;
            for (position, (_, node)) in page_nodes.iter().enumerate() {
                upper -= even(node.len());
                self.bytes[at + upper..][..node.len()].copy_from_slice(node);
                let offset = at + HEAD + 2 * position;
                self.bytes[offset..offset + 2].copy_from_slice(&(upper as u16).to_le_bytes());
            }
            let lower = (HEAD + 2 * count) as u16;
            self.bytes[at + 12..at + 14].copy_from_slice(&lower.to_le_bytes());
            self.bytes[at + 14..at + 16].copy_from_slice(&(upper as u16).to_le_bytes());
            self.counts[usize::from(kind == LEAF)] += 1;
            pages.push((page_nodes[0].0.clone(), number));
        }
        pages
    }

    fn metas(&mut self, root: u64, depth: u16, entries: u64) {
        let last_page = (self.bytes.len() / self.page_bytes - 1) as u64;
        for number in 0..2_u64 {
            let at = number as usize * self.page_bytes;
            let put = |bytes: &mut Vec<u8>, offset: usize, value: &[u8]| {
                bytes[at + offset..][..value.len()].copy_from_slice(value);
            };
            let is_first = number == 0;
            put(&mut self.bytes, 0, &number.to_le_bytes());
            put(&mut self.bytes, 10, &META.to_le_bytes());
            put(&mut self.bytes, 16, &MAGIC.to_le_bytes());
            put(&mut self.bytes, 20, &1_u32.to_le_bytes());
            put(&mut self.bytes, 32, &(1_u64 << 30).to_le_bytes());
            put(&mut self.bytes, 40, &(self.page_bytes as u32).to_le_bytes());
            put(&mut self.bytes, 44, &8_u16.to_le_bytes());
            put(&mut self.bytes, 80, &u64::MAX.to_le_bytes());
            put(&mut self.bytes, 128, &u64::MAX.to_le_bytes());
            put(&mut self.bytes, 136, &(if is_first { 1 } else { last_page }).to_le_bytes());
            put(&mut self.bytes, 144, &number.to_le_bytes());
            if !is_first && root != u64::MAX {
                put(&mut self.bytes, 94, &depth.to_le_bytes());
                for (kind, count) in self.counts.iter().enumerate() {
                    let count = count.to_le_bytes();
                    bytes_put(&mut self.bytes, at + 96 + 8 * kind, &count);
                }
                put(&mut self.bytes, 120, &entries.to_le_bytes());
                put(&mut self.bytes, 128, &root.to_le_bytes());
            }
        }
    }
}

pub fn bytes_put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Random numbers from a seed.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }
}
