//! Writers of one id, interleaved in any order, one operation at a time; some die, some pause for longer than
//! their lease, and some transactions arrive late, or although nobody heard of it. Whatever happens, the
//! record names a file that is there, bit for bit, and never an older one than before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::{CheckpointError, CheckpointRecord, Checkpoints, Origin};
use percolator_cluster::clock::ManualClock;
use percolator_cluster::metadata::{MemoryMetadata, Metadata, Transaction};
use percolator_cluster::store::{Id, Store};
use proptest::prelude::*;
use uuid::Uuid;

use crate::faults::{Faulty, Judge, Operation, Verdict};
use crate::memory_store::MemoryStore;

const ID: &str = "shard";
const WRITERS: usize = 3;
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug)]
enum Move {
    /// The operation that a writer waits with.
    Run(usize, Verdict),
    /// A writer dies, and another begins in its place.
    Kill(usize),
    /// The lease of whoever holds the id ends.
    EndHold,
    /// A transaction that was late arrives.
    Deliver(usize),
}

fn moves() -> impl Strategy<Value = Move> {
    let writer = 0..WRITERS;
    let verdict = prop_oneof![
        24 => Just(Verdict::Go),
        1 => Just(Verdict::Fail),
        2 => Just(Verdict::Lost),
        2 => Just(Verdict::Later),
    ];
    prop_oneof![
        30 => (writer.clone(), verdict).prop_map(|(writer, verdict)| Move::Run(writer, verdict)),
        1 => writer.prop_map(Move::Kill),
        2 => Just(Move::EndHold),
        1 => (0..8_usize).prop_map(Move::Deliver),
    ]
}

/// Where a writer waits until its next operation is let through.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    waits_with: Option<Operation>,
    verdict: Option<Verdict>,
    is_dead: bool,
    has_ended: bool,
}

impl Gate {
    fn pass(&self, operation: Operation) -> Verdict {
        // Its thread keeps its own time, and does not come in an hour.
        assert_ne!(operation, Operation::KeepAlive);
        let mut state = self.state.lock();
        state.waits_with = Some(operation);
        self.changed.notify_all();
        while state.verdict.is_none() && !state.is_dead {
            self.changed.wait(&mut state);
        }
        state.waits_with = None;
        // The dead do nothing.
        if state.is_dead { Verdict::Fail } else { state.verdict.take().unwrap() }
    }

    fn until_it_waits(&self) {
        let mut state = self.state.lock();
        while (state.waits_with.is_none() || state.verdict.is_some()) && !state.has_ended {
            let timeout = self.changed.wait_for(&mut state, Duration::from_secs(60));
            assert!(!timeout.timed_out(), "a writer hangs");
        }
    }

    fn let_through(&self, verdict: Verdict) {
        self.until_it_waits();
        self.state.lock().verdict = Some(verdict);
        self.changed.notify_all();
        self.until_it_waits();
    }
}

/// What all writers share.
#[derive(Clone)]
struct World {
    metadata: MemoryMetadata,
    store: MemoryStore,
    later: Arc<Mutex<Vec<Transaction>>>,
    /// States have different numbers.
    number: Arc<AtomicU64>,
    /// The bytes of each checkpoint that a record has named.
    named: Arc<Mutex<BTreeMap<Uuid, Vec<u8>>>>,
    keep: usize,
}

fn state_of(number: u64) -> Vec<u8> {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let bytes = 8 + usize::try_from(number % 50).unwrap();
    number.to_le_bytes().into_iter().chain(mixed.to_le_bytes().into_iter().cycle()).take(bytes).collect()
}

fn number_of(state: &[u8]) -> u64 {
    let number = u64::from_le_bytes(state[..8].try_into().unwrap());
    assert_eq!(state, state_of(number), "a state that nobody had");
    number
}

impl World {
    fn record(&self) -> Option<CheckpointRecord> {
        let found = self.metadata.read(&format!("/checkpoints/{ID}")).unwrap();
        found.records.first().map(|record| CheckpointRecord::parse(&record.value).unwrap())
    }

    /// The record names files that are there, whole.
    fn check(&self) {
        let Some(record) = self.record() else { return };
        let files = self.store.files.lock();
        let mut named = self.named.lock();
        assert!(record.kept.len() < self.keep && record.spared.is_empty());
        for entry in record.entries() {
            let bytes = files.get(&(Id::new(ID).unwrap(), entry.uuid));
            let bytes = bytes.unwrap_or_else(|| panic!("the file {} is gone", entry.uuid));
            assert_eq!(entry.bytes, Some(bytes.len() as u64));
            number_of(bytes);
            let before = named.entry(entry.uuid).or_insert_with(|| bytes.clone());
            assert_eq!(before, bytes, "a file has changed");
        }
    }

    fn begin(&self, gate: Option<&Arc<Gate>>) -> Result<Checkpoints<Vec<u8>>, CheckpointError> {
        let judge: Judge = match gate.cloned() {
            Some(gate) => Arc::new(move |operation| gate.pass(operation)),
            None => Arc::new(|_| Verdict::Go),
        };
        let store: Arc<dyn Store> = Arc::new(self.store.clone());
        let metadata: Arc<dyn Metadata> = Arc::new(self.metadata.clone());
        let later = self.later.clone();
        let store = Arc::new(Faulty { later: later.clone(), ..Faulty::new(store, judge.clone()) });
        let metadata = Arc::new(Faulty { later, ..Faulty::new(metadata, judge) });
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        Checkpointer::new(store, metadata, ID)?
            .keep(self.keep)
            .every(HOUR)
            .ttl(HOUR)
            .wait(Duration::ZERO)
            .pauses(HOUR, HOUR)
            .restore(|| state_of(number))
    }

