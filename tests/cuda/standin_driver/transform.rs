//! The crate's own kernels on the stand-in, which interprets their PTX: they write what a plain loop writes,
//! bit for bit, and a wrong launch is found.

use half::{bf16, f16};
use rand_mt::Mt;

use super::*;

pub(super) const TRANSFORM: &str = include_str!("../../../src/device/cuda/kernels/transform.ptx");

/// Loads a module from its text.
pub(super) fn load(text: &str) -> Result<sys::CUmodule, DriverError> {
    let text = CString::new(text).unwrap();
    // SAFETY: the text ends with NUL.
    unsafe { result::module::load_data(text.as_ptr().cast()) }
}

pub(super) fn kernel(module: sys::CUmodule, name: &str) -> Result<sys::CUfunction, DriverError> {
    // SAFETY: the module is loaded.
    unsafe { result::module::get_function(module, CString::new(name).unwrap()) }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    U8,
    F32,
    F16,
    Bf16,
}

impl Kind {
    fn bytes(self) -> usize {
        match self {
            Kind::U8 => 1,
            Kind::F32 => 4,
            Kind::F16 | Kind::Bf16 => 2,
        }
    }
}

const KERNELS: [(&str, Kind, Kind); 7] = [
    ("u8_to_u8", Kind::U8, Kind::U8),
    ("u8_to_f32", Kind::U8, Kind::F32),
    ("u8_to_f16", Kind::U8, Kind::F16),
    ("u8_to_bf16", Kind::U8, Kind::Bf16),
    ("f32_to_f32", Kind::F32, Kind::F32),
    ("f32_to_f16", Kind::F32, Kind::F16),
    ("f32_to_bf16", Kind::F32, Kind::Bf16),
];

