//! Makes progressive JPEG files from random numbers: any sampling, any order of scans, bands and bits,
//! restart markers, and runs of blocks without further codes. Each comes with the baseline file of the same
//! coefficients, whose pixels are therefore the same.
//!
//! The encoder follows the standard (T.81, annex G), one coefficient at a time, and shares no code with the
//! decoders it tests.

use super::{
    Component, Numbers, Style, Table, Writer, bits_of, components, put_frame, put_quantizers, put_tables,
    random_of_size, segment,
};

/// The coefficients of a block, ordered by frequency.
type Block = [i32; 64];

/// The most scans of a script that bring nothing that is still missing; it bounds the number of scans.
const FREE_SCANS: usize = 20;

/// The longest run of blocks that one code can stand for.
const RUN_MAX: u32 = 0x7fff;

/// A progressive file, and the baseline file of the same coefficients.
pub(crate) struct Twins {
    pub(crate) progressive: Vec<u8>,
    pub(crate) baseline: Vec<u8>,
    pub(crate) made_of: MadeOf,
}

/// What a progressive file contains, so that a test can assert that everything occurred often enough.
#[derive(Debug, Default)]
pub(crate) struct MadeOf {
    pub(crate) scans: usize,
    pub(crate) refinements: usize,
    pub(crate) restarts: usize,
    /// The longest run of blocks that one code stands for.
    pub(crate) longest_run: u32,
}

/// What a scan brings, for which components.
#[derive(Clone, Debug)]
struct Scan {
    members: Vec<usize>,
    first: usize,
    last: usize,
    /// The lowest bit brought before; `None` for the first scan.
    high: Option<u8>,
    low: u8,
}

/// The coefficients of an image.
struct Picture {
    sides: [usize; 2],
    components: Vec<Component>,
    /// For each component, rows of whole groups.
    blocks: Vec<Vec<Block>>,
}

impl Picture {
    fn random(numbers: &mut Numbers, style: &Style) -> Self {
        // Now and then, more blocks than a short run holds.
        let most = if numbers.once_in(12) { 300 } else { 70 };
        let sides = [1 + numbers.below(most), 1 + numbers.below(most)];
        let mut picture = Picture { sides, components: components(numbers), blocks: Vec::new() };
        let [rows, columns] = picture.groups();
        let empty = 1 + numbers.below(6);
        for component in &picture.components {
            let count = rows * component.down * columns * component.across;
            let blocks = (0..count).map(|_| block(numbers, style, empty));
            picture.blocks.push(blocks.collect());
        }
        picture
    }

    fn groups(&self) -> [usize; 2] {
        let [down, across] = self.factors();
        [self.sides[0].div_ceil(8 * down), self.sides[1].div_ceil(8 * across)]
    }

    /// The largest sampling factors.
    fn factors(&self) -> [usize; 2] {
        let most = |of: fn(&Component) -> usize| self.components.iter().map(of).max().unwrap();
        [most(|component| component.down), most(|component| component.across)]
    }

    /// The blocks of each unit of a scan: component and place. A scan of one component has only the blocks
    /// that contain part of the image.
    fn units(&self, members: &[usize]) -> Vec<Vec<(usize, usize)>> {
        let ([down, across], [rows, columns]) = (self.factors(), self.groups());
        let every = |rows: usize, columns: usize| {
            (0..rows).flat_map(move |row| (0..columns).map(move |column| (row, column)))
        };
        if let [only] = *members {
            let component = &self.components[only];
            let stride = columns * component.across;
            let rows = (self.sides[0] * component.down).div_ceil(down).div_ceil(8);
            let columns = (self.sides[1] * component.across).div_ceil(across).div_ceil(8);
            return every(rows, columns).map(|(row, column)| vec![(only, row * stride + column)]).collect();
        }
        let unit = |(row, column)| {
            let blocks = members.iter().flat_map(|&member| {
                let Component { down, across, .. } = self.components[member];
                every(down, across)
                    .map(move |(y, x)| (member, (row * down + y) * columns * across + column * across + x))
            });
            blocks.collect()
        };
        every(rows, columns).map(unit).collect()
    }
}

