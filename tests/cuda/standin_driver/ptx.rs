//! The stand-in's PTX: the edge cases of each instruction, what ends a launch, and what is refused.

use super::transform::{TRANSFORM, kernel, load};
use super::*;

const SPIN: &str = include_str!("../../../src/device/cuda/kernels/spin.ptx");

/// A module with one kernel that takes a pointer, which is in `%rd0`.
const PROBE: &str = "\
.version 6.5
.target sm_35
.address_size 64
.visible .entry probe(.param .u64 out)
{
    .reg .pred %p<9>;
    .reg .b16 %rs<9>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    .reg .f32 %f<9>;
    ld.param.u64 %rd0, [out];
    BODY
}
";

/// The line at which a probe's body begins.
const BODY: usize = 12;

fn probe(body: &str) -> String {
    PROBE.replace("BODY", body)
}

fn launch_probe(body: &str, at: u64, stream: &CudaStream) -> Result<(), DriverError> {
    launch_one(kernel(load(&probe(body))?, "probe")?, &mut { at }, stream)
}

/// Launches one thread of a kernel with one parameter.
fn launch_one(function: sys::CUfunction, argument: &mut u64, stream: &CudaStream) -> Result<(), DriverError> {
    let mut arguments = [(&raw mut *argument).cast()];
    // SAFETY: the parameter takes 8 bytes; where they point, if they do, is what the tests are about.
    unsafe { result::launch_kernel(function, (1, 1, 1), (1, 1, 1), 0, stream.cu_stream(), &mut arguments) }
}

/// What a probe writes to the first 8 bytes of its memory, which were 0.
fn given(body: &str, stream: &Arc<CudaStream>) -> u64 {
    let mut out = stream.alloc_zeros::<u8>(16).unwrap();
    launch_probe(body, raw(&mut out), stream).unwrap();
    u64::from_le_bytes(stream.clone_dtoh(&out).unwrap()[..8].try_into().unwrap())
}

#[test]
fn instructions_give_what_ptx_says_at_their_edges() {
    let Some(standin) = alone(this_test!(), "") else { return };
    let (_context, stream, _) = two_streams();
    let of_32 = [
        // In 32 bits, whatever the operands.
        ("mov.u32 %r2, -1; add.s32 %r1, %r2, 2;", 1),
        ("mov.u32 %r2, 4294967295; sub.s32 %r1, 1, %r2;", 2),
        ("mov.u32 %r2, 65536; mul.lo.s32 %r1, %r2, %r2;", 0),
        ("mov.u32 %r2, 65536; mad.lo.s32 %r1, %r2, %r2, -3;", 0xffff_fffd),
        ("mov.u32 %r2, 7; div.u32 %r1, %r2, 0;", 0xffff_ffff),
        ("mov.u32 %r2, 7; rem.u32 %r1, %r2, 0;", 7),
        ("mov.u32 %r2, -1; div.u32 %r1, %r2, 10;", 429_496_729),
        ("mov.u32 %r2, -1; rem.u32 %r1, %r2, 10;", 5),
        ("mov.u32 %r2, -1; shr.u32 %r1, %r2, 31;", 1),
        ("mov.u32 %r2, -1; shr.u32 %r1, %r2, 32;", 0),
        ("mov.u32 %r2, 5; not.b32 %r1, %r2;", 0xffff_fffa),
        ("mov.u32 %r2, 5; and.b32 %r3, %r2, 6; or.b32 %r1, %r3, 8;", 12),
        ("mov.u32 %r2, -2; bfe.u32 %r1, %r2, 0, 0;", 0),
        ("mov.u32 %r2, -2; bfe.u32 %r1, %r2, 16, 1;", 1),
        ("mov.u32 %r2, -2; bfe.u32 %r1, %r2, 0, 32;", 0xffff_fffe),
        ("mov.u32 %r2, -2; bfe.u32 %r1, %r2, 28, 200;", 15),
        ("mov.u32 %r2, -2; bfe.u32 %r1, %r2, 32, 8;", 0),
        // Unsigned.
        ("mov.u32 %r2, -1; setp.gt.u32 %p1, %r2, 1; selp.b32 %r1, 3, 4, %p1;", 3),
        ("mov.u32 %r2, -1; setp.lt.u32 %p1, %r2, 1; selp.b32 %r1, 3, 4, %p1;", 4),
        ("mov.u32 %r2, 1; setp.ge.u32 %p1, %r2, 1; selp.b32 %r1, 3, 4, %p1;", 3),
        ("mov.u32 %r2, 1; setp.ne.s32 %p1, %r2, 1; selp.b32 %r1, 3, 4, %p1;", 4),
        ("mov.u32 %r2, -1; setp.eq.s32 %p1, %r2, -1; selp.b32 %r1, 3, 4, %p1;", 3),
        ("mov.u32 %r1, %ntid.x; mov.u32 %r2, %nctaid.z; add.s32 %r1, %r1, %r2;", 2),
        ("add.s64 %rd1, %rd1, -1; cvt.u32.u64 %r1, %rd1;", 0xffff_ffff),
        // A branch skips what it jumps over.
        ("mov.u32 %r1, 1; setp.eq.s32 %p1, %r1, 1; @%p1 bra $L; mov.u32 %r1, 2; $L:", 1),
        ("mov.u32 %r1, 1; setp.eq.s32 %p1, %r1, 0; @%p1 bra $L; mov.u32 %r1, 2; $L:", 2),
        ("bra.uni $M; $L: mov.u32 %r1, 7; bra.uni $N; $M: bra $L; $N:", 7),
    ];
    for (body, wanted) in of_32 {
        assert_eq!(given(&format!("{body} st.global.u32 [%rd0], %r1;"), &stream), wanted, "{body}");
    }
    let of_64 = [
        ("mov.u32 %r1, -1; cvt.u64.u32 %rd1, %r1;", 0xffff_ffff),
        ("mov.u32 %r1, -1; mul.wide.u32 %rd1, %r1, %r1;", 0xffff_fffe_0000_0001),
        ("add.s64 %rd2, %rd1, -1; mul.lo.s64 %rd1, %rd2, %rd2;", 1),
        ("sub.s64 %rd1, 1, 2;", u64::MAX),
        ("add.s64 %rd1, %rd1, 3; shl.b64 %rd1, %rd1, 63;", 1 << 63),
        ("add.s64 %rd1, %rd1, 3; shl.b64 %rd1, %rd1, 64;", 0),
        ("setp.lt.u64 %p1, %rd1, -1; selp.b64 %rd1, 5, 6, %p1;", 5),
    ];
    for (body, wanted) in of_64 {
        assert_eq!(given(&format!("{body} st.global.u64 [%rd0], %rd1;"), &stream), wanted, "{body}");
    }
    standin.take_report().must_be_clean();
}

