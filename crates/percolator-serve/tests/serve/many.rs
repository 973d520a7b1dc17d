//! Many clients that come and go: slow ones, stalled ones, some that leave in the middle and come again, some
//! whose connections are killed. At the end, each has had what is due to it, and nothing is left of them.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use percolator_serve::{Client, FeedRequest, RemoteLane, Share};
use serde_json::json;

use crate::common::data::{RECORDS, images};
use crate::common::served::Served;
use crate::process::{self, sample};
use crate::proxy::{Proxy, To, Trouble};
use crate::random::Random;
use crate::seen::{Seen, lanes, spec};
use crate::together::{request, until, until_empty};

/// Clients that are there at one time.
const AT_ONCE: usize = 8;

/// A feed that clients may ask for, and what each of its ranks delivers.
struct Kind {
    request: FeedRequest,
    due: Vec<Vec<Seen>>,
}

/// What a client has had, and which rank of which feed it is.
struct Account {
    kind: usize,
    rank: usize,
    seen: Vec<Seen>,
    /// How many batches were lost before each.
    missed: Vec<u64>,
}

/// A client that does nothing more, until all others are gone.
struct Stalled {
    account: Account,
    lane: RemoteLane,
}

/// A server, and all who use it.
struct Crowd {
    kinds: Vec<Kind>,
    proxy: Proxy,
    served: Served,
    next: AtomicU64,
    clients: u64,
    accounts: Mutex<Vec<Account>>,
    stalled: Mutex<Vec<Stalled>>,
}

fn kinds(served: &Served) -> Vec<Kind> {
    let batches = NonZeroUsize::new(3).unwrap();
    let in_step = |clients| Share::InStep { clients: NonZeroUsize::new(clients).unwrap() };
    let one = ["host:0"].as_slice();
    let all = [
        (one, 2, Share::Divided),
        (["host:0", "host:1"].as_slice(), 3, Share::Divided),
        (one, 2, in_step(1)),
        (one, 3, in_step(2)),
        (one, 3, Share::Windowed { batches }),
    ];
    let kinds = all.into_iter().map(|(devices, epochs, share)| {
        let schedule = json!({"epochs": epochs, "shuffle": {"by": "global"}});
        let feed = spec(images(json!({"devices": devices, "schedule": schedule})));
        Kind { request: request(&feed).share(share), due: lanes(&served.root(), &feed, usize::MAX) }
    });
    kinds.collect()
}

impl Crowd {
    fn new(clients: u64) -> Self {
        // Nobody who does nothing is waited for long.
        let soon = Duration::from_millis(400);
        let served = Served::start(|builder, _| builder.patience(soon).join_within(soon));
        Crowd {
            kinds: kinds(&served),
            proxy: Proxy::new(served.server.addresses()[0]),
            served,
            next: AtomicU64::new(0),
            clients,
            accounts: Mutex::default(),
            stalled: Mutex::default(),
        }
    }