/// A block. About one in `empty` has more codes than the mean's.
fn block(numbers: &mut Numbers, style: &Style, empty: usize) -> Block {
    let mut block = [0; 64];
    block[0] = random_of_size(numbers.below(style.sizes.min(9) + 1), numbers);
    if numbers.once_in(empty) {
        let mut at = 1 + numbers.below(style.density);
        while at < 64 {
            block[at] = random_of_size(1 + numbers.below(style.sizes), numbers);
            at += 1 + numbers.below(style.density);
        }
    }
    block
}

/// Scans in an allowed order, until every bit of every coefficient was brought.
fn script(count: usize, numbers: &mut Numbers) -> Vec<Scan> {
    let mut lowest = vec![[None; 64]; count];
    let mut scans: Vec<Scan> = Vec::new();
    loop {
        let missing = |member: &usize| lowest[*member].iter().any(|&low| low != Some(0));
        let members: Vec<usize> = (0..count).filter(missing).collect();
        if members.is_empty() {
            return scans;
        }
        let member = members[numbers.below(members.len())];
        let state = &lowest[member];
        let at = (0..64).filter(|&at| state[at] != Some(0)).collect::<Vec<_>>();
        // The mean comes before anything else.
        let at = if state[0].is_none() { 0 } else { at[numbers.below(at.len())] };
        let is_free = scans.len() < FREE_SCANS;
        let high: Option<u8> = state[at];
        let low = match high {
            Some(high) => high - 1,
            None if scans.len() < 3 && numbers.once_in(4) => numbers.below(8) as u8,
            None if is_free => numbers.below(4) as u8,
            None => 0,
        };
        let mut scan = Scan { members: vec![member], first: at, last: at, high, low };
        if at == 0 {
            scan.members = (0..count)
                .filter(|&other| other == member || lowest[other][0] == high && !numbers.once_in(3))
                .collect();
        } else {
            let equal = |place: &usize| state[*place] == high;
            scan.first = (1..=at).rev().take_while(equal).last().unwrap_or(at);
            scan.last = (at..64).take_while(equal).last().unwrap_or(at);
            if is_free && numbers.once_in(2) {
                scan.first += numbers.below(at - scan.first + 1);
                scan.last -= numbers.below(scan.last - at + 1);
            }
        }
        for &member in &scan.members {
            lowest[member][scan.first..=scan.last].fill(Some(low));
        }
        scans.push(scan);
    }
}

/// Writes the data of an AC scan.
struct Details<'a> {
    writer: Writer,
    table: &'a Table,
    scan: &'a Scan,
    /// Blocks without further codes that are not yet written, and the bits of their refinement.
    run: u32,
    run_bits: Vec<u32>,
    longest_run: u32,
}

