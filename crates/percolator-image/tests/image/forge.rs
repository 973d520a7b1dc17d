//! Makes baseline JPEG files from random numbers: any sampling, any scans, any coefficients, restart markers.
//! Progressive ones are in `forge/progressive.rs`.
//!
//! Encoders write few of these; a decoder must read them all.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test of small numbers")]
#![allow(dead_code, reason = "some of it is for the twin alone")]

#[path = "forge/progressive.rs"]
pub(crate) mod progressive;

/// Random numbers, the same in every run.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Less than `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// True once in `times` calls on average.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// Writes the bits of scan data.
#[derive(Default)]
struct Writer {
    data: Vec<u8>,
    bits: u32,
    count: u32,
}

impl Writer {
    fn put(&mut self, number: u32, count: u32) {
        for at in (0..count).rev() {
            self.bits = self.bits << 1 | number >> at & 1;
            self.count += 1;
            if self.count == 8 {
                let byte = (self.bits & 0xff) as u8;
                self.data.push(byte);
                if byte == 0xff {
                    self.data.push(0);
                }
                self.count = 0;
            }
        }
    }

    fn flush(&mut self) {
        while self.count > 0 {
            self.put(1, 1);
        }
    }
}

/// A Huffman table: symbols, and codes of several lengths.
struct Table {
    counts: [u8; 16],
    symbols: Vec<u8>,
}

impl Table {
    /// The symbols in random order, some with short codes, some with long ones.
    fn new(mut symbols: Vec<u8>, groups: &[(usize, usize)], numbers: &mut Numbers) -> Self {
        for at in (1..symbols.len()).rev() {
            symbols.swap(at, numbers.below(at + 1));
        }
        let (mut counts, mut left) = ([0; 16], symbols.len());
        for &(len, count) in groups {
            counts[len - 1] = count.min(left) as u8;
            left -= count.min(left);
        }
        assert_eq!(left, 0);
        Self { counts, symbols }
    }

    fn put(&self, writer: &mut Writer, symbol: u8) {
        let (mut code, mut at) = (0, 0);
        for (&count, len) in self.counts.iter().zip(1u32..) {
            for _ in 0..count {
                if self.symbols[at] == symbol {
                    return writer.put(code, len);
                }
                (code, at) = (code + 1, at + 1);
            }
            code <<= 1;
        }
        unreachable!("every symbol has a code");
    }
}

struct Component {
    id: u8,
    across: usize,
    down: usize,
    quantizer: usize,
}

/// How large and how dense the coefficients of a file become.
struct Style {
    sizes: usize,
    density: usize,
}

/// The bits of a number, and their count.
fn bits_of(number: i32) -> (u32, u32) {
    let size = 32 - number.unsigned_abs().leading_zeros();
    let bits = if number < 0 { number - 1 } else { number } as u32;
    (bits & !(!0 << size), size)
}

fn random_of_size(size: usize, numbers: &mut Numbers) -> i32 {
    if size == 0 {
        return 0;
    }
    let magnitude = (1 << (size - 1)) + numbers.below(1 << (size - 1)) as i32;
    if numbers.once_in(2) { -magnitude } else { magnitude }
}

fn put_block(writer: &mut Writer, dc: &Table, ac: &Table, style: &Style, numbers: &mut Numbers) {
    let put = |writer: &mut Writer, number: i32| {
        let (bits, size) = bits_of(number);
        writer.put(bits, size);
    };
    let size = numbers.below(style.sizes.min(9) + 1);
    dc.put(writer, size as u8);
    put(writer, random_of_size(size, numbers));
    let (mut at, last) = (0, numbers.below(64) * numbers.below(style.density) / style.density.max(1));
    while at < last {
        let mut zeros = numbers.below(style.density).min(last - at - 1);
        at += zeros + 1;
        while zeros > 15 {
            ac.put(writer, 0xf0);
            zeros -= 16;
        }
        let size = 1 + numbers.below(style.sizes);
        ac.put(writer, (zeros << 4 | size) as u8);
        put(writer, random_of_size(size, numbers));
    }
    if at < 63 {
        ac.put(writer, 0);
    }
}

fn components(numbers: &mut Numbers) -> Vec<Component> {
    let count = if numbers.once_in(4) { 1 } else { 3 };
    let ids = if numbers.once_in(5) { *b"RGB" } else { [1, 2, 3] };
    loop {
        let factor = |numbers: &mut Numbers| {
            let most = if numbers.once_in(2) { 2 } else { 4 };
            1 + numbers.below(most)
        };
        let components: Vec<_> = (0..count)
            .map(|at| Component {
                id: ids[at],
                across: factor(numbers),
                down: factor(numbers),
                quantizer: numbers.below(2),
            })
            .collect();
        let most = |of: fn(&Component) -> usize| components.iter().map(of).max().unwrap();
        let (across, down) = (most(|component| component.across), most(|component| component.down));
        let blocks: usize = components.iter().map(|component| component.across * component.down).sum();
        let whole =
            components.iter().all(|component| across % component.across == 0 && down % component.down == 0);
        if whole && blocks <= 10 {
            return components;
        }
    }
}