#[test]
fn elements_are_read_and_written_in_their_own_width() {
    let Some(standin) = alone(this_test!(), "") else { return };
    let (_context, stream, _) = two_streams();
    let cases = [
        (
            "add.s64 %rd1, %rd1, -1; st.global.u64 [%rd0], %rd1; mov.u32 %r1, 258; st.global.u8 [%rd0+3], \
             %r1;",
            { 0xffff_ffff_02ff_ffff },
        ),
        ("mov.u32 %r1, -2; st.global.u16 [%rd0+2], %r1;", 0xfffe_0000),
        (
            "mov.u32 %r1, -2; st.global.u32 [%rd0], %r1; ld.global.u8 %rd1, [%rd0+1]; \
             st.global.u64 [%rd0], %rd1;",
            0xff,
        ),
        // 65535 as a float, which rounds to no 16-bit number.
        (
            "mov.u32 %r1, -1; st.global.u16 [%rd0], %r1; ld.global.u16 %rs1, [%rd0]; cvt.rn.f32.u16 %f1, \
             %rs1; cvt.rn.f16.f32 %rs2, %f1; st.global.u16 [%rd0+4], %rs2; st.global.u16 [%rd0], %rs2;",
            0x7c00_0000_7c00,
        ),
        (
            "mov.u32 %r1, 1000; st.global.u32 [%rd0], %r1; ld.global.u16 %rs1, [%rd0]; \
             cvt.rn.f32.u16 %f1, %rs1; sub.rn.f32 %f2, %f1, %f1; mul.rn.f32 %f2, %f2, %f1; mov.b32 %r2, %f2; \
             st.global.u32 [%rd0+4], %r2; st.global.f32 [%rd0], %f1;",
            0x447a_0000,
        ),
    ];
    for (body, wanted) in cases {
        assert_eq!(given(body, &stream), wanted, "{body}");
    }
    standin.take_report().must_be_clean();
}

