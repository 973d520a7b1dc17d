//! Fuzzes `percolator_fuzz::convert_state`.
#![cfg_attr(fuzzing, no_main)]
#![cfg_attr(fuzzing, allow(unsafe_code, missing_docs, reason = "libFuzzer calls a C function"))]

percolator_fuzz::target!(convert_state);
