//! Backlogs of numbers, each of which is its own step.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbered(u64);

impl Kept for Numbered {
    fn step(&self) -> Option<StepEnd> {
        Some(StepEnd { epoch: 0, step: self.0, is_last: false })
    }
}

/// Counts how often a task is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Bench {
    backlog: Arc<Backlog<Numbered>>,
    woken: Arc<Woken>,
    begin: Instant,
    put: u64,
}

impl Bench {
    fn new(pace: Pace, room: usize, awaited: usize) -> Self {
        let backlog = Arc::new(Backlog::new(pace, room, awaited, StepId::default()));
        Bench { backlog, woken: Arc::default(), begin: Instant::now(), put: 0 }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.begin + Duration::from_secs(seconds)
    }

    fn join(&self, window: usize) -> Place<Numbered> {
        self.backlog.join(window, self.begin)
    }

    fn has_room(&self) -> bool {
        let waker = self.woken.clone().into();
        self.backlog.poll_room(&mut Context::from_waker(&waker)).is_ready()
    }

    /// Puts batches in for as long as there is room.
    fn fill(&mut self, most: usize) {
        for _ in 0..most {
            if !self.has_room() {
                return;
            }
            self.backlog.put(Numbered(self.put));
            self.put += 1;
        }
    }

    /// What a client gets now: a batch with its number and what was missed before it, or nothing yet.
    fn next(&self, place: &Place<Numbered>) -> Option<(u64, u64, u64)> {
        match self.poll(place) {
            Poll::Ready(Some(Ok(taken))) => Some((taken.batch.0, taken.number, taken.missed)),
            Poll::Pending => None,
            other => panic!("{other:?}"),
        }
    }

    fn poll(&self, place: &Place<Numbered>) -> Poll<Option<Result<Taken<Numbered>, Status>>> {
        let waker = self.woken.clone().into();
        place.poll_next(&mut Context::from_waker(&waker), self.begin)
    }

    fn woken(&self) -> usize {
        self.woken.0.swap(0, Ordering::Relaxed)
    }
}

#[test]
fn a_batch_is_kept_until_its_client_acknowledges_it() {
    let mut bench = Bench::new(Pace::OfSlowest, 2, 1);
    let place = bench.join(2);
    bench.fill(9);
    assert_eq!((bench.put, bench.next(&place), bench.next(&place)), (2, Some((0, 0, 0)), Some((1, 1, 0))));
    assert!(bench.next(&place).is_none() && !bench.has_room());
    assert_eq!(place.held(), 2);
    bench.woken();
    place.acknowledge(0, bench.begin).unwrap();
    assert!(bench.woken() >= 1, "the pump has room");
    bench.fill(9);
    assert_eq!((bench.put, bench.next(&place)), (3, Some((2, 2, 0))));
    // Once is enough, and the last one stands for those before it.
    place.acknowledge(2, bench.begin).unwrap();
    place.acknowledge(1, bench.begin).unwrap();
    assert_eq!(place.held(), 0);
}

#[test]
fn a_batch_that_was_not_sent_cannot_be_acknowledged() {
    let mut bench = Bench::new(Pace::OfSlowest, 2, 1);
    let place = bench.join(2);
    bench.fill(1);
    bench.next(&place);
    let error = place.acknowledge(1, bench.begin).unwrap_err();
    assert_eq!(error.message, "batch 1 was acknowledged, and 1 were sent in this stream");
    assert!(matches!(bench.poll(&place), Poll::Ready(Some(Err(status))) if status == error));
}

#[test]
fn the_first_batch_waits_for_all_who_are_awaited_or_for_no_one() {
    for comes in [true, false] {
        let mut bench = Bench::new(Pace::OfSlowest, 2, 2);
        let first = bench.join(2);
        bench.fill(9);
        assert!(bench.next(&first).is_none());
        // Nobody is let go while others are waited for.
        bench.backlog.look(bench.at(1000), Duration::from_secs(1));
        let second = comes.then(|| bench.join(2));
        if !comes {
            bench.backlog.open();
        }
        assert!(bench.woken() >= 1);
        assert_eq!(bench.next(&first), Some((0, 0, 0)));
        assert!(second.is_none_or(|second| bench.next(&second) == Some((0, 0, 0))));
    }
}

#[test]
fn who_does_nothing_is_let_go_and_no_longer_holds_others() {
    let mut bench = Bench::new(Pace::OfSlowest, 1, 2);
    let (fast, slow) = (bench.join(1), bench.join(1));
    bench.fill(1);
    assert!(bench.next(&fast).is_some());
    fast.acknowledge(0, bench.at(5)).unwrap();
    assert!(!bench.has_room());
    bench.backlog.look(bench.at(10), Duration::from_secs(10));
    assert!(!bench.has_room(), "it is patient");
    bench.backlog.look(bench.at(11), Duration::from_secs(10));
    assert!(bench.has_room());
    let Poll::Ready(Some(Err(status))) = bench.poll(&slow) else { panic!("it is still waited for") };
    assert_eq!(status.code, Code::DeadlineExceeded);
    assert!(status.message.contains("while the next one waited for it"), "{status}");
    // It is hung up on only if it stays.
    assert!(!slow.stays(bench.at(11)));
    bench.backlog.look(bench.at(11), Duration::from_secs(10));
    assert!(slow.stays(bench.at(13)) && !fast.stays(bench.at(13)));
    // The other waited for nothing that it could have done.
    bench.fill(1);
    assert_eq!(bench.next(&fast), Some((1, 1, 0)));
}