    /// What a writer does until it dies: it begins, and saves until it is told that it is superseded.
    fn write(&self, gate: &Arc<Gate>) {
        let is_dead = || gate.state.lock().is_dead;
        while !is_dead() {
            let had_record = !self.named.lock().is_empty();
            let Ok(checkpoints) = self.begin(Some(gate)) else { continue };
            let state = checkpoints.state().read().clone();
            match &checkpoints.restored().origin {
                Origin::Newest(entry) => assert_eq!(self.named.lock()[&entry.uuid], state),
                origin => assert!(*origin == Origin::Initial && !had_record, "{:?}", checkpoints.restored()),
            }
            while !is_dead() {
                let number = self.number.fetch_add(1, Ordering::Relaxed);
                *checkpoints.state().write() = state_of(number);
                let saved = checkpoints.save_now();
                if matches!(saved, Err(CheckpointError::Superseded { .. } | CheckpointError::Ended)) {
                    break;
                }
            }
        }
    }
}

struct Writers {
    world: World,
    gates: Vec<Arc<Gate>>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    fn start(&mut self) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        let (world, own) = (self.world.clone(), gate.clone());
        self.threads.push(thread::spawn(move || {
            struct Ends(Arc<Gate>);
            impl Drop for Ends {
                fn drop(&mut self) {
                    self.0.state.lock().has_ended = true;
                    self.0.changed.notify_all();
                }
            }
            let ends = Ends(own);
            world.write(&ends.0);
        }));
        gate.until_it_waits();
        gate
    }

    fn kill(&self, writer: usize) {
        self.gates[writer].state.lock().is_dead = true;
        self.gates[writer].changed.notify_all();
    }

    fn make(&mut self, what: Move) {
        match what {
            Move::Run(writer, verdict) => {
                let gate = &self.gates[writer];
                // An id that others hold is asked for until the script says something else.
                let operation = gate.state.lock().waits_with;
                // That a file which cannot be read is passed over is another test's subject.
                let is_read = matches!(operation, Some(Operation::Open | Operation::Write));
                let verdict = if is_read { Verdict::Go } else { verdict };
                if !gate.state.lock().has_ended {
                    gate.let_through(verdict);
                }
            }
            Move::Kill(writer) => {
                self.kill(writer);
                let gate = &self.gates[writer];
                let mut state = gate.state.lock();
                while !state.has_ended {
                    gate.changed.wait(&mut state);
                }
                drop(state);
                self.gates[writer] = self.start();
            }
            Move::EndHold => {
                let held = self.world.metadata.read("/checkpoints-held/").unwrap();
                if let Some(lease) = held.records.first().and_then(|record| record.lease) {
                    self.world.metadata.revoke(lease).unwrap();
                }
            }
            Move::Deliver(number) => {
                let mut later = self.world.later.lock();
                if number < later.len() {
                    // It may be refused, and nobody hears of it.
                    let _ = self.world.metadata.transact(&later.remove(number));
                }
            }
        }
    }
}

fn play(script: &[Move], keep: usize) {
    let world = World {
        metadata: MemoryMetadata::with_clock(ManualClock::new()),
        store: MemoryStore::default(),
        later: Arc::default(),
        number: Arc::default(),
        named: Arc::default(),
        keep,
    };
    let mut writers = Writers { world: world.clone(), gates: Vec::new(), threads: Vec::new() };
    for _ in 0..WRITERS {
        let gate = writers.start();
        writers.gates.push(gate);
    }
    let mut newest = Vec::new();
    for &what in script {
        writers.make(what);
        world.check();
        let now = world.record().map(|record| record.newest.uuid);
        if now != newest.last().copied() {
            newest.extend(now);
            assert_eq!(newest.iter().collect::<BTreeSet<_>>().len(), newest.len(), "an older one came back");
        }
    }
    (0..WRITERS).for_each(|writer| writers.kill(writer));
    writers.threads.drain(..).for_each(|thread| thread.join().unwrap());
    world.check();
    writers.make(Move::EndHold);
    // Whoever comes next finds the last one whose record was put, and leaves nothing else.
    let checkpoints = world.begin(None).unwrap();
    match world.record() {
        Some(record) => {
            assert_eq!(checkpoints.restored().origin, Origin::Newest(record.newest.clone()));
            assert_eq!(*checkpoints.state().read(), world.named.lock()[&record.newest.uuid]);
        }
        None => assert_eq!(checkpoints.restored().origin, Origin::Initial),
    }
    let named = |record: CheckpointRecord| record.entries().map(|entry| entry.uuid).collect::<BTreeSet<_>>();
    let files = || world.store.names(ID).into_iter().collect::<BTreeSet<_>>();
    assert_eq!(files(), world.record().map(named).unwrap_or_default());
    checkpoints.save_now().unwrap();
    assert_eq!(files(), named(world.record().unwrap()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_last_checkpoint_that_counts_is_always_there(
        script in prop::collection::vec(moves(), 1..250),
        keep in 1..4_usize,
    ) {
        play(&script, keep);
    }
}

/// Most scripts should get somewhere.
#[test]
fn an_undisturbed_writer_saves_and_cleans() {
    let go = |writer, count| std::iter::repeat_n(Move::Run(writer, Verdict::Go), count);
    let script: Vec<_> = go(0, 60).chain([Move::EndHold]).chain(go(1, 60)).chain(go(0, 20)).collect();
    play(&script, 2);
}
