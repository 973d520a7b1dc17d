//! The PTX that the crate embeds is made of the CUDA beside it: each says of what, by a SHA-256.

use sha2::{Digest as _, Sha256};

fn must_be_made_of(name: &str, ptx: &str, source: &str) {
    let digest: String = Sha256::digest(source).iter().map(|byte| format!("{byte:02x}")).collect();
    let mut lines = ptx.lines();
    let made = format!("// Made of {name}.cu by compile.py; do not edit. SHA-256 of the source:");
    assert_eq!(lines.next(), Some(&*made));
    assert_eq!(
        lines.next(),
        Some(&*format!("// {digest}")),
        "{name}.cu was changed: run `python3 src/device/cuda/kernels/compile.py`"
    );
}

#[test]
fn each_ptx_is_made_of_the_source_beside_it() {
    must_be_made_of(
        "transform",
        include_str!("../src/device/cuda/kernels/transform.ptx"),
        include_str!("../src/device/cuda/kernels/transform.cu"),
    );
    must_be_made_of(
        "spin",
        include_str!("../src/device/cuda/kernels/spin.ptx"),
        include_str!("../src/device/cuda/kernels/spin.cu"),
    );
}