impl Details<'_> {
    fn put_number(&mut self, zeros: u32, value: i32) {
        let (bits, size) = bits_of(value);
        self.table.put(&mut self.writer, (zeros << 4 | size) as u8);
        self.writer.put(bits, size);
    }

    /// Writes the run of blocks without further codes.
    fn end_run(&mut self) {
        if self.run > 0 {
            let size = self.run.ilog2();
            self.table.put(&mut self.writer, (size << 4) as u8);
            self.writer.put(self.run & !(!0 << size), size);
            self.longest_run = self.longest_run.max(self.run);
        }
        self.run = 0;
        self.put_bits();
    }

    fn put_bits(&mut self) {
        for bit in self.run_bits.drain(..) {
            self.writer.put(bit, 1);
        }
    }

    fn lengthen_run(&mut self, bits: Vec<u32>, numbers: &mut Numbers) {
        self.run += 1;
        self.run_bits.extend(bits);
        // An encoder may end a run at any time.
        if self.run == RUN_MAX || numbers.once_in(40) {
            self.end_run();
        }
    }

    /// The first scan of a band.
    fn first(&mut self, block: &Block, numbers: &mut Numbers) {
        let mut zeros = 0;
        for &coefficient in &block[self.scan.first..=self.scan.last] {
            let size = (coefficient.unsigned_abs() >> self.scan.low) as i32;
            if size == 0 {
                zeros += 1;
                continue;
            }
            self.end_run();
            while zeros > 15 {
                self.table.put(&mut self.writer, 0xf0);
                zeros -= 16;
            }
            self.put_number(zeros, size * coefficient.signum());
            zeros = 0;
        }
        if zeros > 0 {
            self.lengthen_run(Vec::new(), numbers);
        }
    }

    /// A later scan of a band: one more bit of each coefficient.
    fn refine(&mut self, block: &Block, numbers: &mut Numbers) {
        let band = &block[self.scan.first..=self.scan.last];
        let size = |coefficient: &i32| coefficient.unsigned_abs() >> self.scan.low;
        let sizes: Vec<u32> = band.iter().map(size).collect();
        let last_new = sizes.iter().rposition(|&size| size == 1);
        // The refinement bits of the coefficients after the last code of this block.
        let (mut zeros, mut bits) = (0, Vec::new());
        for (at, (&size, coefficient)) in sizes.iter().zip(band).enumerate() {
            if size == 0 {
                zeros += 1;
                continue;
            }
            while zeros > 15 && last_new.is_some_and(|last| at <= last) {
                self.end_run();
                self.table.put(&mut self.writer, 0xf0);
                self.run_bits.append(&mut bits);
                self.put_bits();
                zeros -= 16;
            }
            if size > 1 {
                bits.push(size & 1);
                continue;
            }
            self.end_run();
            self.put_number(zeros, coefficient.signum());
            self.run_bits.append(&mut bits);
            self.put_bits();
            zeros = 0;
        }
        if zeros > 0 || !bits.is_empty() {
            self.lengthen_run(bits, numbers);
        }
    }
}

/// The data of a scan, with a restart marker after each interval unless `interval` is 0.
fn scan_data(
    picture: &Picture,
    scan: &Scan,
    [dc, ac]: &[Table; 2],
    interval: usize,
    made_of: &mut MadeOf,
    numbers: &mut Numbers,
) -> Vec<u8> {
    let (writer, run_bits) = (Writer::default(), Vec::new());
    let mut details = Details { writer, table: ac, scan, run: 0, run_bits, longest_run: 0 };
    let (mut means, mut restarts) = ([0; 3], 0);
    for (number, unit) in picture.units(&scan.members).iter().enumerate() {
        if interval > 0 && number > 0 && number % interval == 0 {
            details.end_run();
            details.writer.flush();
            details.writer.data.extend([0xff, 0xd0 | (restarts % 8) as u8]);
            (means, restarts) = ([0; 3], restarts + 1);
        }
        for &(member, place) in unit {
            let block = &picture.blocks[member][place];
            match (scan.first, scan.high) {
                (0, None) => {
                    let mean = block[0] >> scan.low;
                    let (bits, size) = bits_of(mean - std::mem::replace(&mut means[member], mean));
                    dc.put(&mut details.writer, size as u8);
                    details.writer.put(bits, size);
                }
                (0, Some(_)) => details.writer.put((block[0] >> scan.low & 1) as u32, 1),
                (_, None) => details.first(block, numbers),
                (_, Some(_)) => details.refine(block, numbers),
            }
        }
    }
    details.end_run();
    details.writer.flush();
    made_of.restarts += restarts;
    made_of.longest_run = made_of.longest_run.max(details.longest_run);
    details.writer.data
}

