//! Fuzzes `percolator_fuzz::quarantine`.
#![cfg_attr(fuzzing, no_main)]
#![cfg_attr(fuzzing, allow(unsafe_code, missing_docs, reason = "libFuzzer calls a C function"))]

percolator_fuzz::target!(quarantine);
