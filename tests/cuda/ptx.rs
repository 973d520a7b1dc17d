//! The PTX that the crate embeds is compiled from the CUDA source beside it: each names the SHA-256 of the
//! source and of itself.

use sha2::{Digest as _, Sha256};

fn must_be_made_of(name: &str, ptx: &str, source: &str) {
    let digest = |text: &str| {
        let digest: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("// {digest}")
    };
    let [made, of_source, of_ptx, body] =
        ptx.splitn(4, '\n').collect::<Vec<_>>().try_into().expect("three lines stand before the code");
    let by = "by compile.py; do not edit. SHA-256 of the source, and of what follows here:";
    assert_eq!(made, format!("// Made of {name}.cu {by}"));
    let advice = "run `python3 src/device/cuda/kernels/compile.py`";
    assert_eq!(of_source, digest(source), "{name}.cu was changed: {advice}");
    assert_eq!(of_ptx, digest(body), "{name}.ptx was changed: {advice}");
}

#[test]
fn each_ptx_is_made_of_the_source_beside_it() {
    must_be_made_of(
        "transform",
        include_str!("../../src/device/cuda/kernels/transform.ptx"),
        include_str!("../../src/device/cuda/kernels/transform.cu"),
    );
    must_be_made_of(
        "spin",
        include_str!("../../src/device/cuda/kernels/spin.ptx"),
        include_str!("../../src/device/cuda/kernels/spin.cu"),
    );
}
