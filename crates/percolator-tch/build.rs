//! Compiles `src/torch.cpp` against the libtorch that torch-sys has found.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=src/torch.cpp");
    for name in ["LIBTORCH_INCLUDE", "LIBTORCH_USE_PYTORCH", "LIBTORCH_CXX11_ABI"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    if env::var_os("CARGO_FEATURE_DOC_ONLY").is_some() {
        return Ok(());
    }
    let libraries = env::var_os("DEP_TCH_LIBTORCH_LIB").ok_or(
        "torch-sys does not say where libtorch is: it does so on Linux and macOS, unless it is built with \
         its feature doc-only",
    )?;
    let libraries = Path::new(&libraries);
    let headers = headers(libraries).ok_or_else(|| {
        format!(
            "found no ATen/DLConvertor.h beside {}: set LIBTORCH_INCLUDE to the folder in which libtorch's \
             include is, or LIBTORCH_USE_PYTORCH=1 for the libtorch of PyTorch's wheel",
            libraries.display()
        )
    })?;
    // Every libtorch that tch 0.22 and later take is built with the newer ABI, unless somebody has built it
    // otherwise, and then says so to torch-sys by this variable.
    let abi = is_chosen().then(|| env::var("LIBTORCH_CXX11_ABI").ok()).flatten();
    cc::Build::new()
        .cpp(true)
        .pic(true)
        .std("c++17")
        .warnings(false)
        .include(headers)
        .define("_GLIBCXX_USE_CXX11_ABI", abi.as_deref().unwrap_or("1"))
        .file("src/torch.cpp")
        .try_compile("percolator_tch")?;
    // The tests, examples and benches of this package find libtorch by themselves. Programs that depend on it
    // do not: cargo hands no such option on.
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", libraries.display());
    Ok(())
}

/// Whether libtorch is chosen by variables, and not by Python.
fn is_chosen() -> bool {
    env::var_os("LIBTORCH_USE_PYTORCH").is_none()
}

/// Where torch-sys looks for them as well.
fn headers(libraries: &Path) -> Option<PathBuf> {
    let chosen = env::var_os("LIBTORCH_INCLUDE").filter(|_| is_chosen());
    let root = chosen.map_or_else(|| libraries.parent().map(Path::to_owned), |root| Some(root.into()))?;
    Some(root.join("include")).filter(|headers| headers.join("ATen/DLConvertor.h").exists())
}