#[test]
fn a_client_that_leaves_frees_what_was_kept_for_it() {
    let mut bench = Bench::new(Pace::OfSlowest, 1, 2);
    let (one, other) = (bench.join(1), bench.join(1));
    bench.fill(1);
    assert!(bench.next(&one).is_some());
    one.acknowledge(0, bench.begin).unwrap();
    assert!(!bench.has_room());
    drop(other);
    assert!(bench.has_room());
}

#[test]
fn the_end_comes_after_the_last_batch() {
    for outcome in [Ok(()), Err(Status::new(Code::DataLoss, "damaged"))] {
        let mut bench = Bench::new(Pace::OfSlowest, 2, 1);
        let place = bench.join(2);
        bench.fill(1);
        bench.backlog.end(outcome.clone());
        assert_eq!(bench.next(&place), Some((0, 0, 0)));
        match (bench.poll(&place), outcome) {
            (Poll::Ready(None), Ok(())) => {}
            (Poll::Ready(Some(Err(found))), Err(due)) => assert_eq!(found, due),
            other => panic!("{other:?}"),
        }
        assert!(!bench.backlog.is_live() && !bench.backlog.is_untouched());
    }
}

#[test]
fn who_comes_after_a_short_lane_has_ended_gets_all_of_it() {
    let mut bench = Bench::new(Pace::OfSlowest, 2, 1);
    bench.fill(2);
    bench.backlog.end(Ok(()));
    assert!(bench.backlog.is_untouched());
    let place = bench.join(2);
    assert_eq!((bench.next(&place), bench.next(&place)), (Some((0, 0, 0)), Some((1, 1, 0))));
}

#[test]
fn a_lane_that_nobody_takes_is_given_up_and_its_pump_is_told() {
    let mut bench = Bench::new(Pace::OfSlowest, 2, 1);
    let minute = Duration::from_secs(60);
    bench.fill(9);
    assert!(!bench.has_room());
    bench.woken();
    bench.backlog.look(bench.at(0), minute);
    assert!(!bench.backlog.is_deserted(bench.at(60), minute));
    assert!(bench.backlog.is_deserted(bench.at(61), minute));
    // Who came and left has been here.
    drop(bench.join(1));
    bench.backlog.look(bench.at(62), minute);
    assert!(!bench.backlog.is_deserted(bench.at(122), minute));
    let place = bench.join(1);
    bench.backlog.look(bench.at(70), minute);
    assert!(!bench.backlog.is_deserted(bench.at(999), minute));
    drop(place);
    bench.backlog.look(bench.at(80), minute);
    assert!(!bench.backlog.is_deserted(bench.at(140), minute));
    assert!(bench.backlog.is_deserted(bench.at(141), minute) && !bench.has_room());
    bench.woken();
    bench.backlog.dismiss(&Status::new(Code::Unavailable, "nobody came"));
    assert_eq!(bench.woken(), 1, "the pump drops the lane");
    assert!(bench.has_room() && !bench.backlog.is_live() && !bench.backlog.is_untouched());
}

#[test]
fn who_is_kept_waiting_is_not_let_go_for_it() {
    let mut bench = Bench::new(Pace::OfSlowest, 4, 1);
    let place = bench.join(4);
    bench.fill(2);
    bench.next(&place);
    place.excuse(bench.at(100));
    place.acknowledge(0, bench.at(1)).unwrap();
    let patience = Duration::from_secs(10);
    bench.backlog.look(bench.at(110), patience);
    assert!(!place.is_let_go());
    let waker = bench.woken.clone().into();
    assert!(place.poll_dismissed(&mut Context::from_waker(&waker)).is_pending());
    bench.woken();
    bench.backlog.look(bench.at(111), patience);
    assert!(place.is_let_go() && bench.woken() == 1);
    let Poll::Ready(status) = place.poll_dismissed(&mut Context::from_waker(&waker)) else { panic!() };
    assert_eq!(status.code, Code::DeadlineExceeded);
}

#[test]
fn a_client_joins_at_a_step_that_is_kept_or_the_next() {
    let mut bench = Bench::new(Pace::OfSlowest, 3, 1);
    let place = bench.join(3);
    bench.fill(9);
    bench.next(&place);
    place.acknowledge(0, bench.begin).unwrap();
    let join = |step| bench.backlog.join_step(StepId { epoch: 0, step }, 1, bench.begin);
    let first = |place: &Place<Numbered>| bench.next(place).map(|(batch, number, _)| (batch, number));
    assert!(join(0).is_none() && join(4).is_none());
    assert_eq!(first(&join(1).unwrap()), Some((1, 0)));
    assert_eq!(first(&join(2).unwrap()), Some((2, 0)));
    assert_eq!(first(&join(3).unwrap()), None);
}