fn segment(file: &mut Vec<u8>, code: u8, bytes: &[u8]) {
    file.extend([0xff, code]);
    file.extend((bytes.len() as u16 + 2).to_be_bytes());
    file.extend(bytes);
}

fn put_quantizers(file: &mut Vec<u8>, numbers: &mut Numbers, large: bool) {
    for table in 0..2 {
        let words = large && numbers.once_in(2);
        let mut bytes = vec![if words { 0x10 | table } else { table }];
        for _ in 0..64 {
            let step = 1 + numbers.below(if large { 255 } else { 12 }) as u16;
            if words {
                bytes.extend((step * 3).to_be_bytes());
            } else {
                bytes.push(step as u8);
            }
        }
        segment(file, 0xdb, &bytes);
    }
}

fn put_tables(file: &mut Vec<u8>, numbers: &mut Numbers) -> [Table; 2] {
    let dc = Table::new((0..12).collect(), &[(3, 3), (5, 8), (11, 1)], numbers);
    let symbols = (0..=255u8)
        .filter(|symbol| symbol & 15 <= 12 && (symbol & 15 > 0 || *symbol == 0 || *symbol == 0xf0));
    let ac =
        Table::new(symbols.collect(), &[(4, 4), (6, 10), (8, 60), (10, 60), (12, 30), (16, 200)], numbers);
    for (class, table) in [(0x00, &dc), (0x10, &ac)] {
        segment(file, 0xc4, &[&[class], &table.counts[..], &table.symbols].concat());
    }
    [dc, ac]
}

fn put_frame(file: &mut Vec<u8>, code: u8, sides: [usize; 2], components: &[Component]) {
    let mut frame = vec![8];
    frame.extend(sides.iter().flat_map(|&side| (side as u16).to_be_bytes()));
    frame.push(components.len() as u8);
    for component in components {
        let factors = (component.across << 4 | component.down) as u8;
        frame.extend([component.id, factors, component.quantizer as u8]);
    }
    segment(file, code, &frame);
}

/// The components in each scan.
fn scripts(count: usize, numbers: &mut Numbers) -> Vec<Vec<usize>> {
    match (count, numbers.below(4)) {
        (3, 0) => vec![vec![0], vec![1], vec![2]],
        (3, 1) => vec![vec![2], vec![0, 1]],
        _ => vec![(0..count).collect()],
    }
}

/// A random file.
pub(crate) fn file(numbers: &mut Numbers) -> Vec<u8> {
    let (height, width) = (1 + numbers.below(70), 1 + numbers.below(70));
    let components = components(numbers);
    let large = numbers.once_in(6);
    let style =
        Style { sizes: 1 + numbers.below(if large { 12 } else { 6 }), density: 1 + numbers.below(20) };
    let mut file = vec![0xff, 0xd8];
    if numbers.once_in(3) {
        segment(&mut file, 0xe0, b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0");
    } else if numbers.once_in(2) {
        segment(&mut file, 0xee, &[b"Adobe\0\x64\0\0\0\0", &[numbers.below(2) as u8][..]].concat());
    }
    put_quantizers(&mut file, numbers, large);
    let [dc, ac] = put_tables(&mut file, numbers);
    put_frame(&mut file, 0xc0 + numbers.below(2) as u8, [height, width], &components);
    let interval = if numbers.once_in(2) { 0 } else { 1 + numbers.below(9) };
    segment(&mut file, 0xdd, &(interval as u16).to_be_bytes());
    let most = |of: fn(&Component) -> usize| components.iter().map(of).max().unwrap();
    let (across, down) = (most(|component| component.across), most(|component| component.down));
    for members in scripts(components.len(), numbers) {
        let mut header = vec![members.len() as u8];
        header.extend(members.iter().flat_map(|&at| [components[at].id, 0]));
        header.extend([0, 63, 0]);
        segment(&mut file, 0xda, &header);
        let (units, blocks) = if let [only] = members[..] {
            let only = &components[only];
            let rows = (height * only.down).div_ceil(down).div_ceil(8);
            (rows * (width * only.across).div_ceil(across).div_ceil(8), 1)
        } else {
            let blocks = members.iter().map(|&at| components[at].across * components[at].down).sum();
            (height.div_ceil(8 * down) * width.div_ceil(8 * across), blocks)
        };
        let (mut writer, mut restarts) = (Writer::default(), 0);
        for unit in 0..units {
            if interval > 0 && unit > 0 && unit % interval == 0 {
                writer.flush();
                writer.data.extend([0xff, 0xd0 | restarts]);
                restarts = (restarts + 1) % 8;
            }
            for _ in 0..blocks {
                put_block(&mut writer, &dc, &ac, &style, numbers);
            }
        }
        writer.flush();
        file.extend(writer.data);
    }
    file.extend([0xff, 0xd9]);
    file
}