/// A batch, and its transform.
#[derive(Clone, Debug)]
struct Case {
    kernel: (&'static str, Kind, Kind),
    records: u32,
    channels: u32,
    height: u32,
    width: u32,
    /// The mean image's extents; 0 and 0 if there is one value for each channel, or for all.
    mean: (u32, u32),
    is_interleaved: bool,
    scale: f32,
    /// Top, left, mirrored.
    cuts: Vec<[u32; 3]>,
    staged: Vec<u8>,
    means: Vec<f32>,
    grid: (u32, u32),
    block: (u32, u32),
}

impl Case {
    fn random(kernel: (&'static str, Kind, Kind), generator: &mut Mt) -> Case {
        let mut upto = |most: u32| 1 + generator.next_u32() % most;
        let (records, channels) = (upto(5), [1, 3, 4][upto(3) as usize - 1]);
        let (height, width) = (upto(9), upto(13));
        let grid = (upto(12), upto(records + 1));
        let block = (upto(20), upto(4));
        let mean = if upto(2) == 1 { (height + upto(4) - 1, width + upto(4) - 1) } else { (0, 0) };
        let (is_interleaved, has_means, scaling) = (upto(2) == 1, upto(2) == 1, upto(3));
        let values = if upto(2) == 1 { 1 } else { channels };
        let cut = |_| {
            let edge = |of: u32, window: u32, random: u32| random % (of.max(window) - window + 1);
            let (top, left) = (generator.next_u32(), generator.next_u32());
            let mirrored = u32::from(generator.next_u32().is_multiple_of(2));
            [edge(mean.0, height, top), edge(mean.1, width, left), mirrored]
        };
        let cuts = (0..records).map(cut).collect();
        let pixels = (records * channels * height * width) as usize;
        let staged = match kernel.1 {
            Kind::U8 => (0..pixels).map(|_| generator.next_u32().to_le_bytes()[0]).collect(),
            _ => (0..pixels).flat_map(|_| float(generator).to_le_bytes()).collect(),
        };
        let means = if mean.1 > 0 { channels * mean.0 * mean.1 } else { values };
        let means = (0..means).map(|_| if has_means { float(generator) } else { 0.0 }).collect();
        let scale = [1.0, 1.0 / 255.0, float(generator)][scaling as usize - 1];
        let block = if block.0 * block.1 > 60 { (1, 1) } else { block };
        Case {
            kernel,
            records,
            channels,
            height,
            width,
            mean,
            is_interleaved,
            scale,
            cuts,
            staged,
            means,
            grid,
            block,
        }
    }

    fn pixels(&self) -> usize {
        (self.records * self.channels * self.height * self.width) as usize
    }

    /// What the host writes: element by element, in the result's order.
    fn wanted(&self) -> Vec<u8> {
        let (channels, height, width) = (self.channels as usize, self.height as usize, self.width as usize);
        let mut out = Vec::new();
        for record in 0..self.records as usize {
            let [top, left, mirrored] = self.cuts[record].map(|number| number as usize);
            for index in 0..channels * height * width {
                let (c, y, x) = if self.is_interleaved {
                    (index % channels, index / channels / width, index / channels % width)
                } else {
                    (index / width / height, index / width % height, index % width)
                };
                let x = if mirrored == 1 { width - 1 - x } else { x };
                let pixel = ((record * channels + c) * height + y) * width + x;
                let mean = match (self.mean.0 as usize, self.mean.1 as usize) {
                    (_, 0) => self.means[c % self.means.len()],
                    (rows, columns) => self.means[(c * rows + top + y) * columns + left + x],
                };
                out.extend(self.element(pixel, mean));
            }
        }
        out
    }

    fn element(&self, pixel: usize, mean: f32) -> Vec<u8> {
        let value = match self.kernel.1 {
            Kind::U8 => f32::from(self.staged[pixel]),
            _ => f32::from_le_bytes(self.staged[pixel * 4..][..4].try_into().unwrap()),
        };
        let value = (value - mean) * self.scale;
        match self.kernel.2 {
            Kind::U8 => vec![self.staged[pixel]],
            Kind::F32 => value.to_le_bytes().to_vec(),
            Kind::F16 => f16::from_f32(value).to_le_bytes().to_vec(),
            Kind::Bf16 => bf16::from_f32(value).to_le_bytes().to_vec(),
        }
    }

    fn job(&self) -> [u32; 8] {
        let Case { records, channels, height, width, .. } = *self;
        let (mean_height, mean_width) = self.mean;
        let mean_step =
            if mean_width > 0 { mean_height * mean_width } else { u32::from(self.means.len() > 1) };
        let interleaved = u32::from(self.is_interleaved);
        [records, channels, height, width, mean_step, mean_width, interleaved, self.scale.to_bits()]
    }

    /// The offsets of its arrays in one allocation, the result last, and its length.
    fn places(&self) -> ([u64; 4], usize) {
        let sizes = [self.staged.len(), self.means.len() * 4, self.cuts.len() * 12];
        let mut end = 0;
        let mut places = sizes.map(|size| {
            let place = end;
            end += (size as u64).next_multiple_of(64);
            place
        });
        places[0] = 0;
        let [staged, means, cuts] = places;
        ([staged, means, cuts, end], usize::try_from(end).unwrap() + self.pixels() * self.kernel.2.bytes())
    }
}

/// Any number, but often one that is common for pixels, means and rounding.
fn float(generator: &mut Mt) -> f32 {
    let bits = generator.next_u32();
    match bits % 8 {
        0 => f32::from_bits(generator.next_u32()),
        1 => f32::from(f16::from_bits(generator.next_u32().to_le_bytes()[0].into())),
        // Halfway between two 16-bit numbers.
        2 => f32::from_bits((generator.next_u32() & 0x07ff_f000) | 0x3800_0000 | 0x1000),
        _ => f32::from(u16::from_le_bytes([bits.to_le_bytes()[1], bits.to_le_bytes()[2]])) / 256.0 - 128.0,
    }
}

/// Allocates device memory with these bytes.
fn upload(bytes: &[u8]) -> u64 {
    // SAFETY: a context is current, and the memory is as long.
    unsafe {
        let start = result::malloc_sync(bytes.len()).unwrap();
        result::memcpy_htod_sync(start, bytes).unwrap();
        start
    }
}

fn read(start: u64, len: usize) -> Result<Vec<u8>, DriverError> {
    let mut bytes = vec![0; len];
    // SAFETY: the driver checks the range.
    unsafe { result::memcpy_dtoh_sync(&mut bytes, start) }.map(|()| bytes)
}

/// Launches a case's kernel on arrays: staged, means, cuts, out.
fn transform(
    module: sys::CUmodule,
    case: &Case,
    mut arrays: [u64; 4],
    stream: &CudaStream,
) -> Result<(), DriverError> {
    let function = kernel(module, case.kernel.0).unwrap();
    let mut job = case.job();
    let [staged, means, cuts, out] = &mut arrays;
    let mut arguments: [*mut c_void; 5] = [
        (&raw mut *staged).cast(),
        (&raw mut *means).cast(),
        (&raw mut *cuts).cast(),
        (&raw mut *out).cast(),
        (&raw mut job).cast(),
    ];
    let (grid, block) = ((case.grid.0, case.grid.1, 1), (case.block.0, case.block.1, 1));
    // SAFETY: the kernel takes four pointers and the job; where they point is what the tests are about.
    unsafe { result::launch_kernel(function, grid, block, 0, stream.cu_stream(), &mut arguments) }
}

/// Uploads a case's arrays into one allocation, and returns their addresses. Unwritten bytes hold 0xEE.
fn place(case: &Case) -> ([u64; 4], u64, usize) {
    let (places, len) = case.places();
    let mut bytes = vec![0xEE; len + 64];
    let words = |words: &[[u32; 3]]| words.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
    let means = case.means.iter().flat_map(|mean| mean.to_le_bytes()).collect();
    for (place, array) in places.into_iter().zip([case.staged.clone(), means, words(&case.cuts)]) {
        bytes[usize::try_from(place).unwrap()..][..array.len()].copy_from_slice(&array);
    }
    let start = upload(&bytes);
    (places.map(|place| start + place), start, len)
}

/// Asserts that the bits are the same, except those of a NaN.
fn must_be_equal(case: &Case, found: &[u8], wanted: &[u8]) {
    let size = case.kernel.2.bytes();
    let is_nan = |bytes: &[u8]| match case.kernel.2 {
        Kind::U8 => false,
        Kind::F32 => f32::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
        Kind::F16 => f16::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
        Kind::Bf16 => bf16::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
    };
    assert_eq!(found.len(), wanted.len());
    for (index, (found, wanted)) in found.chunks(size).zip(wanted.chunks(size)).enumerate() {
        assert!(
            found == wanted || (is_nan(found) && is_nan(wanted)),
            "element {index}: {found:x?} and not {wanted:x?} of {case:?}"
        );
    }
}

/// Runs a case and compares what it writes; the bytes after the result must not change.
fn check(module: sys::CUmodule, case: &Case, stream: &CudaStream) {
    let (arrays, start, len) = place(case);
    transform(module, case, arrays, stream).unwrap();
    stream.synchronize().unwrap();
    must_be_equal(case, &read(arrays[3], case.pixels() * case.kernel.2.bytes()).unwrap(), &case.wanted());
    assert_eq!(read(start + len as u64, 64).unwrap(), [0xEE; 64]);
    // SAFETY: nothing uses it any more.
    unsafe { result::free_sync(start) }.unwrap();
}

#[test]
fn every_kernel_writes_what_a_plain_loop_writes() {
    let Some(standin) = alone(this_test!(), "checksums=0") else {
        return;
    };
    let (_context, stream, _) = two_streams();
    let module = load(TRANSFORM).unwrap();
    let mut generator = Mt::new(12);
    for kernel in KERNELS {
        for _ in 0..500 {
            check(module, &Case::random(kernel, &mut generator), &stream);
        }
    }
    standin.take_report().must_be_clean();
}

#[test]
fn whatever_the_grid_the_result_is_the_same() {
    let Some(standin) = alone(this_test!(), "checksums=0") else {
        return;
    };
    let (_context, stream, _) = two_streams();
    let module = load(TRANSFORM).unwrap();
    let mut generator = Mt::new(7);
    for kernel in KERNELS {
        let case = Case::random(kernel, &mut generator);
        for (grid, block) in [
            ((1, 1), (1, 1)),
            ((1, 1), (32, 8)),
            ((1000, 1), (1, 1)),
            ((1, 40), (2, 3)),
            ((3, 2), (64, 16)),
            ((50, 50), (1, 2)),
        ] {
            check(module, &Case { grid, block, ..case.clone() }, &stream);
        }
    }
    standin.take_report().must_be_clean();
}

/// A batch of bytes to floats, with each array in a buffer of its own.
fn apart(cut_short: [usize; 4]) -> (Case, [u64; 4]) {
    let case = Case::random(KERNELS[1], &mut Mt::new(3));
    let arrays = [case.staged.len(), case.means.len() * 4, case.cuts.len() * 12, case.pixels() * 4];
    let mut short = cut_short.into_iter();
    let starts = arrays.map(|len| upload(&vec![0; len - short.next().unwrap()]));
    (case, starts)
}

#[test]
fn a_kernel_that_leaves_its_buffers_is_found() {
    let Some(standin) = alone(this_test!(), "") else { return };
    let cases = [
        ([1, 0, 0, 0], "illegal address: u8_to_f32 reads 1 bytes"),
        ([0, 1, 0, 0], "illegal address: u8_to_f32 reads 4 bytes"),
        ([0, 0, 12, 0], "illegal address: u8_to_f32 reads 4 bytes"),
        ([0, 0, 0, 1], "illegal address: u8_to_f32 writes 4 bytes"),
    ];
    for (cut_short, words) in cases {
        standin.reset();
        let (context, stream, _) = two_streams();
        let module = load(TRANSFORM).unwrap();
        let (case, arrays) = apart([0; 4]);
        transform(module, &case, arrays, &stream).unwrap();
        stream.synchronize().unwrap();
        standin.take_report().must_be_clean();
        let (case, arrays) = apart(cut_short);
        transform(module, &case, arrays, &stream).unwrap();
        assert_eq!(code(stream.synchronize()), ILLEGAL_ADDRESS);
        assert_eq!(code(context.synchronize()), ILLEGAL_ADDRESS, "for good");
        let report = standin.take_report();
        report.must_only_have(words);
        assert!(report.text.contains("of its module, in thread ["), "{}", report.text);
    }
}

#[test]
fn a_kernel_that_is_led_astray_is_found() {
    let Some(standin) = alone(this_test!(), "") else { return };
    // The result's address is misaligned; it is not allocated; it was freed.
    for astray in 0..3 {
        standin.reset();
        let (_context, stream, _) = two_streams();
        let module = load(TRANSFORM).unwrap();
        let (case, mut arrays) = apart([0; 4]);
        arrays[3] = [arrays[3] + 2, 0, arrays[3]][astray];
        if astray == 2 {
            // SAFETY: the kernel must find that it was freed.
            unsafe { result::free_sync(arrays[3]) }.unwrap();
        }
        transform(module, &case, arrays, &stream).unwrap();
        let wanted = [MISALIGNED_ADDRESS, ILLEGAL_ADDRESS, ILLEGAL_ADDRESS][astray];
        assert_eq!(code(stream.synchronize()), wanted);
        let report = standin.take_report();
        match astray {
            0 => report.must_only_have("misaligned address: u8_to_f32 writes 4 bytes"),
            1 => report.must_only_have("illegal address: u8_to_f32 writes 4 bytes at 0x0"),
            _ => {
                assert!(
                    report.violations[0].starts_with("use after free: cuLaunchKernel"),
                    "{}",
                    report.text
                );
                assert!(report.violations[1].starts_with("illegal address: "), "{}", report.text);
            }
        }
    }
}

#[test]
fn what_a_kernel_does_not_read_may_be_missing() {
    let Some(standin) = alone(this_test!(), "") else { return };
    let (_context, stream, _) = two_streams();
    let module = load(TRANSFORM).unwrap();
    let case = Case::random(KERNELS[0], &mut Mt::new(5));
    let (mut arrays, _, _) = place(&case);
    arrays[1] = 0;
    transform(module, &case, arrays, &stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(read(arrays[3], case.pixels()).unwrap(), case.wanted());
    standin.take_report().must_be_clean();
}

#[test]
fn a_launch_and_a_copy_on_another_stream_race_unless_an_event_orders_them() {
    let Some(standin) = alone(this_test!(), "") else { return };
    let (context, first, second) = two_streams();
    let module = load(TRANSFORM).unwrap();
    let (case, arrays) = apart([0; 4]);
    let pinned = Pinned::new(&context, &case.staged);
    let back = Pinned::new(&context, &vec![0; case.pixels() * 4]);

    // Copied, transformed and read back on alternating streams, each ordered after the one before.
    pinned.copy_to(arrays[0], &first).unwrap();
    second.wait(&first.record_event(None).unwrap()).unwrap();
    transform(module, &case, arrays, &second).unwrap();
    first.wait(&second.record_event(None).unwrap()).unwrap();
    back.copy_from(arrays[3], &first).unwrap();
    context.synchronize().unwrap();
    standin.take_report().must_be_clean();

    pinned.copy_to(arrays[0], &first).unwrap();
    transform(module, &case, arrays, &second).unwrap();
    standin.take_report().must_only_have("race: cuLaunchKernel on stream 1 of device 0 reads");
    context.synchronize().unwrap();
    transform(module, &case, arrays, &second).unwrap();
    back.copy_from(arrays[3], &first).unwrap();
    let report = standin.take_report();
    report.must_only_have("race: cuMemcpyDtoHAsync_v2 on stream 0 of device 0 reads");
    assert!(
        report.text.contains("cuLaunchKernel on stream 1 of device 0, which writes them"),
        "{}",
        report.text
    );
    context.synchronize().unwrap();
    // Two reads are no race.
    let means = Pinned::new(&context, &vec![0; case.means.len() * 4]);
    transform(module, &case, arrays, &second).unwrap();
    means.copy_from(arrays[1], &first).unwrap();
    context.synchronize().unwrap();
    standin.take_report().must_be_clean();

    // One allocation for everything: no launch races with itself, or with the one before.
    let (arrays, _, _) = place(&case);
    transform(module, &case, arrays, &second).unwrap();
    transform(module, &case, arrays, &second).unwrap();
    context.synchronize().unwrap();
    standin.take_report().must_be_clean();
}