/// Tables for one scan, in table slots of its own.
fn put_scan_tables(file: &mut Vec<u8>, numbers: &mut Numbers) -> ([Table; 2], u8) {
    let dc = Table::new((0..12).collect(), &[(3, 3), (5, 8), (11, 1)], numbers);
    let symbols = (0..=255u8).filter(|symbol| symbol & 15 <= 10);
    let groups = [(4, 4), (6, 10), (8, 60), (10, 60), (12, 30), (16, 200)];
    let ac = Table::new(symbols.collect(), &groups, numbers);
    let slots = [numbers.below(4) as u8, numbers.below(4) as u8];
    for (class, table) in [(slots[0], &dc), (0x10 | slots[1], &ac)] {
        segment(file, 0xc4, &[&[class], &table.counts[..], &table.symbols].concat());
    }
    ([dc, ac], slots[0] << 4 | slots[1])
}

fn put_scan_header(file: &mut Vec<u8>, picture: &Picture, members: &[usize], tables: u8, band: [u8; 3]) {
    let mut header = vec![members.len() as u8];
    header.extend(members.iter().flat_map(|&member| [picture.components[member].id, tables]));
    header.extend(band);
    segment(file, 0xda, &header);
}

fn progressive(head: &[u8], picture: &Picture, numbers: &mut Numbers) -> (Vec<u8>, MadeOf) {
    let (mut file, mut made_of, mut interval) = (head.to_vec(), MadeOf::default(), 0);
    put_frame(&mut file, 0xc2, picture.sides, &picture.components);
    for scan in script(picture.components.len(), numbers) {
        if numbers.once_in(3) {
            interval = if numbers.once_in(2) { 0 } else { 1 + numbers.below(30) };
            segment(&mut file, 0xdd, &(interval as u16).to_be_bytes());
        }
        let (tables, slots) = put_scan_tables(&mut file, numbers);
        let bits = scan.high.unwrap_or(0) << 4 | scan.low;
        put_scan_header(&mut file, picture, &scan.members, slots, [scan.first as u8, scan.last as u8, bits]);
        file.extend(scan_data(picture, &scan, &tables, interval, &mut made_of, numbers));
        made_of.scans += 1;
        made_of.refinements += usize::from(scan.high.is_some());
    }
    file.extend([0xff, 0xd9]);
    (file, made_of)
}

fn baseline(head: &[u8], picture: &Picture, numbers: &mut Numbers) -> Vec<u8> {
    let (mut file, mut writer, mut means) = (head.to_vec(), Writer::default(), [0; 3]);
    put_frame(&mut file, 0xc0, picture.sides, &picture.components);
    let [dc, ac] = put_tables(&mut file, numbers);
    let members: Vec<usize> = (0..picture.components.len()).collect();
    put_scan_header(&mut file, picture, &members, 0, [0, 63, 0]);
    for (member, place) in picture.units(&members).into_iter().flatten() {
        let block = &picture.blocks[member][place];
        let (bits, size) = bits_of(block[0] - std::mem::replace(&mut means[member], block[0]));
        dc.put(&mut writer, size as u8);
        writer.put(bits, size);
        let mut zeros = 0;
        for &coefficient in &block[1..] {
            if coefficient == 0 {
                zeros += 1;
                continue;
            }
            (0..zeros / 16).for_each(|_| ac.put(&mut writer, 0xf0));
            let (bits, size) = bits_of(coefficient);
            ac.put(&mut writer, ((zeros % 16) << 4 | size) as u8);
            writer.put(bits, size);
            zeros = 0;
        }
        if zeros > 0 {
            ac.put(&mut writer, 0);
        }
    }
    writer.flush();
    file.extend(writer.data);
    file.extend([0xff, 0xd9]);
    file
}

/// Makes both files of a random image.
pub(crate) fn twins(numbers: &mut Numbers) -> Twins {
    let large = numbers.once_in(6);
    let sizes = 1 + numbers.below(if large { 10 } else { 6 });
    let style = Style { sizes, density: 1 + numbers.below(20) };
    let picture = Picture::random(numbers, &style);
    let mut head = vec![0xff, 0xd8];
    put_quantizers(&mut head, numbers, large);
    let (progressive, made_of) = progressive(&head, &picture, numbers);
    Twins { progressive, baseline: baseline(&head, &picture, numbers), made_of }
}