#[test]
fn a_client_that_is_to_get_all_joins_while_the_first_batch_is_kept() {
    let mut bench = Bench::new(Pace::OfSlowest, 3, 1);
    let place = bench.join(3);
    bench.fill(9);
    bench.next(&place);
    let join = |bench: &Bench| bench.backlog.join_first(1, bench.begin);
    assert_eq!(bench.next(&join(&bench).unwrap()), Some((0, 0, 0)));
    place.acknowledge(0, bench.begin).unwrap();
    assert!(join(&bench).is_none());
}

#[test]
fn the_next_step_is_known_when_nothing_is_kept() {
    let join = |bench: &Bench, step| bench.backlog.join_step(StepId { epoch: 0, step }, 1, bench.begin);
    let mut bench = Bench::new(Pace::OfSlowest, 2, 1);
    assert!(join(&bench, 0).is_some() && join(&bench, 1).is_none());
    let place = bench.join(1);
    bench.fill(1);
    bench.next(&place);
    place.acknowledge(0, bench.begin).unwrap();
    assert!(join(&bench, 0).is_none() && join(&bench, 1).is_some());
    // A lane that was given up goes on with nobody, and keeps nothing.
    bench.backlog.dismiss(&Status::new(Code::Unavailable, "nobody came"));
    bench.backlog.put(Numbered(1));
    assert!(join(&bench, 1).is_none() && join(&bench, 2).is_none());
    assert!(bench.backlog.state.lock().kept.is_empty());
}

#[test]
fn who_is_slow_misses_what_is_no_longer_kept() {
    let mut bench = Bench::new(Pace::OfFastest, 2, 1);
    let (fast, slow) = (bench.join(1), bench.join(2));
    bench.fill(2);
    assert_eq!(bench.next(&slow), Some((0, 0, 0)));
    for batch in 0..5 {
        assert_eq!(bench.next(&fast), Some((batch, batch, 0)));
        fast.acknowledge(batch, bench.begin).unwrap();
        bench.fill(1);
    }
    // The fastest is at most so far behind: 5 and 6 are kept.
    assert_eq!((bench.put, bench.has_room()), (7, false));
    assert_eq!(bench.next(&slow), Some((5, 1, 4)));
    // It holds as many as it may, also of those that are long gone.
    assert_eq!(bench.next(&slow), None);
    slow.acknowledge(0, bench.begin).unwrap();
    assert_eq!(bench.next(&slow), Some((6, 2, 0)));
    assert_eq!(slow.held(), 2);
    slow.acknowledge(2, bench.begin).unwrap();
    assert_eq!(slow.held(), 0);
}

/// What clients and pump do, drawn at random.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Put,
    Take(usize),
    Acknowledge(usize),
    Leave(usize),
    Join,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        4 => Just(Deed::Put),
        4 => (0..4_usize).prop_map(Deed::Take),
        3 => (0..4_usize).prop_map(Deed::Acknowledge),
        1 => (0..4_usize).prop_map(Deed::Leave),
        1 => Just(Deed::Join),
    ];
    proptest::collection::vec(deed, 1..200)
}

proptest! {
    /// Clients in step get every batch from the one that they joined at, in order and once, and no more
    /// batches are kept than there is room for.
    #[test]
    fn each_client_gets_each_batch_once(deeds in deeds(), room in 1..5_usize, window in 1..5_usize) {
        let mut bench = Bench::new(Pace::OfSlowest, room, 1);
        let mut clients: Vec<(Place<Numbered>, Option<u64>, u64)> = vec![(bench.join(window), None, 0)];
        for deed in deeds {
            match deed {
                Deed::Put => bench.fill(1),
                Deed::Join => clients.push((bench.join(window), None, 0)),
                Deed::Leave(at) if clients.len() > 1 => drop(clients.swap_remove(at % clients.len())),
                Deed::Leave(_) => {}
                Deed::Take(at) => {
                    let at = at % clients.len();
                    let (place, last, count) = &mut clients[at];
                    if let Some((batch, number, missed)) = bench.next(place) {
                        // Who joins late has missed all before.
                        prop_assert_eq!((number, missed), (*count, if *count == 0 { batch } else { 0 }));
                        prop_assert!(last.is_none_or(|last| batch == last + 1));
                        (*last, *count) = (Some(batch), *count + 1);
                    }
                }
                Deed::Acknowledge(at) => {
                    let at = at % clients.len();
                    let (place, _, count) = &clients[at];
                    if *count > 0 {
                        place.acknowledge(count - 1, bench.begin).unwrap();
                        prop_assert_eq!(place.held(), 0);
                    }
                }
            }
            let state = bench.backlog.state.lock();
            prop_assert!(state.kept.len() <= room);
            for reader in state.readers.values() {
                prop_assert!(state.first <= reader.needs() && reader.needs() <= reader.next);
                prop_assert!(reader.next <= state.first + state.kept.len() as u64);
            }
        }
    }
}
