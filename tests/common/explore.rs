//! Runs a scenario under many schedules. Shared by `tests/model/` and the library's `model` modules.

use std::sync::Arc;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

/// Schedules that each scheduler tries, unless `MODEL_SCHEDULES` is set.
const SCHEDULES: usize = 10_000;
/// Preemptions that PCT places: most bugs need fewer.
const DEPTH: usize = 3;
/// The checker's own stacks are too small for a formatted error.
const STACK_BYTES: usize = 256 * 1024;

/// Runs `scenario` under random schedules, then under those of PCT, which switches threads seldom but
/// anywhere. Every thread of a scenario must end. A schedule in which one waits for ever, or panics, fails,
/// and is printed so that `shuttle::replay` can repeat it.
pub(crate) fn explore(scenario: impl Fn() + Send + Sync + 'static) {
    explore_a_share(1, scenario);
}

/// Like [`explore`], under a share of the schedules: one in `of`, for a scenario of many steps.
pub(crate) fn explore_a_share(of: usize, scenario: impl Fn() + Send + Sync + 'static) {
    let schedules =
        std::env::var("MODEL_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(SCHEDULES);
    let schedules = (schedules / of).max(2);
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    let scenario = Arc::new(scenario);
    let again = scenario.clone();
    Runner::new(RandomScheduler::new(schedules), config.clone()).run(move || again());
    Runner::new(PctScheduler::new(DEPTH, schedules), config).run(move || scenario());
}
