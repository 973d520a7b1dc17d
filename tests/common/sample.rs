//! How much of a long test runs. `PERCOLATOR_TEST_ALL=1`, as CI has it, runs whole sweeps: damage at every
//! byte, hundreds of kills, all seeds. Without it, a sample of each runs, the same every time.
#![allow(dead_code, unreachable_pub, reason = "every test file has sweeps of its own")]

/// Whether whole sweeps run.
pub fn is_all() -> bool {
    std::env::var("PERCOLATOR_TEST_ALL").is_ok_and(|value| value == "1")
}

/// How often a test does something: `all` times, or `some`.
pub fn times<N>(all: N, some: N) -> N {
    if is_all() { all } else { some }
}

/// All items of a sweep; or of a sample, the first, the last, and each that is so many `apart`.
pub fn some_of<T>(sweep: impl IntoIterator<Item = T>, apart: usize) -> impl Iterator<Item = T> {
    some_with(sweep, apart, |_| false)
}

/// The same, with each item that `is_edge`: where something ends, begins or changes.
pub fn some_with<T>(
    sweep: impl IntoIterator<Item = T>,
    apart: usize,
    is_edge: impl Fn(&T) -> bool,
) -> impl Iterator<Item = T> {
    let apart = times(1, apart);
    let mut sweep = sweep.into_iter().enumerate().peekable();
    std::iter::from_fn(move || {
        while let Some((number, item)) = sweep.next() {
            if number.is_multiple_of(apart) || sweep.peek().is_none() || is_edge(&item) {
                return Some(item);
            }
        }
        None
    })
}
