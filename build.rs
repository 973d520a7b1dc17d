//! Compiles `proto/caffe.proto` in this process: a build needs neither `protoc` nor a network.

use std::error::Error;

const PROTO: &str = "proto/caffe.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={PROTO}");
    // protox's own errors name the file, the line and the column.
    let descriptors = protox::compile([PROTO], ["proto"])?;
    prost_build::Config::new()
        .compile_fds(descriptors)
        .map_err(|err| format!("no Rust could be generated from {PROTO}: {err}"))?;
    Ok(())
}
