//! Locks, channels and threads: the real ones, or the model checker's.
//!
//! Every stage of a feed takes its concurrency primitives from here. So `tests/model/` and the `model`
//! modules (`RUSTFLAGS="--cfg shuttle"`) run the code that ships, under a scheduler that explores
//! interleavings that are rare on a real machine. The model is sequentially consistent: it finds errors that
//! some interleaving of the steps causes, but not those that need a weaker memory ordering. Plain memory that
//! threads share has [`Touches`], which fail a scenario if nothing orders two of them.

#[cfg(shuttle)]
mod model;
#[cfg(not(shuttle))]
mod real;
#[cfg(shuttle)]
mod touches;

#[cfg(shuttle)]
pub(crate) use self::model::*;
#[cfg(not(shuttle))]
pub(crate) use self::real::*;
pub(crate) use percolator_files::shown::panic_message;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Runs for the real queue and the model's: the checker must not count as conserved what the machine
    /// loses.
    #[test]
    fn a_queue_keeps_what_is_in_it_until_both_of_its_ends_have_gone() {
        fn check() {
            let item = Arc::new(());
            let (sender, receiver) = bounded(2);
            sender.send(item.clone()).unwrap();
            drop(receiver);
            assert!(sender.send(item.clone()).is_err(), "nobody will take it");
            assert_eq!(Arc::strong_count(&item), 2, "the last receiver drops nothing");
            drop(sender);
            assert_eq!(Arc::strong_count(&item), 1);
            let (sender, receiver) = bounded(2);
            sender.send(item.clone()).unwrap();
            drop(sender);
            assert!(receiver.recv().is_ok() && receiver.recv().is_err(), "it is drained before it ends");
        }
        // There is only one order of steps, and `explore` requires several.
        #[cfg(shuttle)]
        shuttle::check_random(check, 1);
        #[cfg(not(shuttle))]
        check();
    }
}
