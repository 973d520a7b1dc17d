//! All fuzz targets in one program. Under `cargo fuzz`, the variable `FUZZ_TARGET` names the body that
//! libFuzzer calls. In any other build, the program runs a body on files: `fuzz TARGET FILE...`; without
//! arguments, it prints the names.
#![cfg_attr(fuzzing, no_main)]
#![cfg_attr(fuzzing, allow(unsafe_code, missing_docs, reason = "libFuzzer calls a C function"))]

#[cfg(fuzzing)]
use percolator_fuzz::libfuzzer as libfuzzer_sys;

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    use std::sync::OnceLock;

    static BODY: OnceLock<fn(&[u8])> = OnceLock::new();
    let body = BODY.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
        percolator_fuzz::body_of(&name).expect("FUZZ_TARGET names a target: run without arguments for a list")
    });
    body(bytes);
});

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(name) = arguments.next() else {
        percolator_fuzz::TARGETS.iter().for_each(|(name, _)| println!("{name}"));
        return std::process::ExitCode::SUCCESS;
    };
    match name.to_str().and_then(percolator_fuzz::body_of) {
        Some(body) => percolator_fuzz::replay(body, arguments.map(Into::into)),
        None => {
            eprintln!("fuzz: there is no target {name:?}: without arguments, the program prints them");
            std::process::ExitCode::from(2)
        }
    }
}
