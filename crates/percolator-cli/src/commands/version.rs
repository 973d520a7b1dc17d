//! What `--version` says: this build, and what it finds on this machine.

use percolator_image::simd::InstructionSet;

use crate::commands::devices;

/// The commit that this is built from, if whoever builds it says so.
const COMMIT: Option<&str> = option_env!("PERCOLATOR_COMMIT");

/// The features that this is built with.
const FEATURES: &str = if cfg!(feature = "cuda") {
    "cuda"
} else if cfg!(feature = "cuda-driver") {
    "cuda-driver"
} else {
    "none"
};

/// The version, and below it a line for each of those. It looks for the CUDA driver.
pub(crate) fn long() -> String {
    let cuda = devices::driver().unwrap_or_else(|reason| reason);
    let lines = [
        ("commit:", COMMIT.filter(|commit| !commit.is_empty())),
        ("features:", Some(FEATURES)),
        ("CUDA:", Some(&*cuda)),
        ("kernels:", Some(kernels())),
    ];
    let lines = lines.into_iter().filter_map(|(what, is)| Some(format!("\n{what:10}{}", is?)));
    env!("CARGO_PKG_VERSION").to_owned() + &lines.collect::<String>()
}

/// The instructions of the processor that decoding and transforms use.
fn kernels() -> &'static str {
    match InstructionSet::widest() {
        InstructionSet::Baseline => "the instructions of every processor",
        #[cfg(target_arch = "x86_64")]
        InstructionSet::V3(_) => "x86-64-v3 (AVX2)",
        #[cfg(target_arch = "x86_64")]
        InstructionSet::V4(_) => "x86-64-v4 (AVX-512)",
    }
}
