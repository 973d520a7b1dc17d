//! A feed in burn: tensors over a batch's memory, a data loader on one device and on several, and burn's
//! `Learner` with it. What is delivered is compared with what the feed delivers without burn.

#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a test that cannot go on has failed")]

mod learner;
mod loader;
mod made;
mod parts;
mod steps;
mod tensors;