/// The launch finds the buffer that a parameter's value leads to, through any arithmetic. If it could not
/// follow an instruction, the access would be an illegal address.
#[test]
fn a_parameter_is_followed_through_arithmetic() {
    let Some(standin) = alone(this_test!(), "") else { return };
    let (_context, stream, _) = two_streams();
    for body in [
        "add.s64 %rd1, %rd0, 0;",
        "add.s64 %rd1, 0, %rd0;",
        "sub.s64 %rd1, %rd0, 0;",
        "mul.lo.s64 %rd1, %rd0, 1;",
        "shl.b64 %rd1, %rd0, 0;",
        "cvta.to.global.u64 %rd1, %rd0;",
        "setp.eq.s32 %p1, %r1, 0; selp.b64 %rd1, %rd0, 7, %p1;",
        "setp.ne.s32 %p1, %r1, 0; selp.b64 %rd1, 7, %rd0, %p1;",
        // The address is split into halves and put together again.
        "cvt.u32.u64 %r1, %rd0; cvt.u64.u32 %rd1, %r1; sub.s64 %rd2, %rd0, %rd1; add.s64 %rd1, %rd1, %rd2;",
        // The code that uses the address precedes, in the text, the code that computes it.
        "bra $M; $L: add.s64 %rd1, %rd2, 0; bra $N; $M: add.s64 %rd2, %rd0, 0; bra $L; $N:",
    ] {
        let body = format!("{body} mov.u32 %r2, 9; st.global.u32 [%rd1], %r2;");
        assert_eq!(given(&body, &stream), 9, "{body}");
    }
    standin.take_report().must_be_clean();
}

#[test]
fn a_kernel_touches_only_what_its_parameters_lead_to() {
    let Some(standin) = alone(this_test!(), "") else { return };
    // A buffer of 16 bytes, and a pointer to its middle.
    let cases = [
        ("ld.global.u64 %rd1, [%rd0+8];", "illegal address: probe reads 8 bytes"),
        ("add.s64 %rd1, %rd0, 8; ld.global.u32 %r1, [%rd1];", "illegal address: probe reads 4 bytes"),
        ("add.s64 %rd1, %rd0, -8; ld.global.u8 %rs1, [%rd1+7];", "illegal address: probe reads 1 bytes"),
        ("add.s64 %rd1, %rd0, -8; st.global.u64 [%rd1], %rd1;", "illegal address: probe writes 8 bytes"),
        // The kernel reads through its parameter, and gets the same address from elsewhere: the launch cannot
        // know that it writes there.
        (
            "ld.global.u8 %rs1, [%rd0]; add.s64 %rd1, %rd1, START; st.global.u8 [%rd1], %rs1;",
            "illegal address: probe writes 1 bytes",
        ),
        ("add.s64 %rd1, %rd1, START; ld.global.u8 %rs1, [%rd1];", "illegal address: probe reads 1 bytes"),
        ("ld.global.u16 %rs1, [%rd0+1];", "misaligned address: probe reads 2 bytes"),
        ("st.global.u64 [%rd0+4], %rd0;", "misaligned address: probe writes 8 bytes"),
    ];
    for (body, words) in cases {
        standin.reset();
        let (_context, stream, _) = two_streams();
        let mut out = stream.alloc_zeros::<u8>(16).unwrap();
        let middle = raw(&mut out) + 8;
        launch_probe(&body.replace("START", &middle.to_string()), middle, &stream).unwrap();
        let wanted = if words.starts_with("illegal") { ILLEGAL_ADDRESS } else { MISALIGNED_ADDRESS };
        assert_eq!(code(stream.synchronize()), wanted, "{body}");
        standin.take_report().must_only_have(words);
    }
}