    fn run(&self) {
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    loop {
                        let number = self.next.fetch_add(1, Ordering::Relaxed);
                        if number >= self.clients {
                            return;
                        }
                        self.client(&mut Random::new(number));
                    }
                });
            }
        });
        // Those who stalled were let go, and go on.
        for Stalled { mut account, mut lane } in self.stalled.lock().unwrap().drain(..) {
            account.take(&mut lane, usize::MAX);
            self.accounts.lock().unwrap().push(account);
        }
    }

    /// One client, from its coming to its going.
    fn client(&self, random: &mut Random) {
        let kind = random.one_of(&[0, 1, 2, 3, 4]);
        let rank = usize::from(self.kinds[kind].due.len() > 1 && random.once_in(2));
        let url = if random.once_in(2) { self.proxy.url() } else { self.served.url() };
        if random.once_in(3) {
            self.proxy.trouble([trouble(random), trouble(random)]);
        }
        let window = NonZeroUsize::new(1 + usize::from(random.once_in(2))).unwrap();
        // It may be cut off before it has asked: only lanes try again.
        let connect = || Client::builder(&*url).window(window).connect();
        let open = || connect().and_then(|client| client.open(&self.kinds[kind].request));
        let feed = until("an answer", open, Result::is_ok).unwrap();
        let mut lane = feed.lane(rank).unwrap();
        let mut account = Account { kind, rank, seen: Vec::new(), missed: Vec::new() };
        match random.within(0..6) {
            // It leaves in the middle, and comes again elsewhere.
            0 => {
                account.take(&mut lane, 1 + random.within(0..9));
                lane.acknowledge();
                let ticket = lane.ticket();
                drop((lane, feed));
                let client = || Client::connect(&self.served.url());
                let client = until("a connection", client, Result::is_ok).unwrap();
                lane = client.resume(&ticket).unwrap();
            }
            1 => {
                account.take(&mut lane, random.within(0..4));
                self.stalled.lock().unwrap().push(Stalled { account, lane });
                return;
            }
            // It kills whoever uses the proxy.
            2 => {
                account.take(&mut lane, 1 + random.within(0..9));
                self.proxy.cut_all();
            }
            // It is slow.
            3 => {
                for _ in 0..3 {
                    account.take(&mut lane, 1);
                    for _ in 0..random.within(0..2000) {
                        thread::yield_now();
                    }
                }
            }
            // It leaves for ever.
            4 => account.take(&mut lane, random.within(0..5)),
            _ => {}
        }
        if random.once_in(4) {
            // What it has had is a part.
            self.check_part(&account);
            return;
        }
        account.take(&mut lane, u64::MAX);
        self.accounts.lock().unwrap().push(account);
    }

    /// Checks what a client has had, in order: all that followed what it began with.
    fn check_part(&self, account: &Account) -> usize {
        let due = &self.kinds[account.kind].due[account.rank];
        let Some(first) = account.seen.first() else { return 0 };
        let begin = due.iter().position(|due| due == first).expect("it is one of the feed's batches");
        let mut at = begin;
        for (number, seen) in account.seen.iter().enumerate() {
            at += if number == 0 { 0 } else { 1 + usize::try_from(account.missed[number]).unwrap() };
            assert_eq!(*seen, due[at], "{:?}, batch {number}", self.kinds[account.kind].request.share);
        }
        at + 1
    }

    fn check_all(&self) {
        let accounts = self.accounts.lock().unwrap();
        assert!(!accounts.is_empty());
        for account in &*accounts {
            let Kind { request, due } = &self.kinds[account.kind];
            let (share, due) = (request.share, &due[account.rank]);
            if account.seen.is_empty() {
                // Who comes when all is over gets nothing, unless all of it is its own.
                assert_ne!(share, Share::Divided);
                continue;
            }
            assert_eq!(self.check_part(account), due.len(), "{share:?}: it goes on to the end");
            match share {
                Share::Divided => assert_eq!(account.seen, *due),
                Share::Windowed { .. } => {}
                // Who comes late begins later.
                _ => assert!(due.ends_with(&account.seen), "{share:?}"),
            }
            let mut records: Vec<_> = account.seen.iter().flat_map(|seen| seen.records.iter()).collect();
            records.sort_unstable();
            assert!(records.is_sorted_by(|one, next| one < next), "a record came twice");
        }
        let of_whole = accounts.iter().filter(|account| account.kind == 0);
        for account in of_whole {
            let records: usize = account.seen.iter().map(|seen| seen.records.len()).sum();
            assert_eq!(records, 2 * usize::from(RECORDS), "each record once an epoch");
        }
    }
}

impl Account {
    fn take(&mut self, lane: &mut RemoteLane, most: impl TryInto<usize>) {
        for batch in lane.take(most.try_into().unwrap_or(usize::MAX)) {
            let batch = batch.unwrap();
            self.missed.push(batch.missed());
            self.seen.push(Seen::remote(&batch));
        }
    }
}

fn trouble(random: &mut Random) -> Trouble {
    let at = random.within(0..20_000);
    match random.within(0..4) {
        0 => Trouble::Cut(To::Server, at / 8),
        1 => Trouble::Crumbs(1 + usize::try_from(at / 100).unwrap()),
        _ => Trouble::Cut(To::Client, at),
    }
}

/// A server with so many clients, from its start to its end.
fn session(clients: u64) {
    let crowd = Crowd::new(clients);
    let files = process::open_files();
    crowd.run();
    crowd.check_all();
    let status = until_empty(&crowd.served.server);
    assert!(status.streams_total > 0, "{status:?}");
    // The server's own files are still open, and those of its listener and of the proxy's.
    until("files of a server without clients", process::open_files, |&open| open <= files);
}

#[test]
fn clients_come_and_go_and_nothing_is_left() {
    // Threads and files are counted, and other tests have some.
    if !process::is_alone(process::this_test!()) {
        return;
    }
    let threads = process::threads();
    let all_gone = |what: &str| {
        until(what, process::threads, |&count| count <= threads);
        process::open_files()
    };
    // What is made once and stays is made here.
    session(4);
    let files = all_gone("threads after the first server");
    session(sample::times(200, 40));
    let left = all_gone("threads after the second server");
    assert!(left <= files, "{left} files are open, and {files} were before");
}
