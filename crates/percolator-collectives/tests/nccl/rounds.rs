//! Rounds bring what each gave, and the driver has nothing to complain of.

use super::*;
use crate::collectives::{
    rounds_bring_what_each_gave, run, uneven_rounds_are_errors_for_all, who_has_given_may_leave,
};
use crate::common::process::this_test;
use crate::standin::Standin;

#[test]
fn a_collective_over_nccl_keeps_its_promises() {
    let Some(_nccl) = alone(this_test!()) else { return };
    for size in [1, 2, 4] {
        run(joined(size, PATIENCE), |end| rounds_bring_what_each_gave(&end));
    }
    for (words, more) in [(1, 2), (28, 29), (29, 5000)] {
        run(joined(3, PATIENCE), move |end| uneven_rounds_are_errors_for_all(&end, words, more));
    }
    run(joined(3, PATIENCE), |end| who_has_given_may_leave(end, None));
    run(joined(4, PATIENCE), |end| who_has_given_may_leave(end, Some("the disk is full")));
    let report = Standin::open().take_report();
    assert!(report.violations.is_empty(), "{report:?}");
}
