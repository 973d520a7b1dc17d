//! A worker process.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use percolator_cluster::leases::{LeaseError, LeasedFeed, LeasedStep};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::notes::{Entry, Noted, Notes};
use crate::role::Role;

/// How long a worker waits until another one of its name, which has died, is over.
const NAME_LIMIT: Duration = Duration::from_secs(60);

/// Does what it is told, and panics if anything fails: the test sees how the process ends.
pub(crate) fn work(role: &str) {
    // Whoever started it may die as well.
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let role: Role = serde_json::from_str(role).unwrap();
    let notes = Arc::new(Notes::new(&role.notes));
    let mut leased = join(&role, &notes);
    let mut steps = 0;
    loop {
        if role.confirm_every.is_none() {
            notes.write(&Entry::Confirms);
        }
        let step = leased.next().transpose().unwrap();
        let Some(step) = step else {
            // What was confirmed by asking counts by now.
            if role.confirm_every.is_none() {
                note_confirmed(&leased, &notes);
            }
            break;
        };
        notes.write(&entry(&step));
        steps += 1;
        // It trains.
        thread::sleep(role.step_time);
        if role.confirm_every.is_some_and(|every| u64::is_multiple_of(steps, every)) {
            confirm(&mut leased, &notes);
        }
        if role.leaves_after.is_some_and(|after| steps >= after) {
            drop(leased);
            notes.write(&Entry::Left);
            return;
        }
    }
    if role.confirm_every.is_some() {
        confirm(&mut leased, &notes);
    }
    drop(leased);
    notes.write(&Entry::Over);
}

/// Joins the job, perhaps under the name of a worker that has died.
fn join(role: &Role, notes: &Arc<Notes>) -> LeasedFeed {
    let records = role.place.open();
    let start = Instant::now();
    loop {
        let noted = Noted { records: records.clone(), notes: notes.clone() };
        match role.leases(Arc::new(noted)).feed(role.feed()) {
            Err(LeaseError::SameName { .. }) if start.elapsed() < NAME_LIMIT => {
                thread::sleep(Duration::from_millis(50));
            }
            joined => return joined.unwrap(),
        }
    }
}

fn confirm(leased: &mut LeasedFeed, notes: &Notes) {
    notes.write(&Entry::Confirms);
    match leased.confirm() {
        Ok(..) => note_confirmed(leased, notes),
        Err(error) => panic!("{error}: {error:?}"),
    }
}

fn note_confirmed(leased: &LeasedFeed, notes: &Notes) {
    let stats = leased.stats();
    notes.write(&Entry::Confirmed { finished: stats.finished, lost: stats.lost });
}

fn entry(step: &LeasedStep) -> Entry {
    let records = step.batches.iter().flat_map(|batch| batch.records());
    Entry::Step {
        epoch: step.step.epoch,
        step: step.step.step,
        block: step.block.number,
        records: records.map(|record| record.index).collect(),
    }
}