#[test]
fn what_is_not_understood_is_refused_with_its_line() {
    let Some(standin) = alone(this_test!(), "") else { return };
    let (_context, _stream, _) = two_streams();
    let bodies = [
        ("\nadd.s16 %r1, %r1, 1;", "there is no \"add.s16\" here"),
        ("\nfma.rn.f32 %f1, %f1, %f1, %f1;", "there is no \"fma.rn.f32\" here"),
        ("\nld.shared.u32 %r1, [%rd0];", "there is no \"ld.shared.u32\" here"),
        ("\nadd.s32 %r1, %r9, 1;", "there is no register \"%r9\""),
        ("\nadd.s32 %r1, %rd1, 1;", "\"%rd1\" is of the type B64, and B32 is wanted"),
        ("\nadd.s32 %r1, %tid.x, 1;", "there is no register \"%tid.x\""),
        ("\nmov.u32 %r1, %laneid;", "there is no register \"%laneid\""),
        ("\nadd.s32 %r1, %r1;", "\"add.s32\" takes a result and 2 operand(s)"),
        ("\nadd.s32 1, %r1, 1;", "\"add.s32\" takes a result and 2 operand(s)"),
        ("\nadd.s32 %r1, %r1, 4294967296;", "4294967296 is no constant of B32"),
        ("\nadd.s32 %r1, %r1, 0x10;", "\"0x10\" is no number"),
        ("\nld.global.f32 %r1, [%rd0];", "\"ld.global.f32\" and \"%r1\", which is of another type"),
        ("\nld.global.u32 %rs1, [%rd0];", "\"ld.global.u32\" and \"%rs1\", which is of another type"),
        ("\nld.global.u32 %r1, [%r2];", "\"%r2\" is of the type B32, and B64 is wanted"),
        ("\nld.param.u64 %rd1, [out+4];", "8 bytes at 4 of \"out\", which has 8"),
        ("\nld.param.u64 %rd1, [in];", "there is no parameter \"in\""),
        ("\nbra $L;", "there is no label \"$L\""),
        ("$L:\n$L:", "the label \"$L\" is there twice"),
        ("\n.reg .b32 %r<1>;", "the register %r0 is there twice"),
        ("\n.reg .f64 %q<1>;", "\".f64\" is no type of a register"),
        ("\n.shared .b8 buffer[4];", "there is no directive \".shared\" here"),
        ("\n@%p1 ret;", "\"ret\" takes no predicate: `bra` alone does"),
        ("\nret", "'}' stands where an operand should"),
        ("\n# here", "'#' is no mark of PTX's"),
    ];
    for (body, words) in bodies {
        assert_eq!(code(load(&probe(body))), INVALID_PTX, "{body}");
        let report = standin.take_report();
        report.must_only_have("not PTX: line ");
        let line = BODY + if words.starts_with("'}'") { 2 } else { 1 };
        let wanted = format!("not PTX: line {line}: {words}");
        assert_eq!(report.violations, [wanted], "{body}");
    }
    let good = probe("ret;");
    for (from, to) in [
        (".version 6.5", ""),
        (".version 6.5", ".version six"),
        ("sm_35", "compute_35"),
        (".address_size 64", ".address_size 32"),
        (".visible", ".weak"),
        (".entry", ".func"),
        (".param .u64", ".param .u32"),
        ("}", ""),
    ] {
        assert!(good.contains(from));
        assert_eq!(code(load(&good.replacen(from, to, 1))), INVALID_PTX, "{to}");
        standin.take_report().must_only_have("not PTX: line ");
    }
    load(&good).unwrap();
    standin.take_report().must_be_clean();
}

#[test]
fn a_module_has_its_own_kernels_and_no_others() {
    let Some(standin) = alone(this_test!(), "") else { return };
    let (_context, _stream, _) = two_streams();
    let (transform, registered) = (load(TRANSFORM).unwrap(), load("").unwrap());
    kernel(transform, "u8_to_f16").unwrap();
    assert_eq!(code(kernel(transform, "spin")), NOT_FOUND);
    assert_eq!(code(kernel(registered, "u8_to_f16")), NOT_FOUND);
    kernel(registered, "spin").unwrap();
    kernel(load(SPIN).unwrap(), "spin").unwrap();
    // SAFETY: nothing of it is in use.
    unsafe { result::module::unload(transform) }.unwrap();
    assert_eq!(code(kernel(transform, "u8_to_f16")), INVALID_HANDLE);
    standin.take_report().must_only_have("use after destroy: cuModuleGetFunction");
}

#[test]
fn a_kernel_may_spin_but_not_for_ever() {
    let Some(standin) = alone(this_test!(), "") else { return };
    let (_context, stream, _) = two_streams();
    let spin = kernel(load(SPIN).unwrap(), "spin").unwrap();
    for mut nanoseconds in [0_u64, 100_000_000] {
        launch_one(spin, &mut nanoseconds, &stream).unwrap();
        stream.synchronize().unwrap();
    }
    standin.take_report().must_be_clean();
    launch_probe("$L: bra.uni $L;", 0, &stream).unwrap();
    assert_eq!(code(stream.synchronize()), LAUNCH_TIMEOUT);
    let report = standin.take_report();
    report.must_only_have("launch timed out: probe has taken ");
    assert!(report.text.contains(&format!("in line {BODY} of its module")), "{}", report.text);
}

#[test]
fn a_grid_is_within_what_every_gpu_takes() {
    let Some(_standin) = alone(this_test!(), "") else { return };
    let (_context, stream, _) = two_streams();
    let function = kernel(load(&probe("ret;")).unwrap(), "probe").unwrap();
    let mut at = 0_u64;
    let mut launch = |grid, block| {
        // SAFETY: the kernel follows no pointer.
        unsafe {
            result::launch_kernel(function, grid, block, 0, stream.cu_stream(), &mut [(&raw mut at).cast()])
        }
    };
    launch((1, 65_535, 1), (1, 1, 1)).unwrap();
    assert_eq!(code(launch((1, 65_536, 1), (1, 1, 1))), INVALID_VALUE);
    assert_eq!(code(launch((1, 1, 65_536), (1, 1, 1))), INVALID_VALUE);
    assert_eq!(code(launch((1, 1, 1), (8, 1, 65))), INVALID_VALUE);
    assert_eq!(code(launch((1, 1, 1), (32, 33, 1))), INVALID_VALUE);
    assert_eq!(code(launch((1, 0, 1), (1, 1, 1))), INVALID_VALUE);
}
